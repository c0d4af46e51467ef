"""Cases of com.microsoft's fused activations."""

import math

import numpy as np

from sardonyx.dtypes import FLOATS
from tests.ops.cases import case, f32, refuse

CONTRIB = "com.microsoft"
X = f32(2, 3, 4, low=-4, high=4)


def each(function, values):
    return np.vectorize(function, otypes=[np.float64])(values)


def gelu(x):
    return x * math.erfc(-x / math.sqrt(2)) / 2


def fast_gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def quick_gelu(x, alpha):
    return x / (1 + math.exp(-alpha * x))


BOTH = {"domain": CONTRIB, "types": {"T": FLOATS}}
PEER = {"domain": CONTRIB, "against_onnxruntime": True}
case("Gelu", X=X, **BOTH, expect=lambda X: each(gelu, X))
case("Gelu", X=X, **PEER, expect=lambda X: each(gelu, X))
case("Gelu", X=f32(), **PEER, expect=lambda X: each(gelu, X))
case("QuickGelu", X=X, **BOTH, expect=lambda X: each(lambda x: quick_gelu(x, 1.702), X))
case("QuickGelu", X=X, alpha=1.0, **PEER, expect=lambda X: each(lambda x: quick_gelu(x, 1.0), X))
case("FastGelu", X=X, **BOTH, expect=lambda X: each(fast_gelu, X))
case("FastGelu", X=X, bias=f32(4), **PEER, expect=lambda X, bias: each(fast_gelu, X.astype(np.float64) + bias))
case("BiasGelu", A=X, B=f32(4), **PEER, expect=lambda A, B: each(gelu, A.astype(np.float64) + B))
case("BiasGelu", A=X, B=f32(4), **BOTH, atol=3e-2, expect=lambda A, B: each(gelu, A.astype(np.float64) + B))
for op in ("Gelu", "QuickGelu", "FastGelu"):
    case(op, X=f32(0, 3), domain=CONTRIB, expect=np.zeros((0, 3)))
    case(op, X=np.array([np.inf, np.nan], np.float32), domain=CONTRIB, expect=[np.inf, np.nan])
refuse("BiasGelu", A=X, B=f32(3), domain=CONTRIB, match="broadcast")
