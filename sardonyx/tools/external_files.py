"""Models whose weights go into a file beside them: written so that the message in memory stays whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, ModelProto, TensorProto
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data


def save_beside(model: ModelProto, path: Path, location: str | None, **options: Any) -> None:
    """Write a model, and its weights to `location` beside it, or each to a file of its own if that is None.

    The onnx package takes what it writes out of the message, so that a second save would have nothing to write: it is read back.
    """
    tensors = list(_tensors(model.graph))
    held = [tensor for tensor in tensors if not uses_external_data(tensor)]
    if location is not None and not any(_is_left_in(tensor, location) for tensor in tensors):
        (path.parent / location).unlink(missing_ok=True)  # the onnx package appends to what is there
    all_in_one = location is not None
    onnx.save_model(
        model, os.fspath(path), save_as_external_data=True, all_tensors_to_one_file=all_in_one, location=location, **options
    )
    for tensor in held:
        if uses_external_data(tensor):
            load_external_data_for_tensor(tensor, os.fspath(path.parent))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def _is_left_in(tensor: TensorProto, location: str) -> bool:
    """Whether the data of a tensor is nowhere but in that file: the model was loaded without it."""
    return uses_external_data(tensor) and not tensor.HasField("raw_data") and ExternalDataInfo(tensor).location == location


def _tensors(graph: Any) -> Iterator[TensorProto]:
    """All tensors of a graph, of its nodes' attributes and of the graphs inside."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)
