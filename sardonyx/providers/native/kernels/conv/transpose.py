"""Lowerings of transposed convolutions: all products of pixels and taps, then for each pixel of the result the sum of its own.

Where windows neither overlap nor leave gaps, each product is a pixel of the result already, and is written there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.ops.window import LARGEST, SAME, distribute_pads, span_of, transposed_size
from sardonyx.providers.native.kernels.conv.filters import Filters
from sardonyx.providers.native.kernels.conv.form import (
    MAX_SPATIAL,
    Geometry,
    filters_of,
    input_view,
    is_kernel_possible,
    kernel_of,
    last_order,
    require_filters,
)
from sardonyx.providers.native.kernels.conv.operators import product_step
from sardonyx.providers.native.kernels.conv.transpose_kernels import (
    Spread,
    SpreadArguments,
    TransposedAxis,
    spread_kernel,
    spread_rows_kernel,
)
from sardonyx.providers.native.kernels.conv.windows import Windows, explicit_pads, steps_of
from sardonyx.providers.native.program.arguments import Pointer
from sardonyx.providers.native.program.chain import Chain, Given, Load, Store, pattern, stride_arguments
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Argument, At, Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, fixed, may_equal, may_have_shape, required, shape_of
from sardonyx.providers.native.program.views import Dims, View, collapse, contiguous_strides
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass, replace

WIDENED = PackedFormat("widened")
PIECE_ELEMENTS = 16384
"""How many sums are worth handing to another thread."""
FEW_CHANNELS = 8
"""Below so many channels vectors run along rows."""
MAX_PHASES = 4
"""Up to this stride the phases of a depthwise one are convolutions of their own."""
LONGEST_STRIDE = 1 << 16
"""Beyond this the table of a stride's phases is not worth its memory."""
LONGEST_ROW = 1 << 22
"""Positions along a row are divided as float32."""


@dataclass(frozen=True)
class Transposed(Windows):
    """A transposed convolution's sizes. `channels` and `filters` are those of one group.

    Where a run tells how large filters are, these and the kernel are symbols.
    """

    groups: int
    channels: int
    filters: int

    @property
    def is_tiling(self) -> bool:
        """Whether each pixel of the result is given one product."""
        covered = all(o == i * k for o, i, k in zip(self.output, self.input, self.kernel))
        even = all(dilation == 1 or size == 1 for dilation, size in zip(self.dilations, self.kernel))
        return self.kernel == self.strides and even and covered and all(size == 0 for size in self.begin)


def transposed_of(node: Node) -> Transposed:
    image, output, filters = dims(required(node.inputs[0]))[2:], dims(node.outputs[0])[2:], dims(required(node.inputs[1]))
    groups = int(operand(node, "group") or 1)
    kernel = kernel_of(node, required(node.inputs[1]))
    strides, dilations = steps_of(node, len(image))
    begin, end = _left_out(node, image, output, [span_of(*axis) for axis in zip(kernel, dilations)], strides)  # type: ignore[no-untyped-call]
    depth, count = cast(int, dim.floordiv(filters[0], groups)), cast(int, filters[1])
    return Transposed(kernel, strides, dilations, begin, end, image, output, groups, depth, count)


def _left_out(node: Node, image: Dims, output: Dims, spans: Sequence[int], strides: Sequence[int]) -> tuple[Dims, Dims]:
    """How many pixels that windows cover are not in the result, before and behind each axis."""
    auto_pad, rank = operand(node, "auto_pad") or "NOTSET", len(image)
    if not operand(node, "output_shape") and auto_pad not in SAME:
        return explicit_pads(node, rank)
    extra = operand(node, "output_padding") or (0,) * rank
    full = [transposed_size(*axis) for axis in zip(image, spans, strides, extra)]  # type: ignore[no-untyped-call]
    return distribute_pads([dim.maximum(0, size - wanted) for size, wanted in zip(full, output)], auto_pad)


def _claims(node: Node) -> bool:
    """Floats, filters of known sizes, all sizes that fit; depthwise ones are composed."""
    X, W, B = (*node.inputs, None, None)[:3]
    if X is None or W is None or has_phases(node):
        return False
    types = {element_of(value) for value in (X, W, B, node.outputs[0]) if value is not None}
    type = types.pop()
    if types or type is None or not type.is_float:
        return False
    return _sizes_fit(node, X, W, B)


def has_phases(node: Node) -> bool:
    """Whether each filter sees one channel, and strides are so short that all their phases can be computed apart."""
    filters, group = shape_of(required(node.inputs[1])), int(operand(node, "group") or 1)
    strides, dilations = operand(node, "strides") or (), operand(node, "dilations") or ()
    if filters is None or not all(isinstance(size, int) and size > 0 for size in filters) or len(filters) > 4:
        return False
    if operand(node, "output_shape"):
        return False
    is_depthwise = group >= FEW_CHANNELS and filters[0] == group and filters[1] == 1
    return is_depthwise and all(0 < step <= MAX_PHASES for step in strides) and all(step == 1 for step in dilations)


def _sizes_fit(node: Node, X: Value, W: Value, B: Value | None) -> bool:
    shape, filters, output = shape_of(X), shape_of(W), shape_of(node.outputs[0])
    if shape is None or filters is None or output is None or not 3 <= len(shape) <= 2 + MAX_SPATIAL:
        return False
    group = int(operand(node, "group") or 1)
    if len(filters) != len(shape) or 0 in filters or group < 1 or not is_kernel_possible(node, W):
        return False
    steps = [*(operand(node, "strides") or ()), *(operand(node, "dilations") or ())]
    if not may_equal(dim.mod(filters[0], group), 0) or max(steps, default=1) > LONGEST_STRIDE:
        return False
    has_bias = B is None or may_have_shape(shape_of(B), (filters[1] * group,))
    return has_bias and may_equal(shape[1], filters[0]) and min(steps, default=1) > 0


@lower("ConvTranspose", claims=_claims, strided=True)
def conv_transpose(lowerer: Lowerer, node: Node) -> None:
    sizes = transposed_of(node)
    for size in sizes.output:
        lowerer.require(dim.maximum(size, 0), size)
    results = sizes.groups * sizes.filters
    require_filters(lowerer, *filters_of(node), sizes.kernel, sizes.groups * sizes.channels, results)
    view = input_view(lowerer, node, sizes.groups * sizes.channels)
    is_wide = sizes.groups == 1 and not _has_few_filters(sizes)
    if sizes.is_tiling and is_wide and _rows_are_even(view):
        _tiled(lowerer, node, sizes, view)
    else:
        _spread(lowerer, node, sizes, view)


def pointwise(sizes: Transposed, batch: Dim, image: Dims, filters: int) -> Geometry:
    """The convolution that multiplies each pixel by some filters per group."""
    ones, zeros = (1,) * len(image), (0,) * len(image)
    windows = Windows(ones, ones, ones, zeros, zeros, image, image)
    return Geometry(**vars(windows), batch=batch, groups=sizes.groups, channels=sizes.channels, filters=filters)


# --- windows side by side -------------------------------------------------------------------------------------------


def _rows_are_even(view: View) -> bool:
    """Whether rows of all images lie equally far apart."""
    sizes, _ = collapse(view.shape[:1] + view.shape[2:-1], [view.strides[:1] + view.strides[2:-1]])
    return len(view.shape) <= 4 and len(sizes) == 1


def _tiled(lowerer: Lowerer, node: Node, sizes: Transposed, view: View) -> None:
    """A product for each tap, written to its pixels of the result."""
    rank, width = len(view.shape), sizes.kernel[-1]
    sink = lowerer.sink(node, (rank - 2, 1, 1), order=last_order(rank))
    W, B = filters_of(node)
    lines, (steps,) = collapse(view.shape[:1] + view.shape[2:-1], [view.strides[:1] + view.strides[2:-1]])
    image = view.shape[-1:]
    rows = replace(view, shape=(*lines, view.shape[1], *image), strides=(*steps, view.strides[1], view.strides[-1]))
    geometry = pointwise(sizes, lines[0], image, sizes.filters)
    for tap in range(sizes.taps):
        arrange = functools.partial(_filters_of_tap, sizes, tap)
        filters = Filters(W, B, ("tap", tap), arrange, functools.partial(_tap_of_view, sizes, tap))
        target = every(sink, (tap // width, tap % width), (sizes.taps // width, width))
        product_step(lowerer, geometry, rows, filters, target)


def _filters_of_tap(sizes: Transposed, tap: int, weights: np.ndarray) -> np.ndarray:
    taken = weights.reshape(sizes.channels, sizes.filters, sizes.taps)[:, :, tap]
    return np.ascontiguousarray(taken.T).reshape(sizes.filters, sizes.channels, 1)


def _tap_of_view(sizes: Transposed, tap: int, view: View) -> View:
    """The same of filters that are computed."""
    apart = view.reshaped((sizes.channels, sizes.filters, sizes.taps))
    assert apart is not None
    return apart.sliced(2, tap, 1).transposed((2, 1, 0))


def every(sink: Sink, first: tuple[int, int], step: tuple[int, int]) -> Sink:
    """Of a sink of rows, pixels and channels every so-and-so-manieth row and pixel."""
    rest = iter(sink.arguments)
    arguments: list[Argument] = []

    def placed(operand: Load | Store) -> tuple[str, ...]:
        place = next(rest)
        assert isinstance(place, At)
        strides = [_stride(next(rest)) if kind == "n" else int(kind) for kind in operand.strides]
        offset = strides[0] * first[0] + strides[1] * first[1]
        moved = (strides[0] * step[0], strides[1] * step[1], strides[2])
        arguments.append(At(place.buffer, place.offset + offset * operand.type.bytes))
        arguments.extend(stride for stride, kind in zip(moved, pattern(moved)) if kind == "n")
        return pattern(moved)

    items = [Load(item.type, placed(item)) if isinstance(item, Load) else item for item in sink.chain.items]
    stores = tuple(Store(store.item, store.type, placed(store)) for store in sink.chain.stores)
    return Sink((), Chain(3, tuple(items), stores), arguments)


def _stride(argument: Argument) -> Dim:
    assert not isinstance(argument, (float, At, Buffer))
    return argument


# --- windows that overlap -------------------------------------------------------------------------------------------


def _spread(lowerer: Lowerer, node: Node, sizes: Transposed, view: View) -> None:
    """All products into memory; then each pixel of the result adds up its own."""
    spread_step(lowerer, node, sizes, _products(lowerer, node, sizes, view), view.shape[0], filters_of(node)[1])


def spread_step(lowerer: Lowerer, node: Node, sizes: Transposed, products: View, batch: Dim, B: Value | None) -> None:
    """Add up the products (images, pixels, groups · taps · filters) that each pixel of the result is given."""
    rank, type = 2 + len(sizes.input), products.type
    in_rows = _has_few_filters(sizes)
    sink = lowerer.sink(node, (1, 1, rank - 2) if in_rows else (1, rank - 2, 1), order=None if in_rows else last_order(rank))
    channels = sizes.groups * sizes.filters
    dtype = np.dtype(f"{'f' if type.is_float else 'i'}{type.bytes}")
    bias: Pointer
    if B is None:
        bias = lowerer.zeros(channels, type)
    elif lowerer.can_pack(B):
        size = fixed(dims(B)[0], "a constant bias") * type.bytes
        (bias,) = lowerer.packed([B], WIDENED, (dtype.str,), [size], lambda array: [array.astype(dtype)])
    else:
        bias = lowerer.scratch(channels * type.bytes)
        lowerer.copy(lowerer.view(B), View(bias, type, (channels,), (1,)))
    pixels = dim.product(sizes.output)
    if in_rows:
        lowerer.require(dim.minimum(sizes.output[-1], LONGEST_ROW), sizes.output[-1])
    kernel, items = (spread_rows_kernel, channels * dim.product(sizes.output[:-1])) if in_rows else (spread_kernel, pixels)
    each = sizes.output[-1] if in_rows else channels
    total = batch * pixels * channels
    lowerer.call(
        kernel(lowerer.target, Spread(type, len(sizes.kernel)), sink.chain),
        SpreadArguments(
            products=products.place,
            bias=bias,
            groups=sizes.groups,
            filters=sizes.filters,
            image_step=products.strides[0],
            taps=sizes.taps,
            axes=_axes(lowerer, sizes, products),
            sink=sink.arguments,
        ),
        batch * items,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, each))),
        flops=dim.product(products.shape),
        traffic=(dim.product(products.shape) + total) * type.bytes,
    )


def _has_few_filters(sizes: Transposed) -> bool:
    return isinstance(sizes.filters, int) and sizes.filters < FEW_CHANNELS


def _products(lowerer: Lowerer, node: Node, sizes: Transposed, view: View) -> View:
    """(images, pixels, groups · taps · filters)."""
    filters = sizes.taps * sizes.filters
    shape = (view.shape[0], dim.product(sizes.input), sizes.groups * filters)
    products = View(lowerer.scratch(dim.product(shape) * view.type.bytes), view.type, shape, contiguous_strides(shape))
    chain = Chain(3, (Given(view.type),), (Store(0, view.type, pattern(products.strides)),))
    sink = Sink(shape, chain, stride_arguments(products, products.strides))
    geometry = pointwise(sizes, view.shape[0], view.shape[2:], filters)
    arrange, arrange_view = functools.partial(_all_taps, sizes), functools.partial(_taps_of_view, sizes)
    product_step(lowerer, geometry, view, Filters(filters_of(node)[0], None, ("taps",), arrange, arrange_view), sink)
    return products


def _all_taps(sizes: Transposed, weights: np.ndarray) -> np.ndarray:
    """Each tap of a filter as a filter of its own."""
    taps = weights.reshape(sizes.groups, sizes.channels, sizes.filters, sizes.taps).transpose(0, 3, 2, 1)
    return np.ascontiguousarray(taps).reshape(-1, sizes.channels, *(1,) * len(sizes.kernel))


def _taps_of_view(sizes: Transposed, view: View) -> View:
    """The same of filters that are computed."""
    taps = view.reshaped((sizes.groups, sizes.channels, sizes.filters, sizes.taps))
    assert taps is not None
    return taps.transposed((0, 3, 2, 1))


def _axes(lowerer: Lowerer, sizes: Transposed, products: View) -> list[TransposedAxis]:
    pixel_steps = contiguous_strides((*sizes.input, products.shape[-1]))
    tap_steps = contiguous_strides((*sizes.kernel, sizes.filters))
    axes = []
    for number, (stride, dilation) in enumerate(zip(sizes.strides, sizes.dilations)):
        common = math.gcd(stride, dilation)
        axis = TransposedAxis(
            **sizes.axis(number),
            pixel_step=pixel_steps[number],
            tap_step=tap_steps[number],
            next_tap=stride // common,
            back=dilation // common,
            first_taps=lowerer.constant(_first_taps(stride, dilation)),
        )
        axes.append(axis)
    return axes


def _first_taps(stride: int, dilation: int) -> np.ndarray:
    """By a pixel's place modulo the stride, the first tap that meets it, if there are so many; more than there can be if none does."""
    first = np.full(stride, LARGEST, np.int64)
    taps = np.arange(stride // math.gcd(stride, dilation))
    first[taps * dilation % stride] = taps
    return first
