"""Writes all generated pages."""

from __future__ import annotations

from docs.pages import FOLDER, PAGES

for name, make in PAGES.items():
    (FOLDER / name).write_text(make(), encoding="utf-8")
