"""Fused activations of com.microsoft on single elements."""

from __future__ import annotations

from sardonyx.providers.scalars.activation import gelu_of_erf, gelu_of_tanh, swish
from sardonyx.providers.scalars.table import FLOATS, SINGLES, scalar

DOMAIN = "com.microsoft"


@scalar("Gelu", domain=DOMAIN, types=SINGLES)
def exact_gelu(X):
    return gelu_of_erf(X)


@scalar("BiasGelu", domain=DOMAIN, types=SINGLES)
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
