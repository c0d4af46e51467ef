"""Training on ONNX files, under the names of `onnxruntime.training`: `artifacts` makes the files, `api` trains, `onnxblock` builds losses.

Each part is imported when it is first used; none needs PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

_SUBMODULES = ("api", "artifacts", "onnxblock")

__all__ = [*_SUBMODULES, "is_ortmodule_available"]


def is_ortmodule_available() -> bool:
    """Whether PyTorch modules can be wrapped: not yet."""
    return False


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
