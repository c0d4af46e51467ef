"""Transposed convolutions between DequantizeLinear and QuantizeLinear become convolutions of whole numbers.

With stride s, pixels p, p + s, p + 2s … of the result are the image convolved with the taps p, p + s, … backwards. So one convolution makes
s · s images, one for each phase, and DepthToSpace interleaves them. A phase with fewer taps than others is filled up with zero points, or,
where there are many channels, has a convolution of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from sardonyx.ir import Node, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, operand
from sardonyx.optimizer.rewrite import Answer, Skip, rule, skip
from sardonyx.optimizer.rules.quantize_parameters import DQ, Parameters, Q, parameters, product_bias
from sardonyx.optimizer.rules.quantize_units import NAME, NOT_BYTES, factors_of, product_scale
from sardonyx.startup.records import dataclass

SPATIAL = 2
APART = 32
"""From so many results on phases with fewer taps have convolutions of their own."""
TO_THE_END = np.iinfo(np.int64).max

_Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class _Window:
    """The sizes of a transposed convolution of pictures, along each axis."""

    kernel: tuple[int, ...]
    stride: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def taps(self) -> _Pair:
        """Of the phase that has most of them."""
        return self.taps_of((0, 0))

    def taps_of(self, phase: _Pair) -> _Pair:
        rows, columns = (max(1, -(-(size - first) // self.stride)) for size, first in zip(self.kernel, phase))
        return rows, columns

    def runs(self, results: int) -> list[tuple[_Pair, list[_Pair]]]:
        """The taps of convolutions, and the phases that each of them makes, in order."""
        phases: list[_Pair] = [(row, column) for row in range(self.stride) for column in range(self.stride)]
        if results < APART:
            return [(self.taps, phases)]
        return [(taps, list(run)) for taps, run in itertools.groupby(phases, self.taps_of)]

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
    """A convolution for each phase of the stride; those with as many taps are one."""
    factors, result, filters = factors_of(da, db, axis=1), parameters(q), constant(w)
    if isinstance(factors, Skip) or result is None or not result.is_byte:
        return factors if isinstance(factors, Skip) else NOT_BYTES
    window = None if filters is None else _window(f, filters)
    if filters is None or window is None:
        return skip("not constant filters of pictures in one group, without dilations, with one stride and plain pads")
    added = _checked_bias(op, bias, product_scale(*factors), filters.shape[1])
    if isinstance(added, Skip):
        return added
    unit = _Unit(x, factors, result, filters, added, window)
    images = [_convolution(op, unit, *run) for run in window.runs(filters.shape[1])]
    whole = images[0] if len(images) == 1 else op.Concat(*images, axis=1)
    return _cut(op, whole if window.stride == 1 else op.DepthToSpace(whole, blocksize=window.stride), window)


@dataclass(frozen=True)
class _Unit:
    """A transposed convolution with what is around it."""

    x: Value
    factors: tuple[Parameters, Parameters]
    result: Parameters
    filters: np.ndarray
    bias: np.ndarray | None
    window: _Window


def _convolution(op: Builder, unit: _Unit, taps: _Pair, phases: Sequence[_Pair]) -> Value:
    """The images of some phases, one after the other."""
    image, weights = unit.factors
    added = None if unit.bias is None else op.constant(np.tile(unit.bias, len(phases)))
    filters = op.constant(np.concatenate([_filters(unit, phase, taps) for phase in phases]))
    scale, zero = (_repeated(op, numbers, weights, len(phases)) for numbers in (weights.scale, weights.zero_point))
    pads = [*(count - 1 for count in taps), *unit.window.behind]
    operands = (*image.operands(op), filters, scale, zero, *unit.result.operands(op), added)
    made: Value = op.QLinearConv(unit.x, *operands, pads=pads)
    return made


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


def _filters(unit: _Unit, phase: _Pair, taps: _Pair) -> np.ndarray:
    """The taps of a phase backwards, as filters (results, channels, …) of a convolution, and zero points where there are none."""
    channels, results = unit.filters.shape[:2]
    own = unit.filters[:, :, phase[0] :: unit.window.stride, phase[1] :: unit.window.stride]
    zero = unit.factors[1].zero_point.astype(own.dtype).reshape(1, -1, 1, 1)
    whole = np.broadcast_to(zero, (channels, results, *taps)).copy()
    whole[:, :, : own.shape[2], : own.shape[3]] = own
    return whole[:, :, ::-1, ::-1].swapaxes(0, 1)


def _repeated(op: Builder, numbers: np.ndarray, weights: Parameters, count: int) -> Value:
    """A scale or zero point of filters, repeated for each phase if there is one for each result."""
    return op.constant(numbers if weights.axis is None else np.tile(numbers, count))


def _checked_bias(op: Builder, bias: Value | None, scale: np.ndarray, results: int) -> np.ndarray | Skip | None:
    added = product_bias(op, bias, scale)
    if added is None or isinstance(added, Skip):
        return added
    numbers = constant(added)
    if numbers is None or numbers.shape != (results,):
        return skip("the bias is not constant, one number for each channel")
    return numbers


def _cut(op: Builder, whole: Value, window: _Window) -> Value:
    """The part of all phases that is the result."""
    if not any((*window.begin, *window.surplus)):
        return whole
    ends = [-size if size else TO_THE_END for size in window.surplus]
    starts, stops, axes = (op.constant(np.array(numbers, np.int64)) for numbers in (window.begin, ends, (2, 3)))
    made: Value = op.Slice(whole, starts, stops, axes)
    return made


TRANSPOSED = [quantized_transposed_convolution]
