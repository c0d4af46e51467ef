"""Chains of scalar operations over the elements of a domain: what is fused into one loop, or behind a matrix product as its epilogue.

A `Chain` is a description that can be compared and hashed: two chains that are equal share one kernel. `ChainCode` emits it into a
kernel: the loops around belong to whoever asks for elements at coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Union

from sardonyx.compiler.builder import Value
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim
from sardonyx.providers.native.program.arguments import POINTER, SIZE, Slot
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.views import View
from sardonyx.providers.scalars.table import scalar_function
from sardonyx.startup.records import dataclass

LINE = 64
"""Bytes of a line of the caches."""
Strides = tuple[str, ...]
"""How an operand moves along each axis of the domain: "0" not at all, "1" by one element, "n" by a number given at run time."""


@dataclass(frozen=True)
class Load:
    type: Type
    strides: Strides


@dataclass(frozen=True)
class Number:
    type: Type
    value: str
    """The number as Python writes it, so that 0.0 and -0.0 are not equal."""


@dataclass(frozen=True)
class Given:
    """A value that the surrounding kernel has made: the result of a product, say."""

    type: Type


@dataclass(frozen=True)
class Apply:
    op: str
    inputs: tuple[int, ...]
    """Numbers of the items that it takes, -1 for an absent one."""
    type: Type
    attributes: tuple[tuple[str, Any], ...] = ()


def _number(text: str) -> float:
    return float(text) if any(sign in text for sign in ".enf") else int(text)


Item = Union[Load, Number, Given, Apply]


@dataclass(frozen=True)
class Store:
    item: int
    type: Type
    strides: Strides
    streams: bool = False
    """Whether it goes past the caches: see `streaming`."""


@dataclass(frozen=True)
class Chain:
    """Items in order, each using earlier ones; stores say which are results."""

    rank: int
    items: tuple[Item, ...]
    stores: tuple[Store, ...]

    @property
    def slots(self) -> list[Slot]:
        """What its code is given: for each load and store its place, and the strides that are known at run time only."""
        loads = [(f"in{n}", item.strides) for n, item in enumerate(self.items) if isinstance(item, Load)]
        stores = [(f"out{n}", store.strides) for n, store in enumerate(self.stores)]
        return [slot for name, strides in (*loads, *stores) for slot in _operand_slots(name, strides)]

    @property
    def streams(self) -> bool:
        """Whether results go past the caches."""
        return any(store.streams for store in self.stores)

    @property
    def is_dequantizing(self) -> bool:
        """Whether integers become floats here. What follows is likely to be rounded to integers again, where each last bit can count."""
        reads_integers = any(isinstance(item, (Load, Given)) and item.type.is_integer for item in self.items)
        return reads_integers and any(isinstance(item, Apply) and item.type.is_float for item in self.items)

    @property
    def is_zero_beyond(self) -> bool:
        """Whether its elements are 0 in lanes beyond the last column, as those of a load along the row are."""
        last = self.items[-1]
        return isinstance(last, Load) and last.strides[-1:] in (("1",), ("n",))

    def __str__(self) -> str:
        """The chain as text, for people: a small program over the coordinates of the domain."""
        place = ", ".join(f"i{axis}" for axis in range(self.rank))
        lines = [f"at ({place}):"]
        for number, item in enumerate(self.items):
            lines.append(f"  t{number}: {item.type} = {_item_text(item, number)}")
        for number, store in enumerate(self.stores):
            lines.append(f"  out{number}{_strides_text(store.strides)} = {store.type}(t{store.item})")
        return "\n".join(lines)


def _item_text(item: Item, number: int) -> str:
    if isinstance(item, Load):
        return f"in{number}{_strides_text(item.strides)}"
    if isinstance(item, Number):
        return item.value
    if isinstance(item, Given):
        return "the kernel's result"
    operands = [f"t{number}" if number >= 0 else "none" for number in item.inputs]
    return f"{item.op.rpartition('.')[2]}({', '.join([*operands, *(f'{name}={value}' for name, value in item.attributes)])})"


def _strides_text(strides: Strides) -> str:
    """[i0·n, i1]: an axis along which an operand does not move is left out."""
    moved = [f"i{axis}" if kind == "1" else f"i{axis}·n" for axis, kind in enumerate(strides) if kind != "0"]
    return f"[{', '.join(moved)}]"


def pattern(strides: Sequence[Dim]) -> Strides:
    """The part of an operand's strides that shapes the code."""
    inner = tuple("0" if stride == 0 else "n" for stride in strides[:-1])
    last = strides[-1] if strides else 0
    return inner + (("0" if last == 0 else "1" if last == 1 else "n"),) if strides else ()


def _operand_slots(name: str, strides: Strides) -> list[Slot]:
    varying = [Slot(f"{name}.strides.{axis}", SIZE) for axis, kind in enumerate(strides) if kind == "n"]
    return [Slot(name, POINTER), *varying]


def slots_of(chain: Chain | None) -> list[Slot]:
    """The arguments of a chain's code; none if there is no chain."""
    return [] if chain is None else chain.slots


def stride_arguments(view: View, strides: Sequence[Dim]) -> list[Argument]:
    """What `ChainCode` asks for an operand: its place and the strides that are known at run time only."""
    return [view.place, *(stride for stride, kind in zip(strides, pattern(strides)) if kind == "n")]


class _Operand:
    """A load or store inside a kernel: its pointer and strides."""

    def __init__(self, f: KernelFunction, type: Type, strides: Strides, words: Iterator[Value]):
        self.f = f
        self.type = type
        self.kinds = strides
        self.pointer = next(words)
        self.strides = [next(words) if kind == "n" else None for kind in strides]

    def at(self, outer: Sequence[Value]) -> Value:
        """Where the row with these outer coordinates begins."""
        offset: Value | None = None
        for coordinate, stride in zip(outer, self.strides):
            if stride is not None:
                moved = coordinate * stride
                offset = moved if offset is None else offset + moved
        return self.pointer if offset is None else self.f.address(self.pointer, offset, self.type)


class ChainCode:
    """A chain being emitted, with its operands: what `Chain.slots` lists."""

    def __init__(self, f: KernelFunction, chain: Chain, operands: Sequence[Value]):
        self.f = f
        self.chain = chain
        words = iter(operands)
        self.loads = {
            n: _Operand(f, item.type, item.strides, words) for n, item in enumerate(chain.items) if isinstance(item, Load)
        }
        self.stores = [_Operand(f, store.type, store.strides, words) for store in chain.stores]
        self.numbers = {
            n: f.load(operand.pointer, 0, operand.type)
            for n, operand in self.loads.items()
            if all(kind == "0" for kind in operand.kinds)
        }
        """Loads of one number for the whole domain. They are read here, as LLVM does not know that stores leave them alone."""
        self.is_exact = chain.is_dequantizing
        """Whether every op rounds by itself."""

    def row(self, outer: Sequence[Value]) -> ChainRow:
        """The elements along the innermost axis at these coordinates of the others."""
        return ChainRow(self, outer)


class ChainRow:
    """One row of the domain: addresses are computed once, elements are asked for along it."""

    def __init__(self, code: ChainCode, outer: Sequence[Value]):
        self.code = code
        self.f = code.f
        self.streaming = False
        """Whether results that may go past the caches do."""
        self._loads = {n: operand.at(outer) for n, operand in code.loads.items()}
        self._stores = [operand.at(outer) for operand in code.stores]
        self._fixed = code.numbers | {
            n: self.f.load(self._loads[n], 0, operand.type)
            for n, operand in code.loads.items()
            if operand.kinds[-1:] == ("0",) and n not in code.numbers
        }

    def target(self, number: int = 0) -> Value:
        """Where the row of a store begins."""
        return self._stores[number]

    def prefetch(self, column: Value, count: int) -> None:
        """Begin to fetch what will be read and written at so many columns, where it lies in a row of its own.

        Lines that are not read or written as a whole are not worth it: for bytes that takes longer than the CPU waits otherwise.
        """
        loads = [(operand, self._loads[n]) for n, operand in self.code.loads.items()]
        for operand, place in (*loads, *zip(self.code.stores, self._stores)):
            if operand.kinds[-1:] == ("1",) and any(kind != "0" for kind in operand.kinds[:-1]):
                for line in range(count * operand.type.bytes // LINE):
                    self.f.prefetch(place, column + line * LINE // operand.type.bytes, operand.type)

    def prefetch_next(self, column: Value) -> None:
        """Begin to fetch what the next row, one further along the last outer axis, reads at a column."""
        for n, operand in self.code.loads.items():
            if operand.kinds[-1:] == ("1",) and operand.kinds[-2:-1] == ("n",):
                step = operand.strides[-2]
                assert step is not None
                self.f.prefetch(self._loads[n], column + step, operand.type)

    def is_aligned(self, start: Value | int, bytes: int) -> Value | None:
        """Whether streamed results are aligned to so many bytes from a column on; None if no result is streamed."""
        addresses: Value | None = None
        for store, place in zip(self.code.chain.stores, self._stores):
            if store.streams:
                number = self.f.as_number(self.f.address(place, start, store.type))
                addresses = number if addresses is None else addresses | number
        return None if addresses is None else (addresses & (bytes - 1)) == 0

    def load(self, n: int, column: Value, lanes: int, remaining: Value | None) -> Value:
        operand, place = self.code.loads[n], self._loads[n]
        if n in self._fixed:
            return self.f.splat(self._fixed[n], lanes)
        if operand.kinds[-1] == "1":
            return self.f.load(place, column, operand.type, lanes, remaining=remaining)
        stride = operand.strides[-1]
        assert stride is not None
        if lanes == 1:
            return self.f.load(place, column * stride, operand.type)
        indices = (self.f.iota(I64, lanes) + self.f.splat(column, lanes)) * self.f.splat(stride, lanes)
        mask = None if remaining is None else self.f.first_lanes(remaining, lanes)
        return self.f.gather(place, indices, operand.type, mask=mask)

    def counted(self, column: Value, lanes: int, remaining: Value | None, type: Type, neutral: float) -> Value:
        """The elements at `lanes` columns from `column` on, for a kernel that makes one number of them all.

        Lanes beyond `remaining` hold `neutral`, which changes no result: 0 where they are added.
        """
        elements = self.lanewise(column, lanes, remaining, type)
        if remaining is None or lanes == 1 or (neutral == 0 and self.code.chain.is_zero_beyond):
            return elements
        return self.f.select(self.f.first_lanes(remaining, lanes), elements, neutral)

    def lanewise(
        self,
        column: Value,
        lanes: int,
        remaining: Value | None,
        type: Type | None = None,
        *,
        item: int = -1,
        given: Sequence[Value] = (),
    ) -> Value:
        """The elements for a kernel that keeps lanes apart: they go to a store with the same mask, or to a `Fold`.

        Lanes beyond `remaining` hold anything: loads are 0 there, but not what a chain makes of them.
        """
        elements = self._items_at(column, lanes, remaining, given)[item]
        assert elements is not None
        return elements if type is None else self.f.convert(elements, type)

    def _items_at(
        self, column: Value, lanes: int, remaining: Value | None = None, given: Sequence[Value] = ()
    ) -> list[Value | None]:
        """All items at `lanes` columns from `column` on."""
        results: list[Value | None] = []
        rest = iter(given)
        for n, item in enumerate(self.code.chain.items):
            if isinstance(item, Load):
                results.append(self.load(n, column, lanes, remaining))
            elif isinstance(item, Number):
                results.append(self.f.const(item.type.computed.vector(lanes), _number(item.value)))
            elif isinstance(item, Given):
                results.append(self.f.rounded(next(rest), item.type))
            else:
                operands = [None if number < 0 else results[number] for number in item.inputs]
                with self.f.exact() if self.code.is_exact else nullcontext():
                    result = scalar_function(item.op)(*operands, type=item.type, **dict(item.attributes))
                results.append(self.f.rounded(self.f.splat(result, lanes), item.type))  # as if every op stored its result
        return results

    def _store(self, results: Sequence[Value | None], column: Value, remaining: Value | None = None) -> None:
        """Write the results among all items."""
        for store, operand, place in zip(self.code.chain.stores, self.code.stores, self._stores):
            value = results[store.item]
            assert value is not None
            value = self.f.convert(value, store.type)  # only copies between types differ here
            if not operand.kinds or operand.kinds[-1] in "01":
                index: Value | int = column if operand.kinds and operand.kinds[-1] == "1" else 0
                streams = self.streaming and store.streams and remaining is None and value.type.lanes > 1
                self.f.store(value, place, index, store.type, remaining=remaining, streams=streams)
            else:
                self._scatter(value, operand, place, column, remaining)

    def _scatter(self, value: Value, operand: _Operand, place: Value, column: Value, remaining: Value | None) -> None:
        stride = operand.strides[-1]
        assert stride is not None
        for lane in range(value.type.lanes):
            element = self.f.extract(value, lane)
            if remaining is None or lane == 0:
                self.f.store(element, place, (column + lane) * stride, operand.type)
            else:
                with self.f.if_(remaining > lane):
                    self.f.store(element, place, (column + lane) * stride, operand.type)

    def emit(self, column: Value, lanes: int, remaining: Value | None = None, given: Sequence[Value] = ()) -> None:
        """Load, compute and store `lanes` elements from `column` on; with `remaining` only so many of them."""
        self._store(self._items_at(column, lanes, remaining, given), column, remaining)


def chain_weight(target: Target, chain: Chain, lanes: int) -> int:
    """About how many instructions a chain that begins with a kernel's result takes per vector."""
    f = KernelFunction(target)
    row = ChainCode(f, chain, f.words(chain.slots)).row([f.const(I64, 0)] * (chain.rank - 1))
    before = f.lines
    row.emit(f.begin, lanes, given=[f.const(chain.items[0].type.computed.vector(lanes), 0)])
    return f.lines - before
