"""The model that blocks add to: one at a time in a process."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

import onnx

DEFAULT_OPSET = 17
IR_VERSION = 10


class CurrentModel:
    """A model that is being built, and where it came from."""

    def __init__(self, model: onnx.ModelProto, path: str | os.PathLike[str] | None = None):
        self.model = model
        self.path = None if path is None else os.fspath(path)


_current: CurrentModel | None = None
_numbers = itertools.count()


def current() -> Any:
    """The current model; None outside of `base` and `empty_base`."""
    return _current


def unique(stem: str) -> str:
    """A name that nothing else has, such as `onnx::add_output::12`."""
    return f"onnx::{stem}::{next(_numbers)}"


@contextlib.contextmanager
def base(model: onnx.ModelProto, model_path: str | os.PathLike[str] | None = None) -> Iterator[CurrentModel]:
    """Let blocks add to a copy of `model`. `model_path` is where its external data lies."""
    global _current
    if _current is not None:
        raise RuntimeError("Base onnx model already exists. Cannot create multiple ModelAccessors.")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _current = CurrentModel(copy, model_path)
    try:
        yield _current
    finally:
        _current = None


@contextlib.contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[CurrentModel]:
    """Let blocks begin with an empty model."""
    graph = onnx.helper.make_graph([], "graph", [], [])
    opsets = [onnx.helper.make_opsetid("com.microsoft", 1), onnx.helper.make_opsetid("", opset_version or DEFAULT_OPSET)]
    model = onnx.helper.make_model(graph, producer_name="sardonyx", opset_imports=opsets, ir_version=IR_VERSION)
    with base(model) as made:
        yield made


@contextlib.contextmanager
def custom_op_library(custom_op_library_path: str | os.PathLike[str]) -> Iterator[None]:
    """Libraries of compiled ops cannot be loaded here."""
    raise RuntimeError(
        f"{os.fspath(custom_op_library_path)}: libraries of compiled ops are not supported. "
        "Register the op with sardonyx.register_custom_op instead."
    )
    yield
