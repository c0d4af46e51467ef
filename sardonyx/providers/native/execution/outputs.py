"""Memory for a program's outputs. Large ones are used again once the caller has let go of them.

The system fills fresh pages with zeros, which for a large result takes as long as computing it; and giving pages back interrupts all
threads. Blocks come in few sizes. So results that grow a little from run to run, as the caches of a decoder do, find the memory of earlier
ones.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LARGE_BYTES = 1 << 17
ALIGNMENT = 64
SMALLEST_STEP = 1 << 12
STEPS_BITS = 3
"""Between a power of two and the next one there are 2 to this power sizes of blocks."""


Block = Any
"""A ctypes array of bytes."""
_empty: Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray] = np.empty


class OutputShapes:
    """Shapes and types of a program's outputs."""

    __slots__ = ("shapes", "types", "blocks", "counts")

    def __init__(self, shapes: Sequence[tuple[int, ...]], types: Sequence[np.dtype[Any]]):
        self.shapes = shapes
        self.types = types
        self.blocks = [block_size(math.prod(shape) * dtype.itemsize) for shape, dtype in zip(shapes, types)]
        """Of each output: the size of the block in which it lies, 0 if it is not large."""
        self.counts = {size: self.blocks.count(size) for size in {*self.blocks} - {0}}
        """How many blocks there are of each size."""


def block_size(size: int) -> int:
    """How large a block is that holds `size` bytes; 0 if they are too few for one."""
    if size < LARGE_BYTES:
        return 0
    step = max(SMALLEST_STEP, 1 << (size.bit_length() - 1 - STEPS_BITS))
    return -(-size // step) * step


class _Shelf:
    """Blocks of one size that wait for another run."""

    __slots__ = ("blocks", "limit", "leases")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.limit = 0
        """How many may wait: as many as a run gives out."""
        self.leases: set[_Lease] = set()


class _Lease(weakref.ref[np.ndarray]):
    """Sees when an array is gone, and puts its block back on the shelf. `weakref.finalize` does so too, but a run feels what it takes."""

    __slots__ = ("block", "shelf")
    block: Block
    shelf: _Shelf
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _give_back(lease: _Lease) -> None:
    """Any thread may call this, at any moment."""
    shelf = lease.shelf
    shelf.leases.discard(lease)
    if len(shelf.blocks) < shelf.limit:
        shelf.blocks.append(lease.block)


class Outputs:
    """Gives out arrays of one program's results."""

    def __init__(self) -> None:
        self._shelves: dict[int, _Shelf] = {}
        """By the size of their blocks."""
        self._most = 0
        """How many bytes the largest run so far has given out."""
        self._counts: dict[int, int] = {}
        """What the last run gave out."""

    def empty(self, outputs: OutputShapes, destinations: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        """New arrays, or those of `destinations` that fit; the memory of large ones comes back here when nothing refers to it any more."""
        if not outputs.counts and destinations is None:
            return list(map(_empty, outputs.shapes, outputs.types))
        if outputs.counts != self._counts:
            self._set_limits(outputs.counts)
        places = zip(outputs.shapes, outputs.types, outputs.blocks)
        if destinations is None:
            return [self._new(shape, dtype, size) for shape, dtype, size in places]
        return [
            destination if _fits(destination, shape, dtype) else self._new(shape, dtype, size)  # type: ignore[misc]
            for destination, (shape, dtype, size) in zip(destinations, places)
        ]

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> np.ndarray:
        return _leased(self._shelves.get(size) or _Shelf(), shape, dtype, size) if size else _empty(shape, dtype)

    def _set_limits(self, counts: dict[int, int]) -> None:
        """Have shelves for a run that gives out other blocks than the last one. All that waits takes no more than the largest run did."""
        given_out = sum(size * count for size, count in counts.items())
        self._most = max(self._most, given_out)
        left, shelves = self._most - given_out, {size: self._shelves.get(size) or _Shelf() for size in counts}
        for size, shelf in shelves.items():
            shelf.limit = counts[size]
        for size in sorted(self._shelves.keys() - counts.keys(), reverse=True):
            shelf = self._shelves[size]
            shelf.limit = min(shelf.limit, left // size)
            left -= size * shelf.limit
            if shelf.limit:
                shelves[size] = shelf
        for shelf in {*self._shelves.values(), *shelves.values()}:
            del shelf.blocks[shelf.limit :]
        self._shelves, self._counts = shelves, counts


def _fits(destination: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return destination is not None and destination.shape == shape and destination.dtype == dtype


def _leased(shelf: _Shelf, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> np.ndarray:
    """An array in a block that waits there, or in a new one."""
    try:
        block = shelf.blocks.pop()
    except IndexError:
        block = _aligned_block(size)
    # the base is no NumPy array, so a view of this array refers to this array, and keeps it alive
    array: np.ndarray = np.ndarray(shape, dtype, buffer=block)
    lease = _Lease(array, _give_back)  # type: ignore[arg-type]
    lease.block, lease.shelf = block, shelf
    shelf.leases.add(lease)
    return array


def _aligned_block(size: int) -> Block:
    raw = np.empty(size + ALIGNMENT, np.uint8)
    return (ctypes.c_char * size).from_buffer(raw.data, -raw.ctypes.data % ALIGNMENT)
