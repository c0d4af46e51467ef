"""The classes of ONNX's protobuf messages: reading and writing `.onnx` files goes through `messages`."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

from sardonyx.errors import Fail

PACKAGE = "onnx"
MODULE = "onnx_ml_pb2"
"""What protobuf's compiler made of the format's definition; it needs nothing of the package around it."""


def messages() -> Any:
    """Where `ModelProto`, `TensorProto`, … are; raises `Fail` where the onnx package is not installed."""
    try:
        return _messages()
    except ImportError as error:
        raise Fail(
            f"ONNX files need the package onnx, which does not work here ({error}): 'pip install onnx'. Models converted to the ORT "
            "format, where it is installed, run without: 'sardonyx convert model.onnx model.ort'."
        ) from error


@functools.cache
def _messages() -> Any:
    # the package's own __init__ loads far more: 50 ms against 15. The classes are the same when somebody imports it later
    if PACKAGE not in sys.modules:
        package = importlib.util.find_spec(PACKAGE)
        if package is None or package.origin is None:  # without origin: a folder of that name which merely lies here
            raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)
        path = Path(package.origin).with_name(f"{MODULE}.py")
        spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{MODULE}", path)
        if path.is_file() and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    import onnx

    return onnx
