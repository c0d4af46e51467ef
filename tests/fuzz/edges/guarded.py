"""Arrays between pages that nobody may touch: whoever reads beyond one ends the process, and with it the case that did."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
NO_ACCESS = 0


class Guarded:
    """Memory for copies of arrays; it is given back with `close`, when no array in it is used any more."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._maps: list[tuple[mmap.mmap, int, int]] = []

    def copy(self, array: np.ndarray, at_end: bool) -> np.ndarray:
        """A copy that ends where a page without access begins, or begins where one ends."""
        if array.dtype == object:
            return array.copy()  # generated code reads objects through the interpreter
        room = -(-max(array.nbytes, 1) // PAGE) * PAGE
        memory = mmap.mmap(-1, room + 2 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._maps.append((memory, start, room))
        for page in (start, start + PAGE + room):
            self._protect(page, NO_ACCESS)
        first = start + PAGE + (room - array.nbytes if at_end else 0)
        block = (ctypes.c_char * array.nbytes).from_address(first)
        copied: np.ndarray = np.ndarray(array.shape, array.dtype, buffer=block)
        copied[...] = array
        return copied

    def _protect(self, page: int, access: int) -> None:
        if self._libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), access):
            raise OSError(ctypes.get_errno(), "mprotect")

    def close(self) -> None:
        for memory, start, room in self._maps:
            for page in (start, start + PAGE + room):
                self._protect(page, mmap.PROT_READ | mmap.PROT_WRITE)
            memory.close()
        self._maps.clear()
