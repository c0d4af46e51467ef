"""Brings the columns of a matrix into another order: that of weights whose blocks are not made of neighbours."""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.types import F32, I32, I64
from sardonyx.ir import dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View

PIECE_ELEMENTS = 8192


class ReorderArguments(Arguments):
    source: Pointer
    target: Pointer
    columns: Pointer
    """Of each column of the target that of the source, or -1."""
    stride: Size
    """From row to row of the source."""
    width: Size


def reordered_rows(lowerer: Lowerer, rows: View, columns: np.ndarray) -> View:
    """Rows whose columns are those of other rows, or 0 where there is none."""
    count, width = rows.shape[0], len(columns)
    target = lowerer.scratch(count * width * F32.bytes)
    lowerer.call(
        reorder_kernel(lowerer.target),
        ReorderArguments(source=rows.place, target=target, columns=lowerer.table(columns), stride=rows.strides[0], width=width),
        count,
        dim.maximum(1, PIECE_ELEMENTS // max(width, 1)),
        traffic=count * width * (2 * F32.bytes),
    )
    return View(target, F32, (count, width), (width, 1))


@kernel("reorder columns", ReorderArguments)
def reorder_kernel(f: KernelFunction, a: ReorderArguments) -> None:
    """Items are rows."""
    lanes = f.lanes(F32)
    with f.loop(f.begin, f.end) as row:
        source, target = f.address(a.source, row * a.stride, F32), f.address(a.target, row * a.width, F32)
        with f.loop(0, a.width, lanes) as column:
            remaining = a.width - column
            columns = f.load(a.columns, column, I32, lanes, remaining=remaining)
            numbers = f.gather(source, f.convert(columns, I64), F32, mask=columns >= 0)
            f.store(numbers, target, column, F32, remaining=remaining)
