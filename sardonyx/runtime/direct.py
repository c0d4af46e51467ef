"""The shortest way through a model that is one compiled program: arrays of shapes that have run before go straight into native code.

Whatever is not that plain (another type of feed, a new shape, an input too many) is left to the ordinary way, which also finds the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.runtime.plan import Plan


class Direct:
    """A plan of one step whose callable has `run_known`: outputs for arrays of known shapes, None for others."""

    __slots__ = ("_inputs", "_run", "_order")

    def __init__(self, inputs: list[tuple[str, np.dtype[Any]]], run: Any, order: list[int] | None):
        self._inputs = inputs
        self._run = run
        self._order = order

    @classmethod
    def of(cls, plan: Plan) -> Direct | None:
        """The direct way through a plan, None if it has none."""
        if len(plan.steps) != 1 or not hasattr(plan.steps[0].call, "run_known"):
            return None
        (step,) = plan.steps
        call: Any = step.call
        distinct = len(set(plan.outputs)) == len(plan.outputs)
        if set(step.inputs) != set(plan.inputs) or not distinct or not set(plan.outputs) <= set(step.outputs):
            return None
        order = [step.outputs.index(slot) for slot in plan.outputs]
        values = [plan.values[slot] for slot in step.inputs]
        if any(value.constant is not None for value in values):
            return None  # an input with a default may be left out
        types = [(value.name, np.dtype(value.type.dtype.numpy)) for value in values]  # type: ignore[union-attr]
        return cls(types, call.run_known, None if order == list(range(len(step.outputs))) else order)

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, or None if the ordinary way must be taken."""
        if feeds.__class__ is not dict:
            return None
        arrays = []
        for name, dtype in self._inputs:
            array = feeds.get(name)
            if array.__class__ is not np.ndarray or array.dtype is not dtype or not array.flags.carray:
                return None
            arrays.append(array)
        if len(feeds) != len(arrays):
            return None
        outputs = self._run(arrays)
        if outputs is None or self._order is None:
            return outputs
        return [outputs[index] for index in self._order]
