"""Replaces a model's weights by random ones, so that it can be shown: `python -m sardonyx.tools.onnx_randomizer -m MODEL -o NEW`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from sardonyx.tools.onnx_model_utils import iterate_graph_per_graph_func

LARGE = 100
"""Tensors of fewer elements may be shapes and other parameters, and stay."""
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def graph_iterator(model: ModelProto, func: Callable[[GraphProto], Any]) -> None:
    """Call a function with each graph of a model."""
    iterate_graph_per_graph_func(model.graph, func)


def randomize_graph_initializer(graph: GraphProto) -> None:
    """Give large weights of floats random values with the same mean and deviation."""
    rng = np.random.default_rng()
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.data_type in FLOATS and array.size >= LARGE:
            values = rng.normal(array.astype(np.float64).mean(), array.astype(np.float64).std(), array.shape)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(array.dtype), tensor.name))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Replace the weights of a model by random ones.")
    parser.add_argument("-m", required=True, help="path of the model")
    parser.add_argument("-o", required=True, help="path of the new model")
    parser.add_argument("--use_external_data_format", action="store_true", help="put weights into files beside the model")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="into one file")
    options = parser.parse_args(arguments)
    model = onnx.load(options.m)
    graph_iterator(model, randomize_graph_initializer)
    onnx.save_model(
        model,
        options.o,
        save_as_external_data=options.use_external_data_format,
        all_tensors_to_one_file=options.all_tensors_to_one_file,
    )


if __name__ == "__main__":
    main()
