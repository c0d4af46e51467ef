"""From a recipe to a plan, stage by stage. Whoever needs a prepared model (sessions, plans for other inputs or outputs, saving, `inspect`,
`check`) comes here, so that all of them see the same model.

A model that was compiled ahead of time needs neither optimizer nor inference, so these are imported by the stages that use them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sardonyx import ops, settings
from sardonyx.ir import Graph, Model, Node, dim
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.copies import insert_copies
from sardonyx.runtime.preparation.defaults import Defaults
from sardonyx.runtime.preparation.loading import fix_defaults, fix_inputs, load_model
from sardonyx.runtime.preparation.memory import MemoryOptions
from sardonyx.runtime.preparation.partition import Assigned, partition_graphs
from sardonyx.runtime.preparation.plan import Plan, PlanOptions, Step, all_steps, make_plan
from sardonyx.runtime.preparation.recipe import Recipe
from sardonyx.runtime.preparation.suppositions import Suppositions
from sardonyx.startup.records import dataclass, replace

if TYPE_CHECKING:
    from sardonyx.optimizer.rewrite import Journal


logger = logging.getLogger("sardonyx.runtime")


@dataclass(frozen=True)
class Prepared:
    """What the stages so far have made of a recipe. They change the model itself and fill in the rest."""

    recipe: Recipe
    """The one that was followed in the end: without optimizations that failed."""
    model: Model
    stage: str = "load"
    """The last one behind it."""
    defaults: Defaults | None = None
    """Inputs that have become constants."""
    journal: Journal | None = None
    """What the optimizer did."""
    moved: Sequence[Node] = ()
    """Nodes that have channels last now."""
    assigned: Assigned | None = None
    """Who computes what, copies between devices included."""
    plan: Plan | None = None

    @property
    def suppositions(self) -> Suppositions | None:
        """What the optimizer has supposed, if anything."""
        supposed = None if self.journal is None else self.journal.suppositions
        return Suppositions.of(supposed, self.model.graph.inputs) if supposed else None

    def steps(self) -> Iterator[Step]:
        """All steps of the plan, those of graphs inside nodes too."""
        return iter(()) if self.plan is None else all_steps(self.plan)


def prepare(begun: Recipe | Prepared, upto: str = "plan") -> Prepared:
    """Follow a recipe through the stages up to the one named, from the beginning or from where it was left.

    The model of what was begun is changed on the way.
    """
    prepared = load(begun) if isinstance(begun, Recipe) else begun
    with prepared.recipe.options._knows_custom_ops():
        for stage in STAGES[_number(prepared.stage) : _number(upto)]:
            if prepared.recipe.compiled is None or stage in COMPILED_STAGES:
                prepared = stage(prepared)
            prepared = replace(prepared, stage=stage.__name__)
    return prepared


def planned(begun: Recipe | Prepared) -> Plan:
    """All stages, and the plan at the end of them."""
    plan = prepare(begun).plan
    assert plan is not None
    return plan


# --- the stages


def load(recipe: Recipe) -> Prepared:
    """Read the model as the options want it."""
    return Prepared(recipe, load_model(recipe.source, recipe.options, recipe.files))


def inline(prepared: Prepared) -> Prepared:
    """Fix what the recipe fixes of the inputs, and replace calls of the model's functions by their bodies."""
    from sardonyx.ir import edit

    recipe, model = prepared.recipe, prepared.model
    defaults = Defaults(fix_defaults(model.graph)) if recipe.fixes_defaults else None
    fix_inputs(model, recipe.shapes, recipe.values)
    for provider in recipe.providers:
        provider.begin(model, recipe.packing)
    edit.inline_functions(model)
    return replace(prepared, defaults=defaults if defaults and defaults.inputs else None)


def infer(prepared: Prepared) -> Prepared:
    """Find the types and shapes of all values."""
    from sardonyx.providers.cpu.provider import evaluate
    from sardonyx.providers.matching import resolver_of

    recipe, model = prepared.recipe, prepared.model
    ops.infer(model, evaluate, strict=recipe.options._config.is_on(settings.STRICT_INFERENCE))
    resolver = resolver_of(model)
    for provider in recipe.providers:
        provider.resolver = resolver
    return prepared


def optimize(prepared: Prepared) -> Prepared:
    """Rewrite the model, as far as the options say and providers that want ONNX's own ops allow.

    A model from an ORT format file has been optimized, once and for all; only the rewrites that the file names are made, if that is
    asked for. Where an optimization fails, the model is loaded again and optimized without it.
    """
    from sardonyx.optimizer import pipeline
    from sardonyx.optimizer.rewrite import Journal
    from sardonyx.providers.cpu.provider import evaluate

    recipe, model = prepared.recipe, prepared.model
    journal, entries = Journal(suppositions=[] if recipe.supposes else None), recipe.options._config.entries
    level = pipeline.Level(int(recipe.options.graph_optimization_level) if recipe.optimizes else 0)
    is_standard = any(provider.standard_ops_only for provider in recipe.providers)
    if model.ort_version is None:
        level = min(level, pipeline.Level.BASIC) if is_standard else level
        try:
            pipeline.optimize(model, level, evaluate=evaluate, disabled=recipe.disabled, options=entries, journal=journal)
            if level and _has_untold_sizes(model.graph):  # rewritten nodes may tell more of what follows them
                ops.infer(model, evaluate)
        except pipeline.StageFailed as error:
            if recipe.source is None:
                raise
            logger.warning("%s; the model is loaded again and prepared without it.", error)
            without = replace(recipe, disabled=recipe.disabled | {error.stage})
            return optimize(infer(inline(load(without))))
    elif recipe.optimizes and settings.SAVED_RUNTIME_OPTIMIZATIONS.is_on(entries) and not is_standard:
        from sardonyx.optimizer.replay import replay

        replay(model, evaluate=evaluate, options=entries, journal=journal)
    return replace(prepared, journal=journal)


def _has_untold_sizes(graph: Graph) -> bool:
    """Whether values have sizes that the shapes of the inputs do not tell."""
    shapes = [getattr(value.type, "shape", None) or () for node in graph.nodes for value in node.outputs]
    told = {
        symbol for value in graph.inputs for size in getattr(value.type, "shape", None) or () for symbol in dim.symbols(size)
    }
    return any(symbol not in told for sizes in shapes for size in sizes for symbol in dim.symbols(size))


def layout(prepared: Prepared) -> Prepared:
    """Move nodes to channels last for providers that prefer it."""
    from sardonyx.runtime.preparation.layouts import prefer_layouts

    return replace(prepared, moved=prefer_layouts(prepared.model.graph, prepared.recipe.providers))


def partition(prepared: Prepared) -> Prepared:
    """Let providers take what they can and compile it; nodes that nobody takes are replaced by the bodies of their ops."""
    recipe, graph = prepared.recipe, prepared.model.graph
    if recipe.compiled is not None:
        return replace(prepared, assigned=insert_copies(partition_graphs(graph, recipe.providers)))
    from sardonyx.runtime.preparation.expand import Expansion
    from sardonyx.runtime.preparation.layouts import check_moved

    assigned = partition_graphs(graph, recipe.providers, Expansion(prepared.model))
    check_moved(prepared.moved, assigned)
    return replace(prepared, assigned=insert_copies(assigned))


def plan(prepared: Prepared) -> Prepared:
    """Bind kernels, and fix the order of the steps and the memory of all values."""
    recipe, model = prepared.recipe, prepared.model
    new_plan = make_plan(model.graph, recipe.providers, _plan_options(recipe.options), prepared.assigned)
    model.holds_all = True  # the plan holds it
    return replace(prepared, plan=replace(new_plan, model=model))


STAGES: tuple[Callable[..., Prepared], ...] = (load, inline, infer, optimize, layout, partition, plan)
"""In order. Each can be printed: `sardonyx inspect MODEL --after STAGE`."""
COMPILED_STAGES = (load, partition, plan)
"""The stages of a model that was compiled ahead of time. The others are done."""
NAMES = tuple(stage.__name__ for stage in STAGES)


def _number(name: str) -> int:
    """How many stages are behind a model when one is done."""
    return NAMES.index(name) + 1


def _plan_options(options: SessionOptions) -> PlanOptions:
    memory = MemoryOptions(options.enable_mem_reuse, options.enable_mem_pattern and options.enable_cpu_mem_arena)
    return PlanOptions(options.execution_order, options._config.is_on(settings.SHAPES_AFTER_PARENTS), memory)
