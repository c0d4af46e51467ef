"""Geometry of sliding windows: pads, output sizes, and what each kernel tap meets. Convolutions and pools compute with it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from sardonyx.errors import Fail, KernelError
from sardonyx.ops.window import LARGEST, SAME, output_size, pads_same, span_of
from sardonyx.providers.cpu.shape import bounded, braced
from sardonyx.providers.termination import watched
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Window:
    """A kernel sliding over the spatial axes, one entry per axis; auto_pad and absent attributes are resolved."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    output: tuple[int, ...]

    def taps(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.kernel))

    def meeting(self, axis: int, tap: int, size: int) -> tuple[slice, slice]:
        """Positions of the window whose `tap` lies inside an axis of `size` pixels, and the pixels it meets there."""
        stride = self.strides[axis]
        offset = tap * self.dilations[axis] - self.begin[axis]
        first = max(0, -(offset // stride))
        last = min(self.output[axis], -((offset - size) // stride))
        if last <= first:
            return slice(0, 0), slice(0, 0)
        return slice(first, last), slice(offset + first * stride, offset + (last - 1) * stride + 1, stride)

    def meetings(self, tap: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """`meeting` of all spatial axes: an index of the window's positions and one of the pixels."""
        pairs = [self.meeting(axis, t, size) for axis, (t, size) in enumerate(zip(tap, sizes, strict=True))]
        return tuple(p for p, _ in pairs), tuple(q for _, q in pairs)


MAX_TAPS = 1 << 22
"""Pools take one tap after the other: a hostile kernel must not keep them busy forever."""


def make_window(
    input,
    kernel_shape,
    strides=None,
    dilations=None,
    pads=None,
    auto_pad="NOTSET",
    ceil_mode=0,
    *,
    refusal: type[Exception] = Fail,
) -> Window:
    """The window of a convolution or pool over the spatial sizes `input`. If it does not fit, the run fails with `refusal`."""
    rank = len(input)
    kernel = tuple(map(int, kernel_shape))
    if len(kernel) != rank:
        raise KernelError(f"kernel_shape is {list(kernel)}, but the input has {rank} spatial axes")
    if any(size < 0 for size in kernel) or math.prod(kernel) > MAX_TAPS:
        raise KernelError(f"kernel_shape {list(kernel)} is negative or has more than {MAX_TAPS} taps")
    strides = per_axis(strides, rank, "strides")
    dilations = per_axis(dilations, rank, "dilations")
    begin, end = split_pads(pads, rank)
    spans = [span_of(k, d) for k, d in zip(kernel, dilations, strict=True)]
    axes = zip(input, spans, strides, begin, end, strict=True)
    output = tuple(output_size(*axis, auto_pad=auto_pad, ceil_mode=ceil_mode) for axis in axes)
    if auto_pad in SAME:
        begin, end = pads_same(input, output, spans, strides, auto_pad)  # type: ignore[assignment]
    elif auto_pad == "VALID":
        begin = end = (0,) * rank
    if any(size < 0 for size in output):
        raise KernelError(
            f"Invalid input shape: {braced(input)}. Calculated output dimension is negative: the kernel covers {spans} pixels and "
            f"does not fit into {list(input)} padded by {[*begin, *end]}",
            refusal,
        )
    return Window(kernel, strides, dilations, begin, end, output)


def per_axis(values, rank, name) -> tuple[int, ...]:
    """An attribute with one entry per spatial axis, ones if absent."""
    if values is None or len(values) == 0:
        return (1,) * rank
    if len(values) != rank:
        raise KernelError(f"{name} is {list(values)}, but the input has {rank} spatial axes")
    return tuple(int(value) for value in values)


def split_pads(pads, rank) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads before and after each spatial axis."""
    if pads is None or len(pads) == 0:
        return (0,) * rank, (0,) * rank
    if len(pads) != 2 * rank:
        raise KernelError(f"pads is {list(pads)}, but the input has {rank} spatial axes")
    if not all(-LARGEST <= pad <= LARGEST for pad in pads):
        raise KernelError(f"pads {list(pads)} must lie between {-LARGEST} and {LARGEST}")
    return tuple(int(p) for p in pads[:rank]), tuple(int(p) for p in pads[rank:])


def padded(X, window):
    """X with zeros around its spatial axes; negative pads crop."""
    if not any(window.begin) and not any(window.end):
        return X
    lead = X.ndim - len(window.begin)
    sizes = [s + b + e for s, b, e in zip(X.shape[lead:], window.begin, window.end, strict=True)]
    result = np.zeros(bounded((*X.shape[:lead], *(max(0, s) for s in sizes)), X.dtype), X.dtype)
    inside, source = [], []
    for size, begin, end in zip(X.shape[lead:], window.begin, window.end, strict=True):
        source.append(slice(max(0, -begin), size + min(0, end)))
        inside.append(slice(max(0, begin), max(0, begin) + max(0, size + min(0, end) - max(0, -begin))))
    result[(..., *inside)] = X[(..., *source)]
    return result


def windows(X, window):
    """A view of a padded X, (..., *kernel, *output), without copying a pixel."""
    lead = X.ndim - len(window.kernel)
    steps = X.strides[lead:]
    tap_strides = tuple(step * d for step, d in zip(steps, window.dilations, strict=True))
    window_strides = tuple(step * s for step, s in zip(steps, window.strides, strict=True))
    shape = (*X.shape[:lead], *window.kernel, *window.output)
    return as_strided(X, shape, (*X.strides[:lead], *tap_strides, *window_strides), writeable=False)


def tap_view(X, window, tap):
    """The pixels of a padded X under one tap, (..., *output)."""
    places = zip(tap, window.dilations, window.strides, window.output, strict=True)
    return X[(..., *(slice(t * d, t * d + (n - 1) * s + 1 if n else t * d, s) for t, d, s, n in places))]


def fold(columns, window, image):
    """Add what each window holds, (..., *kernel, *output), to the pixels it covers: the transpose of `windows`."""
    lead = columns.ndim - 2 * len(window.kernel)
    result = np.zeros(bounded((*columns.shape[:lead], *image), columns.dtype), columns.dtype)
    if columns.dtype == object:
        result[...] = ""
    sizes = tuple(image)
    for tap in watched(window.taps()):
        positions, pixels = window.meetings(tap, sizes)
        result[(..., *pixels)] += columns[(*(slice(None),) * lead, *tap, *positions)]
    return result


def boxes(shape, budget) -> Iterator[tuple[slice, ...]]:
    """Cut an index space into boxes of at most `budget` cells, trailing axes kept whole as long as they fit."""
    sizes: list[int] = []
    for extent in reversed(shape):
        sizes.insert(0, max(1, min(extent, budget)))
        budget = max(1, budget // sizes[0])
    starts = (range(0, extent, size) for extent, size in zip(shape, sizes, strict=True))
    for corner in watched(itertools.product(*starts)):
        yield tuple(slice(c, min(c + s, e)) for c, s, e in zip(corner, sizes, shape, strict=True))
