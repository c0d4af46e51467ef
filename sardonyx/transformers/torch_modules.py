"""Modules of PyTorch under names of the original: importing them loads nothing, and an instance is a module of the PyTorch that is loaded.

`models` has the classes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sardonyx.transformers.torch_onnx_export_helper import loaded_torch


class TorchModule:
    """A class that becomes one of `torch.nn.Module` with its first instance."""

    def __new__(cls, *_arguments: Any, **_options: Any) -> Any:
        kind: Any = cls
        return object.__new__(_as_module(kind, loaded_torch().nn.Module))


@cache
def _as_module(cls: Any, module: Any) -> Any:
    """The class, derived from modules, too; copies and users' own classes are that already."""
    if issubclass(cls, module):
        return cls
    return type(cls.__name__, (cls, module), {"__module__": cls.__module__, "__doc__": cls.__doc__})
