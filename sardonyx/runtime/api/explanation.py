"""What `InferenceSession.explain` says: who runs which nodes and why, and what the optimizer did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from sardonyx.optimizer.rewrite import Journal
from sardonyx.runtime.execution.shares import TimeShares
from sardonyx.runtime.preparation.plan import Plan, compiled_steps, numpy_steps

NO_REASON = "control flow, or a step that only hands values on"


def explanation(plan: Plan, journal: Journal | None, shares: TimeShares | None) -> str:
    """A page for people: two sections with a heading each."""
    lines = ["Who runs the nodes", *_indented(_placement_lines(plan, shares))]
    if journal is not None:
        lines += ["", "What the optimizer did", *_indented(journal_lines(journal))]
    return "\n".join(lines)


def _placement_lines(plan: Plan, shares: TimeShares | None) -> Iterator[str]:
    compiled, left = compiled_steps(plan), numpy_steps(plan)
    node_count = sum(len(step.nodes) for step in compiled)
    yield f"machine code: {_counted(node_count, 'node')} in {_counted(len(compiled), 'program')}"
    for step in compiled:
        if step.call.refusal is not None:
            yield f"  NumPy computed a run of {_counted(len(step.nodes), 'node')} of these: {step.call.refusal}"
    yield f"NumPy: {_counted(len(left), 'node')}"
    for step in left:
        yield f"  {step.node}: {step.reason or NO_REASON}"
    if shares is not None:
        yield f"In the first run {shares}."


def journal_lines(journal: Journal) -> Iterator[str]:
    """Which rewrites were made and refused, how often, then each of them."""
    yield f"done: {_summed(event.rule for event in journal.applied())}"
    refused = _summed(event.rule for event in journal.events if event.reason is not None)
    yield f"refused: {refused}"
    yield from map(str, journal.events)


def _summed(rules: Iterable[str]) -> str:
    return ", ".join(f"{count} × {rule}" for rule, count in Counter(rules).most_common()) or "nothing"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
