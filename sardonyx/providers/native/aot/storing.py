"""A compiled program as plain data and back: `writing` stores the argument tables in a container, `provider` makes a program of them.

What is read may be anything: every number that is used as an index is checked here, because code runs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Dim, TensorType
from sardonyx.providers.native.aot.container import BadContext, Container, Writer
from sardonyx.providers.native.execution.argument_table import Tables
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.execution.memory import Workspace
from sardonyx.providers.native.program.parts import Batch
from sardonyx.providers.native.program.settled import SEEDS
from sardonyx.providers.native.program.size_terms import BadSize, Calls, CallsRead, CallsTold, dim_of, source_of, summed
from sardonyx.providers.native.program.sizes import THREADS_NAME, SizeRules
from sardonyx.providers.native.program.texts import ProgramTexts, TextConstants
from sardonyx.providers.provider import CannotCompile

_COLUMNS = {
    "kernels": 1,
    "items": 1,
    "grains": 1,
    "work": 2,
    "counts": 1,
    "jumps": 1,
    "fixed": 1,
    "numbers": 2,
    "arena": 2,
    "outside": 2,
    "constants": 2,
    "status": 1,
    "run": 2,
    "loose": 2,
}
"""The arrays among the tables, in the order in which they are stored, and how many numbers a row of each has."""

WIDEST = 16
"""Bytes of the largest element."""

Description = Mapping[str, Any]
T = TypeVar("T")


def store(program: CompiledProgram, writer: Writer, kernels: Mapping[str, int]) -> dict[str, Any]:
    """What describes a program; arrays and constants go to the writer. `kernels` are the numbers of all kernels by symbol."""
    assert program.program is not None
    tables = program.argument_table.tables
    numbers = np.array([kernels[kernel.symbol] for kernel in program.program.kernels], np.int64)
    constants = np.array([writer.add_constant(_array(constant.array)) for constant in program.program.constants], np.int64)
    arrays = {name: getattr(tables, name) for name in _COLUMNS}
    arrays["kernels"] = numbers[tables.kernels]
    arrays["constants"] = tables.constants.copy()
    arrays["constants"][:, 1] = constants[tables.constants[:, 1]]
    calls = CallsTold()
    return {
        "name": program.program.name,
        "inputs": len(program.program.inputs),
        "lengths": [len(array) for array in arrays.values()],
        "arrays": writer.add(b"".join(np.ascontiguousarray(array, np.int64).tobytes() for array in arrays.values())),
        "rules": _stored_rules(tables.rules, calls),
        "buffers": [[size, *span] for size, span in zip(tables.buffers, tables.workspace.spans)],
        "outputs": [[type.code, list(shape)] for type, shape in zip(tables.types, tables.outputs)],
        "labels": [list(label) for label in program.labels],
        "batch": None if tables.batch is None else [tables.batch.symbol, list(tables.batch.elements), tables.batch.weights],
        "shared": [list(pair) for pair in tables.shared],
        "texts": None if program.texts is None else _stored_texts(program.texts),
        "flops": calls.size(summed(tables.rules.numbers[number] for number in tables.work[:, 0])),
        "calls": calls.calls,  # the last: all that has sizes stands before
    }


def _array(array: np.ndarray | None) -> np.ndarray:
    assert array is not None
    return array


def _symbols(named: Sequence[str]) -> list[str]:
    """The symbols of a program, by their numbers."""
    return [*named, THREADS_NAME]


def _stored_rules(rules: SizeRules, calls: CallsTold) -> dict[str, Any]:
    return {
        **{name: getattr(rules, name) for name in ("symbols", "ranks", "places", "caps")},
        "checks": [(number, axis, calls.size(size)) for number, axis, size in rules.checks],
        "conditions": [(calls.size(left), calls.size(right)) for left, right in rules.conditions],
        "numbers": [calls.size(size) for size in rules.numbers],
    }


def _stored_texts(texts: ProgramTexts) -> dict[str, Any]:
    return {"constants": texts.constants.added, "inputs": list(texts.inputs), "outputs": list(texts.outputs)}


class Stored:
    """A program in a container: what it takes and gives, its tables, its labels."""

    def __init__(self, container: Container, description: Description, kernel_count: int):
        self.container = container
        self.description = description
        self.name = str(description["name"])
        self._symbols = _symbols(_all(str, description["rules"]["symbols"]))
        self.inputs = _whole(description["inputs"])
        self._calls = CallsRead(description["calls"])
        self.rules = self._rules(description["rules"])
        self.labels = [(str(label), str(kernel)) for label, kernel in description["labels"]]
        self.tables = self._tables()
        self.texts = self._texts(description["texts"])
        self._check(kernel_count)

    @property
    def output_types(self) -> list[TensorType]:
        """The types of what it computes."""
        return [
            TensorType(dtypes.string if self._gives_texts(place) else dtype, tuple(self._dim(number) for number in shape))
            for place, (dtype, shape) in enumerate(zip(self.tables.types, self.tables.outputs))
        ]

    def _gives_texts(self, output: int) -> bool:
        return self.texts is not None and output in self.texts.outputs

    def _dim(self, number: int) -> Dim:
        return dim_of(self.rules.numbers[number], self._symbols)

    def _rules(self, stored: Description) -> SizeRules:
        inputs = self.inputs
        ranks = _all(_whole, stored["ranks"])
        rules = SizeRules(
            symbols=self._symbols[:-1],
            ranks=ranks,
            places=[_row(row, 4) for row in stored["places"]],
            caps=[_row(row, 3) for row in stored["caps"]],
            checks=[(_whole(number), _whole(axis), self._calls.size(size)) for number, axis, size in stored["checks"]],
            conditions=[(self._calls.size(left), self._calls.size(right)) for left, right in stored["conditions"]],
            numbers=list(map(self._calls.size, stored["numbers"])),
        )
        if len(ranks) != inputs or len(rules.places) > len(rules.symbols) or any(place[3] < 1 for place in rules.places):
            raise BadContext(f"{self.name}: its sizes do not fit its inputs")
        for number, axis, *_ in (*rules.places, *rules.caps, *rules.checks):
            if not (0 <= number < inputs and 0 <= axis < ranks[number]):
                raise BadContext(f"{self.name}: there is no axis {axis} of input {number}")
        names, calls = self._symbols, Calls()
        for size in (
            *(check[2] for check in rules.checks),
            *(side for pair in rules.conditions for side in pair),
            *rules.numbers,
        ):
            source_of(size, names, calls=calls)
        return rules

    def _tables(self) -> Tables:
        description = self.description
        arrays = self._arrays()
        outputs = [(dtypes.from_code(code), _all(_whole, shape)) for code, shape in description["outputs"]]
        buffers = [_row(row, 3) for row in description["buffers"]]
        numbers, symbols = self.rules.numbers, self._symbols  # not this object, which holds what is made here
        sizes = _Lazily(lambda: [dim_of(numbers[size], symbols) for size, _, _ in buffers])
        workspace = Workspace.restored(sizes, [(first, last) for _, first, last in buffers])
        batch = self._batch(description["batch"], [dtype for dtype, _ in outputs])
        workspace.batch, workspace.flops = batch, dim_of(self._calls.size(description["flops"]), self._symbols)
        return Tables(
            rules=self.rules,
            buffers=[size for size, _, _ in buffers],
            workspace=workspace,
            outputs=[shape for _, shape in outputs],
            types=[dtype for dtype, _ in outputs],
            batch=batch,
            shared=self._shared(len(outputs)),
            **arrays,
        )

    def _shared(self, outputs: int) -> list[tuple[int, int]]:
        pairs = [_row(pair, 2) for pair in self.description["shared"]]
        if any(not (0 <= source < self.inputs and 0 <= result < outputs) for source, result in pairs):
            raise BadContext(f"{self.name}: inputs share memory with outputs that are not there")
        return [(source, result) for source, result in pairs]

    def _batch(self, stored: Any, types: Sequence[dtypes.ElementType]) -> Batch | None:
        if stored is None:
            return None
        symbol, elements, weights = stored
        batch = Batch(str(symbol), _all(_whole, elements), _whole(weights))
        input_bytes, output_bytes = batch.elements[: self.inputs], list(batch.elements[self.inputs :])
        ranks = zip(input_bytes, self.rules.ranks, strict=True)
        if not any(input_bytes) or any(bytes and not (0 < bytes <= WIDEST and rank) for bytes, rank in ranks):
            raise BadContext(f"{self.name}: its batch does not fit its inputs")
        if output_bytes != [np.dtype(type.numpy).itemsize for type in types] or batch.symbol not in self._symbols:
            raise BadContext(f"{self.name}: its batch does not fit its outputs")
        return batch

    def _texts(self, stored: Any) -> ProgramTexts | None:
        if stored is None:
            return None
        added, constants = _all(_text, stored["constants"]), TextConstants()
        try:
            constants.references(added)
        except CannotCompile as error:
            raise BadContext(f"{self.name}: {error}") from error
        inputs, outputs = (sorted(_all(_whole, stored[name])) for name in ("inputs", "outputs"))
        bounds = (inputs, self.inputs), (outputs, len(self.tables.outputs))
        is_inside = all(0 <= place < count for places, count in bounds for place in places)
        if not is_inside or constants.added != added or any(self.tables.types[place] is not dtypes.int64 for place in outputs):
            raise BadContext(f"{self.name}: its strings do not fit its inputs and outputs")
        return ProgramTexts(constants, inputs, outputs)

    def _arrays(self) -> dict[str, np.ndarray]:
        words = self.container.array(self.container.description["sections"][_whole(self.description["arrays"])])
        sections, start = {}, 0
        for (name, columns), length in zip(_COLUMNS.items(), _all(_whole, self.description["lengths"]), strict=True):
            end = start + columns * length
            if length < 0 or end > len(words):
                raise BadContext(f"{self.name}: its tables are cut")
            sections[name] = words[start:end] if columns == 1 else words[start:end].reshape(-1, columns)
            start = end
        return sections

    def _check(self, kernel_count: int) -> None:
        """Refuse tables that point at nothing."""
        tables, sizes = self.tables, len(self.rules.numbers)
        words, steps = len(tables.fixed), len(tables.kernels)
        outside = self.inputs + len(tables.outputs) + (self.texts is not None)  # behind them, the memory of strings
        flat = [number for shape in tables.outputs for number in shape]
        bounds: list[tuple[Any, int]] = [
            *((column, sizes) for column in (tables.items, tables.grains, tables.work, tables.buffers, flat)),
            *((column[:, 0], words) for column in (tables.numbers, tables.arena, tables.outside, tables.constants)),
            (tables.status, words),
            (tables.run[:, 0], words),
            (tables.run[:, 1], SEEDS + 1),
            (tables.loose[:, 0], len(tables.outputs)),
            (tables.loose[:, 1], len(tables.buffers)),
            (tables.numbers[:, 1], sizes),
            (tables.arena[:, 1], len(tables.buffers)),
            (tables.outside[:, 1], outside),
            (tables.constants[:, 1], len(self.container.description["constants"])),
            (tables.workspace.spans, steps),
            (tables.counts, words + 1),
            (np.arange(steps) + tables.jumps, steps + 1),
            (tables.kernels, kernel_count),
        ]
        columns = [np.asarray(column, np.int64).reshape(-1) for column, _ in bounds]
        limits = np.repeat([limit for _, limit in bounds], [len(column) for column in columns])
        values = np.concatenate(columns)
        if (values < 0).any() or (values >= limits).any():
            raise BadContext(f"{self.name}: its tables point at what is not there")
        same = (
            len(tables.items)
            == len(tables.grains)
            == len(tables.work)
            == len(tables.counts)
            == len(tables.jumps)
            == len(self.labels)
            == steps
        )
        if not same or tables.counts.sum() != words or not tables.counts[tables.jumps != 0].all():
            raise BadContext(f"{self.name}: its tables do not fit each other")


class _Lazily(Sequence[Dim]):
    """A list that is made when somebody looks at it: only reports of memory want it."""

    def __init__(self, make: Callable[[], list[Dim]]):
        self._make = make
        self._made: list[Dim] | None = None

    def __getitem__(self, index: Any) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made[index]

    def __len__(self) -> int:
        if self._made is None:
            self._made = self._make()
        return len(self._made)


def restored(container: Container, descriptions: Sequence[Description], kernel_count: int) -> list[Stored]:
    """All programs of a container; BadContext if something is not as it must be."""
    try:
        return [Stored(container, description, kernel_count) for description in descriptions]
    except (BadSize, KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadContext(f"a program in it is malformed ({type(error).__name__}: {error})") from error


def _whole(value: Any) -> int:
    if type(value) is not int or not -(2**62) < value < 2**62:
        raise BadContext(f"{str(value)[:40]!r} is no whole number")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise BadContext(f"{str(value)[:40]!r} is no string")
    return value


def _all(convert: Callable[[Any], T], values: Any) -> list[T]:
    if type(values) is not list:
        raise BadContext("a list is missing")
    return [convert(value) for value in values]


def _row(values: Any, length: int) -> list[int]:
    row = _all(_whole, values)
    if len(row) != length:
        raise BadContext(f"{length} numbers were expected, not {len(row)}")
    return row
