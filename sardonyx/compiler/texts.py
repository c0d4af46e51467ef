"""Strings as generated code has them: bytes of UTF-8 in one memory, and references to them. Programs that take strings call this.

A reference is a number of 64 bits: where the bytes begin in the memory of a run, and how many there are. So strings are moved like any
other elements, a part of a string is another reference, and 0 is the empty string. `enter` makes references of Python's strings, `leave`
makes strings of them. Both ask the interpreter through its C API, and hold its lock.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

LENGTH_BITS = 28
LONGEST = (1 << LENGTH_BITS) - 1
"""Bytes of the longest string."""
LARGEST = 1 << 34
"""Bytes of the largest memory."""
SLACK = 64
"""So many bytes behind the last string may be read."""
PLACE = 8
"""Constant strings begin at multiples of so many bytes."""

MEMORY_WORDS = 16
"""A memory of strings as code sees it: where it begins, how much of it is used, how much there is; and what `enter` and `leave` need."""
BASE, USED, CAPACITY, NEEDED, PAIRS, PAIR_COUNT, COUNTS, KNOWN_COUNT, KNOWN_REFERENCES, KNOWN_OBJECTS = range(10)
RECENT = 14
"""The address of rows for strings that were made last: reference and object."""
RECENT_ROWS = 1024
READ, MAKE, HOLD, RELEASE = range(10, 14)
"""Addresses of functions of the interpreter."""
UNREADABLE = -1
"""What `enter` says is needed where an object is no string, or no UTF-8, or too long."""

_CALL = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def reference(offset: int, length: int) -> int:
    """The reference to a string."""
    return offset << LENGTH_BITS | length


@functools.cache
def interpreter_functions() -> dict[int, int]:
    """What reads a string, makes one, and counts who holds an object, by the words of a memory."""
    names = {
        READ: "PyUnicode_AsUTF8AndSize",
        MAKE: "PyUnicode_DecodeUTF8",
        HOLD: "Py_IncRef",
        RELEASE: "Py_DecRef",
    }
    return {word: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for word, name in names.items()}


_code: Sequence[int] = ()
_kept: object = None


def use_code(addresses: Sequence[int], kept: object) -> None:
    """Have strings read and made by code that came with a compiled model: then none needs to be generated. `kept` keeps it there."""
    global _code, _kept
    if not _code:
        _code, _kept = addresses, kept


def _generated() -> Sequence[int]:
    from sardonyx.compiler.jit import jit
    from sardonyx.compiler.text_code import kernels

    return jit().addresses(kernels())


@functools.cache
def crossings() -> tuple[Callable[[int], None], Callable[[int], None]]:
    """`enter` and `leave`: each is given the address of a memory's words."""
    enter, leave = _code or _generated()
    return _CALL(enter), _CALL(leave)
