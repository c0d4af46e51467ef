"""Models as files and protos: loading with shapes, saving above 2 GB, metadata, opsets. Every tool here begins and ends with it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, ModelProto, TensorProto, external_data_helper, helper

from sardonyx.quantization.types import QuantType
from sardonyx.tools.external_files import save_beside

onnx_domain = "ai.onnx"
ms_domain = "com.microsoft"

MODEL_SIZE_THRESHOLD = 2147483648
"""A protobuf message ends at 2 GB; what is larger keeps its tensors in a file beside it."""
LARGE_TENSOR = 1024
"""Bytes from which a tensor is left out where only shapes matter, and goes to the file beside the model."""

INFER_KEY, INFER_VALUE = "onnx.infer", "onnxruntime.quant"
PRE_PROCESS_KEY, PRE_PROCESS_VALUE = "onnx.quant.pre_process", "onnxruntime.quant"


def graphs_of(graph: Any) -> Iterator[Any]:
    """A graph and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from graphs_of(inner)


def inner_graphs(node: Any) -> Iterator[Any]:
    """The graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def model_size(model: ModelProto) -> int:
    """Bytes of all tensors of the graphs: what decides whether a model fits into one message."""
    return sum(_tensor_size(tensor) for graph in graphs_of(model.graph) for tensor in graph.initializer)


def _tensor_size(tensor: Any) -> int:
    return len(tensor.raw_data) if tensor.HasField("raw_data") else int(tensor.ByteSize())


def load(source: str | Path | ModelProto) -> ModelProto:
    """The model of a path, or a copy of the proto itself; callers may change what they get."""
    if isinstance(source, ModelProto):
        copy = ModelProto()
        copy.CopyFrom(source)
        return copy
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no model {str(path)!r}")
    return onnx.load(str(path))


def load_model_with_shape_infer(model_path: Path) -> ModelProto:
    """The model of a file with types and shapes of its inner values, as far as they can be inferred."""
    model = load(Path(model_path))
    infer_shapes(model)
    add_infer_metadata(model)
    return model


def save_and_reload_model_with_shape_infer(model: ModelProto) -> ModelProto:
    """The same for a model in memory; the original stays as it is."""
    copy = load(model)
    infer_shapes(copy)
    add_infer_metadata(copy)
    return copy


def infer_shapes(model: ModelProto, **options: Any) -> None:
    """Add types and shapes of inner values. Large tensors do not take part, so a model may be larger than a message."""
    inferred = onnx.shape_inference.infer_shapes(_without_large_tensors(model), **options)
    _copy_value_infos(inferred.graph, model.graph)


def _copy_value_infos(source: Any, target: Any) -> None:
    del target.value_info[:]
    target.value_info.extend(source.value_info)
    for before, after in zip(source.output, target.output):
        after.CopyFrom(before)
    for source_node, target_node in zip(source.node, target.node):
        for source_inner, target_inner in zip(inner_graphs(source_node), inner_graphs(target_node)):
            _copy_value_infos(source_inner, target_inner)


def _without_large_tensors(model: ModelProto) -> ModelProto:
    """A copy whose large initializers have a type and a shape, and no data."""
    copy = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _put(copy, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _put(copy.graph, field.name, value)
    for tensor in model.graph.initializer:
        small = copy.graph.initializer.add()
        if _tensor_size(tensor) <= LARGE_TENSOR:
            small.CopyFrom(tensor)
        else:
            small.name, small.data_type, small.data_location = tensor.name, tensor.data_type, TensorProto.EXTERNAL
            small.dims.extend(tensor.dims)
    return copy


def _put(message: Any, name: str, value: Any) -> None:
    target = getattr(message, name)
    if hasattr(target, "CopyFrom"):
        target.CopyFrom(value)
    elif hasattr(target, "extend"):
        target.extend(value)
    else:
        setattr(message, name, value)


def save(model: ModelProto, path: str | Path, external: bool = False, **options: Any) -> None:
    """Write a model; large tensors go to a file beside it if `external` says so or the message would be too large."""
    target = Path(path)
    if not external and model_size(model) < MODEL_SIZE_THRESHOLD - LARGE_TENSOR:
        onnx.save_model(model, str(target))
        return
    location = options.pop("location", None) or f"{target.name}.data"
    is_one_file = options.pop("all_tensors_to_one_file", True)
    save_beside(model, target, location if is_one_file else None, **{"size_threshold": LARGE_TENSOR} | options)


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for models on the way, removed afterwards."""
    return tempfile.TemporaryDirectory(prefix="sardonyx.quantization.")


def model_has_external_data(model_path: Path) -> bool:
    """Whether a file keeps tensors in other files."""
    model = onnx.load(str(model_path), load_external_data=False)
    return any(external_data_helper.uses_external_data(tensor) for tensor in model.graph.initializer)


def add_pre_process_metadata(model: ModelProto) -> None:
    """Mark a model as pre-processed for quantization."""
    _add_metadata(model, PRE_PROCESS_KEY, PRE_PROCESS_VALUE)


def model_has_pre_process_metadata(model: ModelProto) -> bool:
    return _has_metadata(model, PRE_PROCESS_KEY, PRE_PROCESS_VALUE)


def add_infer_metadata(model: ModelProto) -> None:
    """Mark a model as one whose shapes are inferred."""
    _add_metadata(model, INFER_KEY, INFER_VALUE)


def model_has_infer_metadata(model: ModelProto) -> bool:
    return _has_metadata(model, INFER_KEY, INFER_VALUE)


def _add_metadata(model: ModelProto, key: str, value: str) -> None:
    properties = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(model, {**properties, key: value})


def _has_metadata(model: ModelProto, key: str, value: str) -> bool:
    return any(entry.key == key and entry.value == value for entry in model.metadata_props)


def get_opset_version(model: ModelProto) -> int:
    """The version of ONNX's own ops that a model imports."""
    versions = [int(opset.version) for opset in model.opset_import if opset.domain in ("", onnx_domain)]
    if len(versions) != 1:
        raise ValueError(f"a model to quantize imports the ops of ONNX once, this one {len(versions)} times")
    return versions[0]


def update_opset_version(
    model: ModelProto,
    weight_type: QuantType,
    activation_type: QuantType | None = None,
    tensor_quant_overrides: dict[str, Any] | None = None,
    block_size: int = 0,
) -> ModelProto:
    """The model in an opset that has the wanted types; itself if it is new enough."""
    present = get_opset_version(model)
    wanted = _wanted_opset(present, _types(weight_type, activation_type, tensor_quant_overrides or {}), block_size)
    if wanted == present:
        return model
    logging.getLogger(__name__).warning("opset %d is converted to %d, which quantization needs", present, wanted)
    return converted(model, wanted)


def converted(model: ModelProto, opset: int) -> ModelProto:
    """The model in another opset. Large tensors do not take part, so that it may be larger than a message."""
    try:
        skeleton = onnx.version_converter.convert_version(_without_large_tensors(model), opset)
    except Exception as error:
        present = get_opset_version(model)
        raise RuntimeError(
            f"the model of opset {present} cannot be converted to {opset}, which its quantization needs: {error}"
        ) from error
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in skeleton.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and tensor.name in tensors:
            tensor.CopyFrom(tensors[tensor.name])
    skeleton.ir_version = model.ir_version
    del skeleton.metadata_props[:]
    skeleton.metadata_props.extend(model.metadata_props)
    return skeleton


SIXTEEN_BITS = {QuantType.QInt16, QuantType.QUInt16}
"""QuantizeLinear has them from opset 21 on. So it does 4 bits, which are written with the ops of com.microsoft below that."""


def _types(weight_type: QuantType, activation_type: QuantType | None, overrides: dict[str, Any]) -> set[QuantType]:
    types = {weight_type, activation_type} - {None}
    for entries in overrides.values():
        for entry in entries if isinstance(entries, list) else ():
            types |= {part["quant_type"] for part in (entry, entry.get("convert", {})) if "quant_type" in part}
    return {QuantType(one) if isinstance(one, int) else one for one in types if isinstance(one, (int, QuantType))}


def _wanted_opset(present: int, types: set[QuantType], block_size: int) -> int:
    if (block_size or types & SIXTEEN_BITS) and present < 21:
        return 21
    if QuantType.QFLOAT8E4M3FN in types and present < 19:
        return 19
    return max(present, 11)
