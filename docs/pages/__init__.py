"""Pages of the documentation, and a table of the package, that are made from the code: `python -m docs.pages` writes them.

A test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs import modules
from docs.pages import configuration, coverage, finding, namespace, picture, reference, safety

FOLDER = Path(__file__).parent.parent
MODULES = "../sardonyx/startup/modules.txt"

PAGES: dict[str, Callable[[], str]] = {
    "architecture.svg": picture.page,
    "configuration.md": configuration.page,
    "coverage.md": coverage.page,
    "finding.md": finding.page,
    "namespace.md": namespace.page,
    "reference.md": reference.page,
    "safety.md": safety.page,
    MODULES: modules.page,
}
"""What makes each page."""
