"""The modules that programs for onnxruntime import by path below `onnxruntime.capi`, with what they hold there. Loaded on first use."""

from __future__ import annotations

import importlib
from typing import Any

_SUBMODULES = frozenset(
    {
        "_ld_preload",
        "_pybind_state",
        "block_quantizers",
        "build_and_package_info",
        "compatibility",
        "convert_npz_to_onnx_adapter",
        "onnxruntime_inference_collection",
        "onnxruntime_pybind11_state",
        "onnxruntime_validation",
        "opkernel",
        "schemadef",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _SUBMODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
