"""`python -m tests.conformance`: the whole backend suite of the installed `onnx` through `sardonyx.backend`, with a table at the end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx
from rich.console import Console
from rich.progress import track
from rich.table import Table

import sardonyx.backend
from tests.conformance.exceptions import EXPECTED_FAILURES
from tests.conformance.harness import KINDS, Outcome, load_tests, run_all


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("-k", dest="text", default="", help="only cases whose name contains this")
    parser.add_argument("--kind", action="append", choices=list(KINDS.values()), help="only cases of this kind (repeatable)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes there")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="show the N slowest cases")
    options = parser.parse_args(arguments)
    console = Console()
    sardonyx.set_default_logger_severity(3)  # some models of the suite are untidy, and we warn of that
    with console.status("loading the suite"):
        tests = load_tests(sardonyx.backend)
    chosen = {
        (kind, name): test
        for (kind, name), test in tests.items()
        if options.text in name and kind in (options.kind or KINDS.values())
    }
    progress = track(run_all(chosen), "running", total=len(chosen), console=console, disable=not console.is_terminal)
    outcomes = list(progress)
    _print_table(console, outcomes)
    for outcome in sorted(outcomes, key=lambda one: -one.seconds)[: options.slowest]:
        console.print(f"{outcome.seconds:8.2f} s  {outcome.name}")
    if options.json is not None:
        options.json.write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=1))
    return _verdict(console, outcomes)


def _print_table(console: Console, outcomes: Sequence[Outcome]) -> None:
    table = Table(title=f"ONNX backend suite, onnx {onnx.__version__}, through sardonyx {sardonyx.__version__}")
    for heading, justify in (
        ("kind", "left"),
        ("cases", "right"),
        ("passed", "right"),
        ("failed", "right"),
        ("seconds", "right"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    rows = [(kind, [outcome for outcome in outcomes if outcome.kind == kind]) for kind in KINDS.values()]
    for kind, some in [*((kind, some) for kind, some in rows if some), ("all", list(outcomes))]:
        passed = sum(outcome.passed for outcome in some)
        seconds = sum(outcome.seconds for outcome in some)
        table.add_row(kind, str(len(some)), str(passed), str(len(some) - passed), f"{seconds:.1f}")
    console.print(table)


def _verdict(console: Console, outcomes: Sequence[Outcome]) -> int:
    """0 if exactly the cases fail that must; says what differs otherwise."""
    wrong = [outcome for outcome in outcomes if not outcome.passed and outcome.name not in EXPECTED_FAILURES]
    surprising = [outcome for outcome in outcomes if outcome.passed and outcome.name in EXPECTED_FAILURES]
    for outcome in outcomes:
        if not outcome.passed and outcome.name in EXPECTED_FAILURES:
            console.print(
                f"cannot pass  {outcome.name}: {EXPECTED_FAILURES[outcome.name]}", style="dim", highlight=False, soft_wrap=True
            )
    for outcome in wrong:
        console.print(f"FAILED  {outcome.name}: {outcome.reason}", style="red", markup=False, highlight=False, soft_wrap=True)
    for outcome in surprising:
        console.print(f"PASSED, but is listed as impossible  {outcome.name}", style="yellow", highlight=False)
    return 1 if wrong or surprising or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
