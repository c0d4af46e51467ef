"""`qnn_preprocess_model`: bring a float model into the form that QNN likes, before it is quantized."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto, ValueInfoProto, helper

from sardonyx.quantization import models
from sardonyx.quantization.execution_providers.qnn.fusion_lpnorm import FusionLpNormalization
from sardonyx.quantization.execution_providers.qnn.fusion_spacetodepth import FusionSpaceToDepth
from sardonyx.quantization.fusions import FusionGelu, FusionLayerNormalization
from sardonyx.quantization.fusions.fusion import StageFusion
from sardonyx.quantization.onnx_model import ONNXModel, largest_suffix
from sardonyx.quantization.optimized import optimize_model

LAYERNORM_OPSET = 17
LOG = logging.getLogger(__name__)


def qnn_preprocess_model(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    exclude_initializer_from_input: bool = False,
    fuse_layernorm: bool = False,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    external_data_convert_attribute: bool = False,
    inputs_to_make_channel_last: list[str] | None = None,
    outputs_to_make_channel_last: list[str] | None = None,
    dynamic_input_shapes: list[tuple[str, str]] | None = None,
) -> bool:
    """Fix sizes, drop defaults of inputs, fuse what QNN has ops for, move channels of inputs and outputs last; whether that changed
    anything. Nothing is written where nothing was changed.
    """
    model = save_and_reload_optimize_model(models.load(model_input), shape_infer=True)
    changed = False
    for name, sizes in dynamic_input_shapes or ():
        changed |= _fix_shape(model, name, [int(size) for size in sizes.split(",")])
    if exclude_initializer_from_input:
        changed |= _drop_defaults(model)
    changed |= _fuse(model, fuse_layernorm)
    if inputs_to_make_channel_last or outputs_to_make_channel_last:
        update_io_to_channel_last(model, inputs_to_make_channel_last, outputs_to_make_channel_last)
        changed = True
    changed |= _name_nodes(model)
    if changed:
        ONNXModel(model).topological_sort()
        models.save(
            model,
            model_output,
            save_as_external_data,
            all_tensors_to_one_file=all_tensors_to_one_file,
            location=external_data_location,
            size_threshold=external_data_size_threshold,
            convert_attribute=external_data_convert_attribute,
        )
    return changed


def save_and_reload_optimize_model(model: ModelProto, shape_infer: bool) -> ModelProto:
    """The model behind the basic level of our optimizer, with types of inner values if wanted, and marked for that."""
    with models.temporary_folder() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        models.save(model, before, external=True)
        optimize_model(before, after)
        optimized = models.load(after)
    if shape_infer:
        models.infer_shapes(optimized)
    known = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(optimized, {models.INFER_KEY: "onnxruntime.tools.qnn.preprocess", **known})
    return optimized


def _fuse(model: ModelProto, with_layernorm: bool) -> bool:
    """Gelu, LpNormalization and SpaceToDepth, and LayerNormalization where that is wanted and the opset has it."""
    fusions: list[type[StageFusion]] = [FusionGelu, FusionLpNormalization, FusionSpaceToDepth]
    opset = models.get_opset_version(model)
    if with_layernorm and opset >= LAYERNORM_OPSET:
        fusions.append(FusionLayerNormalization)
    elif with_layernorm:
        LOG.warning("LayerNormalization is not fused: it came with opset %d, the model is of %d", LAYERNORM_OPSET, opset)
    wrapped = ONNXModel(model)
    changes = [fusion(wrapped).apply() for fusion in fusions]
    return any(changes)


def _fix_shape(model: ModelProto, name: str, sizes: Sequence[int]) -> bool:
    value = ONNXModel(model).find_graph_input(name)
    if value is None:
        raise ValueError(f"dynamic_input_shapes: the model has no input {name!r}")
    dims = value.type.tensor_type.shape.dim
    if len(dims) != len(sizes):
        raise ValueError(f"dynamic_input_shapes: {name!r} has {len(dims)} axes, {len(sizes)} sizes are given")
    for dim, size in zip(dims, sizes):
        dim.Clear()
        dim.dim_value = size
    return True


def _drop_defaults(model: ModelProto) -> bool:
    tensors = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in tensors]
    if len(kept) == len(model.graph.input):
        return False
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return True


def _name_nodes(model: ModelProto) -> bool:
    """Give nodes without a name one: overrides and lists of nodes need it."""
    taken = {node.name for node in model.graph.node}
    changed = False
    for number, node in enumerate(model.graph.node):
        if not node.name:
            node.name = _free(f"qnn_{node.op_type}_{number}", taken)
            taken.add(node.name)
            changed = True
    return changed


def _free(name: str, taken: Any) -> str:
    while name in taken:
        name += "_"
    return name


def update_io_to_channel_last(
    model: ModelProto,
    inputs_to_update: list[str] | None,
    outputs_to_update: list[str] | None,
    transpose_node_name_prefix: str = "Transpose_channel_",
    transpose_node_name_start_suffix: int = 0,
) -> None:
    """Let inputs and outputs have their channels last; a Transpose behind or before them moves these."""
    graph = model.graph
    number = transpose_node_name_start_suffix
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    declared = ({value.name: value for value in values} for values in (graph.input, graph.output))
    names = InputOutputNameMap(taken, *declared)
    for values, wanted, kind in ((graph.input, inputs_to_update, "input"), (graph.output, outputs_to_update, "output")):
        known = {value.name: value for value in values}
        for name in wanted or ():
            if name not in known:
                raise ValueError(f"the model has no {kind} {name!r} whose channels could be moved")
            _move_channels(
                model, known[name], names.get_new_name(name), kind == "input", f"{transpose_node_name_prefix}{number}"
            )
            number += 1
    graph.value_info.extend(names.new_value_infos)


class InputOutputNameMap:
    """Names of inputs and outputs as they were before their channels were moved, each with its declaration."""

    def __init__(
        self,
        orig_tensor_names: set[str],
        orig_graph_inputs: dict[str, ValueInfoProto],
        orig_graph_outputs: dict[str, ValueInfoProto],
    ):
        self.orig_tensor_names = orig_tensor_names
        self.orig_graph_inputs, self.orig_graph_outputs = orig_graph_inputs, orig_graph_outputs
        self.updated_io_names: dict[str, str] = {}
        self.new_value_infos: list[ValueInfoProto] = []

    def get_new_name(self, orig_name: str) -> str:
        """What the value is called inside the graph from now on; asked again, the same."""
        if orig_name not in self.updated_io_names:
            prefix = f"{orig_name}_channel_first_"
            new = f"{prefix}{largest_suffix(self.orig_tensor_names, prefix) + 1}"
            declared = ValueInfoProto()
            declared.CopyFrom(self.orig_graph_inputs.get(orig_name) or self.orig_graph_outputs[orig_name])
            declared.name = new
            self.new_value_infos.append(declared)
            self.updated_io_names[orig_name] = new
        return self.updated_io_names[orig_name]


def _move_channels(model: ModelProto, value: Any, inner: str, is_input: bool, node_name: str) -> None:
    dims = value.type.tensor_type.shape.dim
    rank = len(dims)
    if rank < 3:
        raise ValueError(f"{value.name!r} has {rank} axes; channels are moved where there are three at least")
    name = value.name
    order = [0, *range(2, rank), 1]
    moved = [type(dim)() for dim in dims]
    for target, source in zip(moved, order):
        target.CopyFrom(dims[source])
    for dim, new in zip(dims, moved):
        dim.CopyFrom(new)
    wrapped = ONNXModel(model)
    if is_input:
        wrapped.replace_input_of_all_nodes(name, inner)
        back = [0, rank - 1, *range(1, rank - 1)]
        wrapped.add_node(helper.make_node("Transpose", [name], [inner], node_name, perm=back))
    else:
        wrapped.replace_output_of_all_nodes(name, inner)
        wrapped.replace_input_of_all_nodes(name, inner)
        wrapped.add_node(helper.make_node("Transpose", [inner], [name], node_name, perm=order))
