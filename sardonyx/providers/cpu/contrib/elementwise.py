"""Fused activations of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.providers.cpu.activation import gelu, swish
from sardonyx.providers.cpu.table import FIRST, cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("Gelu", widen=True, inplace=FIRST)
def exact_gelu(X):
    return gelu(X)


@contrib("BiasGelu", widen=True, inplace=FIRST)
def bias_gelu(A, B):
    return gelu(A + B)


@contrib("FastGelu", widen=True, inplace=FIRST)
def fast_gelu(X, bias=None):
    return gelu(X if bias is None else X + bias, approximate="tanh")


@contrib("QuickGelu", widen=True, inplace=FIRST)
def quick_gelu(X, *, alpha=1.702):
    return swish(X, X.dtype.type(alpha) if X.dtype == np.float64 else alpha)
