"""`qnn_preprocess_model`: bring a float model into the form that QNN likes, before it is quantized."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto, helper

from sardonyx.quantization import models
from sardonyx.quantization.onnx_model import ONNXModel


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
    """Fix sizes, drop defaults of inputs, move channels of inputs and outputs last; whether something was changed.

    Patterns are fused by sardonyx's own optimizer in `quant_pre_process`, so `fuse_layernorm` changes nothing here. Nothing is
    written where nothing was changed.
    """
    model = models.load(model_input)
    changed = False
    for name, sizes in dynamic_input_shapes or ():
        changed |= _fix_shape(model, name, [int(size) for size in sizes.split(",")])
    if exclude_initializer_from_input:
        changed |= _drop_defaults(model)
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
    for values, names, kind in ((graph.input, inputs_to_update, "input"), (graph.output, outputs_to_update, "output")):
        known = {value.name: value for value in values}
        for name in names or ():
            if name not in known:
                raise ValueError(f"the model has no {kind} {name!r} whose channels could be moved")
            inner = _free(f"{name}_channel_first", taken)
            taken.add(inner)
            _move_channels(model, known[name], inner, kind == "input", f"{transpose_node_name_prefix}{number}")
            number += 1


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
