"""Where accuracy is lost: activations and weights of a float model beside those of its QDQ form, as signal-to-noise ratios.

modify_model_output_intermediate_tensors(float, …); collect_activations(…)      for both models
create_activation_matching(…), compute_activation_error(…)                      and the same for weights
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sardonyx.quantization import models
from sardonyx.quantization.calibrate import CalibraterBase, CalibrationDataReader
from sardonyx.quantization.progress import progress
from sardonyx.quantization.values import (
    DEQUANT_OP_NAME,
    DEQUANT_OUTPUT_SUFFIX,
    QUANT_INPUT_SUFFIX,
    TENSOR_NAME_QUANT_SUFFIX,
)
from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession

SAVED = "_ReshapedSavedOutput"
SHAPE = "LinearReshape"
Arrays = Sequence[np.ndarray]


def modify_model_output_intermediate_tensors(
    input_model_path: str | Path,
    output_model_path: str | Path,
    op_types_for_saving: Sequence[str] | None = None,
    save_as_external_data: bool = False,
) -> None:
    """Write a model that also gives its inner float tensors, each flattened, as outputs."""
    base = CalibraterBase(input_model_path, op_types_to_calibrate=op_types_for_saving)
    model = base.model
    selected, declared = base.select_tensors_to_calibrate(model)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), SHAPE))
    for name in sorted(selected):
        node = helper.make_node("Reshape", [name, SHAPE], [name + SAVED], name + SAVED)
        model.graph.node.append(node)
        element_type = declared[name].type.tensor_type.elem_type
        model.graph.output.append(helper.make_tensor_value_info(name + SAVED, element_type, [None]))
    models.save(model, output_model_path, save_as_external_data)


def collect_activations(
    augmented_model: str | Path,
    input_reader: CalibrationDataReader,
    session_options: Any = None,
    execution_providers: Sequence[str] | None = None,
) -> dict[str, list[np.ndarray]]:
    """Run an augmented model on all feeds: the flattened tensors by name, one of each batch."""
    collected: dict[str, list[np.ndarray]] = {}
    for batch in activations_of_batches(augmented_model, input_reader, session_options, execution_providers):
        for name, array in batch.items():
            collected.setdefault(name, []).append(array)
    return collected


def activations_of_batches(
    augmented_model: str | Path,
    input_reader: Any,
    session_options: Any = None,
    execution_providers: Sequence[str] | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """The same batch by batch, for those who need not keep them."""
    if session_options is None:
        session_options = SessionOptions()
        session_options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = list(execution_providers or ["CPUExecutionProvider"])
    session = InferenceSession(str(augmented_model), session_options, providers=providers)
    names = [value.name for value in session.get_outputs() if value.name.endswith(SAVED)]
    for feed in progress(iter(input_reader), None, "collecting activations"):
        arrays = session.run(names, feed)
        yield {name.removesuffix(SAVED): array for name, array in zip(names, arrays)}


def create_activation_matching(
    qdq_activations: dict[str, Arrays], float_activations: dict[str, Arrays] | None = None
) -> dict[str, dict[str, Arrays]]:
    """For each quantized tensor its values before and after its pair, and those of the float model."""
    matching: dict[str, dict[str, Arrays]] = {}
    for name, values in qdq_activations.items():
        pair = _pair(name, values, qdq_activations)
        if pair is not None:
            matching[pair[0]] = {"pre_qdq": pair[1], "post_qdq": pair[2]}
    for name, pair_values in matching.items():
        if float_activations is not None and name in float_activations:
            pair_values["float"] = float_activations[name]
    return matching


def _pair(name: str, values: Arrays, activations: dict[str, Arrays]) -> tuple[str, Arrays, Arrays] | None:
    """(tensor, before, after): inner tensors keep their names before the pair, outputs of the graph after it."""
    if name.endswith(QUANT_INPUT_SUFFIX):
        own = name.removesuffix(QUANT_INPUT_SUFFIX)
        return (own, values, activations[own]) if own in activations else None
    if name.endswith(DEQUANT_OUTPUT_SUFFIX):
        own = name.removesuffix(DEQUANT_OUTPUT_SUFFIX)
        return (own, activations[own], values) if own in activations else None
    return None


def create_weight_matching(
    float_model_path: str | Path | onnx.ModelProto, qdq_model_path: str | Path | onnx.ModelProto
) -> dict[str, dict[str, np.ndarray]]:
    """For each quantized weight and bias its floats and what its codes mean."""
    float_weights = {tensor.name: tensor for tensor in models.load(float_model_path).graph.initializer}
    qdq_model = models.load(qdq_model_path)
    tensors = {tensor.name: tensor for tensor in qdq_model.graph.initializer}
    matching = {}
    for node in qdq_model.graph.node:
        codes = node.input[0] if node.op_type == DEQUANT_OP_NAME else ""
        name = codes.removesuffix(TENSOR_NAME_QUANT_SUFFIX)
        if codes in tensors and name in float_weights and codes != name:
            matching[name] = {
                "float": numpy_helper.to_array(float_weights[name]),
                "dequantized": dequantized(node, tensors),
            }
    return matching


def dequantized(node: Any, tensors: dict[str, TensorProto]) -> np.ndarray:
    """What a DequantizeLinear of initializers gives."""
    codes, scale = (numpy_helper.to_array(tensors[name]) for name in node.input[:2])
    has_zero = len(node.input) > 2 and node.input[2] in tensors
    zero_point = numpy_helper.to_array(tensors[node.input[2]]) if has_zero else np.zeros_like(scale)
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    axis, block_size = attributes.get("axis", 1), attributes.get("block_size", 0)
    if block_size:
        scale, zero_point = (
            np.repeat(one, block_size, axis).take(range(codes.shape[axis]), axis) for one in (scale, zero_point)
        )
    elif scale.ndim and scale.size > 1:
        shape = [-1 if index == axis % codes.ndim else 1 for index in range(codes.ndim)]
        scale, zero_point = scale.reshape(shape), np.broadcast_to(zero_point, scale.shape).reshape(shape)
    wide = np.float64 if codes.dtype == np.int32 else np.float32
    return np.asarray((codes.astype(wide) - zero_point.astype(wide)) * scale)


def compute_signal_to_quantization_noice_ratio(x: Arrays | np.ndarray, y: Arrays | np.ndarray) -> float:
    """20 · log10 of the length of x over that of its difference to y, in decibels; of all tensors of a list together."""
    left = [x] if isinstance(x, np.ndarray) else list(x)
    right = [y] if isinstance(y, np.ndarray) else list(y)
    if len(left) != len(right):
        raise RuntimeError(f"{len(left)} tensors cannot be compared with {len(right)}")
    reference = np.concatenate([np.asarray(array).ravel() for array in left])
    other = np.concatenate([np.asarray(array).ravel() for array in right])
    return decibels(float(np.linalg.norm(reference)), float(np.linalg.norm(reference - other)))


def decibels(signal: float, noise: float) -> float:
    """A ratio of lengths in decibels; what is zero counts as the least number there is."""
    least = float(np.finfo("float").eps)
    return 20.0 * math.log10(max(signal, least) / max(noise, least))


def compute_weight_error(
    weights_match: dict[str, dict[str, np.ndarray]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, float]:
    """The ratio of each weight."""
    return {name: err_func(pair["float"], pair["dequantized"]) for name, pair in weights_match.items()}


def compute_activation_error(
    activations_match: dict[str, dict[str, Arrays]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, dict[str, float]]:
    """Two ratios of each tensor: what its own pair costs (`qdq_err`), and what all pairs up to it do (`xmodel_err`)."""
    errors = {}
    for name, match in activations_match.items():
        errors[name] = {"qdq_err": err_func(match["pre_qdq"], match["post_qdq"])}
        if "float" in match:
            errors[name]["xmodel_err"] = err_func(match["float"], match["post_qdq"])
    return errors
