"""Wraps the prose of Markdown pages at 100 columns. Tables, code and headings stay as they are."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

WIDTH = 100
GLUE = "\N{NO-BREAK SPACE}"
FENCE = re.compile(r" *```|<!-- (?:benchmark|accuracy|end)\b.*-->")
"""Begins or ends what is code, or written by a program."""
ITEM = re.compile(r"( *)([-*]|\d+\.) +")
APART = re.compile(r" *(\||#|<|>|!\[|$)")
"""Lines that are no prose: tables, headings, comments, quotations, pictures, empty ones."""
MARK = re.compile(r" (?=(?:[-+*>#]|#+|\d+\.) )")
"""A space behind which a word would begin a list or a heading, if a line began with it."""


def wrapped(text: str) -> str:
    """A page with its prose wrapped."""
    return "".join(f"{line}\n" for block in _blocks(text) for line in block)


def is_wrapped(text: str) -> bool:
    return wrapped(text) == text


def _blocks(text: str) -> Iterator[list[str]]:
    """The page in pieces, paragraphs and items of lists wrapped."""
    paragraph: list[str] = []
    is_code = False
    for line in text.splitlines():
        if FENCE.match(line) or is_code or APART.match(line):
            yield _wrapped(paragraph)
            paragraph = []
            is_code ^= bool(FENCE.match(line))
            yield [line]
        elif ITEM.match(line):
            yield _wrapped(paragraph)
            paragraph = [line]
        else:
            paragraph.append(line)
    yield _wrapped(paragraph)


def _wrapped(lines: list[str]) -> list[str]:
    if not lines:
        return []
    item = ITEM.match(lines[0])
    first = item[0] if item else lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    prose = " ".join([lines[0][len(first) :], *(line.strip() for line in lines[1:])])
    prose = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", GLUE), prose)
    prose = MARK.sub(GLUE, prose)
    wrap = textwrap.TextWrapper(
        WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(GLUE, " ") for line in wrap.wrap(prose)]
