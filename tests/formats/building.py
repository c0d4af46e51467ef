"""Small ModelProtos for the tests of readers and writers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def info(name: str, shape: Any = (2,), dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def tensor(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def model_of(
    nodes: Any,
    inputs: Any = None,
    outputs: Any = None,
    initializers: Any = (),
    opsets: Any = (("", 17),),
    ir_version: int = 8,
    functions: Any = (),
    **graph: Any,
) -> onnx.ModelProto:
    made = helper.make_graph(
        list(nodes),
        "g",
        [info("x")] if inputs is None else list(inputs),
        [info("y")] if outputs is None else list(outputs),
        list(initializers),
        **graph,
    )
    imports = [helper.make_opsetid(*one) for one in opsets]
    return helper.make_model(made, opset_imports=imports, ir_version=ir_version, functions=list(functions))


def relu(source: str = "x", result: str = "y", **more: Any) -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], **more)


def add(left: str, right: str, result: str = "y", **more: Any) -> onnx.NodeProto:
    return helper.make_node("Add", [left, right], [result], **more)


def external_model(initializer: str = "w", dims: Any = (2,), dtype: int = TensorProto.FLOAT, **entries: Any) -> onnx.ModelProto:
    """x + w, with w in an external file."""
    proto = TensorProto(name=initializer, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        proto.external_data.add(key=key, value=str(value))
    return model_of([add("x", initializer, name="sum")], initializers=[proto])
