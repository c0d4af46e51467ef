"""Sizes of sliding windows, for numbers and symbolic sizes alike: what inference and kernels of convolutions and pools share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ir.dim import Dim
from sardonyx.ir.types import Shape

SAME = ("SAME_UPPER", "SAME_LOWER")
NOT_SET = ("NOTSET", "")
LARGEST = 2**31 - 1
"""Of the numbers of a window: those who compute with them multiply two in 64 bits."""
LEAST = {"strides": 1, "dilations": 1, "group": 1, "kernel_shape": 0, "output_padding": 0, "output_shape": 0}
"""Pads may be negative, and crop."""


def output_size(size, span, stride, begin=0, end=0, auto_pad="NOTSET", ceil_mode=0):
    """How many windows of `span` pixels stand `stride` apart on an axis of `size` pixels."""
    if auto_pad in SAME:
        return dim.ceildiv(size, stride)
    if auto_pad == "VALID":
        begin = end = 0
    slack = size + begin + end - span
    if not ceil_mode:
        return dim.floordiv(slack, stride) + 1
    # a window must not start in the padding on the right, see the text of MaxPool and AveragePool
    return dim.minimum(dim.ceildiv(slack, stride) + 1, dim.ceildiv(size + begin, stride))


def transposed_size(size, span, stride, extra=0):
    """How many pixels `size` windows cover that stand `stride` apart, with `extra` ones after the last."""
    return (size - 1) * stride + span + extra


def span_of(kernel, dilation):
    """How many pixels a dilated kernel covers."""
    return (kernel - 1) * dilation + 1


def output_sizes(
    input: Shape,
    kernel: Sequence[Dim],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int | None = 0,
) -> list[Dim]:
    """`output_size` of each spatial axis, from attributes as a node gives them."""
    rank = len(input)
    if len(kernel) != rank:
        raise InferenceError(f"the kernel {_listed(kernel)} does not fit {rank} spatial axes")
    check_numbers([size for size in kernel if isinstance(size, int)], "kernel_shape")
    strides, dilations = per_axis(strides, rank, "strides"), per_axis(dilations, rank, "dilations")
    begin, end = split_pads(pads, rank)
    spans = [span_of(k, d) for k, d in zip(kernel, dilations)]
    axes = zip(input, spans, strides, begin, end)
    return [output_size(*axis, auto_pad=auto_pad, ceil_mode=ceil_mode or 0) for axis in axes]


def per_axis(values: Sequence[int] | None, rank: int, name: str, default: int = 1) -> Sequence[int]:
    """An attribute with one entry per spatial axis."""
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise InferenceError(f"{name} {_listed(values)} do not fit {rank} spatial axes")
    check_numbers(values, name)
    return values


def check_numbers(values: Sequence[int], name: str) -> None:
    """Refuse numbers of a window that are too small or too large to compute with."""
    least = LEAST.get(name, -LARGEST)
    if not all(least <= value <= LARGEST for value in values):
        raise InferenceError(f"{name} {_listed(values)} must lie between {least} and {LARGEST}")


def split_pads(pads: Sequence[int] | None, rank: int) -> tuple[Sequence[int], Sequence[int]]:
    """Pads before and after each spatial axis."""
    both = per_axis(pads, 2 * rank, "pads", default=0)
    return both[:rank], both[rank:]


def pads_same(
    input: Sequence[Dim], output: Sequence[Dim], spans: Sequence[int], strides: Sequence[int], auto_pad: str
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Pads with which `auto_pad`, one of `SAME`, makes as many windows as `output` says."""
    totals = [dim.maximum(0, (o - 1) * t + s - i) for o, t, s, i in zip(output, strides, spans, input, strict=True)]
    return distribute_pads(totals, auto_pad)


def distribute_pads(totals: Sequence[Dim], auto_pad: str) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Halve the padding of each axis; of an odd one SAME_UPPER puts the larger half behind the axis, all else before it."""
    smaller = tuple(dim.floordiv(total, 2) for total in totals)
    larger = tuple(total - less for total, less in zip(totals, smaller))
    return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)


def _listed(values: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"
