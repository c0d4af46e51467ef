"""What kernels do with the bytes of strings: compare them, and look them up among known ones. Lowerings make the tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from sardonyx.compiler.builder import Function, Value, Variable
from sardonyx.compiler.text_code import are_equal, hash_of, hash_of_bytes
from sardonyx.compiler.texts import BASE, CAPACITY, SLACK, USED
from sardonyx.compiler.types import I64, PTR, U64
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.settled import TEXTS_TOO_SMALL
from sardonyx.providers.native.program.texts import utf8_of

ROW = 4
"""Words of a row of a table: hash, reference, place, and one that is free."""


def base_of(f: Function, memory: Value) -> Value:
    """Where the strings of a run lie, by the words of their memory."""
    return f.load(memory, BASE, PTR)


@contextlib.contextmanager
def reserve(f: Function, memory: Value, status: Value, size: Value, place: Variable) -> Iterator[None]:
    """Have room for so many bytes, and what follows done if there is; `place` is where it begins. Else the run begins anew with more."""
    used = f.address(memory, USED, I64)
    place.set(f.emit(I64, f"atomicrmw add {used}, {size} monotonic"))
    with f.if_else(place.get() + size <= f.load(memory, CAPACITY, I64) - SLACK) as otherwise:
        yield
        otherwise()
        f.store(TEXTS_TOO_SMALL, status, 0, I64)


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
        hash = hash_of_bytes(utf8_of(text))
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
