"""Determinants and inverses of matrices, by elimination with the largest pivot of each column."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of, stored
from sardonyx.providers.native.program.views import View, contiguous_strides

PIECE_WORK = 1 << 15
"""How many products are worth handing to another thread."""


def _claims(node: Node) -> bool:
    type, shape = element_of(required(node.inputs[0])), shape_of(required(node.inputs[0]))
    return type is not None and type.is_float and shape is not None and len(shape) >= 2


def _working_copy(lowerer: Lowerer, node: Node, columns: int) -> tuple[Buffer, Dim, Dim]:
    """Matrices in memory that elimination may change, each row `columns` times as long; how many there are, and their size."""
    value = required(node.inputs[0])
    shape = dims(value)
    lowerer.require(shape[-1], shape[-2])
    count, size, type = dim.product(shape[:-2]), shape[-1], stored(value).computed
    wide = (*shape[:-1], size * columns)
    buffer = lowerer.scratch(dim.product(wide) * type.bytes)
    lowerer.copy(lowerer.view(value), View(buffer, type, shape, contiguous_strides(wide)))
    return buffer, count, size


def _grain(size: Dim) -> Dim:
    return dim.maximum(1, dim.floordiv(PIECE_WORK, dim.maximum(1, size * size * size)))


@lower("Det", claims=_claims)
def determinant(lowerer: Lowerer, node: Node) -> None:
    matrices, count, size = _working_copy(lowerer, node, 1)
    type = stored(node.outputs[0])
    arguments = DeterminantArguments(matrices=matrices, output=lowerer.output(node.outputs[0]).place, size=size)
    lowerer.call(determinant_kernel(lowerer.target, type), arguments, count, _grain(size))


@lower("Inverse", domain="com.microsoft", claims=_claims)
def inverse(lowerer: Lowerer, node: Node) -> None:
    matrices, count, size = _working_copy(lowerer, node, 2)
    type, output = stored(node.outputs[0]), lowerer.output(node.outputs[0])
    arguments = InverseArguments(matrices=matrices, output=output.place, size=size, status=lowerer.status())
    lowerer.call(inverse_kernel(lowerer.target, type), arguments, count, _grain(size))


class DeterminantArguments(Arguments):
    matrices: Pointer
    output: Pointer
    size: Size


class InverseArguments(Arguments):
    matrices: Pointer
    """Each with as many columns again, for the unit matrix that becomes the inverse."""
    output: Pointer
    size: Size
    status: Pointer


class _Rows:
    """The rows of one matrix."""

    def __init__(self, f: KernelFunction, place: Value, type: Type, size: Value, columns: Value):
        self.f, self.place, self.type, self.size, self.columns = f, place, type, size, columns
        self.lanes = f.lanes(type)

    def row(self, number: Value) -> Value:
        return self.f.address(self.place, number * self.columns, self.type)

    def element(self, row: Value, column: Value) -> Value:
        return self.f.load(self.place, row * self.columns + column, self.type)

    def pivot(self, column: Value) -> Value:
        """The row, from the column's number on, whose element there is largest."""
        f = self.f
        best, found = f.variable(column), f.variable(f.abs(self.element(column, column)))
        with f.loop(column + 1, self.size) as row:
            magnitude = f.abs(self.element(row, column))
            is_larger = magnitude > found.get()
            best.set(f.select(is_larger, row, best.get()))
            found.set(f.select(is_larger, magnitude, found.get()))
        return best.get()

    def each(self, first: Value, change: Callable[[Value, Value], None]) -> None:
        """`change(column, remaining)` for each vector of a row from a column on."""
        with self.f.loop(first, self.columns, self.lanes) as column:
            change(column, self.columns - column)

    def load(self, row: Value, column: Value, remaining: Value) -> Value:
        return self.f.load(row, column, self.type, self.lanes, remaining=remaining)

    def exchange(self, one: Value, other: Value, first: Value) -> None:
        here, there = self.row(one), self.row(other)

        def swap(column: Value, remaining: Value) -> None:
            left, right = self.load(here, column, remaining), self.load(there, column, remaining)
            self.f.store(right, here, column, self.type, remaining=remaining)
            self.f.store(left, there, column, self.type, remaining=remaining)

        self.each(first, swap)

    def subtract(self, row: Value, source: Value, factor: Value, first: Value) -> None:
        """Take a multiple of one row from another."""
        here, there, factors = self.row(row), self.row(source), self.f.splat(factor, self.lanes)

        def change(column: Value, remaining: Value) -> None:
            left = self.load(here, column, remaining) - self.load(there, column, remaining) * factors
            self.f.store(left, here, column, self.type, remaining=remaining)

        self.each(first, change)


@kernel("determinants", DeterminantArguments)
def determinant_kernel(f: KernelFunction, a: DeterminantArguments, stored: Type) -> None:
    """Items are matrices: their pivots are multiplied, with the sign of the exchanges."""
    type = stored.computed
    with f.loop(f.begin, f.end) as item:
        rows = _Rows(f, f.address(a.matrices, item * a.size * a.size, type), type, a.size, a.size)
        total = f.variable(f.const(type, 1.0))
        with f.loop(0, a.size) as step:
            best = rows.pivot(step)
            with f.if_(best != step):
                rows.exchange(step, best, step)
                total.set(-total.get())
            pivot = rows.element(step, step)
            total.set(total.get() * pivot)
            with f.if_(pivot != 0.0), f.loop(step + 1, a.size) as row:
                rows.subtract(row, step, rows.element(row, step) / pivot, step)
        f.store(total.get(), a.output, item, stored)


@kernel("inverses", InverseArguments)
def inverse_kernel(f: KernelFunction, a: InverseArguments, stored: Type) -> None:
    """Items are matrices: what makes one the unit matrix makes that its inverse. One that has none is left to NumPy."""
    type, columns = stored.computed, a.size * 2
    with f.loop(f.begin, f.end) as item:
        rows = _Rows(f, f.address(a.matrices, item * a.size * columns, type), type, a.size, columns)
        _append_unit(f, rows)
        with f.loop(0, a.size) as step:
            best = rows.pivot(step)
            with f.if_(best != step):
                rows.exchange(step, best, step)
            pivot = rows.element(step, step)
            with f.if_else(pivot == 0.0) as otherwise:
                f.store(1, a.status, 0, I64)
                otherwise()
                _normalize(f, rows, step, pivot)
                with f.loop(0, a.size) as row, f.if_(row != step):
                    rows.subtract(row, step, rows.element(row, step), step)
        with f.loop(0, a.size) as row:
            target = (item * a.size + row) * a.size
            with f.loop(0, a.size) as column:
                f.store(rows.element(row, a.size + column), a.output, target + column, stored)


def _append_unit(f: KernelFunction, rows: _Rows) -> None:
    with f.loop(0, rows.size) as row, f.loop(0, rows.size) as column:
        one = f.select(row == column, f.const(rows.type, 1.0), f.const(rows.type, 0.0))
        f.store(one, rows.row(row), rows.size + column, rows.type)


def _normalize(f: KernelFunction, rows: _Rows, step: Value, pivot: Value) -> None:
    """Divide a row by its pivot."""
    here, divisor = rows.row(step), f.splat(pivot, rows.lanes)

    def change(column: Value, remaining: Value) -> None:
        f.store(rows.load(here, column, remaining) / divisor, here, column, rows.type, remaining=remaining)

    rows.each(step, change)
