"""The NumPy provider: a kernel for every op, every version and every type; the measure of the other providers."""

from __future__ import annotations

import importlib
import pkgutil

from sardonyx.providers.cpu.table import cpu

_loaded = False


def load_kernels() -> None:
    """Import all kernel modules of this package once; they register themselves on `cpu`."""
    global _loaded
    if not _loaded:
        for module in pkgutil.walk_packages(__path__, __name__ + "."):
            importlib.import_module(module.name)
        _loaded = True


__all__ = ["cpu", "load_kernels"]
