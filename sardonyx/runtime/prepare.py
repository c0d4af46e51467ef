"""From a loaded model to a plan: inline functions, infer types, optimize, partition, bind and compile. A session calls this once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sardonyx import ops
from sardonyx.ir import Model, edit
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.optimizer.rewrite import Journal
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.providers.matching import resolver_of
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.records import dataclass, field
from sardonyx.runtime.copies import insert_copies
from sardonyx.runtime.expand import Expansion
from sardonyx.runtime.layouts import check_moved, prefer_layouts
from sardonyx.runtime.partition import partition_graphs
from sardonyx.runtime.plan import DEFAULT_PLAN, Plan, PlanOptions, make_plan
from sardonyx.settings import SAVED_RUNTIME_OPTIMIZATIONS


@dataclass(frozen=True)
class Optimization:
    """How far to optimize and what to leave out; `settings` are config entries by key, `journal` gets what happened."""

    level: Level = Level.DISABLE_ALL
    disabled: Collection[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)


NONE = Optimization()


def prepare(
    model: Model,
    providers: Sequence[ExecutionProvider],
    *,
    strict: bool = False,
    optimization: Optimization = NONE,
    planning: PlanOptions = DEFAULT_PLAN,
) -> Plan:
    """Make `model` ready to run on `providers`, asked in this order. The model is changed on the way."""
    improve(model, providers, strict=strict, optimization=optimization)
    return assign(model, providers, planning)


def assign(model: Model, providers: Sequence[ExecutionProvider], planning: PlanOptions = DEFAULT_PLAN) -> Plan:
    """Let providers take what they can of an improved model, and plan its runs."""
    moved = prefer_layouts(model.graph, providers)
    assigned = partition_graphs(model.graph, providers, Expansion(model))
    check_moved(moved, assigned)
    return make_plan(model.graph, providers, planning, insert_copies(assigned))


def improve(
    model: Model, providers: Sequence[ExecutionProvider], *, strict: bool = False, optimization: Optimization = NONE
) -> None:
    """Inline, infer and optimize: all that comes before the providers are asked.

    A model from an ORT format file has been optimized, once and for all; only the rewrites that the file names are made, if that is
    asked for.
    """
    edit.inline_functions(model)
    ops.infer(model, evaluate, strict=strict)
    resolver = resolver_of(model)
    for provider in providers:
        provider.resolver = resolver
    if model.ort_version is None:
        optimize(
            model,
            min(optimization.level, Level.BASIC) if any(one.standard_ops_only for one in providers) else optimization.level,
            evaluate=evaluate,
            disabled=optimization.disabled,
            options=optimization.settings,
            journal=optimization.journal,
        )
    elif SAVED_RUNTIME_OPTIMIZATIONS.is_on(optimization.settings) and not any(one.standard_ops_only for one in providers):
        from sardonyx.optimizer.replay import replay

        replay(model, evaluate=evaluate, options=optimization.settings, journal=optimization.journal)
