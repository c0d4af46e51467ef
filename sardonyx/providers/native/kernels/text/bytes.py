"""What kernels do with the bytes of strings: compare them, and look them up among known ones. Lowerings make the tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from sardonyx.compiler.builder import Function, Value, Variable
from sardonyx.compiler.text_code import length_of, offset_of
from sardonyx.compiler.texts import BASE, CAPACITY, SLACK, USED
from sardonyx.compiler.types import I8, I64, PTR, U64
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.settled import TEXTS_TOO_SMALL

FACTOR = 0x9E3779B97F4A7C15
"""An odd number without order in its bits; products with it mix those of a word."""
SHIFT = 29
ALL = (1 << 64) - 1
ROW = 4
"""Words of a row of a table: hash, reference, place, and one that is free."""


def base_of(f: Function, memory: Value) -> Value:
    """Where the strings of a run lie, by the words of their memory."""
    return f.load(memory, BASE, PTR)


def bytes_of(f: Function, base: Value, reference: Value) -> Value:
    """Where the bytes of a string lie."""
    return f.address(base, offset_of(f, reference), I8)


@contextlib.contextmanager
def reserve(f: Function, memory: Value, status: Value, size: Value, place: Variable) -> Iterator[None]:
    """Have room for so many bytes, and what follows done if there is; `place` is where it begins. Else the run begins anew with more."""
    used = f.address(memory, USED, I64)
    place.set(f.emit(I64, f"atomicrmw add {used}, {size} monotonic"))
    with f.if_else(place.get() + size <= f.load(memory, CAPACITY, I64) - SLACK) as otherwise:
        yield
        otherwise()
        f.store(TEXTS_TOO_SMALL, status, 0, I64)


def word_at(f: Function, place: Value, done: Value, length: Value) -> Value:
    """Eight bytes of a string, those behind its end as 0. Memory goes on behind the last string."""
    word = f.load(f.address(place, done, I8), 0, U64, align=1)
    missing = 64 - f.minimum(length - done, 8) * 8
    return word & (f.const(U64, ALL) >> f.bitcast(missing, U64))


def are_equal(f: Function, base: Value, left: Value, right: Value) -> Value:
    """Whether two strings have the same bytes."""
    length, equal = length_of(f, left), f.variable(length_of(f, left) == length_of(f, right))
    first, second = bytes_of(f, base, left), bytes_of(f, base, right)
    done = f.variable(0, I64)
    with f.while_() as words:
        words.leave_if(f.compare("eq", equal.get(), False) | (done.get() >= length))
        equal.set(word_at(f, first, done.get(), length) == word_at(f, second, done.get(), length))
        done.set(done.get() + 8)
    return equal.get()


def hash_of(f: Function, base: Value, reference: Value) -> Value:
    """What `hash_of_bytes` makes of the bytes of a string."""
    length, place = length_of(f, reference), bytes_of(f, base, reference)
    mixed = f.variable(f.bitcast(length, U64))
    with f.loop(0, length, 8) as done:
        word = (mixed.get() ^ word_at(f, place, done, length)) * FACTOR
        mixed.set(word ^ (word >> SHIFT))
    return mixed.get()


def hash_of_bytes(text: bytes) -> int:
    mixed = len(text)
    for done in range(0, len(text), 8):
        word = (mixed ^ int.from_bytes(text[done : done + 8], "little")) * FACTOR & ALL
        mixed = word ^ (word >> SHIFT)
    return mixed


class LookupArguments(Arguments):
    """A table of known strings, of which each has a place."""

    rows: Pointer
    last: Size
    """The number of the last row. There is a power of two of them, and at least one is free."""
    count: Size
    """How many strings there are: the place of any other."""


def lookup(lowerer: Lowerer, texts: Sequence[str]) -> LookupArguments:
    """The table in which a string is found by its place among some, of which none comes twice."""
    count = 2
    while count < 2 * len(texts):
        count *= 2
    rows = np.full((count, ROW), -1, np.int64)
    for place, text in enumerate(texts):
        hash = hash_of_bytes(text.encode("utf-8", "surrogatepass"))
        row = hash % count
        while rows[row, 2] >= 0:
            row = (row + 1) % count
        rows[row, :3] = np.uint64(hash).view(np.int64), lowerer.text_constants.reference(text), place
    return LookupArguments(rows=lowerer.table(rows), last=count - 1, count=len(texts))


def place_of(f: Function, base: Value, reference: Value, table: LookupArguments) -> Value:
    """The place of a string in a table; the number of its strings if it is none of them."""
    hash = hash_of(f, base, reference)
    row, place = f.variable(f.bitcast(hash, I64) & table.last), f.variable(table.count)
    with f.while_() as rows:
        words = f.address(table.rows, row.get() * ROW, I64)
        rows.leave_if(f.load(words, 2, I64) < 0)
        found = f.variable(f.load(words, 0, U64) == hash)
        with f.if_(found.get()):
            found.set(are_equal(f, base, f.load(words, 1, I64), reference))
        with f.if_(found.get()):
            place.set(f.load(words, 2, I64))
        rows.leave_if(found.get())
        row.set((row.get() + 1) & table.last)
    return place.get()
