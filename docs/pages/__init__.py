"""Pages of the documentation that are made from the code: `python -m docs.pages` writes them, a test compares them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.pages import configuration, coverage, finding, picture, reference, safety

FOLDER = Path(__file__).parent.parent

PAGES: dict[str, Callable[[], str]] = {
    "architecture.svg": picture.page,
    "configuration.md": configuration.page,
    "coverage.md": coverage.page,
    "finding.md": finding.page,
    "reference.md": reference.page,
    "safety.md": safety.page,
}
"""What makes each page."""
