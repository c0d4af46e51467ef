"""Matrix products and convolutions of com.microsoft with what onnxruntime's optimizer fused into them, in NumPy.

`contrib/nchwc.py` builds on `activated`.
"""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu import activation as functions
from sardonyx.providers.cpu.conv import conv
from sardonyx.providers.cpu.linalg import gemm, matmul
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")

ACTIVATIONS = {
    "Relu": (functions.relu, ()),
    "Tanh": (np.tanh, ()),
    "Sigmoid": (functions.sigmoid, ()),
    "Softplus": (functions.softplus, ()),
    "Softsign": (functions.softsign, ()),
    "HardSwish": (functions.hard_swish, ()),
    "LeakyRelu": (functions.leaky_relu, ("alpha",)),
    "ThresholdedRelu": (functions.thresholded_relu, ("alpha",)),
    "Elu": (functions.elu, ("alpha",)),
    "Celu": (functions.celu, ("alpha",)),
    "HardSigmoid": (functions.hard_sigmoid, ("alpha", "beta")),
    "Selu": (functions.selu, ("alpha", "gamma")),
    "Clip": (lambda X, min=-np.inf, max=np.inf: np.minimum(np.maximum(X, min), max), ("min", "max")),
}
"""Functions that are fused into other ops, and their parameters in the order of `activation_params`."""

SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}


def activated(values, activation, parameters=()):
    """What the activation of this name makes of the values; `parameters` are numbers in order, or by name in a dict."""
    if not activation:
        return values
    if activation not in ACTIVATIONS:
        raise KernelError(f"{activation!r} is not an activation that can be fused", InvalidArgument)
    function, names = ACTIVATIONS[activation]
    named = parameters if isinstance(parameters, dict) else dict(zip(names, parameters or (), strict=False))
    chosen = (SELU if activation == "Selu" else {}) | {name: named[name] for name in names if named.get(name) is not None}
    return function(values, **chosen)


@contrib("TransposeMatMul", "FusedMatMul", widen=True)
def fused_mat_mul(A, B, transA=0, transB=0, transBatchA=0, transBatchB=0, alpha=1.0):
    product = matmul(arranged(A, transA, transBatchA), arranged(B, transB, transBatchB))
    return product if alpha == 1 else product * product.dtype.type(alpha)


@contrib("FusedMatMulActivation", widen=True)
def fused_mat_mul_activation(
    A,
    B,
    activation,
    transA=0,
    transB=0,
    transBatchA=0,
    transBatchB=0,
    alpha=1.0,
    activation_alpha=None,
    activation_beta=None,
    activation_gamma=None,
    activation_axis=None,
):
    product = fused_mat_mul(A, B, transA, transB, transBatchA, transBatchB, alpha)
    return activated(product, activation, {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma})


def arranged(tensor, transposed, batched):
    """A factor as (batch…, rows, columns); with `batched` its rows stood before the batch axes."""
    if tensor.ndim < 2:
        return tensor
    tensor = np.moveaxis(tensor, 0, -2) if batched else tensor
    return tensor.swapaxes(-1, -2) if transposed else tensor


@contrib("GemmFastGelu", widen=True)
def gemm_fast_gelu(X, W, bias=None):
    product = matmul(X, W)
    return functions.gelu(product if bias is None else product + bias, approximate="tanh")


@contrib("FusedGemm", widen=True)
def fused_gemm(
    A,
    B,
    C=None,
    alpha=1.0,
    beta=1.0,
    transA=0,
    transB=0,
    activation=None,
    activation_alpha=None,
    activation_beta=None,
    activation_gamma=None,
):
    Y = gemm(A, B, C, alpha, beta, transA, transB)
    return activated(Y, activation, {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma})


@contrib("FusedConv", widen=True)
def fused_conv(
    X,
    W,
    B=None,
    Z=None,
    group=1,
    auto_pad="NOTSET",
    dilations=None,
    kernel_shape=None,
    pads=None,
    strides=None,
    activation=None,
    activation_params=None,
):
    Y = conv(X, W, B, group, auto_pad, dilations, kernel_shape, pads, strides)
    if Z is not None:
        Y += Z
    return activated(Y, activation, activation_params)


@contrib("NhwcFusedConv", widen=True)
def nhwc_fused_conv(X, W, B=None, Z=None, **attributes):
    Z = None if Z is None else np.moveaxis(Z, -1, 1)
    return np.moveaxis(fused_conv(np.moveaxis(X, -1, 1), W, B, Z, **attributes), 1, -1)
