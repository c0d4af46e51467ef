"""Sums of rows of bytes. Products whose second factor is stored with a zero point left in it need those of the first."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import add_group_sums
from sardonyx.compiler.types import I32, Type
from sardonyx.ir import dim
from sardonyx.providers.native.kernels.linalg.packing import batch_offset
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View, collapse, contiguous_strides
from sardonyx.startup.records import dataclass

PIECE_BYTES = 65536
"""How many bytes are worth handing to another thread."""


@dataclass(frozen=True)
class Centering:
    """What is subtracted of each number that is summed: a zero point, if there is one, less an offset."""

    zero: Type | None = None
    offset: int = 0

    def centered(self, f: KernelFunction, total: Value, count: Value, zero: Value | None) -> Value:
        """A vector of sums of so many numbers, with that subtracted; `zero` is where the zero point lies."""
        if zero is None and not self.offset:
            return total
        number = f.const(I32, 0) if zero is None or self.zero is None else f.convert(f.load(zero, 0, self.zero), I32)
        return total - f.splat((number - self.offset) * f.convert(count, I32), total.type.lanes)


def centering(zero: View | None, offset: int) -> Centering:
    return Centering(None if zero is None else zero.type, offset)


class RowSumArguments(Arguments):
    source: Pointer
    target: Pointer
    zero: Pointer | None = when(lambda centering: centering.zero is not None)
    inner: Size
    """Bytes of a row."""
    sizes: Sequence[Size] = each(lambda axes: axes)
    strides: Sequence[Size] = each(lambda axes: axes)


def row_sums(lowerer: Lowerer, rows: View, zero: View | None = None, offset: int = 0) -> View:
    """Of each row (…, K) of bytes the sum, as (…) of 32 bits; with a zero point and an offset that of bytes less these."""
    *outer, inner = rows.shape
    sizes, (strides,) = collapse(tuple(outer), [rows.strides[:-1]])
    count = dim.product(outer)
    buffer = lowerer.scratch(count * I32.bytes)
    lowerer.call(
        row_sums_kernel(lowerer.target, rows.type, len(sizes), centering(zero, offset)),
        RowSumArguments(
            source=rows.place,
            target=buffer,
            zero=None if zero is None else zero.place,
            inner=inner,
            sizes=sizes,
            strides=strides,
        ),
        count,
        dim.maximum(1, dim.floordiv(PIECE_BYTES, dim.maximum(1, inner))),
        traffic=count * inner,
    )
    return View(buffer, I32, tuple(outer), contiguous_strides(outer))


@kernel("row sums", RowSumArguments)
def row_sums_kernel(f: KernelFunction, a: RowSumArguments, type: Type, axes: int, centering: Centering) -> None:
    """Items are rows."""
    lanes = f.lanes(I32)
    width = 4 * lanes
    whole = a.inner - a.inner % width
    with f.loop(f.begin, f.end) as row:
        (offset,) = batch_offset(f, row, a.sizes, [a.strides])
        sums = f.variable(f.const(I32.vector(lanes), 0))
        with f.loop(0, whole, width) as k:
            sums.set(add_group_sums(f, f.load(a.source, offset + k, type, width), sums.get()))
        with f.if_(whole < a.inner):
            rest = f.load(a.source, offset + whole, type, width, remaining=a.inner - whole)
            sums.set(add_group_sums(f, rest, sums.get()))
        total = f.reduce("add", sums.get())
        f.store(centering.centered(f, total, a.inner, a.zero), a.target, row, I32)
