"""Packs matrices that are computed in each run into panels of groups: neighbouring rows are interleaved, and columns of bytes summed."""

from __future__ import annotations

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.products import Product, add_group_sums
from sardonyx.compiler.types import I8, I32, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.quantize.sums import Centering, centering
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 16384


@dataclass(frozen=True)
class Interleaving:
    """What shapes the code."""

    type: Type
    depth: int
    width: int
    centering: Centering = Centering()
    """Of the sums of columns, which are made of bytes."""

    @property
    def sums(self) -> int:
        """How many numbers of a panel's sums there are."""
        return self.width if self.type == I8 else 0


class InterleaveArguments(Arguments):
    source: Pointer
    target: Pointer
    sums: Pointer | None = when(lambda form: form.sums)
    """Of each panel a row."""
    zero: Pointer | None = when(lambda form: form.centering.zero is not None)
    inner: Size
    columns: Size


@dataclass(frozen=True)
class Panels:
    """A matrix in panels."""

    buffer: Buffer
    panel: Dim
    """How many groups a panel takes."""
    sums: View | None
    """Of the columns of each matrix, (…, 1, N), if they are bytes."""


def interleaved_panels(
    lowerer: Lowerer, flat: View, product: Product, width: int, zero: View | None = None, offset: int = 0
) -> Panels:
    """A matrix (…, K, N) without gaps in panels. Sums of its columns are those of bytes less a zero point, if there is one."""
    *batch, inner, columns = flat.shape
    panels, groups = dim.ceildiv(columns, width), dim.ceildiv(inner, product.depth)
    count = dim.product(batch)
    buffer = lowerer.scratch(count * panels * groups * (width * product.depth * product.column.bytes))
    form = Interleaving(product.column, product.depth, width, centering(zero, offset))
    sums = lowerer.scratch(count * panels * (form.sums * I32.bytes)) if form.sums else None
    lowerer.call(
        interleave_kernel(lowerer.target, form),
        InterleaveArguments(
            source=flat.place,
            target=buffer,
            sums=sums,
            zero=None if zero is None else zero.place,
            inner=inner,
            columns=columns,
        ),
        count * panels,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, inner * width))),
        traffic=count * inner * columns * (2 * flat.type.bytes),
    )
    steps = contiguous_strides((*batch, 1, panels * width))
    return Panels(buffer, groups * width, None if sums is None else View(sums, I32, (*batch, 1, columns), steps))


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
            sums = _panel(f, a, form, source, target, None)
            _store_sums(f, a, form, sums, item)
            otherwise()
            sums = _panel(f, a, form, source, target, count)
            _store_sums(f, a, form, sums, item)


def _panel(
    f: KernelFunction, a: InterleaveArguments, form: Interleaving, source: Value, target: Value, count: Value | None
) -> list[Variable]:
    """All groups of a panel, of `count` columns if they are not all there; and the sums of columns."""
    lanes = f.lanes(I32)
    sums = [f.variable(f.const(I32.vector(lanes), 0)) for _ in range(0, form.sums, lanes)]
    whole, rest = a.inner // form.depth, a.inner % form.depth
    with f.loop(0, whole) as group:
        _group(f, a, form, source, target, group, form.depth, count, sums)
    for rows in range(1, form.depth):
        with f.if_(rest == rows):
            _group(f, a, form, source, target, whole, rows, count, sums)
    return sums


def _store_sums(f: KernelFunction, a: InterleaveArguments, form: Interleaving, sums: list[Variable], item: Value) -> None:
    lanes = f.lanes(I32)
    if a.sums is None:
        return
    for number, total in enumerate(sums):
        centered = form.centering.centered(f, total.get(), a.inner, a.zero)
        f.store(centered, a.sums, item * form.width + number * lanes, I32)


def _group(
    f: KernelFunction,
    a: InterleaveArguments,
    form: Interleaving,
    source: Value,
    target: Value,
    group: Value,
    rows: int,
    count: Value | None,
    sums: list[Variable],
) -> None:
    """So many rows, side by side; those that are missing are 0."""
    type, lanes = form.type, min(f.lanes(form.type) // 2, form.width)
    for first in range(0, form.width, lanes):
        remaining = None if count is None else f.maximum(count - first, 0)
        places = [(group * form.depth + row) * a.columns + first for row in range(rows)]
        vectors = [f.load(source, place, type, lanes, remaining=remaining) for place in places]
        vectors += [f.const(type.vector(lanes), 0)] * (form.depth - rows)
        groups = _interleaved(f, vectors)
        f.store(groups, target, (group * form.width + first) * form.depth, type)
        _add_to_sums(f, form, groups, sums, first)


def _add_to_sums(f: KernelFunction, form: Interleaving, groups: Value, sums: list[Variable], first: int) -> None:
    """Groups of the columns from `first` on."""
    lanes = f.lanes(I32)
    if sums:
        for start in range(0, groups.type.lanes // form.depth, lanes):
            bytes = f.shuffle(groups, groups, range(start * form.depth, (start + lanes) * form.depth))
            total = sums[(first + start) // lanes]
            total.set(add_group_sums(f, bytes, total.get()))


def _interleaved(f: KernelFunction, vectors: list[Value]) -> Value:
    """The first lanes of all vectors, then the second ones, …; a power of two of them."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        lanes = vectors[0].type.lanes
        places = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
        vectors = [f.shuffle(vectors[number], vectors[number + half], places) for number in range(half)]
    return vectors[0]
