"""What of a model is left to NumPy when its axes are open; test_open_axes.py starts it as a process per model.

python -m tests.slow.open_axes FILE prints {"declared": {"Op: reason": count}, "open": {...}} as JSON. The second is the same model with
axes open that an exporter would leave open: batch, height and width of images, length of sequences. "open" is null where the model itself
needs sizes that are fixed.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from sardonyx import dtypes, errors, formats
from sardonyx.ir import Model, TensorType, Value, dim
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.plan import Plan, all_steps
from sardonyx.runtime.preparation.prepare import Prepared, planned
from sardonyx.runtime.preparation.providers import CPU_PROVIDER, open_providers
from sardonyx.runtime.preparation.recipe import Recipe
from sardonyx.startup.records import replace

OPEN_AXES = {1: (0,), 2: (0, 1), 3: (0, 1), 4: (0, 2, 3), 5: (0, 2, 3, 4)}
"""By rank. The channels of an image and the features of a sequence are what weights say."""


FLOATS = (dtypes.float16, dtypes.float32, dtypes.float64)


def _open_axes(value: Value, rank: int) -> tuple[int, ...]:
    if rank == 2 and isinstance(value.type, TensorType) and value.type.dtype in FLOATS:
        return (0,)  # rows of a table
    if rank == 3 and any(user.op_type == "Conv" for user in value.users):
        return (0, 2)
    return OPEN_AXES.get(rank, (0,))


def open_up(model: Model) -> None:
    """Let each of these axes be a size of its own, and forget what the model says of the sizes that follow from them."""
    for value in model.graph.inputs:
        if value.constant is None and isinstance(value.type, TensorType) and value.type.shape:
            shape = list(value.type.shape)
            for axis in _open_axes(value, len(shape)):
                shape[axis] = dim.symbol(f"{value.name}_{axis}")
            value.type = replace(value.type, shape=tuple(shape))
    for made in (value for node in model.graph.nodes for value in node.outputs):
        if isinstance(made.type, TensorType):
            made.type = replace(made.type, shape=None)


def plan_of(path: Path, opened: bool) -> Plan:
    model = formats.load(path)
    if opened:
        open_up(model)
    return planned(Prepared(Recipe(None, SessionOptions(), open_providers([CPU_PROVIDER], [{}])), model))


def left_of(plan: Plan) -> dict[str, int]:
    """How many steps run in NumPy, by op and reason."""
    steps = (step for step in all_steps(plan) if not step.compiled)
    return dict(Counter(f"{step.node.op_type}: {step.reason}" for step in steps))


def report(path: Path) -> dict[str, dict[str, int] | None]:
    found: dict[str, dict[str, int] | None] = {"declared": left_of(plan_of(path, opened=False))}
    try:
        found["open"] = left_of(plan_of(path, opened=True))
    except errors.CODED as error:
        print(error, file=sys.stderr)
        found["open"] = None
    return found


if __name__ == "__main__":
    os.environ.pop("SARDONYX_STRICT", None)
    print(json.dumps(report(Path(sys.argv[1]))))
