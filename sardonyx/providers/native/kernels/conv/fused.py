"""A 1×1 convolution computed by the depthwise one that alone reads its result: the expanded image never goes through memory.

Lowerings of convolutions ask here. The first convolution is put off: what it needs waits in `Scope.expansions` until the second comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.providers.native.kernels.conv.direct import tile_for
from sardonyx.providers.native.kernels.conv.filters import Filters
from sardonyx.providers.native.kernels.conv.form import Geometry, even_step, filters_of, geometry_of, is_channels_last
from sardonyx.providers.native.kernels.conv.fused_kernel import PIXELS, Bands, FusedArguments, FusedForm, fused_kernel
from sardonyx.providers.native.kernels.conv.tiles import grain_for
from sardonyx.providers.native.program.chain import Chain
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import THREADS, ScratchSlots
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass, replace

MAX_TAPS = 7
"""Of a row of the depthwise convolution's window."""
CHUNK = 32
"""Channels of a chunk, as nearly as whole panels are: it reads the image once."""
FEWEST_ROWS = 4
"""Of a band: those that two bands share are moved in between."""
SECTION_ROWS = 14
"""Of a section at least, for those that two sections share are computed twice."""
SECTIONS_PER_THREAD = 4
IDLE_ROWS = 6
"""Expanded rows of a section at least, where threads would have nothing to do otherwise."""


@dataclass(frozen=True)
class Expansion:
    """A 1×1 convolution that was put off."""

    geometry: Geometry
    view: View
    filters: Filters
    pixel_step: Dim
    chain: Chain
    """What follows it, up to the value that the depthwise convolution reads."""
    result: int
    """Which item of the chain that is."""
    arguments: Sequence[Argument]


def put_off(lowerer: Lowerer, node: Node, geometry: Geometry, view: View, sink: Sink) -> bool:
    """Whether the steps of a convolution can wait for the depthwise one that reads its result.

    The node's own window tells: with taps as channels `geometry` has one of one pixel, too, but rows of the image overhang the result's.
    """
    step = even_step(view)
    if not geometry_of(node).is_pointwise or len(geometry.kernel) != 2 or geometry.groups != 1 or step is None:
        return False
    reader = _reader(lowerer, node, sink)
    if (
        reader is None
        or not lowerer.can_pack(*filters_of(node), *filters_of(reader))
        or not _fits(geometry, geometry_of(reader))
    ):
        return False
    (store,) = sink.chain.stores
    arguments = sink.arguments[: len(sink.arguments) - 1 - store.strides.count("n")]
    chain = replace(sink.chain, stores=())
    lowerer.scope.expansions[sink.results[0]] = Expansion(
        geometry, view, Filters(*filters_of(node)), step, chain, store.item, arguments
    )
    return True


def _reader(lowerer: Lowerer, node: Node, sink: Sink) -> Node | None:
    """The convolution that alone reads what a sink writes."""
    if len(sink.results) != 1:
        return None
    (value,) = sink.results
    if not lowerer.is_private(value):
        return None
    (user,) = value.users
    is_convolution = user.op_type in ("Conv", "FusedConv", "NhwcFusedConv") and lowerer.will_lower(user)
    if not is_convolution or is_channels_last(user) != is_channels_last(node):
        return None
    return user if user.inputs[0] is value and value not in user.inputs[1:] else None


def _fits(geometry: Geometry, depthwise: Geometry) -> bool:
    """Whether the second convolution is depthwise, with a window and pads that the code has."""
    is_depthwise = depthwise.channels == depthwise.filters == 1 and depthwise.groups == geometry.filters > 0
    pads = (*depthwise.begin, *depthwise.end)
    is_padded = all(not isinstance(size, int) or size >= 0 for size in pads)
    return is_depthwise and depthwise.dilations == (1, 1) and depthwise.kernel[1] <= MAX_TAPS and is_padded


def expansion_of(lowerer: Lowerer, node: Node) -> Expansion | None:
    """What was put off until this convolution."""
    X = node.inputs[0]
    return None if X is None else lowerer.scope.expansions.pop(X, None)


def fused_steps(lowerer: Lowerer, node: Node, geometry: Geometry, expansion: Expansion, sink: Sink) -> None:
    """Add the step of both convolutions; `geometry` is the second one's."""
    first, view = expansion.geometry, expansion.view
    tile = tile_for(lowerer.target, view.type, first.filters, 0, view.strides[-1])
    panels = min(max(1, CHUNK // tile.width), -(-first.filters // tile.width))
    form = FusedForm(tile, panels, expansion.result, geometry.kernel[1], geometry.strides[1])
    chunks = -(-first.filters // form.pixel)
    flat = replace(geometry, groups=1, filters=first.filters)
    w, bias = expansion.filters.panels(lowerer, first, tile.width, view.type)
    depthwise_w, depthwise_bias = Filters(*filters_of(node)).panels(lowerer, flat, tile.width, view.type)
    bands = _bands(lowerer, geometry, form, chunks)
    grain = grain_for(dim.floordiv(_work(first, geometry, form), bands.sections))
    scratch_slots = ScratchSlots(geometry.batch * bands.sections * chunks, grain)
    lowerer.call(
        fused_kernel(lowerer.target, form, expansion.chain, sink.chain),
        FusedArguments(
            x=view.place,
            w=w,
            bias=bias,
            depthwise_w=depthwise_w,
            depthwise_bias=depthwise_bias,
            scratch=lowerer.scratch(bands.size * view.type.bytes * scratch_slots.count),
            scratch_slots=scratch_slots.arguments,
            depth=first.channels,
            channels=first.filters,
            image_step=view.strides[0],
            pixel_step=expansion.pixel_step,
            chunks=chunks,
            bands=bands,
            height=geometry.input[0],
            width=geometry.input[1],
            rows=geometry.output[0],
            columns=geometry.output[1],
            kernel=geometry.kernel[0],
            stride=geometry.strides[0],
            top=geometry.begin[0],
            side=geometry.begin[1],
            between=expansion.arguments,
            sink=sink.arguments,
        ),
        scratch_slots.items,
        scratch_slots.grain,
        flops=first.flops + geometry.flops,
        traffic=_traffic(first, geometry, view.type),
    )


def _bands(lowerer: Lowerer, geometry: Geometry, form: FusedForm, chunks: int) -> Bands:
    """One section for one thread; for more of them as many as keep all busy, as far as the image is high enough."""
    (rows, columns), width = geometry.output, geometry.input[1]
    pitch = dim.maximum((columns - 1) * geometry.strides[1] + geometry.kernel[1], width + geometry.begin[1])
    band_rows = dim.floordiv(lowerer.budgets.band, dim.maximum(1, pitch * (form.pixel * form.tile.type.bytes)))
    fitting = dim.floordiv(band_rows - geometry.kernel[0], geometry.strides[0]) + 1
    band = dim.maximum(1, dim.minimum(rows, dim.maximum(FEWEST_ROWS, fitting)))
    capacity = (band - 1) * geometry.strides[0] + geometry.kernel[0]
    others = dim.maximum(1, geometry.batch * chunks)
    wanted = dim.ceildiv((THREADS - 1) * SECTIONS_PER_THREAD, others)
    needed = dim.minimum(dim.ceildiv(THREADS, others), dim.floordiv(rows * geometry.strides[0], IDLE_ROWS))
    sections = dim.maximum(1, dim.maximum(needed, dim.minimum(wanted, dim.floordiv(rows, SECTION_ROWS))))
    # a tile of a narrow image reads beyond its last column
    beyond = (PIXELS - 1) * geometry.strides[1] + geometry.kernel[1]
    size = (capacity * pitch + beyond) * form.pixel
    return Bands(sections=sections, band=band, capacity=capacity, pitch=pitch, size=size)


def _work(first: Geometry, geometry: Geometry, form: FusedForm) -> Dim:
    """Multiply-adds of a chunk of channels of an image, with about what the epilogues cost."""
    expansion = first.positions * (form.pixel * (first.channels + 2))
    windows = geometry.positions * (form.pixel * (geometry.taps + 4))
    return expansion + windows


def _traffic(first: Geometry, geometry: Geometry, type: Type) -> Dim:
    pixels = first.positions * first.channels + geometry.positions * first.filters
    return (first.batch * pixels + first.filters * (first.channels + geometry.taps)) * type.bytes
