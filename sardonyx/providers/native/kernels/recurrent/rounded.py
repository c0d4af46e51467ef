"""The state of a recurrence as 8-bit numbers: before each step all rows are rounded, with one scale, and multiplied as whole numbers.

Each thread of a team rounds for itself, which takes less than to wait for another. `loop` emits this into its loop over time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import Product
from sardonyx.compiler.types import F32, I32, U8
from sardonyx.providers.native.kernels.quantize.dynamic import parameters_of
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.providers.scalars.elementwise import greatest, least
from sardonyx.providers.scalars.quantize import saturated


class RoundedArguments(Arguments):
    rows: Pointer
    """Rounded rows, for each item."""
    item_stride: Size
    """Numbers of an item's rows."""
    row_stride: Size
    groups: Size
    """Of a row."""
    sums: Pointer
    """Of each column of weights the sum."""
    scales: Pointer
    """Of each column."""


class RoundedState:
    """The rows of one item."""

    def __init__(self, f: KernelFunction, a: RoundedArguments, product: Product, hidden: Value, item: Value):
        self.f = f
        self.a = a
        self.product = product
        self.hidden = hidden
        self.lanes = f.lanes(F32)
        self.numbers = f.address(a.rows, item * a.item_stride, product.row)
        self.scale, self.zero = f.stack(F32, 1), f.stack(U8, 1)

    def round(self, count: Value, row_at: Callable[[Value], Value]) -> None:
        """Round so many rows, which lie where `row_at` says."""
        self._find_parameters(count, row_at)
        f, lanes, product = self.f, self.lanes, self.product
        scale, zero = f.splat(f.load(self.scale, 0, F32), lanes), f.load(self.zero, 0, U8)
        with f.loop(0, count) as row:
            source, target = row_at(row), f.address(self.numbers, row * self.a.row_stride, product.row)
            with f.loop(0, self.hidden, lanes) as unit, f.exact():
                codes = saturated(f.load(source, unit, F32, lanes) / scale, zero, U8)
                if product.row != U8:
                    codes = f.convert(f.convert(codes, I32) - f.splat(f.convert(zero, I32), lanes), product.row)
                f.store(codes, target, unit, product.row)

    def _find_parameters(self, count: Value, row_at: Callable[[Value], Value]) -> None:
        f, lanes = self.f, self.lanes
        low, high = (f.variable(f.const(F32.vector(lanes), 0.0)) for _ in range(2))
        with f.loop(0, count) as row:
            source = row_at(row)
            with f.loop(0, self.hidden, lanes) as unit:
                numbers = f.load(source, unit, F32, lanes, remaining=self.hidden - unit)
                low.set(least(numbers, low.get()))
                high.set(greatest(numbers, high.get()))
        scale, zero = parameters_of(f, self._folded(low.get(), least), self._folded(high.get(), greatest))
        f.store(scale, self.scale, 0, F32)
        f.store(zero, self.zero, 0, U8)

    def _folded(self, vector: Value, function: Callable[[Value, Value], Value]) -> Value:
        """One number of all lanes, by halves."""
        f = self.f
        while vector.type.lanes > 1:
            half = vector.type.lanes // 2
            if half == 1:
                return function(f.extract(vector, 0), f.extract(vector, 1))
            vector = function(f.shuffle(vector, vector, range(half)), f.shuffle(vector, vector, range(half, 2 * half)))
        return vector

    def row(self, number: Value) -> Value:
        return self.f.address(self.numbers, number * self.a.row_stride, self.product.row)

    def real(self, sums: Sequence[Value], column: Value) -> list[Value]:
        """Sums of products, which begin at a column, as floats."""
        f, lanes = self.f, self.lanes
        scale, zero = f.splat(f.load(self.scale, 0, F32), lanes), f.convert(f.load(self.zero, 0, U8), I32)
        found = []
        for number, total in enumerate(sums):
            place = column + number * lanes
            if self.product.row == U8:
                total = total - f.load(self.a.sums, place, I32, lanes) * f.splat(zero, lanes)
            with f.exact():
                found.append(f.convert(total, F32) * (scale * f.load(self.a.scales, place, F32, lanes)))
        return found
