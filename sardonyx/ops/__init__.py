"""What an op is: its signature by version (`schemas`), and its type and shape inference (one file per family)."""

from __future__ import annotations

import importlib
import threading

from sardonyx.ops.inference import infer

_lock = threading.Lock()
_loaded = False


def load_families() -> None:
    """Import all modules of this package once; signatures and inference functions register themselves."""
    global _loaded
    if _loaded:
        return
    with _lock:
        if not _loaded:
            import pkgutil

            for module in pkgutil.walk_packages(__path__, __name__ + "."):
                importlib.import_module(module.name)
            _loaded = True


__all__ = ["infer", "load_families"]
