"""`sardonyx check`: can this model run here, and if not, what exactly is in the way, and where?"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sardonyx import errors
from sardonyx.cli.preparing import prepared, session_options
from sardonyx.cli.terminal import Terminal, count_text, one_line
from sardonyx.ir import Graph, Node
from sardonyx.ir.verify import verify
from sardonyx.ops import checking
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.matching import resolver_of
from sardonyx.runtime.api import log
from sardonyx.runtime.preparation.expand import expand_functions
from sardonyx.runtime.preparation.plan import Plan, all_steps, compiled_steps, numpy_steps
from sardonyx.runtime.preparation.prepare import Prepared, prepare
from sardonyx.runtime.preparation.recipe import Recipe


@dataclass(frozen=True)
class Problem:
    """One thing that keeps the model from running: at which stage, where in the model, why."""

    stage: str
    where: str
    reason: str


def add_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "check", parents=[shared], help="say whether a model can run, and what is in the way", description=__doc__
    )
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    with terminal.working("checking"):
        counts, problems = check(options.model)
        plan = None if problems else planned(options.model)
        slow = [] if plan is None else uncompiled(plan)
        placement = "each with a kernel" if plan is None else placed(plan)
    terminal.table("problems", ("stage", "where", "reason"), [(p.stage, p.where, p.reason) for p in problems])
    terminal.table("left to NumPy", ("where", "reason"), [(p.where, p.reason) for p in slow])
    nodes = sum(counts.values())
    if problems:
        place = f" in {count_text(nodes, 'node')}" if nodes else ""  # what cannot be loaded has none
        terminal.line(f"{count_text(len(problems), 'problem')}{place}", style="red")
    else:
        terminal.line(f"all right: {count_text(nodes, 'node')} of {count_text(len(counts), 'op')}, {placement}", style="green")
    shown = {"problems": [asdict(p) for p in problems], "numpy": [{"where": p.where, "reason": p.reason} for p in slow]}
    terminal.result({"ok": not problems, "nodes": nodes, "ops": dict(counts)} | shown)
    return 1 if problems else 0


def check(source: Any) -> tuple[Counter[str], list[Problem]]:
    """Take a model through the stages that need no provider; how many nodes of each op it has, and what is wrong where something is."""
    counts: Counter[str] = Counter()
    options = session_options("disable")
    prepared: Recipe | Prepared = Recipe(source, options, [CPUExecutionProvider()])
    with log.scope(options.logid, options.log_severity_level):
        for stage, look in CHECKS:
            try:
                prepared = prepare(prepared, upto=stage)
            except errors.CODED as error:
                return counts, [Problem(stage, "", one_line(error))]
            counts = counts or Counter(node.op_id for node in prepared.model.graph.all_nodes())
            problems = list(look(prepared))
            if problems:
                return counts, problems
    return counts, []


def planned(source: Any) -> Plan | None:
    """A good model as a session runs it; None if only a program can make one, which registers custom ops, say."""
    try:
        return prepared(source, "plan", session_options("all")).plan
    except errors.CODED:
        return None


def uncompiled(plan: Plan) -> list[Problem]:
    """The nodes that run without native code in a session, and why: no mistake, but slow."""
    return [Problem("native", place(step.node), step.reason) for step in numpy_steps(plan) if step.reason]


def placed(plan: Plan) -> str:
    """Who runs how many nodes of the optimized model."""
    compiled, left = compiled_steps(plan), numpy_steps(plan)
    other_count = sum(1 for _ in all_steps(plan)) - len(compiled) - len(left)
    counts = (sum(len(step.nodes) for step in compiled), len(left), other_count)
    names = (f"machine code ({count_text(len(compiled), 'program')})", "NumPy", "other providers")
    return "optimized to " + ", ".join(f"{count} in {name}" for count, name in zip(counts, names) if count)


def _verify(prepared: Prepared) -> Iterator[Problem]:
    try:
        verify(prepared.model)
    except errors.CODED as error:
        yield Problem("verify", "", one_line(error))


def _unknown_ops(prepared: Prepared) -> Iterator[Problem]:
    """Every node whose op, version or attributes nobody knows."""
    for node in prepared.model.graph.all_nodes():
        try:
            checking.check_node(node, checking.signature_of(node))
        except errors.CODED as error:
            yield Problem("ops", place(node), one_line(error))


def _missing_types(prepared: Prepared) -> Iterator[Problem]:
    """Kernels are matched by the type strings that came with the model, if some did; they must be all that it needs."""
    try:
        resolver_of(prepared.model)
    except errors.CODED as error:
        yield Problem("types", "", one_line(error))


def _missing_kernels(prepared: Prepared) -> Iterator[Problem]:
    """Every node that NumPy cannot compute, neither with a kernel nor through the body of its op."""
    (provider,) = prepared.recipe.providers
    try:
        expand_functions(prepared.model, [provider])
    except errors.CODED as error:
        yield Problem("expand", "", one_line(error))
        return
    for node in prepared.model.graph.all_nodes():
        try:
            provider.bind_kernel(node)
        except errors.CODED as error:
            yield Problem("kernels", place(node), one_line(error))


CHECKS: tuple[tuple[str, Callable[[Prepared], Iterator[Problem]]], ...] = (
    ("load", _verify),
    ("inline", _unknown_ops),
    ("inline", _missing_types),
    ("infer", _missing_kernels),
)
"""Stages, and what is looked at after each."""


def place(node: Node) -> str:
    """A node with the nodes around it, outermost first."""
    path = [str(node)]
    graph: Graph | None = node.graph
    while graph is not None and graph.parent is not None:
        path.append(str(graph.parent))
        graph = graph.parent.graph
    return " > ".join(reversed(path))
