"""Modules of PyTorch under names of the original: importing them loads nothing, and an instance is a module of the PyTorch that is loaded.

`models` has the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from sardonyx.transformers.torch_onnx_export_helper import loaded_torch


class TorchModule:
    """A class that becomes one of `torch.nn.Module` with its first instance."""

    __call__: Callable[..., Any]

    def __new__(cls, *_arguments: Any, **_options: Any) -> Any:
        kind: Any = cls
        return object.__new__(derived(kind, loaded_torch().nn.Module))


@cache
def derived(cls: Any, base: Any) -> Any:
    """The class with one more base, which may be there already: copies and classes of users have it."""
    if issubclass(cls, base):
        return cls
    return type(cls.__name__, (cls, base), {"__module__": cls.__module__, "__doc__": cls.__doc__})
