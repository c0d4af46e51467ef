"""Lowerings of convolutions. Inside a cluster their images lie with the channels last, whatever the order of the axes in the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.ir import Dim, Node, dim
from sardonyx.providers.native.kernels.conv import depthwise, fused, strassen, winograd
from sardonyx.providers.native.kernels.conv.choice import Algorithm, Candidate, Convolution, quickest
from sardonyx.providers.native.kernels.conv.direct import (
    MOST_ROW_PIXELS,
    PART,
    ConvArguments,
    Tile,
    conv_kernel,
    grain_of,
    in_rows,
    tile_for,
)
from sardonyx.providers.native.kernels.conv.filters import Filters
from sardonyx.providers.native.kernels.conv.form import (
    Geometry,
    arrange_sum,
    arranged_view,
    axes_of,
    claims_convolution,
    filters_of,
    geometry_of,
    has_open_filters,
    input_view,
    is_channels_last,
    last_order,
    operations_of,
    require_filters,
)
from sardonyx.providers.native.kernels.conv.rows import padded_rows
from sardonyx.providers.native.program.arguments import Pointer
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import replace

CONTRIB = "com.microsoft"
FEW_CHANNELS = 8
"""Up to so many channels the taps of a row are summed as one."""
MOST_STRIDE = 32
"""Up to this stride there is memory behind the windows of a row for those that a tile lacks."""


@lower("Conv", claims=claims_convolution, strided=True)
def conv(lowerer: Lowerer, node: Node) -> None:
    convolution_steps(lowerer, node)


@lower("FusedConv", domain=CONTRIB, claims=claims_convolution, strided=True)
@lower("NhwcFusedConv", domain=CONTRIB, claims=claims_convolution)
def fused_conv(lowerer: Lowerer, node: Node) -> None:
    convolution_steps(lowerer, node)


def convolution_steps(lowerer: Lowerer, node: Node) -> None:
    """Add the steps of a convolution, by the algorithm that is quickest for it."""
    geometry = geometry_of(node)
    for size in geometry.output:
        lowerer.require(dim.maximum(size, 0), size)
    count = geometry.groups * geometry.filters
    require_filters(lowerer, *filters_of(node), geometry.kernel, count, count)
    expansion = fused.expansion_of(lowerer, node)
    if expansion is not None:
        fused.fused_steps(lowerer, node, geometry, expansion, sink_of(lowerer, node))
        return
    if has_open_filters(node):
        _open_steps(lowerer, node, geometry)
        return
    if has_short_rows(geometry):
        view, folded, has_slack = _folded(lowerer, node, geometry)
        _quickest_steps(lowerer, node, folded, view, PRODUCTS, has_slack)
        return
    _quickest_steps(lowerer, node, geometry, input_view(lowerer, node, geometry.all_channels), ALGORITHMS)


def _open_steps(lowerer: Lowerer, node: Node, geometry: Geometry) -> None:
    """Add the steps for filters of open size: the direct sum, over rows of the window where these follow each other in memory.

    Filters of open size are mostly gradients that slide over images. They are nearly as large as these, and their channels, the batch, few.
    """
    if geometry.groups == 1 and geometry.dilations[-1] == 1 and is_padded(geometry):
        view, folded, _ = _folded(lowerer, node, geometry)
        _quickest_steps(lowerer, node, folded, view, (direct,))
    else:
        from sardonyx.providers.native.kernels.conv import grouped

        algorithms = (direct, grouped.candidates)
        _quickest_steps(lowerer, node, geometry, input_view(lowerer, node, geometry.all_channels), algorithms)


def has_short_rows(geometry: Geometry) -> bool:
    """Whether there are so few channels that a row of the window should be summed over as one."""
    few = geometry.groups == 1 and geometry.channels <= FEW_CHANNELS
    return few and geometry.kernel[-1] > 1 and geometry.dilations[-1] == 1 and is_padded(geometry)


def is_padded(geometry: Geometry) -> bool:
    """Whether rows are made longer, if they change: nothing is cut off them."""
    return all(not isinstance(size, int) or size >= 0 for size in (geometry.begin[-1], geometry.end[-1]))


def with_taps_as_channels(geometry: Geometry) -> Geometry:
    """The same convolution with the taps along the last axis as channels, over rows that are padded already."""
    taps, stride = geometry.kernel[-1], geometry.strides[-1]
    width = dim.maximum((geometry.output[-1] - 1) * stride + taps, 0)
    return replace(
        geometry,
        channels=geometry.channels * taps,
        kernel=(*geometry.kernel[:-1], 1),
        begin=(*geometry.begin[:-1], 0),
        end=(*geometry.end[:-1], 0),
        input=(*geometry.input[:-1], width),
    )


def _folded(lowerer: Lowerer, node: Node, geometry: Geometry) -> tuple[View, Geometry, bool]:
    """An image and the geometry of its convolution with taps as channels: windows of one row follow each other in memory.

    And whether tiles of such windows may be read behind the last one.
    """
    view, folded = arranged_view(lowerer, node, geometry.all_channels), with_taps_as_channels(geometry)
    if _has_even_rows(view, geometry):
        return view, folded, False
    has_slack = geometry.strides[-1] <= MOST_STRIDE
    slack = MOST_ROW_PIXELS * geometry.strides[-1] * geometry.channels if has_slack else 0
    return padded_rows(lowerer, view, view.type.computed, geometry.begin[-1], folded.input[-1], slack), folded, has_slack


def _has_even_rows(view: View, geometry: Geometry) -> bool:
    """Whether an image can be read as it is, because no zeros are wanted beside its rows."""
    is_dense = view.strides[-1] == geometry.channels and (view.strides[1] == 1 or geometry.channels == 1)
    return is_dense and view.type == view.type.computed and geometry.begin[-1] == 0 and geometry.end[-1] == 0


def sink_of(lowerer: Lowerer, node: Node) -> Sink:
    """Where the result goes, as images of pixels of channels."""
    arrange_sum(lowerer, node)
    rank = len(geometry_of(node).kernel) + 2
    order = None if is_channels_last(node) else last_order(rank)
    return lowerer.sink(node, (1, rank - 2, 1), operations=operations_of(node), order=order)


def _quickest_steps(
    lowerer: Lowerer, node: Node, geometry: Geometry, view: View, algorithms: Sequence[Algorithm], has_slack: bool = False
) -> None:
    choice = quickest(Convolution(lowerer, geometry, view, Filters(*filters_of(node)), has_slack), algorithms)
    sink = sink_of(lowerer, node)
    if not (choice.candidate.waits and fused.put_off(lowerer, node, geometry, view, sink)):
        choice.add(lowerer, sink)


def product_step(lowerer: Lowerer, geometry: Geometry, view: View, filters: Filters, sink: Sink) -> None:
    """Add the step of a convolution whose windows are summed as they are; `sink` is a domain of images, pixels and filters."""
    quickest(Convolution(lowerer, geometry, view, filters), PRODUCTS).add(lowerer, sink)


def direct(convolution: Convolution) -> Iterator[Candidate]:
    """The sum that the standard writes down, which fits all convolutions."""
    yield Candidate("direct", convolution.direct_cycles, lambda sink: direct_step(convolution, sink), waits=True)


def direct_step(convolution: Convolution, sink: Sink) -> None:
    lowerer, geometry, view, flat = convolution.lowerer, convolution.geometry, convolution.view, convolution.flat
    axes = 0 if flat is not None else len(geometry.kernel)
    step = view.strides[-1] * geometry.strides[-1]
    tile = tile_for(lowerer.target, view.type, convolution.supposed_filters, axes, step)
    if convolution.has_slack and axes == 2 and geometry.channels * geometry.taps <= PART and isinstance(step, int):
        tile = in_rows(lowerer.target, tile, step, geometry.output[-1])
    packed, bias = convolution.filters.panels(lowerer, geometry, tile.width, view.type)
    zeros = lowerer.zeros(geometry.channels, view.type)
    conv_step(lowerer, geometry, view, flat, tile, (packed, bias, zeros), geometry.channels, sink)


def conv_step(
    lowerer: Lowerer,
    geometry: Geometry,
    view: View,
    flat: Dim | None,
    tile: Tile,
    constants: tuple[Pointer, Pointer, Pointer],
    group_step: Dim,
    sink: Sink,
) -> None:
    """Add the step of a direct sum; `constants` are filters, bias and a pixel of the padding, channels are counted as the tile's type."""
    packed, bias, zeros = constants
    rows, width = (1, geometry.positions) if tile.step is None else geometry.output
    tiles = rows * dim.ceildiv(width, tile.pixels)
    lowerer.call(
        conv_kernel(lowerer.target, tile, sink.chain),
        ConvArguments(
            x=view.place,
            w=packed,
            bias=bias,
            zeros=zeros,
            groups=geometry.groups,
            channels=geometry.channels,
            filters=geometry.filters,
            positions=geometry.positions,
            group_step=group_step,
            block=_block(lowerer, geometry, tile, view),
            image_step=view.strides[0],
            pixel_step=flat,
            axes=[] if flat is not None else axes_of(geometry, view),
            sink=sink.arguments,
        ),
        geometry.batch * tiles * (geometry.groups * dim.ceildiv(geometry.filters, tile.width)),
        grain_of(tile, geometry.positions, geometry.channels * geometry.taps),
        flops=geometry.flops * tile.multiply.depth,
        traffic=_traffic(geometry, tile.type.bytes),
    )


def _block(lowerer: Lowerer, geometry: Geometry, tile: Tile, view: View) -> Dim:
    """How many tiles pass by a panel of filters before the next panel comes."""
    bytes = geometry.channels * geometry.taps * geometry.filters * tile.type.bytes
    if isinstance(bytes, int) and bytes <= lowerer.budgets.window_filters:
        return 1
    # neighbouring tiles share most of what their windows cover; where taps are channels, pixels lie nearer than these are many
    pixel = dim.minimum(view.strides[-1] * view.type.bytes, geometry.channels * tile.type.bytes)
    fresh = pixel * (tile.pixels * dim.product(geometry.strides))
    return dim.maximum(1, dim.floordiv(lowerer.budgets.window_block, dim.maximum(1, fresh)))


def _traffic(geometry: Geometry, bytes: int) -> Dim:
    pixels = dim.product(geometry.input) * geometry.channels + geometry.positions * geometry.filters
    weights = geometry.groups * geometry.filters * geometry.channels * geometry.taps
    return (geometry.batch * geometry.groups * pixels + weights) * bytes


PRODUCTS: tuple[Algorithm, ...] = (direct, strassen.candidates)
"""What sums windows as they are: the quicker of these may wait for a depthwise convolution."""
ALGORITHMS: tuple[Algorithm, ...] = (*PRODUCTS, depthwise.candidates, winograd.candidates)
"""All that there are."""
