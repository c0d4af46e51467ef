"""Data of models apart from their structure."""

from __future__ import annotations

from onnx import ModelProto, TensorProto, external_data_helper, numpy_helper

from sardonyx.runtime.api.value import OrtValue
from sardonyx.transformers.onnx_model import OnnxModel

ELSEWHERE = "in_memory.bin"
"""The file that a model names for data that `add_external_initializers` gives."""


def extract_raw_data_from_model(model: ModelProto) -> tuple[tuple[str, ...], tuple[OrtValue, ...]]:
    """Take the raw data of initializers out of a model: names and values for `SessionOptions.add_external_initializers`.

    The model keeps types and shapes, and says that the data is elsewhere.
    """
    data = {}
    for graph in OnnxModel(model).graphs():
        for tensor in graph.initializer:
            if tensor.HasField("raw_data"):
                data[tensor.name] = OrtValue.ortvalue_from_numpy(numpy_helper.to_array(tensor))
                external_data_helper.set_external_data(tensor, location=ELSEWHERE)
                tensor.ClearField("raw_data")
    return tuple(data), tuple(data.values())


def has_external_data(model: ModelProto) -> bool:
    """Whether data of an initializer is outside of the model."""
    graphs = OnnxModel(model).graphs()
    return any(tensor.data_location == TensorProto.EXTERNAL for graph in graphs for tensor in graph.initializer)
