"""A short name for the content of an array, at about the speed at which memory is read. Pre-packing knows weights by it.

Bytes go in rows of 32 words of 64 bits, zeros behind the last one. Each word of a row is mixed into a sum of its own; a piece of the
array ends with 32 sums, and BLAKE2 makes a digest of those of all pieces. A changed word always changes the result, and changes do not
cancel out by chance; it is no protection against somebody who wants two contents to have one digest, unless `key` is kept from them.
"""

from __future__ import annotations

import functools

import numpy as np

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.jit import jit
from sardonyx.compiler.types import U8, U64
from sardonyx.providers.native.execution.immediate import memory_of, run_now
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.hashing import blake2b

SUMS = 32
ROW_BYTES = 8 * SUMS
PIECE_BYTES = 1 << 20
"""What one item of the kernel reads."""
FACTOR = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio: odd, so multiplying by it can be undone."""
SHIFT = 32
BATCH = 8
"""How many sums are computed side by side: enough to hide how long a multiplication takes."""


def content_digest(array: np.ndarray, key: bytes = b"") -> str:
    """The digest of an array's bytes, in the order of its elements, as hexadecimal digits. Type and shape do not count."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pieces = -(-data.nbytes // PIECE_BYTES)
    sums = np.empty((pieces, SUMS), np.uint64)
    if pieces:
        source, seeds, target = (memory_of(array) for array in (data, _seeds(key), sums))
        arguments = DigestArguments(source=source, size=data.nbytes, seeds=seeds, target=target)
        run_now(digest_kernel(jit().target), arguments, items=pieces)
    return blake2b(sums.tobytes() + data.nbytes.to_bytes(8, "little"), digest_size=16, key=key).hexdigest()


@functools.lru_cache(maxsize=8)
def _seeds(key: bytes) -> np.ndarray:
    """Where the sums begin."""
    stream = b"".join(blake2b(bytes([block]), key=key).digest() for block in range(ROW_BYTES // 64))
    return np.frombuffer(stream, np.uint64)


class DigestArguments(Arguments):
    source: Pointer
    size: Size
    """In bytes."""
    seeds: Pointer
    target: Pointer
    """For the sums of each piece."""


@kernel("digest", DigestArguments)
def digest_kernel(f: KernelFunction, a: DigestArguments) -> None:
    """Items are pieces."""
    lanes = f.target.vector_bytes // 8
    columns = min(BATCH * lanes, SUMS)
    with f.loop(f.begin, f.end) as item:
        start = f.address(a.source, item * PIECE_BYTES, U8)
        length = f.minimum(a.size - item * PIECE_BYTES, PIECE_BYTES)
        sums = f.address(a.target, item * SUMS, U64)
        for first in range(0, SUMS, columns):
            places = range(first, first + columns, lanes)
            _sum_columns(f, start, length, a.seeds, sums, places, lanes)


def _sum_columns(
    f: KernelFunction, start: Value, length: Value, seeds: Value, target: Value, places: range, lanes: int
) -> None:
    """Some columns of all rows of a piece."""
    sums = [f.variable(f.load(seeds, place, U64, lanes)) for place in places]
    rows = length // ROW_BYTES
    with f.loop(0, rows) as row:
        begin = f.address(start, row * ROW_BYTES, U8)
        for total, place in zip(sums, places):
            _mix(total, f.load(begin, place, U64, lanes, align=1))
    rest = length - rows * ROW_BYTES
    with f.if_(rest > 0):
        tail = f.stack(U8, ROW_BYTES)
        for place in range(0, ROW_BYTES, 8):
            f.store(f.const(U64, 0), f.address(tail, place, U8), 0, U64)
        with f.loop(0, rest) as byte:
            f.store(f.load(f.address(start, rows * ROW_BYTES, U8), byte, U8), tail, byte, U8)
        for total, place in zip(sums, places):
            _mix(total, f.load(tail, place, U64, lanes, align=1))
    for total, place in zip(sums, places):
        f.store(total.get(), target, place, U64)


def _mix(total: Variable, word: Value) -> None:
    mixed = (total.get() ^ word) * FACTOR
    total.set(mixed ^ (mixed >> SHIFT))
