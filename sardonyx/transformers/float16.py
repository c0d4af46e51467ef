"""Models into float16: weights, Constant nodes, inputs and outputs, with Casts around what must stay in float32."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.shape_inference import infer_shapes, infer_shapes_path

from sardonyx.tools.graph_queries import bodies

SMALLEST = 5.96e-08
LARGEST = 65504.0

DEFAULT_OP_BLOCK_LIST = [
    "ArrayFeatureExtractor",
    "Binarizer",
    "CastMap",
    "CategoryMapper",
    "DictVectorizer",
    "FeatureVectorizer",
    "Imputer",
    "LabelEncoder",
    "LinearClassifier",
    "LinearRegressor",
    "Normalizer",
    "OneHotEncoder",
    "RandomUniformLike",
    "SVMClassifier",
    "SVMRegressor",
    "Scaler",
    "TreeEnsembleClassifier",
    "TreeEnsembleRegressor",
    "TreeEnsemble",
    "ZipMap",
    "NonMaxSuppression",
    "TopK",
    "RoiAlign",
    "Range",
    "CumSum",
    "Min",
    "Max",
    "Upsample",
]
"""Ops that stay in float32 unless a caller names others: not all runtimes have kernels for their float16."""
ALWAYS_FLOAT_INPUTS = {"Resize": [2], "GroupNorm": [1, 2], "SkipGroupNorm": [1, 2]}
"""Inputs that are float32 whatever the op computes in."""
TYPED_OPS = ("EyeLike", "Multinomial", "RandomNormal", "RandomUniform", "SequenceEmpty", "Bernoulli")
"""Ops whose attribute `dtype` says what they make."""


# --- numbers


def convert_np_to_float16(
    np_array: np.ndarray, min_positive_val: float = SMALLEST, max_finite_val: float = LARGEST
) -> np.ndarray:
    """An array in float16. What is too small or too large becomes the nearest limit; zeros, infinities and NaN stay."""
    magnitude = np.abs(np_array)
    limited = np.clip(magnitude, min_positive_val, max_finite_val)
    kept = (magnitude == 0) | ~np.isfinite(np_array)
    return np.asarray(np.where(kept, np_array, np.copysign(limited, np_array)).astype(np.float16))


def convert_tensor_float_to_float16(
    tensor: TensorProto, min_positive_val: float = SMALLEST, max_finite_val: float = LARGEST
) -> TensorProto:
    """Change a tensor of float32 to float16; others stay as they are."""
    if not isinstance(tensor, TensorProto):
        raise ValueError(f"Expected input type is an ONNX TensorProto but got {type(tensor)}")
    if tensor.data_type == TensorProto.FLOAT:
        array = convert_np_to_float16(numpy_helper.to_array(tensor), min_positive_val, max_finite_val)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return tensor


def float_to_float16_max_diff(
    tensor: TensorProto, min_positive_val: float = SMALLEST, max_finite_val: float = LARGEST
) -> float:
    """How much a tensor changes at most."""
    if not isinstance(tensor, TensorProto):
        raise ValueError(f"Expected input type is an ONNX TensorProto but got {type(tensor)}")
    array = numpy_helper.to_array(tensor)
    if tensor.data_type != TensorProto.FLOAT or not array.size:
        return 0.0
    half = convert_np_to_float16(array, min_positive_val, max_finite_val)
    return float(np.abs(array - half.astype(np.float32)).max())


def make_value_info_from_tensor(tensor: TensorProto) -> ValueInfoProto:
    """The type of a tensor as a value."""
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


# --- models


class InitializerTracker:
    """A weight, and the nodes that read it in float32 and in float16."""

    def __init__(self, initializer: TensorProto):
        self.initializer = initializer
        self.fp32_nodes: list[NodeProto] = []
        self.fp16_nodes: list[NodeProto] = []

    def add_node(self, node: NodeProto, is_node_blocked: bool) -> None:
        """Remember a node that reads it; blocked ones stay in float32."""
        (self.fp32_nodes if is_node_blocked else self.fp16_nodes).append(node)


def convert_float_to_float16(
    model: ModelProto | str,
    min_positive_val: float = SMALLEST,
    max_finite_val: float = LARGEST,
    keep_io_types: bool | Sequence[str] = False,
    disable_shape_infer: bool = False,
    op_block_list: Collection[str] | None = None,
    node_block_list: Collection[str] | None = None,
    force_fp16_initializers: bool = False,
    force_fp16_inputs: Mapping[str, Sequence[int]] | None = None,
    use_bfloat16_as_blocked_nodes_dtype: bool = False,
) -> ModelProto:
    """The model in float16; a message is changed in place.

    `keep_io_types` keeps the types of all inputs and outputs, or of those named. Ops and nodes of the block lists stay in float32, or
    in bfloat16. `force_fp16_inputs` are inputs of ops, by position, that are float16 although the op wants float32 there.
    """
    smallest, largest = float(np.finfo(np.float16).smallest_subnormal), float(np.finfo(np.float16).max)
    assert min_positive_val >= smallest - 5e-11, (
        "invalid min_positive_val. smallest positive float16 value: subnormal 5.96e-08, and normalized 6.104e-05"
    )
    assert max_finite_val <= largest, "invalid max_finite_val. largest float16 value: 65504"
    loaded = _loaded(model, disable_shape_infer)
    conversion = Conversion(
        loaded,
        (min_positive_val, max_finite_val),
        DEFAULT_OP_BLOCK_LIST if op_block_list is None else op_block_list,
        node_block_list or (),
        force_fp16_initializers,
        force_fp16_inputs or {},
        TensorProto.BFLOAT16 if use_bfloat16_as_blocked_nodes_dtype else TensorProto.FLOAT,
    )
    conversion.run(keep_io_types)
    return loaded


def _loaded(model: ModelProto | str, without_inference: bool) -> ModelProto:
    """The model with types of inner values."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if without_inference:
            return onnx.load(os.fspath(path))
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".onnx") as file:
            infer_shapes_path(os.fspath(path), file.name)
            return onnx.load(file.name)
    if not isinstance(model, ModelProto):
        raise ValueError(f"Expected an ONNX ModelProto but got {type(model)}")
    if not without_inference:
        try:
            model.CopyFrom(infer_shapes(model))
        except ValueError:  # more than 2 GB
            return model
    return model


class Conversion:
    """One model on its way to float16."""

    def __init__(
        self,
        model: ModelProto,
        limits: tuple[float, float],
        blocked_ops: Collection[str],
        blocked_nodes: Collection[str],
        force_initializers: bool,
        forced_inputs: Mapping[str, Sequence[int]],
        wide: int,
    ):
        self.model = model
        self.limits = limits
        self.blocked_ops, self.blocked_nodes = set(blocked_ops), set(blocked_nodes)
        self.force_initializers = force_initializers
        self.forced_inputs = forced_inputs
        self.wide = wide
        """The type of what is not converted."""
        self.graphs = list(_graphs(model.graph))

    def run(self, keep_io_types: bool | Sequence[str]) -> None:
        graph = self.model.graph
        declared = [value for graph in self.graphs for value in _values(graph)]  # a name may be there twice
        floats = {value.name for value in declared if _is_float(value)}
        kept = self._kept(keep_io_types)
        self._cast_inputs(graph, kept, floats)
        self._cast_outputs(graph, kept, floats)
        nodes = [(graph, node) for graph in self.graphs for node in graph.node]
        read = self._read(nodes)
        floats -= {name for _, node in nodes if node.op_type == "Constant" for name in node.output if name not in read}
        for _, node in nodes:
            if not self._is_blocked(node) and not _is_boundary(node):
                self._convert_attributes(node, read)
        for value in declared:
            if value.name in floats - kept:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
        halves = self._convert_initializers(nodes)
        for graph, node in nodes:
            self._cast_around(graph, node, floats, halves)

    # --- inputs and outputs of the model

    def _kept(self, keep_io_types: bool | Sequence[str]) -> set[str]:
        graph = self.model.graph
        names = {value.name for value in (*graph.input, *graph.output) if _is_float(value)}
        constants = {tensor.name for tensor in graph.initializer}
        chosen = names if keep_io_types is True else names.intersection(keep_io_types or ())
        return chosen - constants

    def _cast_inputs(self, graph: GraphProto, kept: set[str], floats: set[str]) -> None:
        for number, value in enumerate(graph.input):
            if value.name in kept:
                inner = f"graph_input_cast_{number}"
                self._rename_uses(value.name, inner)
                self._add_cast(graph, value.name, inner, TensorProto.FLOAT16, f"graph_input_cast{number}")
                floats.add(inner)

    def _cast_outputs(self, graph: GraphProto, kept: set[str], floats: set[str]) -> None:
        for number, value in enumerate(graph.output):
            if value.name in kept:
                inner = f"graph_output_cast_{number}"
                self._rename_uses(value.name, inner)
                for node in graph.node:
                    node.output[:] = [inner if name == value.name else name for name in node.output]
                self._add_cast(graph, inner, value.name, TensorProto.FLOAT, f"graph_output_cast{number}")
                floats.add(inner)

    def _rename_uses(self, old: str, new: str) -> None:
        for graph in self.graphs:
            for node in graph.node:
                node.input[:] = [new if name == old else name for name in node.input]

    def _add_cast(self, graph: GraphProto, source: str, target: str, to: int, name: str) -> None:
        graph.node.append(helper.make_node("Cast", [source], [target], name=name, to=to))

    # --- nodes

    def _is_blocked(self, node: NodeProto) -> bool:
        return node.op_type in self.blocked_ops or node.name in self.blocked_nodes

    def _read(self, nodes: Sequence[tuple[GraphProto, NodeProto]]) -> set[str]:
        """What somebody reads; a Constant that nobody does stays as it is."""
        outputs = {value.name for graph in self.graphs for value in graph.output}
        return outputs | {name for _, node in nodes for name in node.input}

    def _convert_attributes(self, node: NodeProto, read: set[str]) -> None:
        if node.op_type == "Constant" and node.output[0] in read:
            _numbers_to_tensor(node)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                convert_tensor_float_to_float16(attribute.t, *self.limits)
            elif attribute.type == AttributeProto.TENSORS:
                for tensor in attribute.tensors:
                    convert_tensor_float_to_float16(tensor, *self.limits)
            elif attribute.i == TensorProto.FLOAT and (
                (node.op_type == "Cast" and attribute.name == "to") or (node.op_type in TYPED_OPS and attribute.name == "dtype")
            ):
                attribute.i = TensorProto.FLOAT16

    def _wide_inputs(self, node: NodeProto) -> set[int]:
        """Positions at which a node reads float32."""
        if self._is_blocked(node):
            return set(range(len(node.input)))
        return set(ALWAYS_FLOAT_INPUTS.get(node.op_type, ())) - set(self.forced_inputs.get(node.op_type, ()))

    # --- weights

    def _convert_initializers(self, nodes: Iterable[tuple[GraphProto, NodeProto]]) -> set[str]:
        """Convert what is read as float16 somewhere; the names of these."""
        used = {name for _, node in nodes for index, name in enumerate(node.input) if index not in self._wide_inputs(node)}
        halves = set()
        for tensor in (tensor for graph in self.graphs for tensor in graph.initializer):
            if tensor.data_type != TensorProto.FLOAT:
                continue
            if self.force_initializers or tensor.name in used:
                convert_tensor_float_to_float16(tensor, *self.limits)
                halves.add(tensor.name)
            elif self.wide != TensorProto.FLOAT:
                _to_bfloat16(tensor)
        return halves

    # --- casts

    def _cast_around(self, graph: GraphProto, node: NodeProto, floats: set[str], halves: set[str]) -> None:
        """Let a node that stays in float32 read and give float16."""
        if _is_boundary(node):
            return
        known = floats | halves
        for index in sorted(self._wide_inputs(node)):
            if index < len(node.input) and node.input[index] in known:
                inner = f"{node.name}_input_cast_{index}"
                self._add_cast(graph, node.input[index], inner, self.wide, f"{node.name}_input_cast{index}")
                node.input[index] = inner
        if not self._is_blocked(node):
            return
        for index, name in enumerate(node.output):
            if name in floats:
                inner = f"{node.name}_output_cast_{index}"
                self._add_cast(graph, inner, name, TensorProto.FLOAT16, f"{node.name}_output_cast{index}")
                node.output[index] = inner


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from _graphs(body)


def _values(graph: GraphProto) -> Iterable[ValueInfoProto]:
    return itertools.chain(graph.value_info, graph.input, graph.output)


def _is_float(value: ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type == TensorProto.FLOAT


def _is_boundary(node: NodeProto) -> bool:
    """Whether a node is one of our Casts of the model's inputs and outputs."""
    return node.op_type == "Cast" and node.name.startswith(("graph_input_cast", "graph_output_cast"))


def _to_bfloat16(tensor: TensorProto) -> None:
    array: Any = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _numbers_to_tensor(node: NodeProto) -> None:
    """Give a Constant of one or more floats its value as a tensor, which can be float16."""
    for attribute in list(node.attribute):
        if attribute.name in ("value_float", "value_floats"):
            array = np.asarray(helper.get_attribute_value(attribute), np.float32)
            node.attribute.remove(attribute)
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(array)))
