"""Prose of the documentation wraps at 100 columns, and wrapping changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages.wrapping import WIDTH, is_wrapped, wrapped
from tests.docs.names import PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_prose_is_wrapped(page: Path) -> None:
    assert is_wrapped(page.read_text(encoding="utf-8")), f"python -m docs.pages {page}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_wrapping_changes_line_ends_alone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrapped(text).split() == text.split()
    assert wrapped(wrapped(text)) == wrapped(text)


def test_what_is_no_prose_stays() -> None:
    row = "| a | " + "b " * WIDTH + "|"
    code = "```text\n" + "c " * WIDTH + "\n```"
    page = f"# Title\n\n{row}\n\n{code}\n\n- an item\n  1. an inner one\n"
    assert wrapped(page) == page


def test_items_keep_their_indent_and_spans_stay_whole() -> None:
    lines = wrapped("- " + "word " * 19 + "`a span` and - more\n").splitlines()
    assert [line[:4] for line in lines] == ["- wo", "  `a"]
    assert all(len(line) <= WIDTH for line in lines)
