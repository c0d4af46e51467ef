"""Quantized activations, joins, pools and convolutions of com.microsoft: 8-bit numbers in, 8-bit numbers out."""

from __future__ import annotations

from sardonyx.dtypes import bool_, float32, int8, int32, uint8
from sardonyx.errors import InferenceError
from sardonyx.ops.contrib.fused import channels_behind, with_channels_first
from sardonyx.ops.conv import check_filters, convolved_shape
from sardonyx.ops.facts import Operands
from sardonyx.ops.operand import Operand
from sardonyx.ops.pool import global_pool, pooled_shape
from sardonyx.ops.quantize import check_counts, check_scales
from sardonyx.ops.schemas import define
from sardonyx.ops.shape import joined_shape
from sardonyx.ops.shapes import axis_index, broadcast
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

BYTES = {uint8, int8}
POOL = "auto_pad: string = 'NOTSET', ceil_mode: int = 0, kernel_shape: ints, pads: ints?, strides: ints?"

define(
    "com.microsoft",
    "QLinearSigmoid",
    1,
    "(X: T, X_scale: float, X_zero_point: T?, Y_scale: float, Y_zero_point: T?) -> (Y: T)",
    T=BYTES,
)
define(
    "com.microsoft",
    "QLinearLeakyRelu",
    1,
    "(X: T, X_scale: float, X_zero_point: T?, Y_scale: float, Y_zero_point: T?, *, alpha: float = 0.01) -> (Y: T)",
    T=BYTES,
)
define(
    "com.microsoft",
    "QLinearSoftmax",
    1,
    "(X: T, X_scale: float, x_zero_point: T?, y_scale: float, y_zero_point: T, *, axis: int = -1, opset: int) -> (Y: T)",
    T=BYTES,
)
define(
    "com.microsoft",
    "QLinearConcat",
    1,
    "(Y_scale: TF, Y_zero_point: T8, **inputs: TV, *, axis: int) -> (Y: T8)",
    T8=BYTES,
    TF={float32},
    TV={uint8, int8, float32},
)
define(
    "com.microsoft",
    "QLinearWhere",
    1,
    "(condition: B, X: T, x_scale: TF, x_zero_point: T, Y: T, y_scale: TF, y_zero_point: T, z_scale: TF, z_zero_point: T)"
    " -> (Z: T)",
    B={bool_},
    T=BYTES,
    TF={float32},
)
define(
    "com.microsoft",
    "QLinearAveragePool",
    1,
    "(X: T, x_scale: float, x_zero_point: T?, y_scale: float, y_zero_point: T?, *,"
    f" {POOL}, count_include_pad: int = 0, channels_last: int = 0) -> (Y: T)",
    T=BYTES,
)
define(
    "com.microsoft",
    "QLinearGlobalAveragePool",
    1,
    "(X: T, x_scale: float, x_zero_point: T, y_scale: float, y_zero_point: T, *, channels_last: int = 0) -> (Y: T)",
    T=BYTES,
)
define(
    "com.microsoft",
    "QLinearReduceMean",
    1,
    "(data: T, data_scale: float, data_zero_point: T?, reduced_scale: float, reduced_zero_point: T?, *,"
    " axes: ints, keepdims: int) -> (reduced: T)",
    T=BYTES,
)
define("com.microsoft", "NhwcMaxPool", 1, f"(x: T, *, {POOL}, dilations: ints?) -> (y: T)", T=BYTES)
define(
    "com.microsoft",
    "QLinearConv",
    1,
    "(x: T1, x_scale: float, x_zero_point: T1, w: T2, w_scale: float, w_zero_point: T2, y_scale: float, y_zero_point: T3,"
    " B: T4?, *, auto_pad: string = 'NOTSET', dilations: ints?, group: int = 1, kernel_shape: ints?, pads: ints?,"
    " strides: ints?, channels_last: int = 0) -> (y: T3)",
    T1=BYTES,
    T2=BYTES,
    T3=BYTES,
    T4={int32},
)


@contrib("QLinearSigmoid", "QLinearLeakyRelu", elementwise=Operands.FIRST)
def q_linear_activation(X, X_scale, X_zero_point, Y_scale, Y_zero_point):
    check_scales({"Y_scale": Y_scale}, X_scale=X_scale)
    check_counts(X_scale=X_scale, X_zero_point=X_zero_point, Y_scale=Y_scale, Y_zero_point=Y_zero_point)
    return X.shape


@contrib("QLinearSoftmax")
def q_linear_softmax(X, X_scale, x_zero_point, y_scale, y_zero_point, axis):
    check_scales({"y_scale": y_scale}, X_scale=X_scale)
    check_counts(X_scale=X_scale, x_zero_point=x_zero_point, y_scale=y_scale, y_zero_point=y_zero_point)
    if X.shape is not None:
        axis_index(axis, len(X.shape))
    return X.shape


@contrib("QLinearConcat")
def q_linear_concat(Y_scale, Y_zero_point, inputs, axis):
    if len(inputs) % 3:
        raise InferenceError(f"inputs must be triples of tensor, scale and zero point, there are {len(inputs)} of them")
    scales = {f"the scale of input {number}": scale for number, scale in enumerate(inputs[1::3])}
    zero_points = {f"the zero point of input {number}": point for number, point in enumerate(inputs[2::3])}
    check_scales({"Y_scale": Y_scale}, **scales)
    check_counts(Y_scale=Y_scale, Y_zero_point=Y_zero_point, **scales, **zero_points)
    return joined_shape([operand.shape for operand in inputs[::3]], axis)


@contrib("QLinearWhere")
def q_linear_where(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    check_scales({"z_scale": z_scale}, x_scale=x_scale, y_scale=y_scale)
    check_counts(x_scale=x_scale, x_zero_point=x_zero_point, y_scale=y_scale, y_zero_point=y_zero_point)
    check_counts(z_scale=z_scale, z_zero_point=z_zero_point)
    return broadcast(condition.shape, X.shape, Y.shape)


@contrib("QLinearAveragePool")
def q_linear_average_pool(
    X, x_scale, x_zero_point, y_scale, y_zero_point, kernel_shape, auto_pad, ceil_mode, pads, strides, channels_last
):
    _check_pool(x_scale, x_zero_point, y_scale, y_zero_point)
    return _pooled(X, kernel_shape, strides, None, pads, auto_pad, ceil_mode, channels_last)


def _check_pool(x_scale, x_zero_point, y_scale, y_zero_point):
    check_scales({"y_scale": y_scale}, x_scale=x_scale)
    check_counts(x_scale=x_scale, x_zero_point=x_zero_point, y_scale=y_scale, y_zero_point=y_zero_point)


@contrib("NhwcMaxPool")
def nhwc_max_pool(x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides):
    return _pooled(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, channels_last=1)


def _pooled(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, channels_last):
    arranged = with_channels_first(X) if channels_last else X
    shape = pooled_shape(arranged, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return channels_behind(shape) if channels_last else shape


@contrib("QLinearGlobalAveragePool")
def q_linear_global_average_pool(X, x_scale, x_zero_point, y_scale, y_zero_point, channels_last):
    _check_pool(x_scale, x_zero_point, y_scale, y_zero_point)
    return channels_behind(global_pool(with_channels_first(X))) if channels_last else global_pool(X)


@contrib("QLinearReduceMean")
def q_linear_reduce_mean(data, data_scale, data_zero_point, reduced_scale, reduced_zero_point, axes, keepdims):
    check_scales({"reduced_scale": reduced_scale}, data_scale=data_scale)
    check_counts(data_scale=data_scale, data_zero_point=data_zero_point)
    check_counts(reduced_scale=reduced_scale, reduced_zero_point=reduced_zero_point)
    if data.shape is None:
        return None
    reduced = {axis_index(axis, len(data.shape)) for axis in axes} if axes else set(range(len(data.shape)))
    kept = ((axis, 1 if axis in reduced else size) for axis, size in enumerate(data.shape))
    return tuple(size for axis, size in kept if keepdims or axis not in reduced)


@contrib("QLinearConv")
def q_linear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B,
    group,
    auto_pad,
    dilations,
    kernel_shape,
    pads,
    strides,
    channels_last,
):
    check_scales({"y_scale": y_scale}, x_scale=x_scale, w_scale=w_scale)
    check_counts(x_scale=x_scale, x_zero_point=x_zero_point, y_scale=y_scale, y_zero_point=y_zero_point)
    check_filters(w, B, w_scale=w_scale, w_zero_point=w_zero_point)
    arranged: Operand = with_channels_first(x) if channels_last else x
    shape = convolved_shape(arranged, w, group, kernel_shape, strides, dilations, pads, auto_pad)
    return channels_behind(shape) if channels_last else shape
