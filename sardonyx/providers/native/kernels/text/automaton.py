"""Patterns in native code: an automaton as a table, which a text is led through a character at a time. Text lowerings use it.

The states are those of `regex_lockstep`. Characters are told apart by classes: those of ASCII stand in a table, others are looked for among
the first characters of all classes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.types import I8, I32, I64, U8
from sardonyx.errors import KernelError
from sardonyx.providers.cpu.regex_lockstep import Table
from sardonyx.providers.cpu.regex_machine import Machine
from sardonyx.providers.cpu.regex_sets import ALL, Ranges, complement, union
from sardonyx.providers.cpu.regex_syntax import Assert, Code, Jump, Split, Take, parse
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.startup.records import dataclass

ASCII = 128
MAX_AHEAD = 64
"""So many characters may be read behind the end of a match before it is known to be one."""


@dataclass(frozen=True, eq=False)
class Automaton:
    """A pattern as tables."""

    table: Table
    is_dead: np.ndarray
    """Of each state: whether nothing matches any more."""

    @classmethod
    def of(cls, code: Code) -> Automaton | None:
        """None if there are too many states."""
        table = Table.of(Machine(code))
        return None if table is None else cls(table, ~_reaching(_followers(table), table.accepts))

    @property
    def is_brief(self) -> bool:
        """Whether the end of a match is known soon behind it, so that looking for matches takes time in proportion to the text."""
        waiting = ~self.table.accepts & ~self.is_dead
        followers = [[one for one in ends if waiting[one]] for ends in _followers(self.table)]
        ahead = np.flatnonzero(waiting).tolist()
        for _ in range(MAX_AHEAD):
            ahead = list({one for state in ahead for one in followers[state]})
            if not ahead:
                return True
        return False


def _followers(table: Table) -> list[list[int]]:
    width = table.next.shape[1]
    return [sorted(set((ends // width).tolist())) for ends in table.next]


def _reaching(followers: Sequence[Sequence[int]], wanted: np.ndarray) -> np.ndarray:
    """From which states one that is wanted can be reached."""
    reaching = wanted.copy()
    while True:
        before = reaching.copy()
        for state, ends in enumerate(followers):
            reaching[state] |= before[ends].any()
        if (reaching == before).all():
            return reaching


@functools.lru_cache(maxsize=64)
def whole_pattern(pattern: str) -> Automaton | None:
    """The automaton of a pattern that whole texts are to match; None where there is none so small."""
    try:
        return Automaton.of(parse(pattern))
    except KernelError:
        return None


@functools.lru_cache(maxsize=64)
def token_pattern(pattern: str) -> Automaton | None:
    """The automaton by which matches of a pattern are found in texts; None where that would take too long, or depends on what is around."""
    try:
        code = parse(pattern)
    except KernelError:
        return None
    return None if any(isinstance(one, Assert) for one in code) else _brief(code)


@functools.lru_cache(maxsize=64)
def between(separators: tuple[str, ...]) -> Automaton | None:
    """The automaton of what is between separators, each of them one character; None for others."""
    characters: list[tuple[int, int]] = []
    for separator in separators:
        found = _one_of(separator)
        if found is None:
            return None
        characters += found
    return other_than(union(characters))


@functools.lru_cache(maxsize=64)
def other_than(characters: Ranges) -> Automaton | None:
    """The automaton of one and more characters that are not among some."""
    others = complement(characters)
    return _brief([Take(others), Split(1, 3), Take(others), Jump(-2)]) if others else None


def _one_of(pattern: str) -> Ranges | None:
    """The set of characters that a pattern is; None if it is anything else."""
    try:
        code = parse(pattern)
    except KernelError:
        return None
    match code:
        case [Take(characters)] if characters != ALL:
            return characters
    return None


def _brief(code: Code) -> Automaton | None:
    automaton = Automaton.of(code)
    return automaton if automaton is not None and automaton.is_brief and not automaton.table.accepts[0] else None


# --- in code


class AutomatonArguments(Arguments):
    next: Pointer
    """For each state and class the first word of the next state (int32)."""
    flags: Pointer
    """At the first word of each state: bit 0 if it accepts, bit 1 if nothing matches any more."""
    low: Pointer
    """The classes of ASCII (int32)."""
    bounds: Pointer
    """The first characters of all classes (int64)."""
    bound_count: Size


ACCEPTS, DEAD = 1, 2


def tables_of(lowerer: Lowerer, automaton: Automaton) -> AutomatonArguments:
    table = automaton.table
    flags = np.zeros(table.next.shape, np.uint8)
    flags[:, 0] = table.accepts * ACCEPTS + automaton.is_dead * DEAD
    return AutomatonArguments(
        next=lowerer.table(table.next),
        flags=lowerer.table(flags),
        low=lowerer.table(table.low[:ASCII]),
        bounds=lowerer.table(table.bounds),
        bound_count=len(table.bounds),
    )


def character_at(f: Function, place: Value) -> tuple[Value, Value]:
    """The character that begins at a place, and how many bytes it has. What is there is UTF-8."""
    first = _byte(f, place, 0)
    code, size = f.variable(first), f.variable(1, I64)
    with f.if_(first >= 0x80):
        code.set((first & 0x1F) << 6 | _byte(f, place, 1) & 0x3F)
        size.set(2)
        with f.if_(first >= 0xE0):
            code.set((first & 0x0F) << 12 | (_byte(f, place, 1) & 0x3F) << 6 | _byte(f, place, 2) & 0x3F)
            size.set(3)
        with f.if_(first >= 0xF0):
            high = (first & 0x07) << 18 | (_byte(f, place, 1) & 0x3F) << 12
            code.set(high | (_byte(f, place, 2) & 0x3F) << 6 | _byte(f, place, 3) & 0x3F)
            size.set(4)
    return code.get(), size.get()


def _byte(f: Function, place: Value, index: int) -> Value:
    return f.convert(f.load(place, index, U8), I64)


def class_of(f: Function, code: Value, a: AutomatonArguments) -> Value:
    """The class of a character."""
    number = f.variable(0, I64)
    with f.if_else(code < ASCII) as otherwise:
        number.set(f.convert(f.load(a.low, code, I32), I64))
        otherwise()
        above = f.variable(a.bound_count)
        with f.while_() as search:
            search.leave_if(number.get() + 1 >= above.get())
            middle = (number.get() + above.get()) // 2
            is_lower = f.load(a.bounds, middle, I64) <= code
            above.set(f.select(is_lower, above.get(), middle))
            number.set(f.select(is_lower, middle, number.get()))
    return number.get()


def advance(f: Function, state: Value, place: Value, a: AutomatonArguments) -> tuple[Value, Value]:
    """The state behind the character at a place, and how many bytes that has."""
    code, size = character_at(f, place)
    return f.convert(f.load(a.next, state + class_of(f, code, a), I32), I64), size


def flags_of(f: Function, state: Value, a: AutomatonArguments) -> Value:
    return f.convert(f.load(a.flags, state, U8), I64)


def matches_whole(f: Function, place: Value, length: Value, a: AutomatonArguments) -> Value:
    """Whether a text matches from its beginning to its end."""
    state, done = f.variable(0, I64), f.variable(0, I64)
    with f.while_() as characters:
        characters.leave_if((done.get() >= length) | (flags_of(f, state.get(), a) & DEAD != 0))
        following, size = advance(f, state.get(), f.address(place, done.get(), I8), a)
        state.set(following)
        done.set(done.get() + size)
    return flags_of(f, state.get(), a) & ACCEPTS != 0


def longest_match(f: Function, place: Value, start: Value, length: Value, a: AutomatonArguments) -> tuple[Value, Value, Value]:
    """Where the longest match from a place on ends, with how many characters, and where the character behind the place is.

    The end is the place itself if nothing matches there.
    """
    state, at, count = f.variable(0, I64), f.variable(start), f.variable(0, I64)
    end, matched, second = f.variable(start), f.variable(0, I64), f.variable(start)
    with f.while_() as characters:
        following, size = advance(f, state.get(), f.address(place, at.get(), I8), a)
        state.set(following)
        at.set(at.get() + size)
        count.set(count.get() + 1)
        with f.if_(count.get() == 1):
            second.set(at.get())
        flags = flags_of(f, state.get(), a)
        with f.if_(flags & ACCEPTS != 0):
            end.set(at.get())
            matched.set(count.get())
        characters.leave_if((flags & DEAD != 0) | (at.get() >= length))
    return end.get(), matched.get(), second.get()
