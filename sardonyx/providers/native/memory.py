"""Places in the arena for a program's buffers: those that are not needed at the same time share a slot."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program import Buffer, Step

ALIGNMENT = 64


def assign_slots(steps: Sequence[Step]) -> list[list[Dim]]:
    """Give every arena buffer a slot; returns for each slot the sizes of the buffers in it, the largest of which it must hold."""
    last = {
        buffer: number
        for number, step in enumerate(steps)
        for buffer in (*step.buffers(), *step.scratch)
        if buffer.kind == "arena"
    }
    ending: dict[int, list[Buffer]] = {}
    for buffer, number in last.items():
        ending.setdefault(number, []).append(buffer)
    slots: list[list[Dim]] = []
    supposed: list[int] = []
    free: set[int] = set()
    placed: set[Buffer] = set()
    for number, step in enumerate(steps):
        for buffer in (*step.buffers(), *step.scratch):
            if buffer.kind == "arena" and buffer not in placed:
                placed.add(buffer)
                buffer.index = _choose(buffer.bytes, slots, supposed, free)
        free.update(buffer.index for buffer in ending.get(number, ()))
    return slots


def _choose(size: Dim, slots: list[list[Dim]], supposed: list[int], free: set[int]) -> int:
    """The free slot that fits best, else a new one."""
    want = dim.supposed(size)
    same = [slot for slot in free if size in slots[slot]]
    # a slot that is too small grows to `want`, one that is too large keeps a gap: take the least waste
    found = min(same or free, key=lambda slot: (abs(supposed[slot] - want), slot), default=None)
    if found is None:
        slots.append([])
        supposed.append(0)
        found = len(slots) - 1
    free.discard(found)
    if size not in slots[found]:
        slots[found].append(size)
    supposed[found] = max(supposed[found], want)
    return found
