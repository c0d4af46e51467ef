"""A quantized model beside its float one: errors of outputs, layer by layer, and of weights, and which layers to leave in float.

A model may stand beside itself too, opened in two ways.

Sums of squares are kept, so memory does not grow with the data. `sardonyx compare` prints what this finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import models
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.quantization.progress import progress
from sardonyx.quantization.qdq_loss_debug import compute_weight_error, create_weight_matching, decibels
from sardonyx.quantization.values import DEQUANT_OP_NAME, QUANT_OP_NAME, add_dequant_output_suffix
from sardonyx.runtime.api.session import InferenceSession

SEEN = "_seen_by_compare"
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
Open = Callable[[str], Any]
"""Makes a session of a file."""


def open_session(path: str) -> InferenceSession:
    return InferenceSession(path, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class OutputError:
    """How far an output is from the float model's, over all data."""

    name: str
    largest: float
    mean: float
    ratio: float
    """Signal to noise in decibels."""


@dataclass(frozen=True)
class LayerError:
    """The same of an inner tensor; `drop` is how many decibels it has lost against the worst of its inputs."""

    node: str
    op_type: str
    tensor: str
    ratio: float
    drop: float


@dataclass(frozen=True)
class Comparison:
    outputs: list[OutputError]
    layers: list[LayerError]
    weights: dict[str, float]

    @property
    def ratio(self) -> float:
        """The worst output's."""
        return min((output.ratio for output in self.outputs), default=math.inf)


class _Sums:
    """Squares of a signal and of its error, summed over batches."""

    def __init__(self) -> None:
        self.signal = self.noise = self.absolute = self.largest = 0.0
        self.count = 0

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        wanted, got = reference.astype(np.float64).ravel(), other.astype(np.float64).ravel()
        if wanted.shape != got.shape:
            raise ValueError(f"a tensor of the float model has {wanted.size} elements, the quantized one {got.size}")
        error = np.abs(wanted - got)
        self.signal += float(wanted @ wanted)
        self.noise += float(error @ error)
        self.absolute += float(error.sum())
        self.largest = max(self.largest, float(error.max(initial=0.0)))
        self.count += wanted.size

    @property
    def ratio(self) -> float:
        return decibels(math.sqrt(self.signal), math.sqrt(self.noise))


def compare_models(float_model: str | Path | ModelProto, quantized_model: str | Path | ModelProto, reader: Any) -> Comparison:
    """Run both models on all that the reader gives."""
    reference, quantized = models.load(float_model), models.load(quantized_model)
    outputs = _common_outputs(reference, quantized)
    forms = quantized_forms(reference, quantized)
    sums = _run_both(reference, quantized, outputs, forms, reader)
    errors = _output_errors(outputs, sums)
    layers = _layers(reference, {name: sums[name].ratio for name in forms})
    weights = compute_weight_error(create_weight_matching(reference, quantized))
    return Comparison(errors, layers, dict(sorted(weights.items(), key=lambda item: item[1])))


def compare_runtimes(model: str | Path | ModelProto, reader: Any, reference: Open, other: Open) -> Comparison:
    """Run one model in two ways on all that the reader gives: its outputs as it is, its layers with each inner value as an output."""
    loaded = models.load(model)
    outputs = _common_outputs(loaded, loaded)
    inner = {name: name for node in loaded.graph.node for name in node.output if name}
    whole = _run_both(loaded, loaded, outputs, {}, reader, reference, other)
    reader.rewind()
    layers = _run_both(loaded, loaded, outputs, dict(inner), reader, reference, other)
    ratios = {name: layers[name].ratio for name in inner if layers[name].count}
    return Comparison(_output_errors(outputs, whole), _layers(loaded, ratios), {})


def _output_errors(outputs: Sequence[str], sums: dict[str, _Sums]) -> list[OutputError]:
    pairs = ((name, sums[name]) for name in outputs)
    return [OutputError(name, one.largest, one.absolute / max(one.count, 1), one.ratio) for name, one in pairs]


def _common_outputs(reference: ModelProto, quantized: ModelProto) -> list[str]:
    theirs = {value.name for value in quantized.graph.output}
    common = [value.name for value in reference.graph.output if value.name in theirs and _is_float(value)]
    if not common:
        raise ValueError("the models have no output of floats in common")
    return common


def _is_float(value: Any) -> bool:
    return value.type.tensor_type.elem_type in FLOATS


def quantized_forms(reference: ModelProto, quantized: ModelProto) -> dict[str, str]:
    """Inner tensors of the float model, and what holds them in the quantized one: after a pair, as codes, or as they are."""
    there = {name for node in quantized.graph.node for name in node.output}
    forms = {}
    for node in reference.graph.node:
        for name in node.output:
            candidates = (add_dequant_output_suffix(name), name, f"{name}_quantized")
            held = next((candidate for candidate in candidates if candidate in there), None)
            if held is not None:
                forms[name] = held
            elif node.op_type in ("Relu", "Clip") and node.input[0] in forms:
                forms[name] = forms.pop(node.input[0])  # the node is gone, and its input holds what it gave
    return forms


def _parameters_of_codes(model: ModelProto) -> dict[str, tuple[str, str]]:
    """The scale and zero point of each tensor of codes: in nodes they stand behind it, or before the end of the one that makes it."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    found: dict[str, tuple[str, str]] = {}
    for node in model.graph.node:
        for name, scale, zero_point in zip(node.input, node.input[1:], node.input[2:]):
            is_pair = scale in tensors and zero_point in tensors and tensors[scale].data_type in FLOATS
            if is_pair and name not in tensors and len(tensors[scale].dims) == len(tensors[zero_point].dims):
                found.setdefault(name, (scale, zero_point))
    return found


def _run_both(
    reference: ModelProto,
    quantized: ModelProto,
    outputs: Sequence[str],
    forms: dict[str, str],
    reader: Any,
    open_left: Open = open_session,
    open_right: Open = open_session,
) -> dict[str, _Sums]:
    parameters = _parameters_of_codes(quantized)
    wanted = {name: form for name, form in forms.items() if not form.endswith("_quantized") or form in parameters}
    for name in set(forms) - set(wanted):
        del forms[name]
    names = list(dict.fromkeys([*outputs, *wanted]))
    sources = {**wanted, **{name: name for name in outputs}}
    sums = {name: _Sums() for name in names}
    with models.temporary_folder() as folder:
        left = open_left(_seeing(reference, {name: name for name in names}, {}, Path(folder) / "float.onnx"))
        right = open_right(_seeing(quantized, sources, parameters, Path(folder) / "quantized.onnx"))
        batches = 0
        for feed in progress(iter(reader.get_next, None), None, "comparing"):
            batches += 1
            pairs = zip(
                names, left.run([name + SEEN for name in names], feed), right.run([name + SEEN for name in names], feed)
            )
            for name, expected, got in pairs:
                if isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
                    sums[name].add(expected, got)
    if not batches:
        raise ValueError("there is no data to compare the models with")
    return sums


def _seeing(model: ModelProto, sources: dict[str, str], parameters: dict[str, tuple[str, str]], path: Path) -> str:
    """Write a model that gives each wanted tensor as a float."""
    extended = models.load(model)
    for name, source in sources.items():
        if source in parameters and source.endswith("_quantized"):
            node = helper.make_node(DEQUANT_OP_NAME, [source, *parameters[source]], [name + SEEN])
        else:
            node = helper.make_node("Identity", [source], [name + SEEN])
        extended.graph.node.append(node)
        extended.graph.output.append(helper.make_empty_tensor_value_info(name + SEEN))
    models.save(extended, path)
    return str(path)


def _layers(reference: ModelProto, ratios: dict[str, float]) -> list[LayerError]:
    layers = []
    for node in reference.graph.node:
        for name in node.output:
            if name in ratios:
                inputs = [ratios[source] for source in node.input if source in ratios]
                drop = max(min(inputs) - ratios[name], 0.0) if inputs else 0.0
                layers.append(LayerError(node.name, node.op_type, name, ratios[name], drop))
    return layers


@dataclass(frozen=True)
class Suggestion:
    """Nodes to leave in float, the ratio of the worst output with them, and whether that is enough."""

    nodes: list[str]
    ratio: float
    is_enough: bool


def suggest(
    float_model: str | Path | ModelProto,
    qdq_model: str | Path | ModelProto,
    reader: Any,
    wanted: float,
    found: Comparison | None = None,
) -> Suggestion:
    """The fewest nodes, those that lose most first, that must stay in float for the wanted ratio. The reader must be able to rewind."""
    reference, quantized = models.load(float_model), models.load(qdq_model)
    if not any(node.op_type == QUANT_OP_NAME for node in quantized.graph.node):
        raise ValueError("layers can be suggested for models with pairs of QuantizeLinear and DequantizeLinear (QDQ)")
    if found is None:
        found = compare_models(reference, quantized, reader)
        reader.rewind()
    if found.ratio >= wanted:
        return Suggestion([], found.ratio, True)
    order = _candidates(quantized, found)
    low, high = 0, len(order)
    best = Suggestion(order, _ratio_without(reference, quantized, order, reader), False)
    if best.ratio < wanted:
        return best
    while low + 1 < high:  # with `high` nodes it is enough, with `low` it is not
        middle = (low + high) // 2
        ratio = _ratio_without(reference, quantized, order[:middle], reader)
        if ratio >= wanted:
            high, best = middle, Suggestion(order[:middle], ratio, True)
        else:
            low = middle
    return Suggestion(best.nodes[:high], best.ratio, True)


def _candidates(quantized: ModelProto, found: Comparison) -> list[str]:
    """Names of nodes that read dequantized values, those with the largest drop first."""
    dequantized = {name for node in quantized.graph.node if node.op_type == DEQUANT_OP_NAME for name in node.output}
    drops: dict[str, float] = {}
    for layer in found.layers:
        drops[layer.node] = max(drops.get(layer.node, 0.0), layer.drop)
    nodes = [node for node in quantized.graph.node if node.name and node.op_type not in (QUANT_OP_NAME, DEQUANT_OP_NAME)]
    names = [node.name for node in nodes if any(source in dequantized for source in node.input)]
    return sorted(names, key=lambda name: -drops.get(name, 0.0))


def _ratio_without(reference: ModelProto, quantized: ModelProto, nodes: Sequence[str], reader: Any) -> float:
    reader.rewind()
    sums = _run_both(reference, leave_in_float(reference, quantized, nodes), _common_outputs(reference, quantized), {}, reader)
    return min(one.ratio for one in sums.values())


def leave_in_float(reference: ModelProto, quantized: ModelProto, nodes: Sequence[str]) -> ModelProto:
    """A copy of a QDQ model in which some nodes read floats: values before their pairs, weights of the float model."""
    hybrid = models.load(quantized)
    wrapped = ONNXModel(hybrid)
    tensors = {tensor.name: tensor for tensor in reference.graph.initializer}
    originals = {node.name: node for node in reference.graph.node if node.name}
    before = _values_before_pairs(hybrid)
    added: dict[str, str] = {}
    for node in hybrid.graph.node:
        if node.name not in set(nodes):
            continue
        for position, source in enumerate(node.input):
            original = _weight_behind(source, position, originals.get(node.name), tensors)
            if source in before:
                node.input[position] = before[source]
            elif original is not None:
                node.input[position] = added.setdefault(original, f"{original}_float")
    for name, copy in added.items():
        wrapped.add_initializer(numpy_helper.from_array(numpy_helper.to_array(tensors[name]), copy))
    return hybrid


def _values_before_pairs(model: ModelProto) -> dict[str, str]:
    quantized = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == QUANT_OP_NAME}
    pairs = (node for node in model.graph.node if node.op_type == DEQUANT_OP_NAME and node.input[0] in quantized)
    return {node.output[0]: quantized[node.input[0]] for node in pairs}


def _weight_behind(source: str, position: int, original: NodeProto | None, tensors: dict[str, TensorProto]) -> str | None:
    """The float weight that a node of the float model has at this input, if it has one there."""
    if original is None or position >= len(original.input) or not source:
        return None
    name = str(original.input[position])
    return name if name in tensors and tensors[name].data_type in FLOATS else None
