"""Sizes that data decides: a step settles them while a program runs, and with them all arguments of the steps that depend on them.

Such a size has a capacity, and memory is laid out before the run. Where either is too small, the run ends and is begun anew with more. The
table of a run holds all its sizes as they are; a script, which `script_of` writes once, says how they follow from those that are settled.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Union

import numpy as np

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.pool import GRAIN, STEP_WORDS, TOTAL
from sardonyx.compiler.types import I64, PTR
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.settled import SCRATCH, TOO_SMALL, UNEQUAL, WRONG
from sardonyx.providers.native.program.steps import At, Buffer
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.program.sizes import Sizes

LINE = 4
"""Words of a line of a script: what to do, where the result goes, two operands."""
DATA = 6
"""Where the addresses of data stand among the arguments."""

Origin = Union[Dim, Buffer, At]
"""What a size becomes: another size, or a number (int64) in memory."""


class Do(IntEnum):
    """What a line of a script does with the words `a` and `b` of the table."""

    END = 0
    NUMBER = 1
    """Store `a` itself."""
    LOAD = 2
    """Store the number to which the address of data `a` points."""
    ADD = 3
    MULTIPLY = 4
    DIVIDE = 5
    REMAINDER = 6
    MINIMUM = 7
    MAXIMUM = 8
    BROADCAST = 9
    SETTLE = 10
    """Set a size to `a`, whose capacity is `b`; the word behind that is told what would have been needed."""
    SET = 11
    """Set another size to `a`."""
    WORD = 12
    """Add to an argument by what the last size has changed."""
    STEP = 13
    """Let a step have `a` items, at least `b` to a piece."""
    FIT = 14
    """End the run if `a` bytes do not fit into `b`, which is told what would have been needed."""
    EQUAL = 15
    """Leave the run to NumPy if `a` is not `b`."""


_FUNCTIONS = {
    "floordiv": Do.DIVIDE,
    "mod": Do.REMAINDER,
    "min": Do.MINIMUM,
    "max": Do.MAXIMUM,
    "broadcast": Do.BROADCAST,
}


@dataclass(frozen=True)
class Settlement:
    """What a step settles: names of sizes, and what they become, all at once."""

    sources: Sequence[tuple[str, Origin]]
    script: Buffer
    """A constant, whose content is known once the program is."""


def data_of(sources: Sequence[tuple[str, Origin]]) -> list[Buffer | At]:
    """The numbers in memory that sizes become."""
    return [source for _, source in sources if isinstance(source, (Buffer, At))]


# --- the script


@dataclass(frozen=True)
class Uses:
    """Where the sizes of a program are used: by the numbers that `Sizes` gives them."""

    words: Mapping[int, Sequence[int]]
    """Argument words."""
    steps: Sequence[tuple[int, int]]
    """Items and grain of each step."""
    buffers: Sequence[int]
    outputs: Sequence[int]


class Script:
    """A script being written. The table has scratch words, the capacities, the lengths of buffers, and all sizes."""

    def __init__(self, sizes: Sizes, buffers: int):
        self.sizes = sizes
        self.lines: list[tuple[int, int, int, int]] = []
        self.capacities = {name: SCRATCH + 2 * number for number, name in enumerate(sizes.data_sizes)}
        self.lengths = SCRATCH + 2 * len(self.capacities)
        self.first = self.lengths + buffers
        self._free = 0

    def add(self, do: Do, target: int = 0, a: int = 0, b: int = 0) -> int:
        self.lines.append((do, target, a, b))
        return target

    def place(self, size: Dim) -> int:
        """The word of a size."""
        return self.first + self.sizes(size)

    def _scratch(self) -> int:
        if self._free >= SCRATCH:
            raise CannotCompile("a size is too long an expression", quiet=True)
        self._free += 1
        return self._free - 1

    def forget(self) -> None:
        """Let what was computed on the way go."""
        self._free = 0

    def value(self, size: Dim) -> int:
        """A word that holds what a size is now."""
        if isinstance(size, int):
            return self.add(Do.NUMBER, self._scratch(), size)
        if size.symbol is not None:
            return self.place(size)
        total = self._scratch()
        for number, (monomial, factor) in enumerate(size.terms.items()):
            before = self._free
            term = self.add(Do.NUMBER, self._scratch(), factor)
            for atom, power in monomial:
                for _ in range(power):
                    self.add(Do.MULTIPLY, term, term, self._atom(atom))
            if number == 0:
                self.add(Do.NUMBER, total, 0)
            self.add(Do.ADD, total, total, term)
            self._free = before
        return total

    def _atom(self, atom: dim.Atom) -> int:
        if isinstance(atom, dim.Symbol):
            return self.place(dim.symbol(atom.name))
        first, *rest = (self.value(self.sizes.told(argument)) for argument in atom.arguments)
        result = self._scratch()
        for other in rest:
            first = self.add(_FUNCTIONS[atom.function], result, first, other)
        return result

    def array(self) -> np.ndarray:
        return np.array([*self.lines, (Do.END, 0, 0, 0)], np.int64)


def script_of(
    sources: Sequence[tuple[str, Origin]],
    sizes: Sizes,
    uses: Uses,
    conditions: Sequence[tuple[Dim, Dim]],
    put_off: Container[int] = (),
) -> np.ndarray:
    """The lines by which some sizes are settled, and all that follows. Whether buffers that are put off fit, a later script asks."""
    script = Script(sizes, len(uses.buffers))
    names = {name for name, _ in sources}
    data = data_of(sources)
    found = [
        script.add(Do.LOAD, script._scratch(), data.index(source))
        if isinstance(source, (Buffer, At))
        else script.add(Do.ADD, script._scratch(), script.value(sizes.told(source)), script.value(0))
        for _, source in sources
    ]
    for (name, _), value in zip(sources, found):
        script.add(Do.SETTLE, script.place(dim.symbol(name)), value, script.capacities[name])
        _write_words(script, uses, sizes(dim.symbol(name)))
    wanted = {*uses.words, *uses.buffers, *uses.outputs, *(number for pair in uses.steps for number in pair)}
    changed = {number for size, number in sizes.depending(names) if number in wanted}
    for size, number in sizes.depending(names):
        if number in changed and (size.symbol is None or size.symbol.name not in names):
            script.forget()
            script.add(Do.SET, script.first + number, script.value(sizes.told(size)))
            _write_words(script, uses, number)
    for step, (items, grain) in enumerate(uses.steps):
        if items in changed or grain in changed:
            script.add(Do.STEP, step, script.first + items, script.first + grain)
    for buffer, length in enumerate(uses.buffers):
        if length in changed and buffer not in put_off:
            script.add(Do.FIT, 0, script.first + length, script.lengths + buffer)
    for left, right in conditions:
        if not names.isdisjoint(sizes.data_sizes_in((left, right))):
            script.forget()
            script.add(Do.EQUAL, 0, script.value(sizes.told(left)), script.value(sizes.told(right)))
    return script.array()


def _write_words(script: Script, uses: Uses, number: int) -> None:
    for word in uses.words.get(number, ()):
        script.add(Do.WORD, word)


# --- the kernel


class SettleArguments(Arguments):
    script: Pointer
    arguments: Pointer
    """The argument words of all steps."""
    steps: Pointer
    table: Pointer
    pieces: Size
    """Into how many pieces a step is cut, if its grain allows."""
    status: Pointer
    data: Sequence[Pointer] = each(lambda count: count)


@kernel("settle sizes", SettleArguments)
def settle_kernel(f: KernelFunction, a: SettleArguments, count: int) -> None:
    """Go through a script. `count` numbers come from memory."""
    line, change = f.variable(0, I64), f.variable(0, I64)
    with f.while_() as lines:
        place = f.address(a.script, line.get() * LINE, I64)
        do, target, one, two = (f.load(place, word, I64) for word in range(LINE))
        is_over = (f.load(a.status, 0, I64) != 0) & (do != int(Do.FIT))  # all that is too small is told at once
        lines.leave_if((do == int(Do.END)) | is_over)
        line.set(line.get() + 1)
        with f.if_else(do <= int(Do.BROADCAST)) as otherwise:
            _compute(f, a, do, target, one, two)
            otherwise()
            _apply(f, a, do, target, one, two, change)


def _compute(f: KernelFunction, a: SettleArguments, do: Code, target: Code, one: Code, two: Code) -> None:
    """Lines that compute a word of the table."""
    result = f.variable(one)
    with f.if_(do == int(Do.LOAD)):
        result.set(f.load(f.load(f["args"], one + DATA, PTR), 0, I64))
    with f.if_(do >= int(Do.ADD)):
        x, y = f.load(a.table, one, I64), f.load(a.table, two, I64)
        result.set(x + y)
        with f.if_(do == int(Do.MULTIPLY)):
            result.set(x * y)
        with f.if_((do == int(Do.DIVIDE)) | (do == int(Do.REMAINDER))):
            _divide(f, a, do, x, y, result)
        for what, value in (
            (Do.MINIMUM, f.minimum(x, y)),
            (Do.MAXIMUM, f.maximum(x, y)),
            (Do.BROADCAST, f.select(x != 1, x, y)),
        ):
            result.set(f.select(do == int(what), value, result.get()))
    f.store(result.get(), a.table, target, I64)


def _divide(f: KernelFunction, a: SettleArguments, do: Code, x: Code, y: Code, result: object) -> None:
    """Quotients are rounded down, and remainders have the divisor's sign, as in Python."""
    with f.if_else(y == 0) as otherwise:
        f.store(WRONG, a.status, 0, I64)
        otherwise()
        quotient, remainder = x // y, x % y
        is_beyond = (remainder != 0) & ((remainder ^ y) < 0)
        quotient, remainder = f.select(is_beyond, quotient - 1, quotient), f.select(is_beyond, remainder + y, remainder)
        result.set(f.select(do == int(Do.DIVIDE), quotient, remainder))  # type: ignore[attr-defined]


def _apply(f: KernelFunction, a: SettleArguments, do: Code, target: Code, one: Code, two: Code, change: object) -> None:
    """Lines that change what steps are given, and those that check."""
    with f.if_(do == int(Do.SETTLE)):
        value = f.load(a.table, one, I64)
        with f.if_((value < 0) | (value > f.load(a.table, two, I64))):
            f.store(value, a.table, two + 1, I64)
            f.store(f.select(value < 0, f.const(I64, WRONG), TOO_SMALL), a.status, 0, I64)
    with f.if_((do == int(Do.SETTLE)) | (do == int(Do.SET))):
        value = f.load(a.table, one, I64)
        change.set(value - f.load(a.table, target, I64))  # type: ignore[attr-defined]
        f.store(value, a.table, target, I64)
    with f.if_(do == int(Do.WORD)):
        f.store(f.load(a.arguments, target, I64) + change.get(), a.arguments, target, I64)  # type: ignore[attr-defined]
    with f.if_(do == int(Do.STEP)):
        items, grain = f.load(a.table, one, I64), f.maximum(f.load(a.table, two, I64), 1)
        step = f.address(a.steps, target * STEP_WORDS, I64)
        f.store(items, step, TOTAL, I64)
        f.store(f.maximum(grain, (items + a.pieces - 1) // a.pieces), step, GRAIN, I64)
    with f.if_(do == int(Do.FIT)):
        bytes = f.load(a.table, one, I64)
        with f.if_(bytes < 0):
            f.store(WRONG, a.status, 0, I64)
        with f.if_(bytes > f.load(a.table, two, I64)):
            f.store(bytes, a.table, two, I64)
            f.store(TOO_SMALL, a.status, 0, I64)
    with f.if_((do == int(Do.EQUAL)) & (f.load(a.table, one, I64) != f.load(a.table, two, I64))):
        f.store(UNEQUAL, a.status, 0, I64)
