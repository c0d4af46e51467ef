"""ORTModule and what belongs to it, under the names of `onnxruntime.training.ortmodule`. Needs PyTorch: the extra `train`."""

from __future__ import annotations

import sys
import types
from typing import Any

from sardonyx.training.torch.wrapping.debug_options import DebugOptions, LogLevel
from sardonyx.training.torch.wrapping.fallback import (
    FallbackPolicy as _FallbackPolicy,
)
from sardonyx.training.torch.wrapping.fallback import (
    ORTModuleDeviceException,
    ORTModuleFallbackException,
    ORTModuleInitException,
    ORTModuleIOError,
    ORTModuleONNXModelException,
    ORTModuleTorchModelException,
)
from sardonyx.training.torch.wrapping.module import ORTModule
from sardonyx.training.torch.wrapping.settings import Constants as _Constants

__all__ = [
    "DebugOptions",
    "LogLevel",
    "ORTModule",
    "ORTModuleDeviceException",
    "ORTModuleFallbackException",
    "ORTModuleIOError",
    "ORTModuleInitException",
    "ORTModuleONNXModelException",
    "ORTModuleTorchModelException",
    "_FallbackPolicy",
]


class _Namespace(types.ModuleType):
    """The module itself: constants that users assign are those that ORTModule reads."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(_Constants, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_Constants, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and hasattr(_Constants, name):
            setattr(_Constants, name, value)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Namespace
