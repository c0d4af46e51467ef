"""The generated code that turns Python's strings into references and back, and what kernels say of bytes. `texts` loads it."""

from __future__ import annotations

import functools
from collections.abc import Callable

from sardonyx.compiler.arrays import ARRAY_DATA, TUPLE_ITEMS, WORD
from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, key_of
from sardonyx.compiler.texts import (
    BASE,
    CAPACITY,
    COUNTS,
    HOLD,
    KNOWN_COUNT,
    KNOWN_OBJECTS,
    KNOWN_REFERENCES,
    LENGTH_BITS,
    LONGEST,
    MAKE,
    NEEDED,
    PAIR_COUNT,
    PAIRS,
    PLACE,
    READ,
    RECENT,
    RECENT_ROWS,
    RELEASE,
    SLACK,
    UNREADABLE,
    USED,
)
from sardonyx.compiler.types import I8, I16, I32, I64, PTR, U64

FACTOR = 0x9E3779B97F4A7C15
"""An odd number without order in its bits; products with it mix those of a word."""
SHIFT = 29
ALL = (1 << 64) - 1
MANY, SHORT = 64, 32
"""Of so many strings those with no more bytes are looked for among the last ones, for words come again and again."""


@functools.cache
def kernels() -> list[Kernel]:
    """What reads strings, and what makes them."""
    return [_kernel("read strings", _enter), _kernel("make strings", _leave)]


def _kernel(title: str, write: Callable[[], str]) -> Kernel:
    return Kernel(title, write, key=key_of(write, ARRAY_DATA, TUPLE_ITEMS))


# --- bytes, as kernels see them


def offset_of(f: Function, reference: Value) -> Value:
    """Where the bytes of a string begin in its memory."""
    return f.bitcast(reference, I64) >> LENGTH_BITS


def length_of(f: Function, reference: Value) -> Value:
    return f.bitcast(reference, I64) & LONGEST


def reference_to(offset: Value, length: Value) -> Value:
    return (offset << LENGTH_BITS) | length


def copy_bytes(f: Function, source: Value, target: Value, length: Value) -> None:
    """Copy so many bytes and read no others; the places must not overlap."""
    with f.if_else(length >= 8) as otherwise:
        with f.loop(0, length - 8, 8) as place:
            _copy(f, source, target, place, 8)
        _copy(f, source, target, length - 8, 8)
        otherwise()
        done = f.variable(0, I64)
        for size in (4, 2, 1):
            with f.if_((length & size) != 0):
                _copy(f, source, target, done.get(), size)
                done.set(done.get() + size)


def _copy(f: Function, source: Value, target: Value, place: Value, size: int) -> None:
    type = {8: I64, 4: I32, 2: I16, 1: I8}[size]
    f.store(f.load(f.address(source, place, I8), 0, type, align=1), f.address(target, place, I8), 0, type, align=1)


def bytes_of(f: Function, base: Value, reference: Value) -> Value:
    """Where the bytes of a string lie."""
    return f.address(base, offset_of(f, reference), I8)


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


# --- between the interpreter's objects and references


def _elements(f: Function, memory: Value, number: Value) -> Value:
    """Where the elements of an array of the tuple lie that PAIRS has the address of."""
    array = f.load(f.address(f.load(memory, PAIRS, PTR), number * WORD + TUPLE_ITEMS, I8), 0, PTR)
    return f.load(f.address(array, ARRAY_DATA, I8), 0, PTR)


def _is_null(f: Function, pointer: Value) -> Value:
    return f.as_number(pointer) == 0


def _enter() -> str:
    """Copy the bytes of strings into the memory, as far as there is room, and write references to them. PAIRS are objects, references, …"""
    f = Function([("memory", PTR)])
    memory = f["memory"]
    base, capacity, read = f.load(memory, BASE, PTR), f.load(memory, CAPACITY, I64), f.load(memory, READ, PTR)
    used, length = f.variable(f.load(memory, USED, I64)), f.stack(I64, 1)
    failed = f.variable(0, I64)

    def take(place: Value, references: Value, index: Value) -> None:
        size, end = f.load(length, 0, I64), used.get() + f.load(length, 0, I64)
        with f.if_(size > LONGEST):
            failed.set(1)
        with f.if_(end <= capacity - SLACK):
            copy_bytes(f, place, f.address(base, used.get(), I8), size)
        f.store(reference_to(used.get(), size), references, index, I64)
        used.set(end)

    with f.loop(0, f.load(memory, PAIR_COUNT, I64)) as pair:
        objects, references = _elements(f, memory, pair * 2), _elements(f, memory, pair * 2 + 1)
        index, count = f.variable(0, I64), f.load(f.load(memory, COUNTS, PTR), pair, I64)
        with f.while_() as strings:
            strings.leave_if((index.get() >= count) | (failed.get() != 0))
            string = f.load(objects, index.get(), PTR)
            with f.if_else(_is_null(f, string)) as otherwise:
                failed.set(1)
                otherwise()
                place = f.emit(PTR, f"call ptr {read.ref}({string}, {length})")
                with f.if_else(_is_null(f, place)) as is_text:
                    failed.set(1)
                    is_text()
                    take(place, references, index.get())
            index.set(index.get() + 1)
    f.store(used.get(), memory, USED, I64)
    f.store(f.select(failed.get() != 0, f.const(I64, UNREADABLE), used.get() + SLACK), memory, NEEDED, I64)
    return f.text(PLACEHOLDER)


def _leave() -> str:
    """Write strings where there are references to them, in place of what objects are there. PAIRS are objects, references, …"""
    f = Function([("memory", PTR)])
    memory = f["memory"]
    hold, release = f.load(memory, HOLD, PTR), f.load(memory, RELEASE, PTR)
    with f.loop(0, f.load(memory, PAIR_COUNT, I64)) as pair:
        objects, references = _elements(f, memory, pair * 2), _elements(f, memory, pair * 2 + 1)
        index, count = f.variable(0, I64), f.load(f.load(memory, COUNTS, PTR), pair, I64)
        with f.if_(count >= MANY), f.loop(0, RECENT_ROWS * 2) as word:
            f.store(0, f.load(memory, RECENT, PTR), word, I64)
        with f.while_() as strings:
            strings.leave_if(index.get() >= count)
            reference = f.load(references, index.get(), I64)
            row = _recent_row(f, memory, reference)
            string = f.variable(_known(f, memory, reference))
            with f.if_((count >= MANY) & _is_null(f, string.get())):
                string.set(_recent(f, memory, row, reference))
            with f.if_else(_is_null(f, string.get())) as otherwise:
                string.set(_made(f, memory, reference))
                f.store(reference, row, 0, I64)
                f.store(string.get(), row, 1, PTR)
                otherwise()
                f.call(hold, string.get())
            strings.leave_if(_is_null(f, string.get()))  # there is no memory: the interpreter raises that
            before = f.load(objects, index.get(), PTR)
            f.store(string.get(), objects, index.get(), PTR)
            f.call(release, before)
            index.set(index.get() + 1)
    return f.text(PLACEHOLDER)


def _known(f: Function, memory: Value, reference: Value) -> Value:
    """The object of a constant string, null for others."""
    place = offset_of(f, reference) // PLACE
    string = f.variable(f.as_pointer(f.const(I64, 0)))
    with (
        f.if_(place < f.load(memory, KNOWN_COUNT, I64)),
        f.if_(f.load(f.load(memory, KNOWN_REFERENCES, PTR), place, I64) == reference),
    ):
        string.set(f.load(f.load(memory, KNOWN_OBJECTS, PTR), place, PTR))
    return string.get()


def _recent_row(f: Function, memory: Value, reference: Value) -> Value:
    """Where the last string is remembered whose hash is like this one's; long ones have none to themselves."""
    short = f.select(length_of(f, reference) <= SHORT, reference, f.const(I64, 0))
    row = f.bitcast(hash_of(f, f.load(memory, BASE, PTR), short), I64) & (RECENT_ROWS - 1)
    return f.address(f.load(memory, RECENT, PTR), row * 2, I64)


def _recent(f: Function, memory: Value, row: Value, reference: Value) -> Value:
    """The object that was made last for a string like this one, null for none. The array that it went into holds it."""
    string = f.variable(f.load(row, 1, PTR))
    with f.if_(f.compare("eq", _is_null(f, string.get()), False)):
        same = are_equal(f, f.load(memory, BASE, PTR), f.load(row, 0, I64), reference)
        string.set(f.select(same, string.get(), f.as_pointer(f.const(I64, 0))))
    return string.get()


def _made(f: Function, memory: Value, reference: Value) -> Value:
    make, place = f.load(memory, MAKE, PTR), f.address(f.load(memory, BASE, PTR), offset_of(f, reference), I8)
    return f.emit(PTR, f"call ptr {make.ref}({place}, {length_of(f, reference)}, ptr null)")
