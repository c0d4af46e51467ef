"""Where buffers lie in one block of memory: offsets for buffers whose sizes and times of use are known. Memory plans call it per shape.

Two buffers may lie on each other if they are never in use at the same step. Finding the best places is NP-hard; two simple rules are
tried and the better result taken.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence

from sardonyx.startup.records import dataclass

Span = tuple[int, int]
"""First and last step at which a buffer is in use, both included."""

ALIGNMENT = 64
"""A cache line, and the widest vector register."""
MAX_CONFLICTS = 500_000
"""Graphs so wide that more pairs of buffers meet are placed in order of time alone."""


@dataclass(frozen=True)
class Placement:
    """Offsets in an arena of `size` bytes; None for a buffer that has no place there."""

    size: int
    offsets: tuple[int | None, ...]


def aligned(size: int) -> int:
    """`size` rounded up to whole lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def find_conflicts(spans: Sequence[Span]) -> list[list[int]] | None:
    """For each buffer the others that are in use at the same time as it; None if there are too many of them."""
    conflicts: list[list[int]] = [[] for _ in spans]
    alive: list[int] = []
    count = 0
    for index in sorted(range(len(spans)), key=lambda number: spans[number]):
        alive = [other for other in alive if spans[other][1] >= spans[index][0]]
        count += len(alive)
        if count > MAX_CONFLICTS:
            return None
        for other in alive:
            conflicts[index].append(other)
            conflicts[other].append(index)
        alive.append(index)
    return conflicts


def place(sizes: Sequence[int], spans: Sequence[Span], conflicts: Sequence[Sequence[int]] | None) -> Placement:
    """Offsets for buffers of these sizes, in use during these steps."""
    sizes = [aligned(size) for size in sizes]
    by_time = _by_time(sizes, spans)
    if conflicts is None:
        return by_time
    return min(by_time, _by_size(sizes, conflicts), key=lambda placement: placement.size)


def side_by_side(sizes: Sequence[int]) -> Placement:
    """Offsets for buffers of which no two may ever share memory."""
    *offsets, total = itertools.accumulate(map(aligned, sizes), initial=0)
    return Placement(total, tuple(offsets))


def _by_size(sizes: Sequence[int], conflicts: Sequence[Sequence[int]]) -> Placement:
    """The largest buffer first, each in the smallest gap that fits between those already placed that it must not meet."""
    offsets: list[int | None] = [None] * len(sizes)
    total = 0
    for index in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        taken = sorted((at, at + sizes[other]) for other in conflicts[index] if (at := offsets[other]) is not None)
        offsets[index] = _best_gap(taken, sizes[index])
        total = max(total, offsets[index] + sizes[index])  # type: ignore[operator]
    return Placement(total, tuple(offsets))


def _best_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    """Where `size` bytes fit most tightly between ranges sorted by offset; behind the last if nowhere else."""
    best, smallest, end = None, None, 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (smallest is None or gap < smallest):
            best, smallest = end, gap
        end = max(end, stop)
    return end if best is None else best


def _by_time(sizes: Sequence[int], spans: Sequence[Span]) -> Placement:
    """In the order of first use, each in the smallest hole of those given back, else behind the last."""
    offsets: list[int | None] = [None] * len(sizes)
    holes: list[tuple[int, int]] = []
    alive: list[tuple[int, int]] = []
    total = 0
    for index in sorted(range(len(spans)), key=lambda number: (spans[number][0], -sizes[number])):
        first, last = spans[index]
        ended = []
        while alive and alive[0][0] < first:
            ended.append(heapq.heappop(alive)[1])
        if ended:
            holes = _merged([*holes, *((offset, sizes[number]) for number in ended if (offset := offsets[number]) is not None)])
        offsets[index], holes, total = _take(holes, sizes[index], total)
        heapq.heappush(alive, (last, index))
    return Placement(total, tuple(offsets))


def _take(holes: list[tuple[int, int]], size: int, total: int) -> tuple[int, list[tuple[int, int]], int]:
    """Offset for `size` bytes, and the holes and the total that are left then. A hole at the end can grow."""
    fitting = min((hole for hole in holes if hole[1] >= size), key=lambda hole: (hole[1], hole[0]), default=None)
    if fitting is None:
        fitting = next((hole for hole in holes if sum(hole) == total), (total, 0))
    offset, length = fitting
    rest = [hole for hole in holes if hole != fitting]
    if length > size:
        rest.append((offset + size, length - size))
    return offset, rest, max(total, offset + size)


def _merged(holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(holes):
        if merged and sum(merged[-1]) >= offset:
            start, _ = merged[-1]
            merged[-1] = (start, offset + length - start)
        elif length:
            merged.append((offset, length))
    return merged
