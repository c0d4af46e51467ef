"""Resize and Upsample: pixels picked or weighed by tables. Vectors run along the channels where these lie in a row, else along rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import input_named
from sardonyx.providers.native.kernels.image.image import Image, image_of
from sardonyx.providers.native.kernels.image.resize_form import (
    Resizing,
    Table,
    claims_resize,
    has_computed_sizes,
    resized_axes,
    resizing_of,
    table_of,
)
from sardonyx.providers.native.kernels.image.resize_integers import resize_integers
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.kernels.shape.walking import runs
from sardonyx.providers.native.program.arguments import Arguments, Operands, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.computed_sizes import numbers_of, settle_shape
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, may_equal, required
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass, replace

MAX_SPATIAL = 3
VECTORS = 4
PIECE_TAPS = 32768
"""How many pixels that are picked are worth handing to another thread."""


@dataclass(frozen=True)
class Arrangement:
    """The axes of a tensor as image, channel and space."""

    lead: int
    """How many axes stand before those of space: the last two of them are image and channel."""
    channel_is_last: bool

    @property
    def missing(self) -> int:
        """How many of image and channel are not there."""
        return 0 if self.channel_is_last else 2 - self.lead


def arrangement_of(rank: int, axes: Sequence[int]) -> Arrangement | None:
    """How a tensor of so many axes is seen, some of them resized; None if they are too many."""
    first = min(axes, default=2)
    if first == 1 and rank > 2 and rank - 1 not in axes:
        return Arrangement(1, True) if rank - 2 <= MAX_SPATIAL else None
    lead = min(first, 2, rank - 1)
    return Arrangement(lead, False) if rank - lead <= MAX_SPATIAL else None


def _moved_axes(node: Node, form: Resizing) -> list[int]:
    """Axes that change. Where these are too many, images and channels are supposed to be as many as before."""
    axes, shape = resized_axes(node, form), dims(required(node.inputs[0]))
    if form.scales is not None or form.policy != "stretch" or arrangement_of(len(shape), axes) is not None:
        return axes
    return [axis for axis in axes if axis > 1 or not may_equal(shape[axis], form.sizes[axis])]


def _claims(node: Node) -> bool:
    form = resizing_of(node) if claims_resize(node) else None
    if form is None or not form.sizes:
        return False
    return _is_between_integers(node, form) or arrangement_of(len(form.sizes), _moved_axes(node, form)) is not None


def _is_between_integers(node: Node, form: Resizing) -> bool:
    """Whether pixels are weighed that are no floats."""
    type = element_of(required(node.inputs[0]))
    return form.is_weighted and type is not None and not type.is_float


@lower("Resize", claims=lambda node: has_computed_sizes(node) and _claims(node), case="computed sizes", settles=True)
def resize_to_computed(lowerer: Lowerer, node: Node) -> None:
    """The sizes of the result are settled before."""
    form = resizing_of(node)
    assert form is not None
    lowerer.view(required(node.inputs[0]))
    result, numbers = node.outputs[0], numbers_of(lowerer, required(input_named(node, "sizes")))
    settle_shape(lowerer, result, zip(form.axes, numbers))
    for size, settled in zip(form.sizes, dims(result)):
        lowerer.require(size, settled)
    resize(lowerer, node)


@lower("Resize", "Upsample", claims=_claims, strided=True)
def resize(lowerer: Lowerer, node: Node) -> None:
    """Each pixel of the result from those that the tables of its axes name."""
    form = resizing_of(node)
    assert form is not None
    for old, new in zip(dims(required(node.inputs[0])), form.sizes):
        lowerer.require(dim.maximum(new, 0), new)
        lowerer.require(new * (1 - dim.minimum(old, 1)), 0)  # nothing is made of no pixels
    (resize_integers if _is_between_integers(node, form) else _resize_images)(lowerer, node, form)


def _resize_images(lowerer: Lowerer, node: Node, form: Resizing) -> None:
    rank, X, moved = len(form.sizes), required(node.inputs[0]), _moved_axes(node, form)
    arrangement = arrangement_of(rank, moved)
    assert arrangement is not None
    for axis in set(resized_axes(node, form)).difference(moved):
        lowerer.require(dims(X)[axis], form.sizes[axis])
    view = _arranged(lowerer.view(X), arrangement)
    space = range(1, rank - 1) if arrangement.channel_is_last else range(arrangement.lead, rank)
    sizes = [form.sizes[axis] for axis in space]
    along_channels = view.strides[1] == 1 and view.strides[-1] != 1
    tables = [table_of(lowerer, node, form, axis, view.type.computed) for axis in space]
    sink = _sink_of(lowerer, node, arrangement, space, along_channels)
    axes = [TableAxis(output=size, step=step, table=table) for size, step, table in zip(sizes, view.strides[2:], tables)]
    shape = Sampling(view.type, len(sizes), form.is_weighted)
    taps = math.prod(table.taps for table in tables)
    pixels = dim.product(sizes)
    total = view.shape[0] * view.shape[1] * pixels
    elements = view.shape[1] if along_channels else sizes[-1]
    code = sample_kernel if along_channels else sample_rows_kernel
    lowerer.call(
        code(lowerer.target, shape, sink.chain),
        SampleArguments(image=image_of(view), axes=axes, sink=sink.arguments),
        view.shape[0] * pixels if along_channels else view.shape[0] * view.shape[1] * dim.product(sizes[:-1]),
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, elements * taps))),
        flops=total * (2 * taps if form.is_weighted else 0),
        traffic=total * 2 * view.type.bytes,
    )


def _sink_of(lowerer: Lowerer, node: Node, arrangement: Arrangement, space: range, along_channels: bool) -> Sink:
    """Where the result goes: images of pixels of channels, or of channels of pixels."""
    if along_channels:
        order = None if arrangement.channel_is_last else (*range(arrangement.lead - 1), *space, arrangement.lead - 1)
        return lowerer.sink(node, (1 - max(0, arrangement.missing - 1), len(space), 1), order=order)
    if arrangement.channel_is_last:
        return lowerer.sink(node, (1, 1, len(space)), order=(0, space.stop, *space))
    return lowerer.sink(node, (arrangement.lead - min(1, arrangement.lead), min(1, arrangement.lead), len(space)))


def _arranged(view: View, arrangement: Arrangement) -> View:
    """(N, C, …), of size 1 where a tensor lacks them."""
    if arrangement.channel_is_last:
        rank = len(view.shape)
        return view.transposed((0, rank - 1, *range(1, rank - 1)))
    return replace(view, shape=(1,) * arrangement.missing + view.shape, strides=(0,) * arrangement.missing + view.strides)


# --- kernels --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampling:
    """What shapes the code."""

    type: Type
    axes: int
    is_weighted: bool


class TableAxis(Arguments):
    """A spatial axis."""

    output: Size
    step: Size
    """From pixel to pixel in memory."""
    table: Table

    def offset(self, f: KernelFunction, tap: Value | int, place: Value, lanes: int = 1) -> Value:
        """How far from the beginning of the axis a tap's pixel lies."""
        pixel = f.load(self.table.pixels, self.output * tap + place, I64, lanes)
        return pixel * f.splat(self.step, lanes)

    def weight(self, f: KernelFunction, type: Type, tap: Value, place: Value, lanes: int = 1) -> Value:
        assert self.table.weights is not None
        return f.load(self.table.weights, self.output * tap + place, type.computed, lanes)


class SampleArguments(Arguments):
    image: Image
    axes: Sequence[TableAxis] = each(lambda sampling: sampling.axes)
    sink: Operands = group(lambda chain: chain.slots)


Do = Callable[[Value, "Value | None"], None]
"""What is done with a pixel, given its place and its weight."""


class _Sampler:
    """What both kernels have in common."""

    def __init__(self, f: KernelFunction, a: SampleArguments, sampling: Sampling, chain: Chain):
        self.f = f
        self.a = a
        self.sampling = sampling
        self.epilogue = ChainCode(f, chain, a.sink)

    def position(self, places: Sequence[Value]) -> Value:
        number = self.f.const(I64, 0)
        for axis, place in zip(self.a.axes, places):
            number = number * axis.output + place
        return number

    def taps(self, place: Value, axes: Sequence[TableAxis], places: Sequence[Value], weight: Value | None, do: Do) -> None:
        """`do(pointer, weight)` for all pixels that some axes name."""
        if not axes:
            do(place, weight)
            return
        axis, f, type = axes[0], self.f, self.sampling.type
        if not self.sampling.is_weighted:
            here = f.address(place, axis.offset(f, 0, places[0]), type)
            self.taps(here, axes[1:], places[1:], None, do)
            return
        with f.loop(0, axis.table.taps) as tap:
            here = f.address(place, axis.offset(f, tap, places[0]), type)
            factor = axis.weight(f, type, tap, places[0])
            self.taps(here, axes[1:], places[1:], factor if weight is None else weight * factor, do)

    def start(self, lanes: int) -> Variable:
        return self.f.variable(self.f.const(self.sampling.type.computed.vector(lanes), 0))

    def take(self, total: Variable, pixels: Value, weight: Value | None) -> None:
        total.set(pixels if weight is None else self.f.fma(weight, pixels, total.get()))


@kernel("sample pixels", SampleArguments)
def sample_kernel(f: KernelFunction, a: SampleArguments, sampling: Sampling, chain: Chain) -> None:
    """Channels lie in a row. Items are pixels of the result."""
    code = _Sampler(f, a, sampling, chain)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        image, *places = outer
        plane = f.address(a.image.x, image * a.image.image_step, sampling.type)
        with f.loop(column, column + count) as last:
            here = [*places, last]
            _pixel(code, plane, here, code.epilogue.row([image, code.position(here)]))

    runs(f, [axis.output for axis in a.axes], run)


def _pixel(code: _Sampler, plane: Value, places: Sequence[Value], target: ChainRow) -> None:
    f, type = code.f, code.sampling.type
    lanes = f.lanes(type.computed)

    def block(channel: Value, vectors: int, remaining: Value | None) -> None:
        totals = [code.start(lanes) for _ in range(vectors)]

        def tap(place: Value, weight: Value | None) -> None:
            for number, total in enumerate(totals):
                code.take(total, f.load(place, channel + number * lanes, type, lanes, remaining=remaining), weight)

        code.taps(plane, code.a.axes, places, None, tap)
        for number, total in enumerate(totals):
            target.emit(channel + number * lanes, lanes, remaining, given=[total.get()])

    many = code.a.image.channels - code.a.image.channels % (VECTORS * lanes)
    with f.loop(0, many, VECTORS * lanes) as channel:
        block(channel, VECTORS, None)
    with f.loop(many, code.a.image.channels, lanes) as channel:
        block(channel, 1, code.a.image.channels - channel)


@kernel("sample rows", SampleArguments)
def sample_rows_kernel(f: KernelFunction, a: SampleArguments, sampling: Sampling, chain: Chain) -> None:
    """Items are rows of the result; vectors run along them."""
    code = _Sampler(f, a, sampling, chain)
    *outer, axis = a.axes
    lanes = f.lanes(sampling.type.computed)
    with items(f, [a.image.channels, *(above.output for above in outer)]) as (_, (image, channel, *places)):
        plane = f.address(a.image.x, image * a.image.image_step + channel * a.image.channel_step, sampling.type)
        target = code.epilogue.row([image, channel])
        base = code.position([*places, f.const(I64, 0)])

        def pixels(column: Value, width: int) -> None:
            total = code.start(width)

            def line(place: Value, weight: Value | None) -> None:
                if not sampling.is_weighted:
                    code.take(total, f.gather(place, axis.offset(f, 0, column, width), sampling.type), None)
                    return
                with f.loop(0, axis.table.taps) as tap:
                    factor = axis.weight(f, sampling.type, tap, column, width)
                    factor = factor if weight is None else factor * f.splat(weight, width)
                    code.take(total, f.gather(place, axis.offset(f, tap, column, width), sampling.type), factor)

            code.taps(plane, outer, places, None, line)
            target.emit(base + column, width, given=[total.get()])

        whole = axis.output - axis.output % lanes
        for start, stop, width in ((f.const(I64, 0), whole, lanes), (whole, axis.output, 1)):
            with f.loop(start, stop, width) as column:
                pixels(column, width)
