"""safety.md: its text is written by hand, its table comes from the audit of the tests."""

from __future__ import annotations

from tests.fuzz.edges.page import PAGE, written


def page() -> str:
    return written(PAGE.read_text(encoding="utf-8"))
