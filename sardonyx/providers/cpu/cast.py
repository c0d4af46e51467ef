"""Conversions between element types, in NumPy: Cast, CastLike, BitCast, and `convert`, which quantization shares."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.errors import KernelError, RuntimeException
from sardonyx.providers.cpu.table import FIRST, cpu
from sardonyx.providers.kernel_table import converted, widened


@cpu.kernel("Cast", since=6, inplace=FIRST)
def cast(input, to, saturate=1, round_mode="up"):
    return convert(input, dtypes.from_code(to), saturate, round_mode)


@cpu.kernel("Cast", until=5, inplace=FIRST)
def cast_by_name(input, to):
    """In opset 1 the type was spelt out, as in TensorProto: "FLOAT"."""
    return convert(input, dtypes.from_name(to.lower()))


@cpu.kernel("CastLike", inplace=FIRST)
def cast_like(input, target_type, saturate=1, round_mode="up"):
    return convert(input, dtypes.from_numpy(target_type.dtype), saturate, round_mode)


@cpu.kernel("BitCast", alias=FIRST)
def bit_cast(input, to):
    source, target = dtypes.from_numpy(input.dtype), dtypes.from_code(to)
    if source.bits != target.bits:
        raise KernelError(f"BitCast needs types of one width, {source} has {source.bits} bits and {target} has {target.bits}")
    return input.view(target.numpy)


@np.errstate(over="ignore", invalid="ignore")
def convert(array: np.ndarray, target: ElementType, saturate: int = 1, round_mode: str = "up") -> np.ndarray:
    """The values of `array` as `target`, by the tables of Cast; what the spec leaves undefined is as in C."""
    if array.dtype == target.numpy:
        return array
    if array.dtype == object:
        array = _parsed(array, target)
    elif target is dtypes.string:
        return _printed(array)
    if array.dtype.isbuiltin != 1:
        array = widened(array)  # ml_dtypes lacks some conversions among its own types
    if target is dtypes.bool_:
        return np.not_equal(array, 0)
    if target is dtypes.float8e8m0:
        return _power_of_two(array, saturate, round_mode)
    if target in dtypes.FLOAT8 and saturate:
        limit = float(ml_dtypes.finfo(target.numpy).max)
        array = np.clip(array if array.dtype.kind == "f" else array.astype(np.float32), -limit, limit)
    return converted(array, target.numpy)


def _power_of_two(array, saturate, round_mode):
    """float8e8m0 is a biased exponent alone; 255 is NaN. Zero and negative numbers lie below the smallest power."""
    values = array.astype(np.float64)
    fraction, exponent = np.frexp(values)
    threshold = {"up": np.nextafter(0.5, 1), "down": 1.0, "nearest": 0.75}[round_mode]
    code = exponent + (126 + (fraction >= threshold))
    code = np.where(values > 0, np.where(np.isinf(values), 255, code), -1)
    code = np.clip(code, 0, 254) if saturate else np.where((code < 0) | (code > 254), 255, code)
    return np.where(np.isnan(values), 255, code).astype(np.uint8).view(dtypes.float8e8m0.numpy)


_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def _printed(array):
    """Numbers as text, floats with eight digits as onnxruntime has it."""
    if dtypes.from_numpy(array.dtype) in dtypes.INTS | {dtypes.bool_}:
        texts = [str(int(value)) for value in array.reshape(-1).tolist()]
    else:
        texts = [f"{value:.8g}" for value in array.astype(np.float64).reshape(-1).tolist()]
        texts = [_SPECIAL.get(text, text) for text in texts]
    return _objects(texts, array.shape)


def _objects(items, shape):
    result = np.empty(len(items), object)
    result[:] = items
    return result.reshape(shape)


def _parsed(array, target):
    """Text as numbers: floats of double precision, or integers that wrap into the target like any other."""
    texts = array.reshape(-1).tolist()
    try:
        if target in dtypes.INTS or target is dtypes.bool_:
            numbers = np.array([_whole(text) & 0xFFFFFFFFFFFFFFFF for text in texts], np.uint64)
        else:
            numbers = np.array([float(text) for text in texts], np.float64)
    except (ValueError, OverflowError) as error:
        raise KernelError(f"not a number that {target} can hold: {error}", kind=RuntimeException) from error
    return numbers.reshape(array.shape)


def _whole(text):
    try:
        return int(text)
    except ValueError:
        return int(float(text))
