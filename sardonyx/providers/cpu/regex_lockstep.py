"""Many texts through one pattern at once: an automaton as a table, followed for all texts a character at a time. `re2.py` calls it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.providers.cpu.regex_machine import Kind, Machine, State
from sardonyx.providers.termination import watched

MAX_CELLS = 1 << 14
"""A pattern with more states, times classes of characters, goes through texts one by one."""
TOGETHER = 32
"""So many texts, on average, must have a character at a place."""
TABLE_CODES = 1 << 12
"""Characters below are looked up in a table of classes."""


class Table:
    """All states of a machine: where each class of characters leads from each of them, and which ones accept at the end."""

    def __init__(self, machine: Machine, states: list[State], next: list[list[int]]):
        self.next = np.array(next, np.int32) * len(next[0])
        self.accepts = np.array([machine._accepts(state, Kind.NONE) for state in states], bool)
        self.bounds = np.array(machine._bounds, np.int64)
        self.low = (np.searchsorted(self.bounds, np.arange(TABLE_CODES), side="right") - 1).astype(np.int32)

    @classmethod
    def of(cls, machine: Machine) -> Table | None:
        """None if there are too many states."""
        states = [machine._start(Kind.NONE)]
        numbers, next = {states[0]: 0}, []
        for state in states:  # which grows meanwhile
            reached = [machine._follow(state, number) for number in range(len(machine._bounds))]
            for one in reached:
                if one not in numbers:
                    numbers[one] = len(states)
                    states.append(one)
            if len(states) * len(machine._bounds) > MAX_CELLS:
                return None
            next.append([numbers[one] for one in reached])
        return cls(machine, states, next)

    def classes(self, text: str) -> np.ndarray:
        """The class of each character."""
        if text.isascii():
            return self.low[np.frombuffer(text.encode(), np.uint8)]
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        if codes.max() < TABLE_CODES:
            return self.low[codes]
        return (np.searchsorted(self.bounds, codes, side="right") - 1).astype(np.int32)


def in_lockstep(machine: Machine, texts: Sequence[str]) -> np.ndarray | None:
    """Which texts match as a whole; None where it does not pay, or the pattern has too many states."""
    if len(texts) < TOGETHER:
        return None
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    table = _table_of(machine) if lengths.sum() >= TOGETHER * lengths.max() else None
    return None if table is None else _followed(table, table.classes("".join(texts)), lengths)


def _followed(table: Table, classes: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The longest texts come first, so that those which have another character are the first ones."""
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")
    starts, counts = starts[order], np.searchsorted(-lengths[order], -np.arange(1, lengths.max(initial=0) + 1), side="right")
    next, width = table.next.reshape(-1), table.next.shape[1]
    states = np.zeros(len(lengths), np.int32)
    for place, count in watched(enumerate(counts.tolist())):
        states[:count] = next[states[:count] + classes[starts[:count] + place]]
    found = np.empty(len(lengths), bool)
    found[order] = table.accepts[states // width]
    return found


def _table_of(machine: Machine) -> Table | None:
    """The machine's table, made once."""
    if machine.table is False:
        machine.table = Table.of(machine)
    return machine.table
