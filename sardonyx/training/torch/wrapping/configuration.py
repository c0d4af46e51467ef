"""Settings of an ORTModule from a JSON file. `json_config` shows it to users."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sardonyx.training.torch.wrapping.debug_options import DebugOptions, LogLevel
from sardonyx.training.torch.wrapping.fallback import FallbackPolicy
from sardonyx.training.torch.wrapping.module import ORTModule, reconfigure

PATH_VARIABLE = "ORTMODULE_JSON_CONFIG_PATH"
UNUSED: Mapping[str, type] = {
    "PropagateCastOps": dict,
    "UseExternalGPUAllocator": bool,
    "EnableCustomAutogradFunction": bool,
    "EnableGradAccOptimization": bool,
    "RunSymbolicShapeInference": bool,
    "UseStaticShape": bool,
    "UseMemoryEfficientGradient": bool,
    "SkipCheck": list,
    "OnnxOpsetVersion": int,
}
"""Settings of the original that decide nothing here, with their types."""
DEBUG = {"LogLevel": "log_level", "SaveONNX": "save_onnx", "ONNXPrefix": "onnx_prefix", "SaveONNXPath": "save_path"}
"""The names in the file of what DebugOptions takes."""


def load_from_json(ortmodule: ORTModule, path: str | os.PathLike[str] | None = None) -> None:
    """Let a module have the settings of a file. The environment variable ORTMODULE_JSON_CONFIG_PATH wins over `path`."""
    chosen = os.environ.get(PATH_VARIABLE) or path
    if chosen is None:
        raise ValueError(f"Path to json is not provided. Give it to load_from_json, or set {PATH_VARIABLE}.")
    settings = json.loads(Path(chosen).read_text(encoding="utf-8"))
    if not isinstance(settings, dict):
        raise ValueError(f"{os.fspath(chosen)} must hold one JSON object, it holds {settings!r}")
    for name, value in settings.items():
        _check(name, value)
    debug_options = _debug_options(settings["DebugOptions"]) if "DebugOptions" in settings else None
    names = settings.get("FallbackPolicy")
    reconfigure(ortmodule, debug_options, FallbackPolicy.read("|".join(names)) if names else None)


def _check(name: str, value: Any) -> None:
    kinds = {**UNUSED, "DebugOptions": dict, "FallbackPolicy": list}
    if name not in kinds:
        raise KeyError(f"{name!r} is no setting of ORTModule. There are {', '.join(sorted(kinds))}.")
    if not isinstance(value, kinds[name]):
        raise ValueError(f"the setting {name!r} must be of type {kinds[name].__name__}, it is {value!r}")


def _debug_options(settings: Mapping[str, Any]) -> DebugOptions:
    unknown = settings.keys() - DEBUG.keys()
    if unknown:
        raise KeyError(f"DebugOptions has no {', '.join(sorted(unknown))}. There are {', '.join(DEBUG)}.")
    given = {DEBUG[name]: value for name, value in settings.items()}
    level = given.get("log_level", LogLevel.WARNING.name)
    if level not in LogLevel.__members__:
        raise ValueError(f"LogLevel must be one of {', '.join(LogLevel.__members__)}, it is {level!r}")
    return DebugOptions(**{**given, "log_level": LogLevel[level]})
