"""Training under the names of `onnxruntime.training`. On ONNX files: `artifacts` makes them, `api` trains, `onnxblock` builds losses.

Modules of PyTorch: `ORTModule`, `optim`, `amp`, `utils`, `experimental`. Each part is imported when it is first used; only these need
PyTorch.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

_SUBMODULES = ("amp", "api", "artifacts", "experimental", "onnxblock", "optim", "ortmodule", "utils")

__all__ = [*_SUBMODULES, "ORTModule", "is_ortmodule_available"]


def is_ortmodule_available() -> bool:
    """Whether PyTorch modules can be wrapped: if PyTorch is there."""
    return importlib.util.find_spec("torch") is not None


def __getattr__(name: str) -> Any:
    if name == "ORTModule":
        return importlib.import_module(f"{__name__}.ortmodule").ORTModule
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
