"""No test depends on the clock: whether it passes says nothing about how busy the machine is.

Work is counted (`tests/counting.py`), waits end when what they wait for comes, and a time-out only ends what hangs (`tests/patience.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
CLOCKS = {
    "time": None,  # every name of it
    "timeit": None,
    "signal": {"alarm", "ITIMER_REAL", "SIGALRM"},
    "datetime": {"datetime", "date"},
}
"""What asks for the time, by module."""

PATIENT_SECONDS = 600
ALLOWED = {
    "attack/__main__.py": "ends after as many minutes as the user says; tests give a number of cases",
    "attack/limits.py": "asks for the time that was computed, not for that of day",
    "attack/supervision.py": "shows progress, and ends what neither computes nor waits for a child",
    "compiler/test_pool.py": "asks again and again until a worker sleeps; a program ends while its threads run, or before they do",
    "conformance/harness.py": "reports which cases take long",
    "runtime/test_profile.py": "compares stamps with stamps",
    "runtime/test_stress.py": "a program ends while its threads run, or before they do",
    "runtime/test_threads.py": "a run is stopped while it runs, or before: it ends in the same way",
    "slow/corpus.py": "reports how long models take",
    "slow/ort_trips.py": "reports how long models take",
}
"""Files that may ask a clock, each with the reason why no result depends on it."""

PACED = {
    "attack/kinds/cache.py": "damages a folder a few times while another process uses it",
    "attack/kinds/threads.py": "disturbs runs a few times while they go on",
}
"""Files that wait a moment, each with the reason why no result depends on how long that is."""


def parts(path: Path) -> Iterator[ast.AST]:
    """All nodes of a file's syntax, also of the programs in its strings."""
    pending = [path.read_text(encoding="utf-8")]
    while pending:
        for node in ast.walk(ast.parse(pending.pop())):
            yield node
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
                try:
                    ast.parse(node.value)
                except SyntaxError:
                    continue
                pending.append(node.value)


def clocks(path: Path) -> Iterator[str]:
    """Where a file asks for the time."""
    for node in parts(path):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if CLOCKS.get(name.name, ()) is None)
        elif isinstance(node, ast.ImportFrom) and node.module in CLOCKS:
            names = CLOCKS[node.module]
            yield from (f"{node.module}.{name.name}" for name in node.names if names is None or name.name in names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in (CLOCKS.get(node.value.id) or ()):
                yield f"{node.value.id}.{node.attr}"


def short_waits(path: Path) -> Iterator[str]:
    """Where a file waits for less than a loaded machine may need, and deadlines."""
    for node in parts(path):
        if isinstance(node, ast.keyword):
            if node.arg == "timeout" and _is_below(node.value, PATIENT_SECONDS):
                yield f"line {node.value.lineno}: timeout={ast.unparse(node.value)}"
            if node.arg == "deadline" and not (isinstance(node.value, ast.Constant) and node.value.value is None):
                yield f"line {node.value.lineno}: deadline={ast.unparse(node.value)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "wait"):
            if any(_is_below(argument, PATIENT_SECONDS) for argument in node.args):
                yield f"line {node.lineno}: {ast.unparse(node)}"


MEASURED = ("percent", "percent_of_limit", "dur", "seconds", "min", "median", "creation")
"""Keys and attributes under which we report what a clock has told."""
CERTAIN = (0, 100)
"""Bounds of such figures that hold on any machine, if equality is allowed."""


def bets(path: Path) -> Iterator[str]:
    """Where a file compares a figure that was measured with a number that it happens to keep to."""
    for node in parts(path):
        if isinstance(node, ast.Compare) and any(map(_is_measured, ast.walk(node))):
            terms = [node.left, *node.comparators]
            for left, sign, right in zip(terms, node.ops, terms[1:]):
                numbers = [term.value for term in (left, right) if isinstance(term, ast.Constant)]
                if numbers and not (isinstance(sign, (ast.LtE, ast.GtE)) and numbers[0] in CERTAIN):
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def _is_measured(node: ast.AST) -> bool:
    key = node.slice if isinstance(node, ast.Subscript) else None
    is_key = isinstance(key, ast.Constant) and key.value in MEASURED
    return is_key or (isinstance(node, ast.Attribute) and node.attr == "seconds")


def _is_below(node: ast.expr, seconds: float) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value < seconds


def files() -> list[Path]:
    return sorted(path for path in HERE.rglob("*.py") if path != Path(__file__))


def test_only_the_listed_files_ask_for_the_time() -> None:
    asking = {path.relative_to(HERE).as_posix(): list(clocks(path)) for path in files()}
    assert {name: places for name, places in asking.items() if places and name not in ALLOWED} == {}
    assert [name for name in ALLOWED if not asking.get(name)] == []


def test_what_waits_waits_long_enough_for_any_machine() -> None:
    waiting = {path.relative_to(HERE).as_posix(): list(short_waits(path)) for path in files()}
    assert {name: places for name, places in waiting.items() if places and name not in PACED} == {}
    assert [name for name in PACED if not waiting.get(name)] == []


def test_no_figure_that_was_measured_is_bet_on() -> None:
    betting = {path.relative_to(HERE).as_posix(): list(bets(path)) for path in files()}
    assert {name: places for name, places in betting.items() if places} == {}


@pytest.mark.parametrize(
    "text", ['float(event["percent"]) < 300', '0 < run["dur"]', "step.seconds > 0", '0 < ours["min"] <= 1']
)
def test_a_bet_is_seen(text: str, tmp_path: Path) -> None:
    (tmp_path / "test.py").write_text(text)
    assert list(bets(tmp_path / "test.py"))


def test_examples_have_no_deadline(request: pytest.FixtureRequest) -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    assert float(request.config.getini("faulthandler_timeout")) >= PATIENT_SECONDS


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import sleep",
        "import timeit",
        "signal.alarm(3)",
        "datetime.datetime.now()",
        'P = "import time\\n"',
    ],
)
def test_a_clock_is_seen(text: str, tmp_path: Path) -> None:
    (tmp_path / "test.py").write_text(text)
    assert list(clocks(tmp_path / "test.py"))


@pytest.mark.parametrize(
    "text", ["run(timeout=60)", "thread.join(20)", "event.wait(0.5)", "@settings(deadline=200)\ndef f(): ..."]
)
def test_a_short_wait_is_seen(text: str, tmp_path: Path) -> None:
    (tmp_path / "test.py").write_text(text)
    assert list(short_waits(tmp_path / "test.py"))
