"""Plans for inputs whose shapes come again. Some models can be compiled only once all sizes are known, because a branch depends on one.
Engines ask for such plans.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sardonyx.errors import CODED, door
from sardonyx.ir import Value
from sardonyx.runtime.preparation.plan import Plan, all_steps
from sardonyx.runtime.preparation.recipe import LARGEST_WEIGHTS, Shapes, Values
from sardonyx.runtime.preparation.sizes import given_symbols
from sardonyx.startup.locks import Lock

MAX_PLANS = 4
MAX_SEEN = 64

Make = Callable[[Shapes, Values], Plan]

logger = logging.getLogger("sardonyx.runtime")


class Specialized:
    """Makes plans when shapes come for the second time."""

    def __init__(self, plan: Plan):
        self._inputs = plan.graph.inputs
        self._steps = sum(1 for _ in all_steps(plan))
        self._plans: dict[tuple[Any, ...], Plan | None] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._lock = Lock()

    @classmethod
    def of(cls, plan: Plan) -> Specialized | None:
        """None if shapes tell nothing that the model does not, or nothing would become quicker."""
        has_names = any(True for value in plan.graph.inputs for _ in given_symbols(value.type))
        has_branches = any(step.node.op_type == "If" and _tells(step.node.inputs[0], plan) for step in all_steps(plan))
        compiles = any(step.compiled for step in all_steps(plan))
        random = any(step.call.is_random for step in all_steps(plan))
        weights = sum(value.constant.nbytes for value in plan.graph.initializers.values() if value.constant is not None)
        useful = has_names and has_branches and compiles
        return cls(plan) if useful and not random and weights <= LARGEST_WEIGHTS else None

    def plan_for(self, feeds: Mapping[str, Any], make: Make) -> Plan | None:
        """The plan for such values; None if the general one must do. `make` prepares the model again for shapes, and for some values."""
        fed = [(value.name, feeds.get(value.name)) for value in self._inputs]
        arrays = {name: array for name, array in fed if isinstance(array, np.ndarray)}
        shapes = {name: array.shape for name, array in arrays.items()}
        numbers = {name: array for name, array in arrays.items() if array.size == 1 and array.dtype.kind in "biu"}
        key = (*shapes.items(), *(number.item() for number in numbers.values()))
        if key in self._plans:
            return self._plans[key]
        if len(self._plans) >= MAX_PLANS:
            return None
        if key in self._seen and self._lock.acquire(blocking=False):
            try:
                self._plans[key] = self._made(make, shapes, {}) or (self._made(make, shapes, numbers) if numbers else None)
            finally:
                self._lock.release()
            return self._plans[key]
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen.add(key)
        return None

    def _made(self, make: Make, shapes: Shapes, values: Values) -> Plan | None:
        try:
            with door("while a plan for known shapes is made"):
                plan = make(shapes, values)
        except CODED as error:  # a branch that is not taken may be impossible with these shapes
            logger.info("No plan for inputs of shapes %s: %s", dict(shapes), error)
            return None
        return plan if sum(1 for _ in all_steps(plan)) < self._steps else None


def _tells(condition: Value | None, plan: Plan) -> bool:
    """Whether shapes, and inputs that are single numbers, tell what a value is."""
    from sardonyx.ops.table import facts_of

    pending, reached = [condition], {condition}
    while pending:
        value = pending.pop()
        if value is None or value.is_constant:
            continue
        node = value.producer
        if node is None:
            sizes = getattr(value.type, "shape", None)
            if value not in plan.graph.inputs or sizes is None or any(size != 1 for size in sizes):
                return False
        elif not facts_of(node).reads_shapes:
            operands = {operand for operand in node.inputs if operand not in reached}
            reached |= operands
            pending += operands
    return True
