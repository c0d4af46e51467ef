"""The kernel of normalizations along rows: LayerNormalization and its relatives, with what is added before and the statistics beside."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, I32, I64, Type
from sardonyx.providers.native.kernels.reduction.passes import (
    Fold,
    Stage,
    fold_columns,
    is_direct,
    is_plain_store,
    items,
    sweep,
    unroll_of,
)
from sardonyx.providers.native.program.arguments import Arguments, Number, Operands, Pointer, Size, each, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow, slots_of
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.streaming import in_streams
from sardonyx.startup.records import dataclass

CENTRED = ("layer", "deviation")
"""Forms that subtract the mean."""


@dataclass(frozen=True)
class Lookup:
    """How a source's row is found in a table: by an index from memory, or by the item's own number."""

    index: Type | None
    repeats: bool
    """Whether items count from 0 again after some time, as positions in a sequence do."""


@dataclass(frozen=True)
class Norm:
    """What shapes the code of a normalization."""

    form: str
    """layer: (x - mean) / √(variance + ε); deviation: (x - mean) / (√variance + ε); rms: x / √(mean square + ε);
    l1, l2: x / norm, or x where the norm is 0."""
    type: Type
    sources: tuple[Chain, ...]
    """What is added up to be normalized."""
    sink: Chain
    scale: Chain | None = None
    bias: Chain | None = None
    total: Chain | None = None
    """Where the sum of the sources goes, if somebody wants it."""
    mean: Type | None = None
    inverse: Type | None = None
    lookups: tuple[Lookup, ...] = ()
    """For each source how its row is found, if they are tables."""

    @property
    def is_direct(self) -> bool:
        return len(self.sources) == 1 and is_direct(self.sources[0])


class ChainArguments(Arguments):
    """Of one chain among several."""

    operands: Operands = group(lambda item: item.slots)


class LookupArguments(Arguments):
    """Of a table in which a source's row is looked up."""

    size: Size
    """How many rows it has."""
    indices: Pointer | None = when(lambda item: item.index is not None)
    period: Size | None = when(lambda item: item.repeats)
    """After how many items they count from 0 again."""


class NormArguments(Arguments):
    columns: Size
    outer: Sequence[Size] = each(lambda norm: norm.sink.rank - 2)
    """The sizes of all axes of rows but the first."""
    epsilon: Number
    stage: Pointer | None = when(lambda norm: not is_plain_store(norm.sink, norm.type))
    """Where values between passes are kept: see `Stage`."""
    sources: Sequence[ChainArguments] = each(lambda norm: norm.sources)
    lookups: Sequence[LookupArguments] = each(lambda norm: norm.lookups)
    status: Pointer | None = when(lambda norm: norm.lookups)
    scale: Operands = group(lambda norm: slots_of(norm.scale))
    bias: Operands = group(lambda norm: slots_of(norm.bias))
    total: Operands = group(lambda norm: slots_of(norm.total))
    mean: Pointer | None = when(lambda norm: norm.mean)
    inverse: Pointer | None = when(lambda norm: norm.inverse)
    sink: Operands = group(lambda norm: norm.sink.slots)


@kernel("normalize", NormArguments)
def norm_kernel(f: KernelFunction, a: NormArguments, norm: Norm) -> None:
    """Rows with a mean of 0 and a deviation of 1, or another norm. Items are rows."""
    stage = Stage(f, norm.type, a.stage)
    sources = [ChainCode(f, chain, own.operands) for chain, own in zip(norm.sources, a.sources)]
    scale, bias, total = (
        None if chain is None else ChainCode(f, chain, operands)
        for chain, operands in ((norm.scale, a.scale), (norm.bias, a.bias), (norm.total, a.total))
    )
    write = ChainCode(f, norm.sink, a.sink)
    share = 1.0 / f.convert(a.columns, F64)
    with items(f, a.outer) as (index, place):
        target = write.row(place)
        row = _Row(f, norm, _source_rows(f, a, norm, sources, index, place), stage.row(target, index, a.columns), a.columns)
        row.total = None if total is None else total.row(place)
        mean, inverse = row.statistics(share, a.epsilon)
        row.write(target, None if scale is None else scale.row(place), None if bias is None else bias.row(place), mean, inverse)
        for pointer, type, value in ((a.mean, norm.mean, mean), (a.inverse, norm.inverse, inverse)):
            if pointer is not None and type is not None:
                f.store(f.convert(value, type), pointer, index, type)
    if norm.sink.streams:
        f.fence()


def _source_rows(
    f: KernelFunction, a: NormArguments, norm: Norm, sources: Sequence[ChainCode], item: Value, place: Sequence[Value]
) -> list[ChainRow]:
    """What is added up for an item: the rows at its own place, or those that are looked up."""
    if a.status is None:
        return [source.row(place) for source in sources]
    rows = [_looked_up(f, lookup, own, item, a.status) for lookup, own in zip(norm.lookups, a.lookups)]
    return [source.row([row]) for source, row in zip(sources, rows)]


def _looked_up(f: KernelFunction, lookup: Lookup, a: LookupArguments, item: Value, status: Value) -> Value:
    """The row of a table for an item. One that is not there is told, and the first row comes instead."""
    if a.period is not None:
        item = item % a.period
    if a.indices is not None and lookup.index is not None:
        item = f.convert(f.load(a.indices, item, lookup.index), I64)
    inside = (item >= 0) & (item < a.size)
    with f.if_(~inside):
        f.store(1, status, 0, I64)
    return f.select(inside, item, 0)


class _Row:
    """One row while it goes through the passes."""

    def __init__(self, f: KernelFunction, norm: Norm, sources: list[ChainRow], kept: Value, columns: Value):
        self.f = f
        self.norm = norm
        self.sources = sources
        self.kept = kept
        self.columns = columns
        self.lanes = f.lanes(norm.type)
        self.unroll = unroll_of(*norm.sources)
        self.total: ChainRow | None = None

    def first(self, column: Value, remaining: Value | None) -> Value:
        """The sum of the sources, kept for later passes if it cost something."""
        norm = self.norm
        values = [row.lanewise(column, self.lanes, remaining, norm.type) for row in self.sources]
        value = values[0]
        for other in values[1:]:
            value = value + other
        if self.total is not None:
            self.total.emit(column, self.lanes, remaining, given=[value])
        if not norm.is_direct:
            self.f.store(value, self.kept, column, norm.type, remaining=remaining)
        return value

    def again(self, column: Value, remaining: Value | None) -> Value:
        if self.norm.is_direct:
            return self.sources[0].lanewise(column, self.lanes, remaining, self.norm.type)
        return self.f.load(self.kept, column, self.norm.type, self.lanes, remaining=remaining)

    def _sum(self, unroll: int, values: object) -> Value:
        assert callable(values)
        return fold_columns(self.f, 0, self.columns, self.lanes, unroll, Fold("add", self.norm.type), values)

    def statistics(self, share: Value, epsilon: Value) -> tuple[Value, Value]:
        """The mean, 0 for forms that don't subtract it, and what to multiply with, or to divide by for l1 and l2."""
        f, form = self.f, self.norm.form
        if form == "l1":
            norm = self._sum(self.unroll, lambda column, remaining: f.abs(self.first(column, remaining)))
            return f.const(F64, 0.0), f.select(norm == 0.0, 1.0, norm)
        if form not in CENTRED:
            squares = self._sum(self.unroll, lambda column, remaining: _square(self.first(column, remaining)))
            if form == "rms":
                return f.const(F64, 0.0), 1.0 / f.sqrt(squares * share + epsilon)
            return f.const(F64, 0.0), f.select(squares == 0.0, 1.0, f.sqrt(squares))
        mean = self._sum(self.unroll, self.first) * share
        middle = f.splat(f.convert(mean, self.norm.type), self.lanes)

        def square(column: Value, remaining: Value | None) -> Value:
            if remaining is None and self.norm.sink.streams:
                for source in self.sources:
                    source.prefetch_next(column)
            return _square(self.again(column, remaining) - middle)

        squares = self._sum(4, square)
        variance = squares * share
        return mean, 1.0 / (f.sqrt(variance + epsilon) if form == "layer" else f.sqrt(variance) + epsilon)

    def write(self, target: ChainRow, scale: ChainRow | None, bias: ChainRow | None, mean: Value, inverse: Value) -> None:
        f, norm, lanes = self.f, self.norm, self.lanes
        middle = f.splat(f.convert(mean, norm.type), lanes)
        factor = f.splat(f.convert(inverse, norm.type), lanes)

        def finish(copy: int, column: Value, remaining: Value | None) -> None:
            value = self.again(column, remaining)
            if norm.form in CENTRED:
                value = value - middle
            value = value / factor if norm.form in ("l1", "l2") else value * factor
            if scale is not None:
                value = value * scale.lanewise(column, lanes, remaining, norm.type)
            if bias is not None:
                value = value + bias.lanewise(column, lanes, remaining, norm.type)
            target.emit(column, lanes, remaining, given=[value])

        in_streams(f, target, 0, lambda: sweep(f, 0, self.columns, lanes, unroll_of(norm.sink, most=2), finish))


def _square(value: Value) -> Value:
    return value * value


class CountOnesArguments(Arguments):
    mask: Pointer | None = when(lambda has_mask: has_mask)
    columns: Size
    target: Pointer


@kernel("count ones", CountOnesArguments)
def count_ones_kernel(f: KernelFunction, a: CountOnesArguments, has_mask: bool) -> None:
    """How many elements of each row of a mask are 1; none if there is no mask. Items are rows."""
    lanes = f.lanes(I32)
    with f.loop(f.begin, f.end) as row:
        if a.mask is None:
            f.store(f.const(I32, 0), a.target, row, I32)
        else:
            start = f.address(a.mask, row * a.columns, I32)

            def ones(column: Value, remaining: Value | None) -> Value:
                is_one = f.load(start, column, I32, lanes, remaining=remaining) == 1
                return f.select(is_one, f.const(I32.vector(lanes), 1), 0)

            f.store(fold_columns(f, 0, a.columns, lanes, 1, Fold("add", I32), ones), a.target, row, I32)
