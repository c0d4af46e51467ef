"""QuantizeLinear and DequantizeLinear of com.microsoft, which had 16-bit and 4-bit types first, and GatherBlockQuantized."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.dtypes import (
    FLOAT8,
    bfloat16,
    float4e2m1,
    float8e8m0,
    float16,
    float32,
    int4,
    int8,
    int16,
    int32,
    int64,
    uint4,
    uint8,
    uint16,
)
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType
from sardonyx.ops.quantize import check_parameters, check_quantized_axis, check_scales, table_fault
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import axis_index
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "QuantizeLinear",
    1,
    "(x: T1, y_scale: T1, y_zero_point: T2?, *, axis: int?) -> (y: T2)",
    T1={float32, float16},
    T2={int8, uint8, int16, uint16, int4, uint4},
)
define(
    "com.microsoft",
    "DequantizeLinear",
    1,
    "(x: T1, x_scale: T2, x_zero_point: T1?, *, axis: int?) -> (y: T2)",
    T1={int8, uint8, int16, uint16, int32, int4, uint4},
    T2={float32, float16},
)
define(
    "com.microsoft",
    "GatherBlockQuantized",
    1,
    "(data: T1, indices: Tind, scales: T2, zero_points: T1?, *, gather_axis: int = 0, quantize_axis: int = 1,"
    " block_size: int = 128, bits: int = 4) -> (output: T2)",
    T1={int4, uint4, uint8, float4e2m1, *(FLOAT8 - {float8e8m0})},
    T2={float32, float16, bfloat16},
    Tind={int32, int64},
)


@contrib("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point, axis):
    check_quantized_axis(x, y_scale, axis)
    check_parameters(x, axis, 0, y_scale=y_scale, y_zero_point=y_zero_point)
    check_scales({"y_scale": y_scale}, has_dead_channels=True)
    return TensorType(dtypes.uint8 if y_zero_point is None else y_zero_point.dtype, x.shape)


@contrib("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point, axis):
    check_quantized_axis(x, x_scale, axis)
    check_parameters(x, axis, 0, x_scale=x_scale, x_zero_point=x_zero_point)
    check_scales(x_scale=x_scale)
    return x.shape


@contrib("GatherBlockQuantized")
def gather_block_quantized(data, indices, scales, zero_points, gather_axis, quantize_axis, block_size, bits):
    if block_size < 0:
        raise InferenceError(f"block_size must not be negative, it is {block_size}")
    check_scales(scales=scales)
    if data.shape is None or indices.shape is None:
        return None
    rank = len(data.shape)
    axis = axis_index(gather_axis, rank, "gather_axis")
    blocks = axis_index(quantize_axis, rank, "quantize_axis")
    shape, shared = list(data.shape), 1
    if data.dtype is uint8 and bits != 8:
        if bits not in (2, 4):
            raise InferenceError(f"bits must be 2, 4 or 8, not {bits}")
        shared = 8 // bits
        shape[-1] = shape[-1] * shared
    fault = table_fault(scales.shape, zero_points and zero_points.shape, shape, blocks, block_size, shared)
    if fault is not None:
        raise InferenceError(fault)
    return (*shape[:axis], *indices.shape, *shape[axis + 1 :])
