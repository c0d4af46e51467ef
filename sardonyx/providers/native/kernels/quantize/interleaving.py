"""Packs matrices of words that are computed in each run into panels of groups: neighbouring rows are interleaved."""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import Product
from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 16384


@dataclass(frozen=True)
class Interleaving:
    """What shapes the code."""

    type: Type
    depth: int
    width: int


class InterleaveArguments(Arguments):
    source: Pointer
    target: Pointer
    inner: Size
    columns: Size


def interleaved_panels(lowerer: Lowerer, flat: View, product: Product, width: int) -> tuple[Buffer, Dim]:
    """A matrix (…, K, N) without gaps in panels, and how many groups one takes."""
    *batch, inner, columns = flat.shape
    panels, groups = dim.ceildiv(columns, width), dim.ceildiv(inner, product.depth)
    count = dim.product(batch)
    buffer = lowerer.scratch(count * panels * groups * (width * product.depth * product.column.bytes))
    lowerer.call(
        interleave_kernel(lowerer.target, Interleaving(product.column, product.depth, width)),
        InterleaveArguments(source=flat.place, target=buffer, inner=inner, columns=columns),
        count * panels,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, inner * width))),
        traffic=count * inner * columns * (2 * flat.type.bytes),
    )
    return buffer, groups * width


@kernel("interleave", InterleaveArguments)
def interleave_kernel(f: KernelFunction, a: InterleaveArguments, form: Interleaving) -> None:
    """Items are panels."""
    type, depth, width = form.type, form.depth, form.width
    panels = f.maximum((a.columns + (width - 1)) // width, 1)
    groups = (a.inner + (depth - 1)) // depth
    with f.loop(f.begin, f.end) as item:
        batch, first = item // panels, (item % panels) * width
        source = f.address(a.source, batch * a.inner * a.columns + first, type)
        target = f.address(a.target, item * groups * (width * depth), type)
        count = a.columns - first
        with f.if_else(count >= width) as otherwise:
            _panel(f, a, form, source, target, None)
            otherwise()
            _panel(f, a, form, source, target, count)


def _panel(
    f: KernelFunction, a: InterleaveArguments, form: Interleaving, source: Value, target: Value, count: Value | None
) -> None:
    """All groups of a panel, of `count` columns if they are not all there."""
    whole, rest = a.inner // form.depth, a.inner % form.depth
    with f.loop(0, whole) as group:
        _group(f, a, form, source, target, group, form.depth, count)
    for rows in range(1, form.depth):
        with f.if_(rest == rows):
            _group(f, a, form, source, target, whole, rows, count)


def _group(
    f: KernelFunction,
    a: InterleaveArguments,
    form: Interleaving,
    source: Value,
    target: Value,
    group: Value,
    rows: int,
    count: Value | None,
) -> None:
    """So many rows, side by side; those that are missing are 0."""
    type, lanes = form.type, f.lanes(form.type) // 2
    for first in range(0, form.width, lanes):
        remaining = None if count is None else f.maximum(count - first, 0)
        places = [(group * form.depth + row) * a.columns + first for row in range(rows)]
        vectors = [f.load(source, place, type, lanes, remaining=remaining) for place in places]
        vectors += [f.const(type.vector(lanes), 0)] * (form.depth - rows)
        f.store(_interleaved(f, vectors), target, (group * form.width + first) * form.depth, type)


def _interleaved(f: KernelFunction, vectors: list[Value]) -> Value:
    """The first lanes of all vectors, then the second ones, …; a power of two of them."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        lanes = vectors[0].type.lanes
        places = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
        vectors = [f.shuffle(vectors[number], vectors[number + half], places) for number in range(half)]
    return vectors[0]
