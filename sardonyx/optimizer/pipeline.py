"""The order of optimization: which rules and passes run at which level, one list per level.

Names are onnxruntime's, so that `disabled_optimizers` and saved settings keep their meaning.
"""

from __future__ import annotations

import enum
import importlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from sardonyx import settings
from sardonyx.errors import is_strict
from sardonyx.ir import Graph, Model, Node, edit
from sardonyx.ops.inference import Evaluate
from sardonyx.optimizer import bounds
from sardonyx.optimizer.bounds import Bound, Endless
from sardonyx.optimizer.pattern import OpName, op_name
from sardonyx.optimizer.rewrite import Extent, Journal, Rule, apply_rules, surroundings
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.settings import Setting
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass


class StageFailed(Exception):
    """A stage raised; the model may be half changed. Whoever optimizes begins again with that stage disabled."""

    def __init__(self, stage: str, reason: Exception):
        super().__init__(f"optimizer stage {stage} failed: {type(reason).__name__}: {reason}")
        self.stage = stage


Pass = Callable[[Graph, Rewriting], bool]
"""A whole-graph pass: changes a graph (not those inside it) and says whether it did."""


@dataclass(frozen=True)
class Late:
    """A pass of `passes/`, whose module is imported when it first runs: most models need few of them."""

    module: str
    name: str

    def __call__(self, graph: Graph, rewriting: Rewriting) -> bool:
        return self.find()(graph, rewriting)

    def find(self) -> Pass:
        run_pass: Pass = getattr(importlib.import_module(f"sardonyx.optimizer.passes.{self.module}"), self.name)
        return run_pass


class Level(enum.IntEnum):
    """How far to go; the numbers are onnxruntime's."""

    DISABLE_ALL = 0
    BASIC = 1
    EXTENDED = 2
    LAYOUT = 3
    ALL = 99


@dataclass(frozen=True)
class Stage:
    """One entry of a level: a group of rules driven to a fixed point together, or a pass. `switch` is a config key that must be on."""

    name: str
    rules: Sequence[Rule] = ()
    run: Pass | None = None
    switch: Setting | None = None
    unless: Setting | None = None
    """A config key that turns the stage off."""
    once: bool = False
    """Not repeated in later rounds."""
    ops: str = ""
    """Ops one of which must be there for the pass to find anything, as patterns write them: "Gather|Slice"."""

    @cached_property
    def roots(self) -> frozenset[OpName]:
        """Ops one of which must be there for the stage to find anything; none if that may be any."""
        named = map(op_name, self.ops.split("|")) if self.ops else ()
        return frozenset((*named, *(op for rule in self.rules for pattern in rule.patterns for op in pattern.roots)))


def optimize(
    model: Model,
    level: Level,
    *,
    evaluate: Evaluate,
    disabled: Collection[str] = (),
    options: Mapping[str, str] | None = None,
    journal: Journal | None = None,
) -> Journal:
    """Optimize a typed model in place, up to and including `level`; returns what was applied and refused."""
    rewriting = Rewriting(model, evaluate, options or {}, journal or Journal())
    saves = settings.MINIMAL_BUILD_OPTIMIZATIONS.of(rewriting.options) == "save"
    for number in Level:
        if number <= level and not (saves and number > Level.BASIC):
            run_level(number, rewriting, disabled)
    if saves and level > Level.BASIC:
        _record(rewriting, disabled)
    rewriting.close()
    for node in (node for graph in rewriting.graphs for node in graph.nodes):
        model.opsets.setdefault(node.domain, node.version)
    return rewriting.journal


def _record(rewriting: Rewriting, disabled: Collection[str]) -> None:
    """Note what is left to the runtime."""
    from sardonyx.optimizer import levels, recording

    stages = [stage for stage in levels.LEVELS[Level.EXTENDED] if stage.name not in disabled and _is_enabled(stage, rewriting)]
    rules = {
        name: [rule for stage in stages if stage.name == name for rule in stage.rules if rule.name not in disabled]
        for name in recording.OPTIMIZERS
    }
    recording.record(rewriting, rules)


def run_level(level: Level, rewriting: Rewriting, disabled: Collection[str] = ()) -> None:
    """Run the stages of one level again and again until none changes anything."""
    from sardonyx.optimizer import levels

    stages = [stage for stage in levels.LEVELS.get(level, ()) if stage.name not in disabled and _is_enabled(stage, rewriting)]
    if level > Level.BASIC and settings.MINIMAL_BUILD_OPTIMIZATIONS.of(rewriting.options) == "apply":
        from sardonyx.optimizer import recording

        stages = [stage for stage in stages if stage.name in recording.OPTIMIZERS]
    rounds = _Rounds(stages, rewriting, disabled, f"graph {rewriting.model.graph.name!r}, level {level.name}")
    is_run_once = level > Level.BASIC and settings.OPTIMIZATIONS_LOOP_LEVEL.of(rewriting.options) == "0"
    while rounds.run() and not is_run_once:
        pass


class _Rounds:
    """The stages of one level, run again and again."""

    def __init__(self, stages: Sequence[Stage], rewriting: Rewriting, disabled: Collection[str], where: str):
        self.stages = stages
        self.rewriting = rewriting
        self.disabled = disabled
        self.bound = Bound(where, bounds.rounds(rewriting.size))
        self.applications: dict[int, Bound] = {}
        """How often the rules of stages, by their numbers, were applied; of those that had something to look at."""
        self.changes = 0
        self.settled: dict[int, int] = {}
        """How many changes there had been when a stage, by its number, found nothing to do: it need not look at the same graph again."""
        self.edits: dict[int, int] = {}
        """How many edits a stage has seen: rules are tried again around later ones alone."""

    def run(self) -> bool:
        """Run each stage once; whether another round may find more to do."""
        before = self.changes
        for number, stage in enumerate(self.stages):
            if self._has_work(number, stage):
                self._run(number, stage)
                if self.bound.is_spent:
                    return False
        return self.changes > before and self.bound.spend()

    def _has_work(self, number: int, stage: Stage) -> bool:
        if stage.roots and self.rewriting.ops.isdisjoint(stage.roots):
            return False
        if (stage.once and self.bound.count) or self.settled.get(number) == self.changes:
            return False
        return number not in self.applications or not self.applications[number].is_spent

    def _run(self, number: int, stage: Stage) -> None:
        rewriting, start = self.rewriting, len(self.rewriting.edited)
        if number not in self.applications:
            self.applications[number] = Bound(f"{self.bound.where}, stage {stage.name}", bounds.applications(rewriting.size))
        if not _run_stage(stage, rewriting, self.disabled, self.edits.get(number), self.applications[number]):
            self.settled[number], self.edits[number] = self.changes, len(rewriting.edited)
            return
        self.changes, self.edits[number] = self.changes + 1, start
        rewriting.look()
        self.bound.note(stage.name)
        if rewriting.has_grown_too_far():
            self.bound.stop(f"at {rewriting.count()} nodes, of which there were {rewriting.size}")


def _is_enabled(stage: Stage, rewriting: Rewriting) -> bool:
    if stage.unless is not None and stage.unless.is_on(rewriting.options):
        return False
    return stage.switch is None or stage.switch.is_on(rewriting.options)


def _run_stage(stage: Stage, rewriting: Rewriting, disabled: Collection[str], edits: int | None, bound: Bound) -> bool:
    """Run one stage; it has seen so many edits before, or none of the graph. `bound` is for its rules."""
    start = time.perf_counter()
    try:
        if stage.run is not None:
            changed = _run_pass(stage.run, rewriting)
        else:
            rules = [rule for rule in stage.rules if rule.name not in disabled]
            extent = Extent(rewriting.graphs, rewriting.ops, None if edits is None else _near(rules, rewriting, edits), bound)
            changed = apply_rules(rewriting.model, rules, extent, evaluate=rewriting.evaluate, journal=rewriting.journal)
    except Endless as error:
        if is_strict():
            raise Endless(f"optimizer stage {stage.name}: {error.message}") from error
        raise StageFailed(stage.name, error) from error
    except Exception as error:
        if rewriting.journal.strict:
            raise
        raise StageFailed(stage.name, error) from error
    rewriting.journal.time(stage.name, time.perf_counter() - start)
    return changed


def _near(rules: Sequence[Rule], rewriting: Rewriting, edits: int) -> dict[Node, int]:
    """What may have changed for some rules since there were so many edits."""
    patterns = [pattern for rule in rules for pattern in rule.patterns if pattern.needs <= rewriting.ops]
    return surroundings(rewriting.edited[edits:], max((pattern.depth for pattern in patterns), default=1))


def _run_pass(run: Pass, rewriting: Rewriting) -> bool:
    """Run a pass on the main graph and on every graph inside it, outer ones first."""
    changed = False
    for graph in rewriting.graphs:
        if edit.outermost(graph) is rewriting.model.graph:  # else it has been thrown away with its node
            changed = run(graph, rewriting) or changed
    return changed
