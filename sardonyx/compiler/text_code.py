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
    RELEASE,
    SLACK,
    UNREADABLE,
    USED,
)
from sardonyx.compiler.types import I8, I16, I32, I64, PTR


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
        with f.while_() as strings:
            strings.leave_if(index.get() >= count)
            string = f.variable(_known(f, memory, f.load(references, index.get(), I64)))
            with f.if_else(_is_null(f, string.get())) as otherwise:
                string.set(_made(f, memory, f.load(references, index.get(), I64)))
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


def _made(f: Function, memory: Value, reference: Value) -> Value:
    make, place = f.load(memory, MAKE, PTR), f.address(f.load(memory, BASE, PTR), offset_of(f, reference), I8)
    return f.emit(PTR, f"call ptr {make.ref}({place}, {length_of(f, reference)}, ptr null)")
