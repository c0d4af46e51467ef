"""Copies that put a few rows together element by element, or take them apart: channels of pixels to the last axis and back.

They are transposed copies with an axis too short for square tiles. `copy_step` comes here before it takes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.shape.walking import offset_of, runs
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.program.building import ProgramBuilder

MOST_ROWS = 7
"""From here on tiles are better: every vector of the result takes as many shuffles as there are rows."""
MAX_LANES = 16
PIECE = 16384


@dataclass(frozen=True)
class Rows:
    """What a copy puts together or takes apart: axes of its domain."""

    count: int
    """How many rows there are."""
    axis: int
    """The axis that counts them."""
    along: int
    """The axis along them."""
    joins: bool
    """Whether they are put together."""


def interleaved_rows(domain: Dims, read: Dims, written: Dims) -> Rows | None:
    """The rows of a copy between these strides; None if it is not of this kind."""
    last = len(domain) - 1
    count = domain[last]
    if written[last] != 1 or _is_one(read[last]):
        return None
    for axis in range(last):
        if not _is_one(read[axis]):
            continue
        if isinstance(count, int) and 2 <= count <= MOST_ROWS and written[axis] == count:
            return Rows(count, last, axis, joins=True)
        few = domain[axis]
        if isinstance(few, int) and 2 <= few <= MOST_ROWS and read[last] == few:
            return Rows(few, axis, last, joins=False)
    return None


def _is_one(stride: Dim) -> bool:
    return isinstance(stride, int) and stride == 1


def interleaved_step(lowerer: ProgramBuilder, domain: Dims, source: View, target: View, strides: Sequence[Dims]) -> bool:
    """Add the step that copies between views with these strides, if it puts rows together or takes them apart; else False."""
    read, written = strides
    rows = interleaved_rows(domain, read, written)
    if rows is None:
        return False
    outer = [axis for axis in range(len(domain)) if axis not in (rows.axis, rows.along)]
    sizes = [domain[axis] for axis in (*outer, rows.along)]
    items = dim.product(sizes)
    lowerer.call(
        interleave_kernel(lowerer.target, source.type, len(sizes), rows.count, rows.joins),
        InterleaveArguments(
            sizes=sizes[1:],
            source=source.place,
            source_strides=[read[axis] for axis in outer],
            target=target.place,
            target_strides=[written[axis] for axis in outer],
            row_stride=read[rows.axis] if rows.joins else written[rows.axis],
        ),
        items,
        PIECE // rows.count,
        traffic=2 * items * rows.count * source.type.bytes,
    )
    return True


class InterleaveArguments(Arguments):
    sizes: Sequence[Size] = each(lambda rank: rank - 1)
    """Of all axes but the first; the last one is along the rows."""
    source: Pointer
    source_strides: Sequence[Size] = each(lambda rank: rank - 1)
    """Along the axes before the last."""
    target: Pointer
    target_strides: Sequence[Size] = each(lambda rank: rank - 1)
    row_stride: Size
    """From row to row, where these lie apart."""


@kernel("interleave", InterleaveArguments)
def interleave_kernel(f: KernelFunction, a: InterleaveArguments, type: Type, rank: int, count: int, joins: bool) -> None:
    """Items are places along the rows, of which there are `count`."""
    lanes = min(MAX_LANES, f.lanes(type))

    def run(outer: Sequence[Value], column: Value, length: Value) -> None:
        source = f.address(a.source, offset_of(f, outer, a.source_strides) + column * (1 if joins else count), type)
        target = f.address(a.target, offset_of(f, outer, a.target_strides) + column * (count if joins else 1), type)
        whole = (length // lanes) * lanes
        for start, stop, width in ((f.const(length.type, 0), whole, lanes), (whole, length, 1)):
            with f.loop(start, stop, width) as index:
                _move(f, type, count, joins, (source, target, a.row_stride), index, width)

    if rank == 1:
        run([], f.begin, f.end - f.begin)
    else:
        runs(f, a.sizes, run)


def _move(
    f: KernelFunction, type: Type, count: int, joins: bool, places: tuple[Value, Value, Value], index: Value, width: int
) -> None:
    """Some places along the rows."""
    source, target, step = places
    together = [index * count + row * width for row in range(count)]
    apart = [index + step * row for row in range(count)]
    vectors = [f.load(source, place, type, width) for place in (apart if joins else together)]
    if width > 1:
        vectors = joined(f, vectors) if joins else taken_apart(f, vectors)
    for vector, place in zip(vectors, together if joins else apart):
        f.store(vector, target, place, type)


def joined(f: KernelFunction, vectors: Sequence[Value]) -> list[Value]:
    """The elements of all vectors in turn."""
    count, lanes = len(vectors), vectors[0].type.lanes
    places = [[(place % count, place // count) for place in range(row * lanes, (row + 1) * lanes)] for row in range(count)]
    return [_picked(f, vectors, chosen) for chosen in places]


def taken_apart(f: KernelFunction, vectors: Sequence[Value]) -> list[Value]:
    """The inverse of `joined`."""
    count, lanes = len(vectors), vectors[0].type.lanes
    places = [[divmod(lane * count + row, lanes) for lane in range(lanes)] for row in range(count)]
    return [_picked(f, vectors, chosen) for chosen in places]


def _picked(f: KernelFunction, vectors: Sequence[Value], places: Sequence[tuple[int, int]]) -> Value:
    """A vector whose lanes are chosen among those of others: (which, lane)."""
    lanes = len(places)
    picked = vectors[0]
    for number in range(1, len(vectors)):
        # lanes that later vectors fill may be anything
        chosen = [
            lanes + lane if which == number else (lane if number == 1 else here) for here, (which, lane) in enumerate(places)
        ]
        picked = f.shuffle(picked, vectors[number], chosen)
    return picked
