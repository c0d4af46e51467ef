"""Resize and Upsample: pixels picked or weighed by tables. Vectors run along the channels where these lie in a row, else along rows."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Node, dim
from sardonyx.providers.native.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.image.resize_form import claims_resize, resized_axes, resizing_of, table_of
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.movement.walking import runs
from sardonyx.providers.native.program import Argument
from sardonyx.providers.native.rows.passes import items
from sardonyx.providers.native.table import lower
from sardonyx.providers.native.values import dims, present
from sardonyx.providers.native.views import View
from sardonyx.records import dataclass, replace

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


def _claims(node: Node) -> bool:
    form = resizing_of(node) if claims_resize(node) else None
    return form is not None and arrangement_of(len(form.sizes), resized_axes(node, form)) is not None and len(form.sizes) > 0


@lower("Resize", "Upsample", claims=_claims)
def resize(lowerer: Lowerer, node: Node) -> None:
    """Each pixel of the result from those that the tables of its axes name."""
    form = resizing_of(node)
    assert form is not None
    rank, axes = len(form.sizes), resized_axes(node, form)
    seen = arrangement_of(rank, axes)
    assert seen is not None
    view = _arranged(lowerer.view(present(node.inputs[0])), seen)
    space = range(1, rank - 1) if seen.channel_is_last else range(seen.lead, rank)
    sizes = [form.sizes[axis] for axis in space]
    for old, new in zip(dims(present(node.inputs[0])), form.sizes):
        lowerer.require(dim.maximum(new, 0), new)
        lowerer.require(new * (1 - dim.minimum(old, 1)), 0)  # nothing is made of no pixels
    along_channels = view.strides[1] == 1 and view.strides[-1] != 1
    tables = [table_of(lowerer, node, form, axis, view.type.computed) for axis in space]
    if along_channels:
        order = None if seen.channel_is_last else (*range(seen.lead - 1), *space, seen.lead - 1)
        sink = lowerer.sink(node, (1 - max(0, seen.missing - 1), len(sizes), 1), order=order)
    elif seen.channel_is_last:
        sink = lowerer.sink(node, (1, 1, len(sizes)), order=(0, rank - 1, *space))
    else:
        sink = lowerer.sink(node, (seen.lead - min(1, seen.lead), min(1, seen.lead), len(sizes)))
    numbers: list[Argument] = [view.place, view.shape[1], view.strides[0], view.strides[1]]
    for number, (size, table) in enumerate(zip(sizes, tables)):
        numbers += [size, view.strides[2 + number], *table.arguments]
    shape = Sampling(view.type, len(sizes), form.is_weighted)
    taps = 1
    for table in tables:
        taps *= table.taps
    pixels = dim.product(sizes)
    total = view.shape[0] * view.shape[1] * pixels
    each = view.shape[1] if along_channels else sizes[-1]
    code = sample_kernel if along_channels else sample_rows_kernel
    lowerer.call(
        code(lowerer.target, shape, sink.chain),
        [*numbers, *sink.arguments],
        view.shape[0] * pixels if along_channels else view.shape[0] * view.shape[1] * dim.product(sizes[:-1]),
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, each * taps))),
        flops=total * (2 * taps if form.is_weighted else 0),
        traffic=total * 2 * view.type.bytes,
    )


def _arranged(view: View, seen: Arrangement) -> View:
    """(N, C, …), of size 1 where a tensor lacks them."""
    if seen.channel_is_last:
        rank = len(view.shape)
        return view.transposed((0, rank - 1, *range(1, rank - 1)))
    return replace(view, shape=(1,) * seen.missing + view.shape, strides=(0,) * seen.missing + view.strides)


# --- kernels --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampling:
    """What shapes the code."""

    type: Type
    axes: int
    is_weighted: bool


class _Axis:
    """A spatial axis, as numbers among a kernel's arguments."""

    def __init__(self, f: KernelFunction, sampling: Sampling):
        self.f = f
        self.weight_type = sampling.type.computed
        self.output, self.step, self.taps, self.pixels = f.size(), f.size(), f.size(), f.pointer()
        self.weights = f.pointer() if sampling.is_weighted else None

    def offset(self, tap: Value | int, place: Value, lanes: int = 1) -> Value:
        """How far from the beginning of the axis a tap's pixel lies."""
        pixel = self.f.load(self.pixels, self.output * tap + place, I64, lanes)
        return pixel * self.f.splat(self.step, lanes)

    def weight(self, tap: Value | int, place: Value, lanes: int = 1) -> Value:
        assert self.weights is not None
        return self.f.load(self.weights, self.output * tap + place, self.weight_type, lanes)


class _Sampler:
    """What both kernels have in common."""

    def __init__(self, f: KernelFunction, sampling: Sampling, chain: Chain):
        self.f = f
        self.sampling = sampling
        self.x, self.channels, self.image_step, self.channel_step = f.pointer(), f.size(), f.size(), f.size()
        self.axes = [_Axis(f, sampling) for _ in range(sampling.axes)]
        self.code = ChainCode(f, chain)

    def position(self, places: Sequence[Value]) -> Value:
        number = self.f.const(I64, 0)
        for axis, place in zip(self.axes, places):
            number = number * axis.output + place
        return number

    def taps(self, place: Value, axes: Sequence[_Axis], places: Sequence[Value], weight: Value | None, do: object) -> None:
        """`do(pointer, weight)` for all pixels that some axes name."""
        assert callable(do)
        if not axes:
            do(place, weight)
            return
        axis, f = axes[0], self.f
        if not self.sampling.is_weighted:
            here = f.address(place, axis.offset(0, places[0]), self.sampling.type)
            self.taps(here, axes[1:], places[1:], None, do)
            return
        with f.loop(0, axis.taps) as tap:
            here = f.address(place, axis.offset(tap, places[0]), self.sampling.type)
            factor = axis.weight(tap, places[0])
            self.taps(here, axes[1:], places[1:], factor if weight is None else weight * factor, do)

    def start(self, lanes: int) -> Variable:
        return self.f.variable(self.f.const(self.sampling.type.computed.vector(lanes), 0))

    def take(self, total: Variable, pixels: Value, weight: Value | None) -> None:
        total.set(pixels if weight is None else self.f.fma(weight, pixels, total.get()))


@kernel("sample pixels")
def sample_kernel(f: KernelFunction, sampling: Sampling, chain: Chain) -> None:
    """Channels lie in a row. Items are pixels of the result."""
    code = _Sampler(f, sampling, chain)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        image, *places = outer
        plane = f.address(code.x, image * code.image_step, sampling.type)
        with f.loop(column, column + count) as last:
            here = [*places, last]
            _pixel(code, plane, here, code.code.row([image, code.position(here)]))

    runs(f, [axis.output for axis in code.axes], run)


def _pixel(code: _Sampler, plane: Value, places: Sequence[Value], target: ChainRow) -> None:
    f, type = code.f, code.sampling.type
    lanes = f.lanes(type.computed)

    def block(channel: Value, vectors: int, remaining: Value | None) -> None:
        totals = [code.start(lanes) for _ in range(vectors)]

        def tap(place: Value, weight: Value | None) -> None:
            for number, total in enumerate(totals):
                code.take(total, f.load(place, channel + number * lanes, type, lanes, remaining=remaining), weight)

        code.taps(plane, code.axes, places, None, tap)
        for number, total in enumerate(totals):
            target.emit(channel + number * lanes, lanes, remaining, given=[total.get()])

    many = code.channels - code.channels % (VECTORS * lanes)
    with f.loop(0, many, VECTORS * lanes) as channel:
        block(channel, VECTORS, None)
    with f.loop(many, code.channels, lanes) as channel:
        block(channel, 1, code.channels - channel)


@kernel("sample rows")
def sample_rows_kernel(f: KernelFunction, sampling: Sampling, chain: Chain) -> None:
    """Items are rows of the result; vectors run along them."""
    code = _Sampler(f, sampling, chain)
    *outer, axis = code.axes
    lanes = f.lanes(sampling.type.computed)
    with items(f, [code.channels, *(one.output for one in outer)]) as (_, (image, channel, *places)):
        plane = f.address(code.x, image * code.image_step + channel * code.channel_step, sampling.type)
        target = code.code.row([image, channel])
        base = code.position([*places, f.const(I64, 0)])

        def pixels(column: Value, width: int) -> None:
            total = code.start(width)

            def line(place: Value, weight: Value | None) -> None:
                if not sampling.is_weighted:
                    code.take(total, f.gather(place, axis.offset(0, column, width), sampling.type), None)
                    return
                with f.loop(0, axis.taps) as tap:
                    factor = axis.weight(tap, column, width)
                    factor = factor if weight is None else factor * f.splat(weight, width)
                    code.take(total, f.gather(place, axis.offset(tap, column, width), sampling.type), factor)

            code.taps(plane, outer, places, None, line)
            target.emit(base + column, width, given=[total.get()])

        whole = axis.output - axis.output % lanes
        for start, stop, width in ((f.const(I64, 0), whole, lanes), (whole, axis.output, 1)):
            with f.loop(start, stop, width) as column:
                pixels(column, width)
