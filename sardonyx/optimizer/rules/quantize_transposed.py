"""Transposed convolutions between DequantizeLinear and QuantizeLinear become convolutions of whole numbers.

With stride s, pixels p, p + s, p + 2s … of the result are the image convolved with the taps p, p + s, … backwards. So one convolution makes
s · s images, one for each phase, and DepthToSpace interleaves them. A phase with fewer taps than others is filled up with zero points.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir import Node, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, operand
from sardonyx.optimizer.rewrite import Answer, Skip, rule, skip
from sardonyx.optimizer.rules.quantize_parameters import DQ, Parameters, Q, parameters, product_bias
from sardonyx.optimizer.rules.quantize_units import NAME, NOT_BYTES, factors_of, product_scale
from sardonyx.startup.records import dataclass

SPATIAL = 2
TO_THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Window:
    """The sizes of a transposed convolution of pictures, along each axis."""

    kernel: tuple[int, ...]
    stride: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def taps(self) -> list[int]:
        """Of the phase that has most of them."""
        return [-(-size // self.stride) for size in self.kernel]

    @property
    def behind(self) -> list[int]:
        """How many pixels of a phase there are behind the image, so that it reaches the last pixel of the result."""
        return [-(-(size + extra) // self.stride) - 1 for size, extra in zip(self.kernel, self.extra)]

    @property
    def surplus(self) -> list[int]:
        """How many pixels all phases together have behind the last one of the result."""
        sizes = zip(self.behind, self.kernel, self.extra, self.end)
        return [(behind + 1) * self.stride - kernel - extra + end for behind, kernel, extra, end in sizes]


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(w, ...); q:{Q}(f:ConvTranspose(a, b, bias?), ...)", keep=("a", "b"), name=NAME)
def quantized_transposed_convolution(
    op: Builder, x: Value, w: Value, bias: Value | None, da: Node, db: Node, f: Node, q: Node
) -> Answer:
    """A convolution for each phase of the stride, all of them as one."""
    factors, result, filters = factors_of(da, db, axis=1), parameters(q), constant(w)
    if isinstance(factors, Skip) or result is None or not result.is_byte:
        return factors if isinstance(factors, Skip) else NOT_BYTES
    window = None if filters is None else _window(f, filters)
    if filters is None or window is None:
        return skip("not constant filters of pictures in one group, without dilations, with one stride and plain pads")
    added = _repeated_bias(op, bias, product_scale(*factors), filters.shape[1], window.stride**SPATIAL)
    if isinstance(added, Skip):
        return added
    phases = op.constant(_phases(filters, factors[1], window))
    scale, zero = (_for_phases(op, numbers, factors[1], window) for numbers in (factors[1].scale, factors[1].zero_point))
    pads = [*(taps - 1 for taps in window.taps), *window.behind]
    images = op.QLinearConv(x, *factors[0].operands(op), phases, scale, zero, *result.operands(op), added, pads=pads)
    return _cut(op, images if window.stride == 1 else op.DepthToSpace(images, blocksize=window.stride), window)


def _window(node: Node, filters: np.ndarray) -> _Window | None:
    """The sizes of a node; None if they are not those of the rule."""
    strides, dilations = (tuple(operand(node, name) or (1,) * SPATIAL) for name in ("strides", "dilations"))
    pads, extra = tuple(operand(node, "pads") or (0,) * 2 * SPATIAL), tuple(operand(node, "output_padding") or (0,) * SPATIAL)
    is_plain = operand(node, "auto_pad") in (None, "", "NOTSET") and not operand(node, "output_shape")
    if filters.ndim != 2 + SPATIAL or not filters.size or not is_plain or operand(node, "group") != 1:
        return None
    kernel = tuple(operand(node, "kernel_shape") or filters.shape[2:])
    if kernel != filters.shape[2:] or len(set(strides)) != 1 or set(dilations) != {1}:
        return None
    if min(*pads, *extra) < 0 or len(pads) != 2 * SPATIAL or len(extra) != SPATIAL:
        return None
    return _Window(kernel, int(strides[0]), pads[:SPATIAL], pads[SPATIAL:], extra)


def _phases(filters: np.ndarray, weights: Parameters, window: _Window) -> np.ndarray:
    """Filters (channels, results, …) as those of a convolution: (phases · results, channels, …), the phases outermost."""
    channels, results = filters.shape[:2]
    stride, (rows, columns) = window.stride, window.taps
    zero = weights.zero_point.astype(filters.dtype).reshape(1, -1, 1, 1)
    whole = np.broadcast_to(zero, (channels, results, rows * stride, columns * stride)).copy()
    whole[:, :, : window.kernel[0], : window.kernel[1]] = filters
    apart = whole.reshape(channels, results, rows, stride, columns, stride)[:, :, ::-1, :, ::-1]
    return np.ascontiguousarray(apart.transpose(3, 5, 1, 0, 2, 4).reshape(stride * stride * results, channels, rows, columns))


def _for_phases(op: Builder, numbers: np.ndarray, weights: Parameters, window: _Window) -> Value:
    """A scale or zero point of filters, repeated for each phase if there is one for each result."""
    return op.constant(numbers if weights.axis is None else np.tile(numbers, window.stride**SPATIAL))


def _repeated_bias(op: Builder, bias: Value | None, scale: np.ndarray, results: int, phases: int) -> Value | Skip | None:
    added = product_bias(op, bias, scale)
    if added is None or isinstance(added, Skip):
        return added
    numbers = constant(added)
    if numbers is None or numbers.shape != (results,):
        return skip("the bias is not constant, one number for each channel")
    return op.constant(np.tile(numbers, phases))


def _cut(op: Builder, whole: Value, window: _Window) -> Value:
    """The part of all phases that is the result."""
    if not any((*window.begin, *window.surplus)):
        return whole
    ends = [-size if size else TO_THE_END for size in window.surplus]
    starts, stops, axes = (op.constant(np.array(numbers, np.int64)) for numbers in (window.begin, ends, (2, 3)))
    made: Value = op.Slice(whole, starts, stops, axes)
    return made


TRANSPOSED = [quantized_transposed_convolution]
