"""Tables as text, under the name of `onnxruntime.training.utils.PTable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GAP = 2
"""Blanks behind the longest text of a column."""


class Row:
    """A row; a table of its own may explain it."""

    def __init__(self, columns: Sequence[Any]):
        self.columns = [str(column) for column in columns]
        self.annotation: PTable | None = None

    def append_annotation_table(self, ptable: PTable) -> None:
        """Let a table stand below the row, with columns at least as wide."""
        self.annotation = ptable


class PTable:
    """Rows of as many columns each; a sortable one is printed by the first column."""

    def __init__(self, sortable: bool = False):
        self._rows: list[Row] = []
        self._sortable = sortable

    def add_row(self, columns: Sequence[Any]) -> Row:
        if self._rows and len(columns) != len(self._rows[0].columns):
            raise AssertionError(f"a row has {len(columns)} columns, those before have {len(self._rows[0].columns)}")
        self._rows.append(Row(columns))
        return self._rows[-1]

    def get_string(self, first_column_width: int | None = None, second_column_width: int | None = None) -> str:
        """All rows, one a line. The two widths are those of the first and of the third column at least, as in the original."""
        least = {0: first_column_width or 0, 2: second_column_width or 0}
        widths = [max(map(len, column)) for column in zip(*(row.columns for row in self._rows))]
        widths = [max(width, least.get(place, 0)) for place, width in enumerate(widths)]
        rows = sorted(self._rows, key=lambda row: row.columns[0]) if self._sortable else self._rows
        return "".join(_lines(row, widths, {0: 0, 2: 2}) for row in rows)


def _lines(row: Row, widths: Sequence[int], places: Mapping[int, int]) -> str:
    line = "".join(text.ljust(width + GAP) for text, width in zip(row.columns, widths)) + "\n"
    if row.annotation is None:
        return line
    first, third = (widths[place] if place < len(widths) else None for place in places)
    return line + row.annotation.get_string(first, third)
