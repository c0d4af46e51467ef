"""SmoothQuant: outliers of activations move into the weights that multiply them, where quantization bears them better.

After Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models" (2022): channel j of an
activation is divided by max|X_j|^α / max|W_j|^(1−α), and row j of the weights multiplied by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import models
from sardonyx.quantization.observation import observe, second_reader
from sardonyx.quantization.onnx_model import ONNXModel

LEAST = 1e-5


def smooth_model(model: ModelProto, reader: Any, alpha: float = 0.5, folding: bool = True) -> ModelProto:
    """A smoothed copy. With `folding` only activations of LayerNormalization are smoothed, whose scale takes the factors in;
    without, every input of a MatMul gets a Mul before it."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"SmoothQuantAlpha is between 0 and 1, got {alpha}")
    smoothed = models.load(model)
    wrapped = ONNXModel(smoothed)
    groups = {name: nodes for name, nodes in _products(wrapped).items() if not folding or _can_fold(wrapped, name, nodes)}
    if not groups:
        return smoothed
    largest: dict[str, np.ndarray] = {}
    for batch in observe(model, sorted(groups), second_reader(reader), "smoothing"):
        for name, array in batch.items():
            magnitudes = np.abs(array.reshape(-1, array.shape[-1])).max(axis=0, initial=0.0)
            largest[name] = np.maximum(largest[name], magnitudes) if name in largest else magnitudes
    if hasattr(reader, "rewind"):
        reader.rewind()
    for name, nodes in groups.items():
        _smooth(wrapped, name, nodes, largest[name], alpha, folding)
    wrapped.topological_sort()  # once: it makes new nodes, and those of the groups would be no part of the model
    return smoothed


def _products(model: ONNXModel) -> dict[str, list[NodeProto]]:
    """Values that MatMul multiplies by weights of their own, with these nodes."""
    weights = {tensor.name: tensor for tensor in model.initializer() if len(tensor.dims) == 2}
    readers = model.input_name_to_nodes()
    groups: dict[str, list[NodeProto]] = {}
    for node in model.nodes():
        is_product = node.op_type == "MatMul" and node.input[1] in weights and node.input[0] not in weights
        if is_product and len(readers[node.input[1]]) == 1:
            groups.setdefault(node.input[0], []).append(node)
    return groups


def _can_fold(model: ONNXModel, name: str, nodes: list[NodeProto]) -> bool:
    """Whether a LayerNormalization makes the value, and these products alone read it and its scale and bias."""
    writer = model.output_name_to_node().get(name)
    if writer is None or writer.op_type != "LayerNormalization" or model.is_graph_output(name):
        return False
    readers = model.input_name_to_nodes()
    parameters = [parameter for parameter in writer.input[1:3] if parameter]
    is_alone = len(readers[name]) == len(nodes) and all(len(readers[parameter]) == 1 for parameter in parameters)
    return is_alone and all(model.get_initializer(parameter) is not None for parameter in parameters)


def _smooth(model: ONNXModel, name: str, nodes: list[NodeProto], largest: np.ndarray, alpha: float, folding: bool) -> None:
    tensors = [_initializer(model, node.input[1]) for node in nodes]
    weights = np.maximum.reduce([np.abs(numpy_helper.to_array(tensor)).max(axis=1) for tensor in tensors])
    factors = np.maximum(largest, LEAST) ** alpha / np.maximum(weights, LEAST) ** (1 - alpha)
    factors = np.clip(factors, LEAST, 1 / LEAST).astype(np.float32)
    for tensor in tensors:
        _multiply(tensor, factors[:, None])
    if folding:
        writer = model.output_name_to_node()[name]
        for parameter in filter(None, writer.input[1:3]):
            _multiply(_initializer(model, parameter), 1 / factors)
    else:
        _insert_mul(model, name, nodes, 1 / factors)


def _initializer(model: ONNXModel, name: str) -> TensorProto:
    tensor = model.get_initializer(name)
    assert tensor is not None
    return tensor


def _multiply(tensor: TensorProto, factors: np.ndarray) -> None:
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((array * factors).astype(array.dtype), tensor.name))


def _insert_mul(model: ONNXModel, name: str, nodes: list[NodeProto], factors: np.ndarray) -> None:
    dtype = numpy_helper.to_array(_initializer(model, nodes[0].input[1])).dtype
    scale, result = f"{name}_smooth_scale", f"{name}_smooth_output"
    model.add_initializer(numpy_helper.from_array(factors.astype(dtype), scale))
    for node in nodes:
        model.replace_node_input(node, name, result)
    model.add_node(helper.make_node("Mul", [name, scale], [result], f"{name}_smooth_mul"))
