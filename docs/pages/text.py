"""Markdown that several generated pages write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from docs.pages.wrapping import wrapped

NOTE = "<!-- Written by `make docs`; change the code that it comes from. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def joined(*parts: str) -> str:
    """Paragraphs, tables and headings with empty lines between them, wrapped."""
    return wrapped("\n\n".join(part.strip() for part in parts) + "\n")
