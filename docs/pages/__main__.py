"""`python -m docs.pages` writes all generated pages; `python -m docs.pages PAGE…` wraps the prose of others."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.pages import FOLDER, PAGES
from docs.pages.wrapping import wrapped

if sys.argv[1:]:
    for page in map(Path, sys.argv[1:]):
        page.write_text(wrapped(page.read_text(encoding="utf-8")), encoding="utf-8")
else:
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
