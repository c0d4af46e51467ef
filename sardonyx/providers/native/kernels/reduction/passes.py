"""Passes along the rows of a domain, in vectors: what kernels of softmax, normalizations and reductions are made of."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import BOOL, F64, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.elementwise import advance
from sardonyx.providers.native.program.arguments import Arguments, Operands, Size, group
from sardonyx.providers.native.program.chain import Apply, Chain, ChainRow, Load
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.streaming import streamed
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.program.chain_lowering import Sink
    from sardonyx.providers.native.program.lowering import Lowerer

BLOCK = 4096
"""Terms of a float32 sum that are added in that precision; the sums of such blocks are added in double precision."""


class RowArguments(Arguments):
    """Of kernels whose items are rows of a source and a sink."""

    columns: Size
    source: Operands = group(lambda source: source.slots)
    sink: Operands = group(lambda sink: sink.slots)


class StripArguments(Arguments):
    """Of kernels that combine the rows of matrices, and whose items are strips of columns."""

    rows: Size
    columns: Size
    strips: Size
    """How many of them a matrix has."""
    width: Size
    """How many columns a strip has."""
    source: Operands = group(lambda source: source.slots)
    sink: Operands = group(lambda sink: sink.slots)


Body = Callable[[int, Value, "Value | None"], None]
"""What is done for a vector: given the number of the unrolled copy, the first column, and how many columns are left if that is less
than a vector."""


@contextlib.contextmanager
def items(f: KernelFunction, sizes: Sequence[Value]) -> Iterator[tuple[Value, list[Value]]]:
    """Each item of the step and its coordinates; `sizes` are those of all axes but the first."""
    counters = counters_at(f, f.begin, sizes)
    with f.loop(f.begin, f.end) as item:
        yield item, [counter.get() for counter in counters]
        advance(f, counters, sizes)


def counters_at(f: KernelFunction, index: Value, sizes: Sequence[Value]) -> list[Variable]:
    """Variables with the coordinates of a flat index."""
    counters: list[Variable] = []
    for size in reversed(sizes):
        counters.append(f.variable(index % size))
        index = index // size
    return [f.variable(index), *reversed(counters)]


def sweep(f: KernelFunction, start: Value | int, stop: Value, lanes: int, unroll: int, body: Body) -> None:
    """Do the columns from `start` to `stop`: several vectors at a time, then single ones, then the rest."""
    first = f.as_value(start, I64)
    # numbers of lanes are powers of two, so that this rounds down to whole vectors
    many = first + ((stop - first) & -(lanes * unroll))
    if unroll > 1:
        with f.loop(first, many, lanes * unroll) as column:
            for copy in range(unroll):
                body(copy, column + copy * lanes, None)
    whole = first + ((stop - first) & -lanes)
    with f.loop(many if unroll > 1 else first, whole, lanes) as column:
        body(0, column, None)
    if lanes > 1:
        with f.if_(whole < stop):
            body(0, whole, stop - whole)


def unroll_of(*chains: Chain, most: int = 4) -> int:
    """How many vectors are worth computing at a time: fewer where each is long work already."""
    work = sum(isinstance(item, Apply) for chain in chains for item in chain.items)
    return most if work == 0 else min(most, 2) if work <= 4 else 1


@dataclass(frozen=True)
class Fold:
    """How elements become one: "add", "mul", "max" or "min". Extremes of floats are NaN if one element is, unless `lenient`."""

    how: str
    type: Type
    lenient: bool = False

    @property
    def neutral(self) -> float:
        """What changes no result."""
        if self.how in ("add", "mul"):
            return 0 if self.how == "add" else 1
        if self.type.is_float:
            return -math.inf if self.how == "max" else math.inf
        if self.type.kind == "bool":
            return self.how == "min"
        low = -(1 << self.type.bits - 1) if self.type.is_signed else 0
        return low if self.how == "max" else low + (1 << self.type.bits) - 1

    @property
    def watches_nan(self) -> bool:
        return self.how in ("max", "min") and self.type.is_float and not self.lenient

    @property
    def total_type(self) -> Type:
        """What results have: float32 sums are double at the end."""
        return F64 if self.how == "add" and self.type.is_float else self.type

    def join(self, f: KernelFunction, left: Value, right: Value) -> Value:
        if self.type.kind == "bool":
            return left | right if self.how == "max" else left & right
        if self.how == "max":
            return f.maximum(right, left)
        if self.how == "min":
            return f.minimum(right, left)
        return f.binary(self.how, left, right)

    def join_in(self, f: KernelFunction) -> Callable[[Value, Value], Value]:
        return lambda left, right: self.join(f, left, right)

    def across(self, f: KernelFunction, vector: Value) -> Value:
        """All lanes as one."""
        if self.type.kind == "bool":
            return f.reduce("or" if self.how == "max" else "and", vector)
        return f.reduce(self.how, vector)


class Accumulator:
    """A fold under way: one vector for each unrolled copy."""

    def __init__(self, f: KernelFunction, fold: Fold, lanes: int, copies: int):
        self.f = f
        self.fold = fold
        self.lanes = lanes
        self.vectors = [f.variable(fold.neutral, fold.type.vector(lanes)) for _ in range(copies)]
        self.nans = [f.variable(False, BOOL.vector(lanes)) for _ in range(copies)] if fold.watches_nan else []

    def reset(self) -> None:
        for vector in self.vectors:
            vector.set(self.fold.neutral)
        for nan in self.nans:
            nan.set(False)

    def take(self, copy: int, value: Value, remaining: Value | None) -> None:
        f = self.f
        if remaining is not None and self.lanes > 1:
            value = f.select(f.first_lanes(remaining, self.lanes), value, self.fold.neutral)
        variable = self.vectors[copy]
        variable.set(self.fold.join(f, variable.get(), value))
        if self.nans:
            self.nans[copy].set(self.nans[copy].get() | f.is_nan(value))

    def result(self) -> Value:
        """All that was taken, as one number."""
        f, fold = self.f, self.fold
        vector = joined([variable.get() for variable in self.vectors], fold.join_in(f))
        total = fold.across(f, vector)
        if self.nans:
            any_nan = f.reduce("or", joined([variable.get() for variable in self.nans], lambda a, b: a | b))
            total = f.select(any_nan, math.nan, total)
        return f.convert(total, fold.total_type)


def joined(parts: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
    """Neighbours joined until one is left."""
    while len(parts) > 1:
        parts = [join(*parts[n : n + 2]) if n + 1 < len(parts) else parts[n] for n in range(0, len(parts), 2)]
    return parts[0]


def fold_columns(
    f: KernelFunction,
    start: Value | int,
    stop: Value,
    lanes: int,
    unroll: int,
    fold: Fold,
    values: Callable[[Value, Value | None], Value],
) -> Value:
    """One number of the values in the columns from `start` to `stop`; `values` gives a vector of them at a column."""
    accumulator = Accumulator(f, fold, lanes, unroll)

    def take(copy: int, column: Value, remaining: Value | None) -> None:
        accumulator.take(copy, values(column, remaining), remaining)

    if fold.how != "add" or not fold.type.is_float:
        sweep(f, start, stop, lanes, unroll, take)
        return accumulator.result()
    total = f.variable(0.0, F64)
    with f.loop(start, stop, BLOCK) as column:
        accumulator.reset()
        sweep(f, column, f.minimum(column + BLOCK, stop), lanes, unroll, take)
        total.set(total.get() + accumulator.result())
    return total.get()


STAGE = 8192
"""The longest row whose intermediate values are kept on the stack."""
STREAMED_COLUMNS = 4096
"""The longest row whose results go past the caches: values between passes must stay in the first one."""


def streamed_rows(lowerer: Lowerer, sink: Sink) -> Chain:
    """A sink's chain with large results marked to go past the caches; what is scratch memory has no results."""
    columns = sink.shape[-1]
    if not sink.results or not isinstance(columns, int) or columns > STREAMED_COLUMNS:
        return sink.chain
    return streamed(lowerer, sink.chain, [lowerer.known_view(value) for value in sink.results])


def is_direct(chain: Chain) -> bool:
    """Whether a source is read at no cost, so that each pass may do so again."""
    return len(chain.items) == 1 and isinstance(chain.items[0], Load) and chain.items[0].strides[-1] in ("0", "1")


def is_plain_store(sink: Chain, type: Type) -> bool:
    """Whether a result is written as it is computed, so that its row can hold intermediate values before."""
    return (
        len(sink.items) == len(sink.stores) == 1
        and sink.stores[0].type == type
        and bool(sink.stores[0].strides)
        and sink.stores[0].strides[-1] == "1"
        and not sink.streams
    )


class Stage:
    """A row of values between passes: the row of the result itself where that can hold them, else memory of its own."""

    def __init__(self, f: KernelFunction, type: Type, memory: Value | None):
        self.f = f
        self.type = type
        self._far = memory
        self._near = None if memory is None else f.stack(type, STAGE)

    def row(self, target: ChainRow, item: Value, columns: Value) -> Value:
        """Where the values of an item stand."""
        if self._far is None or self._near is None:
            return target.target()
        f = self.f
        return f.select(columns <= STAGE, self._near, f.address(self._far, item * columns, self.type))


def stage_memory(lowerer: Lowerer, sink: Chain, type: Type, rows: Dim, columns: Dim) -> Buffer | None:
    """What `Stage` asks for: memory for all rows if they are too long for the stack; None if the result itself can hold them."""
    if is_plain_store(sink, type):
        return None
    is_long = dim.minimum(1, dim.maximum(0, columns - STAGE))
    return lowerer.scratch(rows * columns * type.bytes * is_long)
