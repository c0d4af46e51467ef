"""Generated pages are current: what the code makes now is what stands in docs/."""

from __future__ import annotations

import pytest

from docs.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), f"docs/{name} is not current: make docs"
