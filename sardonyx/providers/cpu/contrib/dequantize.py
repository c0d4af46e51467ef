"""QuantizeLinear, DequantizeLinear and GatherBlockQuantized of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.quantize import table_fault
from sardonyx.providers.cpu import quantize
from sardonyx.providers.cpu.contrib.linalg import unpack
from sardonyx.providers.cpu.shape import normal_axis
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.kernel_table import widened

contrib = cpu.in_domain("com.microsoft")


@contrib("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point=None, axis=None):
    return quantize.quantize_linear(x, y_scale, y_zero_point, _checked_axis(axis, y_scale))


@contrib("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, axis=None):
    return quantize.dequantize_linear(x, x_scale, x_zero_point, _checked_axis(axis, x_scale))


def _checked_axis(axis, scale):
    if axis is None and scale.size != 1:
        raise KernelError(f"without an axis there is one scale for all, not {scale.size}", InvalidArgument)
    return 1 if axis is None else axis


@contrib("GatherBlockQuantized")
def gather_block_quantized(data, indices, scales, zero_points=None, *, gather_axis=0, quantize_axis=1, block_size=128, bits=4):
    """Only what is gathered is unpacked and dequantized. An index beyond the data yields zeros."""
    gather_axis, quantize_axis = normal_axis(gather_axis, data.ndim), normal_axis(quantize_axis, data.ndim)
    shared = 8 // bits if data.dtype == np.uint8 else 1
    if shared > 1 and gather_axis in (data.ndim - 1, quantize_axis):
        raise KernelError(
            f"with {bits} bits gather_axis {gather_axis} must be neither the last nor quantize_axis", InvalidArgument
        )
    shape, points_shape = (*data.shape[:-1], data.shape[-1] * shared), None if zero_points is None else zero_points.shape
    fault = table_fault(scales.shape, points_shape, shape, quantize_axis, block_size, shared)
    if fault is not None:
        raise KernelError(fault, InvalidArgument)
    size = data.shape[gather_axis]
    valid = (indices >= -size) & (indices < size)
    rows = np.where(valid, indices % max(1, size), 0).reshape(-1)
    if not valid.any():
        data, rows = data[(slice(None),) * gather_axis + (slice(0),)], rows[:0]
    values = np.take(data, rows, axis=gather_axis)
    values = unpack(values, bits, values.shape[-1] * shared) if shared > 1 else values

    length = values.shape[quantize_axis]
    place = rows if gather_axis == quantize_axis else np.arange(length)
    blocks = place // block_size if block_size else np.zeros_like(place)
    values = values.astype(np.float32)
    if zero_points is not None:
        points = zero_points if gather_axis == quantize_axis else _taken(zero_points, rows, gather_axis)
        if shared > 1:
            points = unpack(points, bits, -(-length // block_size) if quantize_axis == data.ndim - 1 else values.shape[-1])
        values -= _taken(points, blocks, quantize_axis).astype(np.float32)
    elif data.dtype == np.uint8:
        values -= np.float32(1 << (bits - 1))
    scales = scales if gather_axis == quantize_axis else _taken(scales, rows, gather_axis)
    values *= widened(_taken(scales, blocks, quantize_axis))
    return _placed(values, valid, gather_axis)


def _taken(parameters, rows, axis):
    """Rows along an axis; a single one broadcasts by itself."""
    return parameters if parameters.shape[axis] == 1 else np.take(parameters, rows, axis=axis)


def _placed(values, valid, axis):
    """The gathered axis in the shape of the indices, with zeros for those that point nowhere."""
    lead, rest = values.shape[:axis], values.shape[axis + 1 :]
    if not valid.any():
        return np.zeros((*lead, *valid.shape, *rest), np.float32)
    if not valid.all():
        values = np.where(valid.reshape(-1, *(1,) * len(rest)), values, np.float32(0))
    return values.reshape((*lead, *valid.shape, *rest))
