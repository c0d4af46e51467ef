"""`sardonyx run --find-nan`: the first node whose result holds NaN, and what it was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.cli.preparing import prepared, session_options
from sardonyx.cli.terminal import Terminal
from sardonyx.ir import Node, Value
from sardonyx.runtime.execution.executor import execute as run_plan
from sardonyx.runtime.preparation.plan import Step
from sardonyx.startup.records import dataclass

Row = tuple[str, str, str, str, str]
"""Type and shape of a value, how many elements are NaN and infinite, and the range of the others."""


@dataclass(frozen=True)
class Finding:
    """A node whose result holds NaN, and each operand and result by name."""

    node: Node
    rows: dict[str, Row]


class Watch:
    """Sees each step of a run, as a profiler does, and keeps the first that gives NaN."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self._rows: dict[Value, Row] = {}
        """Of results: a later step may have written over the memory of its operand."""

    def step(self, step: Step, start_ns: int, end_ns: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if self.finding is not None:
            return
        node = step.node
        self._rows |= {value: described(content) for value, content in zip(node.outputs, outputs)}
        if any(nan_count(value) for value in outputs):
            operands = {value: content for value, content in zip(node.inputs, inputs) if value is not None}
            rows = {value.name: self._rows.get(value) or described(content) for value, content in operands.items()}
            self.finding = Finding(node, rows | {value.name: self._rows[value] for value in node.outputs})

    def kernels(self, step: Step, start_ns: int, times: Sequence[Any]) -> None:
        """Nothing is compiled here."""


def find(model: str, feeds: Mapping[str, Any]) -> Finding | None:
    """Run the model node by node in NumPy, as it is in its file."""
    plan = prepared(model, "plan", session_options("disable"), native=False).plan
    assert plan is not None
    watch = Watch()
    run_plan(plan, feeds, profiler=watch)  # type: ignore[arg-type]
    return watch.finding


def nan_count(value: Any) -> int:
    """How many elements are NaN."""
    floats = _floats(value)
    return 0 if floats is None else int(np.isnan(floats).sum())


def _floats(value: Any) -> np.ndarray | None:
    is_float = isinstance(value, np.ndarray) and dtypes.from_numpy(value.dtype) in dtypes.FLOATS
    return value.astype(np.float64) if is_float else None


def show(finding: Finding | None, outputs: Mapping[str, Any], terminal: Terminal) -> dict[str, Any]:
    """Say where NaN comes from; the same for JSON."""
    if finding is None:
        is_native = any(nan_count(value) for value in outputs.values())
        text = "NaN comes from machine code alone: see `sardonyx compare MODEL --against numpy`" if is_native else "no NaN"
        terminal.line(text, style="red" if is_native else "green")
        return {"node": None, "native": is_native}
    results = {value.name for value in finding.node.outputs}
    source = next((name for name, row in finding.rows.items() if name not in results and row[1] not in ("", "0")), None)
    terminal.line(f"first NaN: {finding.node}" + (f", which was given it in {source}" if source else ""), style="red")
    headings = ("name", "value", "NaN", "infinite", "min", "max")
    rows = [(name, *row) for name, row in finding.rows.items()]
    terminal.table("its operands and results", headings, rows, right=(2, 3, 4, 5))
    return {"node": str(finding.node), "given": source, "values": {name: list(row) for name, row in finding.rows.items()}}


def described(value: Any) -> Row:
    """What is shown of a value."""
    kind = f"{dtypes.from_numpy(value.dtype)}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
    floats = _floats(value)
    if floats is None:
        return kind, "", "", "", ""
    finite = floats[np.isfinite(floats)]
    low, high = (f"{finite.min():.5g}", f"{finite.max():.5g}") if finite.size else ("", "")
    return kind, str(nan_count(value)), str(int(np.isinf(floats).sum())), low, high
