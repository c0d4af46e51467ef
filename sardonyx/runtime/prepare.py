"""From a loaded model to a plan: inline functions, infer types, optimize, partition, bind and compile. A session calls this once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sardonyx import ops
from sardonyx.ir import Model, edit
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.optimizer.rewrite import Journal
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.expand import expand_functions
from sardonyx.runtime.plan import Plan, make_plan


@dataclass(frozen=True)
class Optimization:
    """How far to optimize and what to leave out; `settings` are config entries by key, `journal` gets what happened."""

    level: Level = Level.DISABLE_ALL
    disabled: Collection[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)


NONE = Optimization()


def prepare(
    model: Model, providers: Sequence[ExecutionProvider], *, strict: bool = False, optimization: Optimization = NONE
) -> Plan:
    """Make `model` ready to run on `providers`, asked in this order. The model is changed on the way."""
    edit.inline_functions(model)
    ops.infer(model, evaluate, strict=strict)
    optimize(
        model,
        optimization.level,
        evaluate=evaluate,
        disabled=optimization.disabled,
        options=optimization.settings,
        journal=optimization.journal,
    )
    expand_functions(model, providers)
    return make_plan(model.graph, providers)
