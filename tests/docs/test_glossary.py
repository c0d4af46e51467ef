"""The glossary is a list that one can look things up in: in order, each word once, and the words are used."""

from __future__ import annotations

import re

from tests.docs.names import PAGES, ROOT, SOURCES

ROWS = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
TERMS = [term for term, _ in ROWS if term != "term"]


def test_terms_are_sorted_and_stand_once() -> None:
    assert len(TERMS) >= 40
    assert sorted(set(TERMS)) == TERMS


def test_terms_are_used() -> None:
    others = "".join(path.read_text(encoding="utf-8").lower() for path in (*PAGES, *SOURCES) if path.name != "glossary.md")
    words = set(re.findall("[a-z]+", others))
    assert not {word for term in TERMS for word in term.split()} - words
