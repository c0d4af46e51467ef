"""Cases of com.microsoft's fused matrix products and convolutions."""

import math

import numpy as np

from sardonyx.dtypes import FLOATS, float16, float32, float64
from tests.ops.cases import case, f32, i32, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}

# --- FusedMatMul


def product(A, B, transA=0, transB=0, transBatchA=0, transBatchB=0, alpha=1.0):
    """By einsum, with the places of rows, columns and batch axes spelled out."""
    left, right = placed("ik", A.ndim, transA, transBatchA), placed("kj", B.ndim, transB, transBatchB)
    batch = "abcd"[: max(A.ndim, B.ndim) - 2]
    return np.einsum(f"{left},{right}->{batch}ij", A, B) * np.float32(alpha)


def placed(matrix, rank, transposed, batched):
    first, second = matrix[::-1] if transposed else matrix
    batch = "abcd"[: rank - 2]
    return first + batch + second if batched else batch + first + second


for transA, transB in ((0, 0), (0, 1), (1, 0), (1, 1)):
    A = f32(*((4, 3) if transA else (3, 4)))
    B = f32(*((5, 4) if transB else (4, 5)))
    trans = {"transA": transA, "transB": transB}
    case("FusedMatMul", A=A, B=B, **trans, alpha=0.25, **BOTH, expect=product)
    case("TransposeMatMul", A=A, B=B, **trans, alpha=0.25, **BOTH, expect=product)
    batched = {"A": np.stack([A] * 2), "B": np.stack([B * n for n in (1, 2)])}
    case("FusedMatMul", **batched, **trans, **BOTH, expect=product)
    before = {"A": np.moveaxis(f32(2, 3, *A.shape), 2, 0), "B": np.moveaxis(f32(2, 3, *B.shape), 2, 0)}
    case("FusedMatMul", **before, **trans, transBatchA=1, transBatchB=1, **BOTH, expect=product)
    case("FusedMatMul", A=before["A"], B=f32(2, 3, *B.shape), **trans, transBatchA=1, alpha=2.0, **BOTH, expect=product)
case("FusedMatMul", A=f32(2, 3, 4), B=f32(2, 4, 5), types={"T": FLOATS}, domain=CONTRIB, expect=product, rtol=2e-2, atol=2e-2)
case("FusedMatMul", A=f32(3, 4), B=f32(2, 5, 4), transB=1, **BOTH)
case("FusedMatMul", A=f32(4), B=f32(5, 4), transA=1, transB=1, **BOTH, expect=lambda A, B: B @ A)
case("FusedMatMul", A=f32(5, 4), B=f32(4), transB=1, **BOTH, expect=lambda A, B: A @ B)
case("FusedMatMul", A=f32(1, 1), B=f32(1, 1), transA=1, **BOTH, expect=lambda A, B: A * B)
case("FusedMatMul", A=f32(0, 4), B=f32(5, 4), transB=1, domain=CONTRIB, expect=np.zeros((0, 5), np.float32))
case("FusedMatMul", A=f32(3, 0), B=f32(5, 0), transB=1, domain=CONTRIB, expect=np.zeros((3, 5), np.float32))
refuse("FusedMatMul", A=f32(3, 4), B=f32(4, 5), transB=1, domain=CONTRIB, match="inner sizes differ")
refuse("TransposeMatMul", A=f32(3, 4), B=f32(4, 5), transA=1, domain=CONTRIB, match="inner sizes differ")
for settings in ({"activation": "Relu"}, {"activation": "LeakyRelu", "activation_alpha": 0.5}):
    case(
        "FusedMatMulActivation",
        A=f32(3, 4),
        B=f32(5, 4),
        transB=1,
        alpha=0.5,
        **settings,
        domain=CONTRIB,
        expect=lambda A, B, activation_alpha=0.0: np.where(A @ B.T > 0, 1, np.float32(activation_alpha)) * (A @ B.T * 0.5),
    )
case(
    "GemmFastGelu",
    X=f32(2, 3, 4),
    W=f32(4, 5),
    bias=f32(5),
    domain=CONTRIB,
    expect=lambda X, W, bias: gelu_by_tanh(X @ W + bias),
)
case("GemmFastGelu", X=f32(3, 4), W=f32(4, 5), domain=CONTRIB, expect=lambda X, W: gelu_by_tanh(X @ W))


def gelu_by_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# --- FusedGemm

PLAIN = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.log(1 + np.exp(x)),
    "Softsign": lambda x: x / (1 + abs(x)),
}
ONE_PARAMETER = {
    "LeakyRelu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "ThresholdedRelu": lambda x, alpha: np.where(x > alpha, x, 0),
    "Elu": lambda x, alpha: np.where(x < 0, alpha * (np.exp(x) - 1), x),
}
for name in PLAIN:
    settings = {"activation": name, **BOTH, "expect": lambda A, B, C, activation: PLAIN[activation](A @ B + C)}
    case("FusedGemm", A=f32(3, 4), B=f32(4, 5), C=f32(5), **settings)
for name in ONE_PARAMETER:
    settings = {"activation": name, "activation_alpha": 0.3, "alpha": 0.5, "beta": 2.0, "transB": 1, **BOTH}
    expect = lambda A, B, C, activation: ONE_PARAMETER[activation](A @ B.T / 2 + 2 * C, 0.3)  # noqa: E731
    case("FusedGemm", A=f32(3, 4), B=f32(5, 4), C=f32(3, 1), **settings, expect=expect)
case(
    "FusedGemm",
    A=f32(3, 4),
    B=f32(4, 5),
    C=f32(5),
    activation="HardSigmoid",
    activation_alpha=0.3,
    activation_beta=0.6,
    **BOTH,
    expect=lambda A, B, C: np.clip(0.3 * (A @ B + C) + 0.6, 0, 1),
)
case(
    "FusedGemm",
    A=f32(3, 4),
    B=f32(4, 5),
    activation="Selu",
    domain=CONTRIB,
    expect=lambda A, B: 1.0507 * np.where(A @ B < 0, 1.67326 * (np.exp(A @ B) - 1), A @ B),
    rtol=1e-4,
)
case(
    "FusedGemm",
    A=f32(4, 3),
    B=f32(4, 5),
    activation="Relu",
    transA=1,
    types={"T": {float16, float32, float64}},
    domain=CONTRIB,
    expect=lambda A, B: np.maximum(A.T @ B, 0),
    rtol=1e-2,
    atol=1e-2,
)
case("FusedGemm", A=i32(2, 3), B=i32(3, 4), activation="Relu", domain=CONTRIB, expect=lambda A, B: np.maximum(A @ B, 0))
case("FusedGemm", A=f32(3, 4), B=f32(4, 5), domain=CONTRIB, expect=lambda A, B: A @ B)
case("FusedGemm", A=f32(0, 4), B=f32(4, 5), C=f32(5), activation="Relu", **BOTH, expect=np.zeros((0, 5), np.float32))
refuse("FusedGemm", A=f32(3, 4), B=f32(4, 5), activation="Gelu", domain=CONTRIB, match="'Gelu' is not an activation")
refuse("FusedGemm", A=f32(3, 4), B=f32(5, 4), domain=CONTRIB, match="inner sizes")

# --- FusedConv

X, W, B = f32(2, 3, 6, 5), f32(4, 3, 3, 2), f32(4)
for settings in (
    {"activation": "Relu"},
    {"activation": "Tanh"},
    {"activation": "Sigmoid"},
    {"activation": "LeakyRelu", "activation_params": [0.25]},
    {"activation": "Clip", "activation_params": [-0.5, 1.5]},
    {"activation": "HardSigmoid", "activation_params": [0.2, 0.5]},
):
    case("FusedConv", X=X, W=W, B=B, **settings, **BOTH)
    case("FusedConv", X=X, W=W, B=B, Z=f32(2, 4, 4, 4), **settings, **BOTH)
case("FusedConv", X=X, W=W, Z=f32(2, 4, 4, 4), activation="Relu", **BOTH)
case("FusedConv", X=X, W=W, B=B, Z=f32(2, 4, 3, 3), activation="Relu", strides=[2, 2], pads=[1, 0, 1, 1], **BOTH)
case("FusedConv", X=X, W=W, B=B, auto_pad="SAME_UPPER", activation="Relu", dilations=[1, 1], **BOTH)
case("FusedConv", X=f32(1, 4, 5), W=f32(4, 2, 3), group=2, activation="Relu", pads=[1, 1], **BOTH)
case("FusedConv", X=f32(1, 1, 1, 1), W=f32(1, 1, 1, 1), activation="Relu", **BOTH)
case("FusedConv", X=f32(0, 3, 6, 5), W=W, B=B, activation="Relu", domain=CONTRIB, expect=np.zeros((0, 4, 4, 4), np.float32))
case(
    "FusedConv",
    X=f32(2, 3, 4),
    W=f32(5, 3, 1),
    activation="Relu",
    types={"T": {float16, float32, float64}},
    domain=CONTRIB,
    expect=lambda X, W: np.maximum(np.einsum("nct,mc->nmt", X, W[:, :, 0]), 0),
    rtol=1e-2,
    atol=1e-2,
)
refuse("FusedConv", X=X, W=f32(4, 2, 3, 2), activation="Relu", domain=CONTRIB, match="channels")
case(
    "NhwcFusedConv",
    X=f32(2, 4, 5, 3),
    W=f32(6, 3, 1, 1),
    B=f32(6),
    Z=f32(2, 4, 5, 6),
    activation="Relu",
    domain=CONTRIB,
    expect=lambda X, W, B, Z: np.maximum(X @ W[:, :, 0, 0].T + B + Z, 0),
)
case(
    "NhwcFusedConv",
    X=f32(1, 3, 3, 2),
    W=f32(4, 2, 3, 3),
    domain=CONTRIB,
    expect=lambda X, W: np.einsum("nhwc,mchw->nm", X, W)[:, None, None],
)
