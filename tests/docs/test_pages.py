"""Generated pages are current: what the code makes now is what stands in docs/, and in the table that start-up reads."""

from __future__ import annotations

import pytest

from docs.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(name: str) -> None:
    path = (FOLDER / name).resolve()
    assert path.read_text(encoding="utf-8") == PAGES[name](), (
        f"{path.relative_to(FOLDER.parent)} is not current, run: make docs"
    )
