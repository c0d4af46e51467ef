"""TensorFlow and the models of it that the transformers package has up to version 4, where both are installed.

`benchmark`, `onnx_exporter` and `convert_tf_models_to_pytorch` ask here; nothing else loads TensorFlow.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


def tensorflow_package() -> ModuleType:
    """TensorFlow."""
    return _package("tensorflow", "models of TensorFlow are run by it: pip install tensorflow")


def tf2onnx_package() -> ModuleType:
    """The exporter of TensorFlow's models."""
    return _package("tf2onnx", "models of TensorFlow are exported by tf2onnx: pip install tf2onnx")


def _package(name: str, way_out: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} cannot be imported ({error}); {way_out}") from error


def member_of_hub(hub: ModuleType, name: str) -> Any:
    """A class or function of the transformers package that is made for TensorFlow."""
    tensorflow_package()
    if not hasattr(hub, name):
        raise ImportError(
            f"transformers {hub.__version__} has no {name}: its version 5 left TensorFlow out; "
            "pip install 'transformers<5' tf-keras"
        )
    return getattr(hub, name)
