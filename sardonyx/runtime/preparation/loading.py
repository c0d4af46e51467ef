"""From what a user gives to the model that a session prepares: the file is read, then what the session's options say about it is applied.

Weights that options supply in place of external data are taken out of the file's messages before it is read, because the reader refuses
data that it cannot find.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from sardonyx import dtypes, formats, settings
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.files import Files
from sardonyx.formats.onnx.messages import messages
from sardonyx.ir import (
    Dim,
    Graph,
    MapType,
    Model,
    OptionalType,
    SequenceType,
    SparseTensorType,
    Tensor,
    TensorType,
    Type,
    Value,
    dim,
    edit,
    packing,
)
from sardonyx.runtime.api.enums import ExecutionMode, GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation import ort_models
from sardonyx.runtime.preparation.names import COMPUTED, SEPARATOR

EXTERNAL = 1
OVERRIDABLE_SINCE_IR = 4
"""Before this IR version every initializer had to be listed as an input and was a constant all the same."""

CONSTANT_ATTRIBUTES = {
    "value",
    "sparse_value",
    *(f"value_{kind}{many}" for kind in ("float", "int", "string") for many in ("", "s")),
}

EXPERIMENTAL_UNTIL = {
    **dict.fromkeys(("Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"), 9),
    "ThresholdedRelu": 9,
    "MeanVarianceNormalization": 8,
}
"""The last opsets in which ONNX had these ops for trial."""

logger = logging.getLogger("sardonyx.runtime")


def load_model(source: Any, options: SessionOptions, files: Files | None = None) -> Model:
    """The model in `source` (a path, bytes, an `onnx.ModelProto` or a `Model`) as `options` want it.

    `files` are those that were opened for it before.
    """
    files = files or open_files(options)
    if isinstance(source, Model):
        return edit.clone_model(source)
    if ort_models.is_ort(source, options):
        model = ort_models.load(source, options, files)
    else:
        proto, supplied = _supplied_externals(source, options, files)
        model = _read(source if proto is None else proto, source, options, files)
        for name, tensor in supplied.items():
            _replace_initializer(model.graph, name, tensor)
    for name, value in options._initializers.items():
        if name in model.graph.initializers:  # names that the model lacks are ignored, as in the original
            _replace_initializer(model.graph, name, Tensor.of(value.numpy(), name))
    if model.ir_version < OVERRIDABLE_SINCE_IR:
        fix_defaults(model.graph)
    _override_dims(model, options)
    _forget_names(model, {*options._config.get(settings.UNEQUAL_SIZES).split(SEPARATOR)} - {""})
    _warn_about_initializers(model.graph)
    _forgive_constants(model.graph)
    _rewrite_experimental(model.graph)
    return model


def open_files(options: SessionOptions) -> Files:
    """The files of one session: none is open yet."""
    return Files(mapped=options._config.is_on(settings.MAP_FILES))


def _read(source: Any, original: Any, options: SessionOptions, files: Files) -> Model:
    folder: Any = options._config.get(settings.EXTERNAL_INITIALIZERS_FOLDER) or None
    if folder is not None and "\0" in folder:
        raise InvalidArgument(f"{settings.EXTERNAL_INITIALIZERS_FOLDER}: {folder!r} is no name of a folder")
    if folder is None and not isinstance(source, (str, os.PathLike)):
        # the original takes external data of models in memory from the working directory
        folder = os.path.dirname(original) if isinstance(original, str) else os.getcwd()
    if options._config.get(settings.LOAD_MODEL_FORMAT):
        from sardonyx.formats.onnx.reader import read_model

        return read_model(source, folder, files)
    return formats.load(source, folder, files)


# --- external data from memory


def _supplied_externals(source: Any, options: SessionOptions, files: Files) -> tuple[Any, dict[str, Tensor]]:
    """The model's message without the weights that `options` supply, and these; nothing if they supply none."""
    if not options._external_initializers and not options._external_files:
        return None, {}
    proto = _message(source, files)
    named = {tensor.name: tensor for tensor in proto.graph.initializer}
    supplied = {name: _given_tensor(name, value, named.get(name)) for name, value in options._external_initializers.items()}
    if options._external_files:
        for name, tensor in named.items():
            if tensor.data_location == EXTERNAL and name not in supplied:
                supplied[name] = _tensor_from_file(tensor, options._external_files)
    for name in supplied:
        _empty(named[name])
    return proto, supplied


def _message(source: Any, files: Files) -> Any:
    """A ModelProto of its own, external data left where it is."""
    model = messages().ModelProto
    if isinstance(source, str):
        return model.FromString(bytes(files.open(source).whole()))
    if isinstance(source, bytes):
        return model.FromString(source)
    copied = model()
    copied.CopyFrom(source)
    return copied


def _given_tensor(name: str, value: Any, proto: Any) -> Tensor:
    if proto is None:
        raise Fail(f"Failed to find existing initializer with name {name}.")
    if proto.data_location != EXTERNAL:
        raise Fail(f"Trying to replace non-external initializer with external data: {name}")
    tensor = Tensor.of(value.numpy(), name)
    if tensor.shape != tuple(proto.dims):
        raise Fail(
            f"Replacement tensor's dimensions do not match: {name} has {list(proto.dims)}, {list(tensor.shape)} were given."
        )
    if tensor.dtype.code != proto.data_type:
        raise Fail(
            f"Replacement tensor's data type does not match: {name} is {dtypes.from_code(proto.data_type)}, not {tensor.dtype}."
        )
    return tensor


def _tensor_from_file(proto: Any, files: Mapping[str, memoryview]) -> Tensor:
    entries = {entry.key: entry.value for entry in proto.external_data}
    data = files.get(entries.get("location", ""))
    if data is None:
        raise Fail(f"External file: {entries.get('location', '')} not found from the table user provided.")
    dtype, shape = dtypes.from_code(proto.data_type), tuple(proto.dims)
    offset, size = int(entries.get("offset", "0")), dtype.stored_bytes(int(np.prod(shape, dtype=object)))
    if offset < 0 or offset + size > len(data):
        raise Fail(
            f"External initializer: {proto.name} offset: {offset} size to read: {size} given file_length: {len(data)} "
            "are out of bounds or can not be read in full."
        )
    part = data[offset : offset + size]
    return Tensor(dtype, shape, lambda: packing.decode(part, dtype, shape), name=proto.name)


def _empty(proto: Any) -> None:
    """Leave a tensor without elements in the message; the real one takes its place after reading."""
    del proto.external_data[:]
    proto.ClearField("data_location")
    del proto.dims[:]
    proto.dims.append(0)


def _replace_initializer(graph: Graph, name: str, tensor: Tensor) -> None:
    value = graph.initializers[name]
    value.constant = tensor
    if not value.is_input:
        value.type = value.declared = tensor.type


# --- inputs


def fix_defaults(graph: Graph) -> list[Value]:
    """Take initializers out of the inputs, so that they are constants; returns those that were there."""
    defaults = [value for value in graph.inputs if value.constant is not None]
    for value in defaults:
        graph.inputs.remove(value)
        value.is_input = False
    return defaults


def fix_inputs(model: Model, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, np.ndarray]) -> None:
    """Declare the inputs of a model to have these shapes, and let it read these values in place of what will be fed."""
    for value in model.graph.inputs:
        if value.name in shapes and isinstance(value.type, TensorType):
            value.type = value.declared = TensorType(value.type.dtype, shapes[value.name])
        if value.name in values:
            fixed = model.graph.add_initializer(f"{value.name}/fixed", Tensor.of(values[value.name].copy()))
            edit.replace_all_uses(value, fixed)


def _warn_about_initializers(graph: Graph) -> None:
    outputs = {id(value) for value in graph.outputs}
    for name, value in graph.initializers.items():
        if value.is_input:
            logger.info("Initializer %s is a graph input too: it is a constant until a run feeds it another value.", name)
        elif not value.uses and id(value) not in outputs:
            logger.warning("Initializer '%s' is not used by any node and should be removed from the model.", name)


def _forgive_constants(graph: Graph) -> None:
    """Take what Constant does not know from nodes that have their tensor, as the original does, which never looks at the rest."""
    for node in graph.all_nodes():
        if node.op_type == "Constant" and not node.domain and "value" in node.attributes and len(node.attributes) > 1:
            for name in set(node.attributes) - CONSTANT_ATTRIBUTES:
                logger.warning("%s: the attribute '%s' is unknown and left out.", node, name)
                del node.attributes[name]


def _rewrite_experimental(graph: Graph) -> None:
    """Take ops of ONNX's beginnings, as the original does."""
    old = [
        node for node in graph.all_nodes() if not node.domain and 0 < node.version <= EXPERIMENTAL_UNTIL.get(node.op_type, 0)
    ]
    if old:
        from sardonyx.runtime.preparation import experimental

        experimental.rewrite(old)


def _override_dims(model: Model, options: SessionOptions) -> None:
    sizes = {name: size for name, size in options._dims_by_name.items() if size >= 0}
    if options._dims_by_denotation:
        sizes.update(_denoted(model, options._dims_by_denotation))
    if not sizes:
        return
    for graph in _graphs(model.graph):
        for value in (*graph.values(), *graph.outputs):
            value.type, value.declared = _with_sizes(value.type, sizes), _with_sizes(value.declared, sizes)


def _forget_names(model: Model, names: Collection[str]) -> None:
    """Let each axis of such a name have a size of its own."""
    inputs = {*model.graph.inputs} if COMPUTED in names else set()
    for graph in _graphs(model.graph) if names else ():
        for value in (*graph.values(), *graph.outputs):
            value.type = value.declared = _without_names(value.declared, names, COMPUTED in names and value not in inputs)


def names_computed_sizes(model: Model) -> bool:
    """Whether values that are no inputs have sizes with names."""
    inputs = {*model.graph.inputs}
    values = (value for graph in _graphs(model.graph) for value in (*graph.values(), *graph.outputs) if value not in inputs)
    return any(_without_names(value.declared, (), are_all=True) != value.declared for value in values)


def _without_names(type: Type | None, names: Collection[str], are_all: bool) -> Type | None:
    match type:
        case TensorType(dtype, shape) if shape is not None:
            return TensorType(dtype, tuple(dim.fresh() if _has_name(size, names, are_all) else size for size in shape))
        case SequenceType(element) | OptionalType(element):
            return type.__class__(_without_names(element, names, are_all))  # type: ignore[arg-type]
    return type


def _has_name(size: Dim, names: Collection[str], are_all: bool) -> bool:
    return any(symbol.name in names or (are_all and not symbol.is_anonymous) for symbol in dim.symbols(size))


def _graphs(graph: Graph) -> Iterable[Graph]:
    yield graph
    for node in graph.all_nodes():
        yield from node.subgraphs


def _denoted(model: Model, denotations: Mapping[str, int]) -> dict[str, int]:
    """Sizes for the symbols of the inputs' dims with such a denotation."""
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        if value.denotation is None or not isinstance(value.type, TensorType) or value.type.shape is None:
            continue
        for size, mark in zip(value.type.shape, value.denotation[1], strict=True):
            if mark in denotations and not isinstance(size, int) and size.symbol is not None:
                sizes[size.symbol.name] = denotations[mark]
    return sizes


def _with_sizes(type: Type | None, sizes: Mapping[str, int]) -> Type | None:
    match type:
        case TensorType(dtype, shape) | SparseTensorType(dtype, shape) if shape is not None:
            return type.__class__(dtype, tuple(dim.substitute(size, sizes) for size in shape))
        case SequenceType(element) | OptionalType(element):
            return type.__class__(_with_sizes(element, sizes))  # type: ignore[arg-type]
        case MapType(key, value):
            return MapType(key, _with_sizes(value, sizes))  # type: ignore[arg-type]
    return type


# --- options inside the model


def options_from_model(model: Model, options: SessionOptions) -> None:
    """Apply what the model's metadata says under "ort_config"; asked for by the environment variable ORT_LOAD_CONFIG_FROM_MODEL."""
    text = model.metadata.get("ort_config")
    if text is None:
        return
    try:
        config = json.loads(text)
    except ValueError as error:
        raise RuntimeError(f"Json stored in the `ort_config` key cannot be parsed. Error message: {error}") from None
    entries = config.get("session_options") if isinstance(config, dict) else None
    for name, value in (entries if isinstance(entries, dict) else {}).items():
        if name not in _FROM_MODEL:
            logger.warning("Ignoring unsupported session option in ORT config: %s", name)
            continue
        if not isinstance(value, int):
            raise RuntimeError(f"{name} option in the model file must be an integer")
        try:
            setattr(options, name, _FROM_MODEL[name](value))
        except KeyError:
            raise RuntimeError(f"Unsupported {name} value in ORT config: {value}") from None


_LEVELS = {int(level): level for level in GraphOptimizationLevel}
_MODES = {int(mode): mode for mode in ExecutionMode}
_FROM_MODEL: dict[str, Callable[[int], Any]] = {
    "intra_op_num_threads": int,
    "inter_op_num_threads": int,
    "execution_mode": _MODES.__getitem__,
    "graph_optimization_level": _LEVELS.__getitem__,
    "enable_profiling": bool,
}
