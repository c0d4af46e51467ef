"""The table of `docs/safety.md`, written from the audit: `make docs` puts it there."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.edges import cases  # noqa: F401 - fills the table
from tests.fuzz.edges.table import CHECKS, ENTRIES

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "safety.md"
BEGIN, END = "<!-- audit -->", "<!-- end -->"


def table() -> str:
    """One row per op: its numbers, by where they are checked."""
    checks: dict[str, dict[str, str]] = {}
    for entry in ENTRIES:
        for operand, check in entry.checks.items():
            checks.setdefault(entry.name, {}).setdefault(operand, check)
        checks.setdefault(entry.name, {})
    rows = ["| op | " + " | ".join(CHECKS) + " |", "|---|" + "---|" * len(CHECKS)]
    for name, told in sorted(checks.items(), key=lambda item: (":" in item[0], item[0])):
        columns = (", ".join(operand for operand, found in told.items() if found == check) for check in CHECKS)
        rows.append(f"| {name} | " + " | ".join(columns) + " |")
    return "\n".join(rows)


def written(text: str) -> str:
    """A page with the table in its place."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"
