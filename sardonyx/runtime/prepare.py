"""From a loaded model to a plan: inline functions, infer types, partition, bind and compile. A session calls this once."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import ops
from sardonyx.ir import Model, edit
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.expand import expand_functions
from sardonyx.runtime.plan import Plan, make_plan


def prepare(model: Model, providers: Sequence[ExecutionProvider], *, strict: bool = False) -> Plan:
    """Make `model` ready to run on `providers`, asked in this order. The model is changed on the way."""
    edit.inline_functions(model)
    ops.infer(model, evaluate, strict=strict)
    expand_functions(model, providers)
    return make_plan(model.graph, providers)
