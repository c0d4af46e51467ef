"""The list of what NumPy may compute is complete: nothing else is on the page of coverage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sardonyx import ops
from sardonyx.ops import schemas
from tests.providers.native.numpy_ops import OPS, TYPES

PAGE = Path(__file__).parents[3] / "docs" / "coverage.md"
LISTED = [name for names in OPS.values() for name in names.split()]


def _rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """Each op of the page with its domain, the types that are native in some forms, and those that are not."""
    domain = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            domain = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) in (4, 5) and cells[0] not in ("op", "---"):
            name = cells[0].rpartition(" ")[0]
            partly, left = ([type for type in cell.split(", ") if type and type not in TYPES] for cell in cells[2:4])
            yield name if domain == "ai.onnx" else f"{domain}:{name}", partly, left


ROWS = list(_rows())


def test_the_page_is_read() -> None:
    assert len(ROWS) > 300


@pytest.mark.parametrize(("name", "partly", "left"), ROWS, ids=[name for name, _, _ in ROWS])
def test_what_numpy_computes_is_listed(name: str, partly: list[str], left: list[str]) -> None:
    assert not (partly or left) or name in LISTED, f"{name}: {partly} are native in some forms, {left} in none"


def test_the_list_names_each_op_once() -> None:
    ops.load_families()
    assert len(LISTED) == len(set(LISTED))
    for name in LISTED:
        domain, _, op = name.rpartition(":")
        assert schemas.versions(domain, op), f"there is no op {name}"


def test_nothing_is_listed_that_is_native() -> None:
    left = {name for name, partly, none in ROWS if partly or none}
    assert [name for name in LISTED if name not in left] == []
