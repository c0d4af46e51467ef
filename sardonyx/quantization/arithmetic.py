"""Numbers to codes: ranges of integer types, scales, zero points, and the codes of arrays. Quantizers and users call it."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

FLOAT8_TYPES = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ)
FLOAT8_DISTRIBUTIONS: dict[int, np.ndarray] = {}
"""The finite values of each float8 type, as soon as somebody has asked."""

ONNX_TYPE_TO_NP_TYPE: dict[int, Any] = {
    TensorProto.INT8: np.dtype("int8"),
    TensorProto.UINT8: np.dtype("uint8"),
    TensorProto.INT16: np.dtype("int16"),
    TensorProto.UINT16: np.dtype("uint16"),
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
}
Range = tuple[np.ndarray, np.ndarray]


def _limits(element_type: int, low: int, high: int) -> Range:
    dtype = ONNX_TYPE_TO_NP_TYPE[element_type]
    return np.array(low, dtype=dtype), np.array(high, dtype=dtype)


def _table(ranges: dict[int, tuple[int, int]]) -> dict[int, Range]:
    return {element_type: _limits(element_type, *limits) for element_type, limits in ranges.items()}


ONNX_INT_TYPE_RANGE = _table(
    {
        TensorProto.UINT8: (0, 255),
        TensorProto.INT8: (-128, 127),
        TensorProto.UINT16: (0, 65535),
        TensorProto.INT16: (-32768, 32767),
        TensorProto.UINT4: (0, 15),
        TensorProto.INT4: (-8, 7),
    }
)
ONNX_INT_TYPE_SYMMETRIC_RANGE = _table({TensorProto.INT8: (-127, 127), TensorProto.INT16: (-32767, 32767)})
ONNX_INT_TYPE_REDUCED_RANGE = _table(
    {
        TensorProto.UINT8: (0, 127),
        TensorProto.INT8: (-64, 64),
        TensorProto.UINT16: (0, 32767),
        TensorProto.INT16: (-16384, 16384),
        TensorProto.UINT4: (0, 7),
        TensorProto.INT4: (-4, 3),
    }
)
"""One bit less, for CPUs whose 8-bit products saturate at 16 bits."""


def type_name(element_type: int) -> str:
    """The name of an ONNX element type for messages; the number itself if there is none."""
    try:
        return str(TensorProto.DataType.Name(element_type))
    except ValueError:
        return str(element_type)


def get_qmin_qmax_for_qType(qType: int, reduce_range: bool = False, symmetric: bool = False) -> Range:
    """The lowest and the highest code of an integer type, as arrays of that type."""
    if qType == TensorProto.FLOAT8E4M3FN:
        raise NotImplementedError("float8 has no range of codes: its scale follows from the distribution of the values")
    if qType not in ONNX_INT_TYPE_RANGE:
        known = ", ".join(type_name(element_type) for element_type in ONNX_INT_TYPE_RANGE)
        raise ValueError(f"{type_name(qType)} is no type to quantize to; these are: {known}")
    if reduce_range:
        return ONNX_INT_TYPE_REDUCED_RANGE[qType]
    if symmetric and qType in ONNX_INT_TYPE_SYMMETRIC_RANGE:
        return ONNX_INT_TYPE_SYMMETRIC_RANGE[qType]
    return ONNX_INT_TYPE_RANGE[qType]


def get_qrange_for_qType(qType: int, reduce_range: bool = False, symmetric: bool = False) -> Any:
    """How many steps lie between the lowest and the highest code."""
    low, high = get_qmin_qmax_for_qType(qType, reduce_range, symmetric)
    return int(high) - int(low)


def is_symmetric_by_default(element_type: int) -> bool:
    """Signed types and float8 have a zero of their own; weights use it unless somebody says otherwise."""
    return element_type in (TensorProto.INT8, TensorProto.INT16, TensorProto.INT4, TensorProto.FLOAT8E4M3FN)


def compute_scale_zp(
    rmin: Any, rmax: Any, qmin: Any, qmax: Any, symmetric: bool = False, min_real_range: float | None = None
) -> list[np.ndarray]:
    """[zero point, scale] that spread qmin … qmax over rmin … rmax and give 0 a code of its own."""
    if int(qmin) > 0 or int(qmax) < 0:
        raise ValueError(f"the codes {qmin} … {qmax} do not hold 0")
    low = np.minimum(rmin, np.zeros_like(rmin))
    high = np.maximum(rmax, np.zeros_like(rmax))
    if min_real_range is not None:
        high = np.maximum(high, low + np.asarray(min_real_range, dtype=low.dtype))
    if symmetric:
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    dtype, code = high.dtype, np.asarray(qmin).dtype
    steps = np.array(float(qmax) - float(qmin))
    scale = (high.astype(np.float64) - low.astype(np.float64)) / steps
    if not scale >= 0:
        raise ValueError(f"a range is two numbers in order, got {rmin} … {rmax}")
    if scale < np.finfo(dtype).tiny:
        return [np.array(0, dtype=code), np.array(1.0, dtype=dtype)]
    if symmetric:
        zero = np.round((float(qmin) + float(qmax)) / 2.0)
    else:
        zero = np.round(float(qmin) - low.astype(np.float64) / scale)
    return [np.array(zero).astype(code), np.array(scale, dtype=dtype)]


def snap_zero_point_to_uint8(
    rmin: Any, rmax: Any, qmin: int = 0, qmax: int = 255, min_real_range: float | None = None
) -> list[np.ndarray]:
    """[zero point, scale] with the zero point at one end or in the middle of uint8: what some accelerators ask for."""
    low, high = np.minimum(rmin, 0), np.maximum(rmax, 0)
    if low >= 0:
        zero = qmin
    elif high <= 0:
        zero = qmax
    else:
        zero = (qmin + qmax + 1) // 2
    below, above = max(zero - qmin, 1), max(qmax - zero, 1)
    scale = np.maximum(-np.asarray(low, np.float64) / below, np.asarray(high, np.float64) / above)
    if min_real_range is not None:
        scale = np.maximum(scale, min_real_range / (qmax - qmin))
    dtype = np.asarray(rmax).dtype if np.asarray(rmax).dtype.kind == "f" else np.dtype(np.float32)
    if scale < np.finfo(dtype).tiny:
        scale = np.array(1.0)
    return [np.array(zero, dtype=np.uint8), np.array(scale, dtype=dtype)]


def float8_values(element_type: int) -> np.ndarray:
    """All finite values of a float8 type."""
    if element_type not in FLOAT8_DISTRIBUTIONS:
        if element_type != TensorProto.FLOAT8E4M3FN:
            raise ValueError(f"{type_name(element_type)} is no float8 type to quantize to; FLOAT8E4M3FN is")
        values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        FLOAT8_DISTRIBUTIONS[element_type] = values[np.isfinite(values)]
    return FLOAT8_DISTRIBUTIONS[element_type]


def compute_scale_zp_float8(element_type: int, std: Any) -> list[np.ndarray]:
    """[zero point, scale] that give numbers with the standard deviation `std` the spread of the type's own values."""
    spread = np.std(float8_values(element_type))
    zero = np.array(0, dtype=ml_dtypes.float8_e4m3fn)
    return [zero, np.array(std / spread, dtype=np.asarray(std).dtype)]


def compute_data_quant_params(
    data: np.ndarray,
    quant_type: int,
    symmetric: bool,
    reduce_range: bool = False,
    min_real_range: float | None = None,
    rmin_override: float | None = None,
    rmax_override: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(zero point, scale) for the numbers of an array."""
    if not isinstance(data, np.ndarray):
        raise TypeError(f"quantization needs an array, got {type(data)}")
    if quant_type == TensorProto.FLOAT8E4M3FN:
        if reduce_range:
            raise RuntimeError("float8 has no reduced range")
        zero_point, scale = compute_scale_zp_float8(quant_type, np.std(data) if data.size else np.array(1, data.dtype))
        return zero_point, np.array(scale, dtype=data.dtype)
    low = _extreme(data, np.min, rmin_override)
    high = _extreme(data, np.max, rmax_override)
    qmin, qmax = get_qmin_qmax_for_qType(quant_type, reduce_range, symmetric)
    zero_point, scale = compute_scale_zp(low, high, qmin, qmax, symmetric, min_real_range)
    return zero_point, scale


def _extreme(data: np.ndarray, of: Any, override: Any) -> np.ndarray:
    if override is not None:
        return np.array(override, dtype=data.dtype)
    return np.asarray(of(data)) if data.size else np.array(0, dtype=data.dtype)


def quantize_data(
    data: np.ndarray,
    qType: int,
    symmetric: bool,
    reduce_range: bool = False,
    min_real_range: float | None = None,
    rmin_override: float | None = None,
    rmax_override: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(zero point, scale, codes) of an array."""
    zero_point, scale = compute_data_quant_params(
        data, qType, symmetric, reduce_range, min_real_range, rmin_override, rmax_override
    )
    return zero_point, scale, quantize_nparray(qType, data, scale, zero_point)


def quantize_nparray(qType: int, arr: Any, scale: Any, zero_point: Any, low: Any = None, high: Any = None) -> np.ndarray:
    """The codes of an array: its numbers divided by the scale, rounded half to even, moved by the zero point, saturated."""
    if qType not in ONNX_TYPE_TO_NP_TYPE:
        raise ValueError(f"{type_name(qType)} is no type to quantize to")
    values = np.asarray(arr)
    if qType in FLOAT8_TYPES:
        if np.any(np.asarray(zero_point).astype(np.float32) != 0):
            raise NotImplementedError(f"the zero point of float8 is 0, got {zero_point}")
        top = float8_values(TensorProto.FLOAT8E4M3FN).max()
        scaled = values.astype(np.float32) / np.asarray(scale).astype(np.float32)
        return np.clip(scaled, -top, top).astype(ml_dtypes.float8_e4m3fn)
    qmin, qmax = get_qmin_qmax_for_qType(qType)
    lowest = int(qmin) if low is None else max(int(qmin), int(low))
    highest = int(qmax) if high is None else min(int(qmax), int(high))
    wide = np.float64 if values.dtype == np.float64 else np.float32
    codes = values.astype(wide) / np.asarray(scale).astype(wide)
    codes = np.rint(codes, out=codes if codes.shape else None)
    codes = codes + np.asarray(zero_point).astype(wide)
    return np.clip(codes, lowest, highest).astype(ONNX_TYPE_TO_NP_TYPE[qType])


def normalize_axis(axis: int, rank: int) -> tuple[bool, int]:
    """(whether the axis is one of a tensor of that rank, the axis counted from the front)."""
    front = axis + rank if axis < 0 else axis
    return 0 <= front < rank, front


def pack_bytes_to_4bit(src_8bit: bytes) -> bytearray:
    """Two 4-bit codes a byte, the first in the low half; an odd last one has a byte of its own."""
    codes = np.frombuffer(bytes(src_8bit), dtype=np.uint8) & 0xF
    if codes.size % 2:
        codes = np.append(codes, np.uint8(0))
    return bytearray((codes[0::2] | (codes[1::2] << 4)).tobytes())


def spread_blocks(parameters: np.ndarray, axis: int, block_size: int, length: int) -> np.ndarray:
    """Parameters of one block each, repeated for every element along `axis`."""
    return np.repeat(parameters, block_size, axis=axis).take(range(length), axis=axis)


def compute_scale_zp_blocked(
    weight: np.ndarray, quant_type: int, axis: int, block_size: int, symmetric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(scales, zero points) of a weight in blocks of `block_size` along `axis`; the last block may be short."""
    if block_size <= 0:
        raise ValueError(f"a block holds at least one element, block_size is {block_size}")
    is_axis, axis = normalize_axis(axis, weight.ndim)
    if not is_axis:
        raise ValueError(f"axis {axis} is none of a weight of shape {list(weight.shape)}")
    starts = np.arange(0, weight.shape[axis], block_size)
    low = np.minimum(np.minimum.reduceat(weight, starts, axis=axis), 0)
    high = np.maximum(np.maximum.reduceat(weight, starts, axis=axis), 0)
    qmin, qmax = (int(limit) for limit in get_qmin_qmax_for_qType(quant_type, symmetric=symmetric))
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    scales = (high.astype(np.float64) - low) / (qmax - qmin)
    flat = scales < np.finfo(weight.dtype).tiny
    scales = np.where(flat, 1.0, scales)
    middle = np.round((qmin + qmax) / 2.0) if symmetric else np.round(qmin - low.astype(np.float64) / scales)
    zero_points = np.where(flat, 0, middle)
    return scales.astype(weight.dtype), zero_points.astype(ONNX_TYPE_TO_NP_TYPE[quant_type])


def quantize_onnx_initializer(
    weight: onnx.TensorProto,
    quant_type: int,
    zero_point: np.ndarray,
    scale: np.ndarray,
    axis: int | None = None,
    quant_weight_name: str | None = None,
    block_size: int = 0,
) -> onnx.TensorProto:
    """The codes of an initializer as a tensor; one scale, one for each index of `axis`, or one for each block along it."""
    data = tensor_proto_to_array(weight)
    name = quant_weight_name or f"{weight.name}_quantized"
    scale, zero_point = np.asarray(scale), np.asarray(zero_point)
    if axis is not None:
        is_axis, front = normalize_axis(axis, data.ndim)
        if not is_axis:
            raise ValueError(f"initializer {weight.name!r}: axis {axis} is none of its {data.ndim}")
        scale, zero_point = (_along(one, front, data, block_size) for one in (scale, zero_point))
    codes = quantize_nparray(quant_type, data, scale, zero_point)
    return tensor_of_codes(codes, quant_type, name, weight.dims)


def _along(parameters: np.ndarray, axis: int, data: np.ndarray, block_size: int) -> np.ndarray:
    if block_size:
        return spread_blocks(parameters, axis, block_size, data.shape[axis])
    shape = [1] * data.ndim
    shape[axis] = -1
    return parameters.reshape(shape)


def tensor_of_codes(codes: np.ndarray, element_type: int, name: str, dims: Any = None) -> onnx.TensorProto:
    """Codes as a tensor of ONNX; 4-bit ones packed."""
    tensor = onnx.TensorProto()
    tensor.name, tensor.data_type = name, element_type
    tensor.dims.extend(codes.shape if dims is None else dims)
    if element_type in (TensorProto.INT4, TensorProto.UINT4):
        tensor.raw_data = bytes(
            pack_bytes_to_4bit(codes.astype(np.int8 if element_type == TensorProto.INT4 else np.uint8).tobytes())
        )
    else:
        tensor.raw_data = np.ascontiguousarray(codes).tobytes()
    return tensor


def tensor_proto_to_array(initializer: onnx.TensorProto) -> np.ndarray:
    """The array of a float tensor; another type is an error."""
    if initializer.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16):
        raise ValueError(
            f"initializer {initializer.name!r} is {type_name(initializer.data_type)}; only floats can be quantized"
        )
    return np.asarray(onnx.numpy_helper.to_array(initializer))


def smooth_distribution(p: np.ndarray, eps: float = 0.0001) -> Any:
    """A distribution without zeros: each gets `eps`, which the others pay for. None if they cannot."""
    zeros = p == 0
    zero_count = int(zeros.sum())
    others = p.size - zero_count
    if not others:
        return None  # nothing is there: the histogram was empty
    price = eps * zero_count / others
    if not math.isfinite(price) or price >= 1.0:
        return None
    smoothed = p.astype(np.float32) + eps * zeros - price * ~zeros
    return smoothed if (smoothed > 0).all() else None
