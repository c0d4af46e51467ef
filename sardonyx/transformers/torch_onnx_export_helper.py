"""Modules of PyTorch as ONNX files. PyTorch itself exports: the one that made the module, for nothing here imports it."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from types import ModuleType
from typing import Any, BinaryIO

OLD_EXPORTER = {"dynamo": False, "fallback": False}
"""What chooses the exporter that traces, which takes `dynamic_axes`, where PyTorch has both."""


def loaded_torch() -> ModuleType:
    """PyTorch, which is loaded wherever there is a module of it."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise ImportError("PyTorch exports its modules, and it is not loaded: import torch first")
    return torch


def transformers_package() -> ModuleType:
    """The package that has the models; PyTorch is loaded, too, which the package itself does with its first model."""
    try:
        package = importlib.import_module("transformers")
        importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(
            "the models to be exported are of the package transformers: pip install transformers torch"
        ) from error
    return package


def torch_onnx_export(
    model: Any,
    args: Any,
    f: str | PathLike[str] | BinaryIO,
    export_params: bool = True,
    verbose: bool = False,
    training: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    operator_export_type: Any = None,
    opset_version: int | None = None,
    _retain_param_name: bool | None = None,
    do_constant_folding: bool = True,
    example_outputs: Any = None,
    strip_doc_string: bool | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    keep_initializers_as_inputs: bool | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    enable_onnx_checker: bool | None = None,
    use_external_data_format: bool | None = None,
    export_modules_as_functions: Any = False,
) -> None:
    """Export a module by tracing it. What is given and the installed PyTorch does not know, is passed over with a warning."""
    export = loaded_torch().onnx.export
    known = inspect.signature(export).parameters
    given = {name: value for name, value in locals().items() if name in OPTIONAL and value is not None and value is not False}
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        warnings.warn(f"PyTorch exports without {', '.join(unknown)}, which it does not know", stacklevel=2)
    options = {name: value for name, value in given.items() if name in known}
    options |= {name: value for name, value in OLD_EXPORTER.items() if name in known}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # of that exporter
        export(
            model,
            args,
            f,
            export_params=export_params,
            input_names=input_names,
            output_names=output_names,
            do_constant_folding=do_constant_folding,
            **options,
        )


OPTIONAL = frozenset(inspect.signature(torch_onnx_export).parameters) - {
    "model",
    "args",
    "f",
    "export_params",
    "input_names",
    "output_names",
    "do_constant_folding",
}
"""Arguments that are handed on if they are given."""
