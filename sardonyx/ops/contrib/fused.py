"""Matrix products and convolutions of com.microsoft with what onnxruntime's optimizer fused into them."""

from __future__ import annotations

from sardonyx.dtypes import FLOATS, float16, float32, float64, int32, int64, uint32, uint64
from sardonyx.ops.conv import convolved_shape
from sardonyx.ops.facts import by_entry
from sardonyx.ops.linalg import gemm, product_shape
from sardonyx.ops.operand import Operand
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

PRODUCT = "transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0, alpha: float = 1.0"
CONVOLUTION = (
    "auto_pad: string = 'NOTSET', dilations: ints?, group: int = 1, kernel_shape: ints?, pads: ints?, strides: ints?,"
    " activation: string?, activation_params: floats?"
)

define("com.microsoft", "FusedMatMul", 1, f"(A: T, B: T, *, {PRODUCT}) -> (Y: T)", T=FLOATS)
define(
    "com.microsoft",
    "FusedMatMulActivation",
    1,
    f"(A: T, B: T, *, {PRODUCT}, activation: string, activation_alpha: float?, activation_beta: float?,"
    " activation_gamma: float?, activation_axis: int?) -> (Y: T)",
    T=FLOATS,
)
define(
    "com.microsoft",
    "TransposeMatMul",
    1,
    "(A: T, B: T, *, transA: int = 0, transB: int = 0, alpha: float = 1.0) -> (Y: T)",
    T=FLOATS,
)
define("com.microsoft", "GemmFastGelu", 1, "(X: T, W: T, bias: T?) -> (Y: T)", T=FLOATS - {float64})
define(
    "com.microsoft",
    "FusedGemm",
    1,
    "(A: T, B: T, C: T?, *, transA: int = 0, transB: int = 0, alpha: float = 1.0, beta: float = 1.0, activation: string?,"
    " activation_alpha: float?, activation_beta: float?, activation_gamma: float?) -> (Y: T)",
    T={float16, float32, float64, int32, int64, uint32, uint64},
)
define(
    "com.microsoft", "FusedConv", 1, f"(X: T, W: T, B: T?, Z: T?, *, {CONVOLUTION}) -> (Y: T)", T={float16, float32, float64}
)
define("com.microsoft", "NhwcFusedConv", 1, f"(X: T, W: T, B: T?, Z: T?, *, {CONVOLUTION}) -> (Y: T)", T={float16, float32})

contrib("FusedGemm")(gemm)


@contrib("FusedMatMul", "FusedMatMulActivation")
def fused_mat_mul(A, B, transA, transB, transBatchA, transBatchB):
    return product_shape(_arranged(A.shape, transA, transBatchA), _arranged(B.shape, transB, transBatchB))


@contrib("TransposeMatMul")
def transpose_mat_mul(A, B, transA, transB):
    return product_shape(_arranged(A.shape, transA, 0), _arranged(B.shape, transB, 0))


@contrib("GemmFastGelu")
def gemm_fast_gelu(X, W):
    return product_shape(X.shape, W.shape)


def _arranged(shape, transposed, batched):
    """The shape of a factor in the order (batch…, rows, columns); vectors have nothing to transpose."""
    if shape is None or len(shape) < 2:
        return shape
    *batch, rows, columns = (*shape[1:-1], shape[0], shape[-1]) if batched else shape
    return (*batch, columns, rows) if transposed else (*batch, rows, columns)


@contrib("FusedConv", rows=by_entry)
def fused_conv(X, W, group, auto_pad, dilations, kernel_shape, pads, strides):
    return convolved_shape(X, W, group, kernel_shape, strides, dilations, pads, auto_pad)


@contrib("NhwcFusedConv")
def nhwc_fused_conv(X, W, group, auto_pad, dilations, kernel_shape, pads, strides):
    channels_first = with_channels_first(X)
    return channels_behind(convolved_shape(channels_first, W, group, kernel_shape, strides, dilations, pads, auto_pad))


def with_channels_first(operand):
    """An operand (N, …, C) as (N, C, …)."""
    shape = operand.shape
    if shape is None or len(shape) < 2:
        return operand
    return Operand(type(operand.type)(operand.dtype, (shape[0], shape[-1], *shape[1:-1])))


def channels_behind(shape):
    """A shape (N, C, …) as (N, …, C)."""
    return None if shape is None else (shape[0], *shape[2:], shape[1])
