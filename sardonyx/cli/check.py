"""`sardonyx check`: can this model run here, and if not, what exactly is in the way, and where?"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sardonyx import errors, formats, ops
from sardonyx.cli.native import left_to_numpy
from sardonyx.cli.terminal import Terminal, one_line
from sardonyx.ir import Graph, Model, Node, edit
from sardonyx.ir.verify import verify
from sardonyx.ops import checking
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.matching import resolver_of
from sardonyx.providers.provider import missing_kernel
from sardonyx.runtime.expand import expand_functions
from sardonyx.runtime.session import InferenceSession


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
        slow = [] if problems else uncompiled(options.model)
    terminal.table("problems", ("stage", "where", "reason"), [(p.stage, p.where, p.reason) for p in problems])
    terminal.table("left to NumPy", ("where", "reason"), [(p.where, p.reason) for p in slow])
    nodes = sum(counts.values())
    if problems:
        terminal.line(f"{len(problems)} problems in {nodes} nodes", style="red")
    else:
        terminal.line(f"all right: {nodes} nodes of {len(counts)} ops, each with a kernel", style="green")
    shown = {"problems": [asdict(p) for p in problems], "numpy": [{"where": p.where, "reason": p.reason} for p in slow]}
    terminal.result({"ok": not problems, "nodes": nodes, "ops": dict(counts)} | shown)
    return 1 if problems else 0


def check(source: Any) -> tuple[Counter[str], list[Problem]]:
    """Take a model through all stages; how many nodes of each op it has, and what is wrong at the first stage that finds something."""
    counts: Counter[str] = Counter()
    try:
        model = formats.load(source)
    except errors.CODED as error:
        return counts, [Problem("load", "", one_line(error))]
    counts.update(node.op_id for node in model.graph.all_nodes())
    providers = [CPUExecutionProvider()]
    stages: tuple[tuple[str, Callable[[], Iterator[Problem]]], ...] = (
        ("verify", lambda: _raised("verify", lambda: verify(model))),
        ("inline", lambda: _raised("inline", lambda: edit.inline_functions(model))),
        ("ops", lambda: _unknown_ops(model)),
        ("infer", lambda: _raised("infer", lambda: ops.infer(model, evaluate))),
        ("types", lambda: _raised("types", lambda: _use_types(model, providers[0]))),
        ("expand", lambda: _raised("expand", lambda: expand_functions(model, providers))),
        ("kernels", lambda: _missing_kernels(model, providers[0])),
    )
    for _, stage in stages:
        problems = list(stage())
        if problems:
            return counts, problems
    return counts, []


def uncompiled(source: Any) -> list[Problem]:
    """The nodes of a good model that run without native code in a session, and why: no mistake, but slow."""
    try:
        session = InferenceSession(source)
    except errors.CODED:  # custom ops, say, which a program registers
        return []
    left = left_to_numpy(session._engine.plan)
    return [Problem("native", place(node), reason) for node, reason in left if reason]


def _raised(stage: str, action: Callable[[], object]) -> Iterator[Problem]:
    try:
        action()
    except errors.CODED as error:
        yield Problem(stage, "", one_line(error))


def _unknown_ops(model: Model) -> Iterator[Problem]:
    """Every node whose op, version or attributes nobody knows."""
    for node in model.graph.all_nodes():
        try:
            checking.check_node(node, checking.signature_of(node))
        except errors.CODED as error:
            yield Problem("ops", place(node), one_line(error))


def _use_types(model: Model, provider: CPUExecutionProvider) -> None:
    """Match kernels by the type strings that came with the model, if some did; they must be all that it needs."""
    provider.resolver = resolver_of(model)


def _missing_kernels(model: Model, provider: CPUExecutionProvider) -> Iterator[Problem]:
    for node in model.graph.all_nodes():
        if provider.find_kernel(node) is None:
            yield Problem("kernels", place(node), one_line(missing_kernel(node)))
        else:
            for problem in _raised("kernels", lambda node=node: provider.bind_kernel(node)):  # type: ignore[misc]
                yield Problem("kernels", place(node), problem.reason)


def place(node: Node) -> str:
    """A node with the nodes around it, outermost first."""
    path = [str(node)]
    graph: Graph | None = node.graph
    while graph is not None and graph.parent is not None:
        path.append(str(graph.parent))
        graph = graph.parent.graph
    return " > ".join(reversed(path))
