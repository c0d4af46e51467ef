"""Whether packages are there, without importing them."""

from __future__ import annotations

import importlib.metadata
import importlib.util


def is_installed(package: str) -> bool:
    """Whether a package can be imported, or a distribution of that name is installed."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return importlib.util.find_spec(package) is not None
    return True
