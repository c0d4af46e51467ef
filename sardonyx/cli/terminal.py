"""What the commands print: tables and lines for people, or one JSON object for programs; errors always as one line on stderr."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table
except ModuleNotFoundError as missing:  # a minimal install
    raise SystemExit(f"sardonyx: the command line needs the package rich ({missing}): 'pip install rich'") from missing

from sardonyx.runtime.api import patience

FATAL = 4
"""Log severity of sessions here: what goes wrong is said once, by the command."""

PIPE_WIDTH = 1 << 16
"""Columns of a table that no terminal shows: a pipe or a file gets each row in one line."""


class UsageError(Exception):
    """The command line asks for something that cannot be; exit code 2."""


class Written:
    """The files that a command is going to write, each for one purpose."""

    def __init__(self) -> None:
        self._purposes: dict[Path, str] = {}

    @property
    def paths(self) -> Iterable[Path]:
        return self._purposes

    def add(self, path: Path, purpose: str) -> None:
        """Refuse a file that something else is to be written to."""
        key = Path(os.path.normcase(os.path.abspath(path)))
        if key in self._purposes:
            raise UsageError(f"{self._purposes[key]} and {purpose} would both become {path}")
        self._purposes[key] = purpose


class Terminal:
    """Where a command's output goes."""

    def __init__(self, *, as_json: bool = False):
        self.as_json = as_json
        self._out = Console(highlight=False)
        if not self._out.is_terminal:
            self._out.width = PIPE_WIDTH
        self._err = Console(stderr=True, highlight=False)

    def line(self, text: str = "", style: str | None = None) -> None:
        """One line for people, never wrapped."""
        if not self.as_json:
            self._out.print(text, style=style, markup=False, soft_wrap=True)

    def table(self, title: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> None:
        """A table for people; nothing if there are no rows. `right` are the columns set flush right."""
        rows = list(rows)
        if self.as_json or not rows:
            return
        table = Table(title=title, title_justify="left", show_header=any(headings))
        for index, heading in enumerate(headings):
            table.add_column(heading, justify="right" if index in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_escaped(cell) for cell in row))
        self._out.print(table)

    def result(self, value: Any) -> None:
        """The one JSON object, if that was asked for."""
        if self.as_json:
            print(json.dumps(value, indent=1, default=str, allow_nan=False))

    def error(self, text: str) -> None:
        self._err.print(f"sardonyx: {text}", style="red", markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A sign of life while something of unknown length goes on."""
        if not self._err.is_terminal:
            yield
            return
        with self._err.status(what), patience.silenced():
            yield

    def progress(self, items: Sequence[Any], what: str) -> Iterator[Any]:
        """The items, with a bar that shows how many are done."""
        if not self._err.is_terminal:
            yield from items
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._err, transient=True) as bar:
            yield from bar.track(items, description=what)


def one_line(error: BaseException) -> str:
    """An exception as a user wants to read it; the classes with codes of their own name themselves in their text."""
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        return text.split(" : ", 2)[-1]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _escaped(cell: Any) -> str:
    return str(cell).replace("[", "\\[")


def count_text(count: int, thing: str) -> str:
    """A number of things for people: "1 node", "2 nodes"."""
    return f"{count} {thing}{'s' * (count != 1)}"


def size_text(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def time_text(seconds: float) -> str:
    """A duration for people."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
