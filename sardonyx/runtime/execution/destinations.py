"""Destinations: memory that a user has bound to outputs, and into which compiled steps write directly. IOBindings and engines ask here.

A step may write there only if no input lies at the same place, for an input must not change before it is read. The exception is a pair of
an input and an output that a step is made for, the past and the present of a cache: new rows are then written behind the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.runtime.preparation.plan import ABSENT, Plan
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Place:
    """Memory of a bound value."""

    array: np.ndarray
    start: int
    stop: int

    def meets(self, other: Place) -> bool:
        return self.start < other.stop and other.start < self.stop

    def is_same(self, other: Place) -> bool:
        """Whether two arrays are the same elements."""
        mine, theirs = self.array, other.array
        return self.start == other.start and mine.shape == theirs.shape and mine.dtype == theirs.dtype


@dataclass(frozen=True)
class Destination:
    """Memory that an output may be written into."""

    array: np.ndarray
    shared: str | None = None
    """The input that has the same memory."""


def place_of(value: Any) -> Place | None:
    """Where a value lies; None if it is no array without gaps."""
    if not isinstance(value, np.ndarray) or not value.flags.carray or value.dtype.hasobject:
        return None
    start = value.ctypes.data
    return Place(value, start, start + value.nbytes)


def free_places(outputs: Mapping[str, Place], inputs: Mapping[str, Place]) -> Bound:
    """Memory of outputs that overlaps no other value, or is exactly the memory of one input."""
    written, read = _spans(list(outputs.values())), _spans(list(inputs.values()))
    clashes, meets = _meet(written, written).sum(axis=1) > 1, _meet(written, read)
    names = list(inputs)
    free = {}
    for number in np.flatnonzero(~clashes).tolist():
        name = list(outputs)[number]
        others = [names[index] for index in np.flatnonzero(meets[number])]
        if not others:
            free[name] = Destination(outputs[name].array)
        elif len(others) == 1 and inputs[others[0]].is_same(outputs[name]):
            free[name] = Destination(outputs[name].array, others[0])
    return Bound(free)


def _spans(places: Sequence[Place]) -> np.ndarray:
    return np.array([(place.start, place.stop) for place in places], np.uint64).reshape(-1, 2)


def _meet(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Whether one of the left and one of the right have bytes in common."""
    met: np.ndarray = (left[:, None, 0] < right[None, :, 1]) & (right[None, :, 0] < left[:, None, 1])
    return met


class Bound:
    """Memory that runs may write into."""

    def __init__(self, destinations: Mapping[str, Destination]):
        self._destinations = destinations
        self._found: tuple[Plan | None, Mapping[int, np.ndarray]] = None, {}

    def destinations(self, plan: Plan) -> Mapping[int, np.ndarray]:
        """The destinations that the steps of a plan can use, by slot."""
        if self._found[0] is not plan:
            self._found = plan, _destinations_of(plan, self._destinations)
        return self._found[1]


def _destinations_of(plan: Plan, bound: Mapping[str, Destination]) -> dict[int, np.ndarray]:
    steps = [step for step in plan.steps if step.call.takes_destinations]
    written = {slot for step in steps for slot in step.outputs}
    pairs = {(step.inputs[source], step.outputs[other]) for step in steps for source, other in step.call.one_memory}
    readers = [slot for step in plan.steps for slot in {*step.inputs, *step.captured}] if pairs else []
    destinations = {}
    for name, destination in bound.items():
        slot = plan.slots.get(name, ABSENT)
        past = ABSENT if destination.shared is None else plan.slots[destination.shared]
        if slot in written and (past == ABSENT or ((past, slot) in pairs and readers.count(past) == 1)):
            destinations[slot] = destination.array
    return destinations
