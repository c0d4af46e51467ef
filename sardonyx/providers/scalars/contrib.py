"""Fused activations of com.microsoft on single elements."""

from __future__ import annotations

from sardonyx.providers.scalars.activation import gelu_of_erf, gelu_of_tanh, sigmoid, swish
from sardonyx.providers.scalars.table import FLOATS, scalar

DOMAIN = "com.microsoft"


@scalar("Gelu", domain=DOMAIN, types=FLOATS)
def exact_gelu(X):
    return gelu_of_erf(X)


@scalar("BiasGelu", domain=DOMAIN, types=FLOATS)
def bias_gelu(A, B):
    return gelu_of_erf(A + B)


@scalar("FastGelu", domain=DOMAIN, types=FLOATS)
def fast_gelu(X, bias=None):
    return gelu_of_tanh(X if bias is None else X + bias)


@scalar("QuickGelu", domain=DOMAIN, types=FLOATS)
def quick_gelu(X, *, alpha=1.702):
    return swish(X, alpha=alpha)


@scalar("BiasAdd", domain=DOMAIN, types=FLOATS)
def bias_add(X, bias, skip):
    return X + bias + skip


@scalar("GatedAdd", domain=DOMAIN, types=FLOATS)
def gated_add(X, Y, gate, *, type):
    """The product is rounded before it is added."""
    return X + X.f.rounded(Y * gate, type)


@scalar("ScaledSiLU", domain=DOMAIN, types=FLOATS)
def scaled_silu(X, scale=None, *, type, alpha=1.0):
    """Each step is rounded."""
    f = X.f
    scaled = f.rounded(X * (alpha if scale is None else f.convert(scale, X.type.scalar)), type)
    return scaled * f.rounded(sigmoid(scaled), type)
