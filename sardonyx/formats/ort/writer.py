"""Model -> ORT format, version 6: `write_model` makes a tree of the model and has `encoding` make a buffer of it.

The model must be typed throughout and free of functions; `runtime.saving` sees to that. Everything that a runtime without op signatures
needs is written: slots, edges, counts, type strings, and the attributes that nodes leave to their defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.errors import Fail, InvalidGraph
from sardonyx.formats.onnx.saving import replacing
from sardonyx.formats.ort import derived
from sardonyx.formats.ort.derived import Definition, Definitions
from sardonyx.formats.ort.encoding import MAX_BYTES, encode, too_large
from sardonyx.formats.ort.tables import NO_NODE, UNSET_MODEL_VERSION, VERSION, DimensionValueType, TypeInfoValue
from sardonyx.ir import Kind, packing
from sardonyx.ir.scope import ScopedNames
from sardonyx.startup.records import dataclass, field

KNOWN_DOMAINS = {
    "ai.onnx.ml": 5,
    "ai.onnx.training": 1,
    "ai.onnx.preview": 1,
    "com.microsoft": 1,
    "ai.onnx.preview.training": 1,
    "com.microsoft.experimental": 1,
    "com.microsoft.nchwc": 1,
    "org.pytorch.aten": 1,
}
"""Domains with their newest versions that the original lists after those which the model imports."""
SPARSE_INDICES = (np.int8, np.int16, np.int32, np.int64)

CPU_PROVIDER = "CPUExecutionProvider"

Tree = dict[str, Any]
ProviderOf = Callable[[ir.Node], str]


@dataclass
class _Writing:
    """What holds for a whole model."""

    known: Definitions
    provider: ProviderOf
    records: Mapping[ir.Graph, ir.SavedOptimizations]
    met: dict[str, Definition] = field(default_factory=dict)
    """The ops met so far, by op id."""

    def definition(self, node: ir.Node) -> Definition:
        definition = self.known.of(node)
        return self.met.setdefault(definition.op_id, definition)


def save_model(
    model: ir.Model, path: str | os.PathLike[str], known: Definitions, provider: ProviderOf = lambda node: CPU_PROVIDER
) -> None:
    """Write the model to `path`; see `write_model`."""
    data = write_model(model, known, provider)
    with replacing(Path(path)) as file:
        file.write(data)


def write_model(model: ir.Model, known: Definitions, provider: ProviderOf = lambda node: CPU_PROVIDER) -> bytearray:
    """The model as the bytes of an ORT file. `known` tells of each node what its op is, `provider` who is to compute it."""
    return encode(model_tree(model, known, provider))


def model_tree(model: ir.Model, known: Definitions, provider: ProviderOf = lambda node: CPU_PROVIDER) -> Tree:
    """The same as a tree."""
    if model.functions:
        raise Fail(
            f"Functions must be inlined before a model is saved in the ORT format, {next(iter(model.functions))[1]} is not."
        )
    _check_size(model)
    writing = _Writing(known, provider, {saved.graph: saved for saved in model.saved_optimizations})
    graph = _graph(model.graph, writing, None)
    domains = {**model.opsets, **{domain: version for domain, version in KNOWN_DOMAINS.items() if domain not in model.opsets}}
    tree: Tree = {
        "ir_version": model.ir_version,
        "opset_import": [{"domain": domain, "version": version} for domain, version in domains.items()],
        **_texts(producer_name=model.producer_name, producer_version=model.producer_version),
        "domain": model.domain,
        "model_version": UNSET_MODEL_VERSION if model.model_version is None else model.model_version,
        "graph": graph,
        **_texts(doc_string=model.doc, graph_doc_string=model.graph.doc),
    }
    if model.metadata:
        tree["metadata_props"] = [{"key": key, "value": value} for key, value in model.metadata.items()]
    return {
        "ort_version": str(VERSION),
        "model": tree,
        "kernel_type_str_resolver": derived.resolver(writing.met.values()),
    }


def _check_size(model: ir.Model) -> None:
    """Refuse too much before anything is read."""
    graphs = ir.edit.all_graphs(model.graph)
    size = sum(value.constant.nbytes for graph in graphs for value in graph.initializers.values() if value.constant is not None)
    if size > MAX_BYTES:
        raise too_large(size)


def _texts(**texts: str) -> Tree:
    """Fields for the texts that are not empty; the original leaves out what a model does not set."""
    return {name: text for name, text in texts.items() if text}


# --- graphs


def _graph(graph: ir.Graph, writing: _Writing, outer: ScopedNames | None) -> Tree:
    names = ScopedNames.of(graph, outer)
    lifted = {node.outputs[0]: _content(node) for node in graph.nodes if is_constant(node)}
    slots = {node: slot for slot, node in enumerate(node for node in graph.nodes if not is_constant(node))}
    links = derived.edges(slots)
    initializers, sparse = _initializers(graph, lifted, names)
    tree: Tree = {
        "initializers": initializers,
        "node_args": _node_args(graph, slots, names),
        "nodes": [_node(node, slot, writing, names) for node, slot in slots.items()],
        "max_node_index": len(slots),
        "node_edges": [
            {"node_index": slots[node], "input_edges": incoming, "output_edges": outgoing}
            for node, (incoming, outgoing) in links.items()
        ],
        "inputs": [names[value] for value in graph.inputs],
        "outputs": [names[value] for value in graph.outputs],
        "sparse_initializers": sparse,
    }
    records = _records(writing.records.get(graph), slots, writing)
    return {**tree, "runtime_optimizations": {"records": records}} if records else tree


def _records(saved: ir.SavedOptimizations | None, slots: Mapping[ir.Node, int], writing: _Writing) -> list[Tree]:
    """What is left to the runtime, by optimizer; the ops that it may make become known, and what is about nodes long gone is left out."""
    entries = []
    for name, records in sorted(saved.by_optimizer.items()) if saved is not None else ():
        assert saved is not None
        placed = {number: slots[node] for number, node in saved.nodes.items() if node in slots}
        kept = [record for record in records if all(number in placed for number in record.nodes if number != NO_NODE)]
        for op_id in (op_id for record in kept for op_id in record.produced):
            definition = writing.known.of_id(op_id)
            if definition is None:
                raise Fail(f"{name} is to make {op_id}, an op that is not known.")
            writing.met.setdefault(op_id, definition)
        if kept:
            entries.append(
                {"optimizer_name": name, "runtime_optimization_records": [_record(record, placed) for record in kept]}
            )
    return entries


def _record(record: ir.SavedOptimization, placed: Mapping[int, int]) -> Tree:
    indices = {
        "node_indices": [placed.get(number, NO_NODE) for number in record.nodes],
        "num_inputs": record.inputs,
        "num_outputs": record.outputs,
        "has_variadic_input": record.variadic_inputs is not None,
        "has_variadic_output": record.variadic_outputs is not None,
        "num_variadic_inputs": record.variadic_inputs or 0,
        "num_variadic_outputs": record.variadic_outputs or 0,
    }
    return {"action_id": record.action, "nodes_to_optimize_indices": indices, "produced_op_ids": list(record.produced)}


def is_constant(node: ir.Node) -> bool:
    """Whether a node is nothing but a constant, which files hold among the initializers."""
    return node.op_type == "Constant" and not node.domain


def _content(node: ir.Node) -> ir.Tensor | ir.SparseTensor:
    """What a Constant node makes."""
    for name, attribute in node.attributes.items():
        if attribute.kind in (Kind.TENSOR, Kind.SPARSE_TENSOR):
            content: ir.Tensor | ir.SparseTensor = attribute.value
            return content
        if attribute.kind in _PLAIN and name.startswith("value_"):
            return ir.Tensor.of(np.asarray(attribute.value, _PLAIN[attribute.kind]))
    raise InvalidGraph(f"{node} has no value.")


_PLAIN = {
    Kind.FLOAT: np.float32,
    Kind.FLOATS: np.float32,
    Kind.INT: np.int64,
    Kind.INTS: np.int64,
    Kind.STRING: object,
    Kind.STRINGS: object,
}


def _node_args(graph: ir.Graph, slots: Iterable[ir.Node], names: ScopedNames) -> list[Tree]:
    """An entry for each value of this graph, and for values of outer graphs that its own nodes take; one without a type for gaps."""
    values: dict[ir.Value, None] = dict.fromkeys(graph.values())
    gaps = False
    for node in slots:
        values.update(dict.fromkeys(value for value in node.inputs if value is not None))
        gaps = gaps or None in node.inputs or any(not names[value] for value in node.outputs)
    entries = [_value_info(value, names[value]) for value in values if names[value]]
    return [*entries, {"name": ""}] if gaps else entries


def _value_info(value: ir.Value, name: str) -> Tree:
    type = _type_info(_stated(value), name)
    if value.denotation is not None:
        word, sizes = value.denotation
        type |= _texts(denotation=word)
        for dim, size in zip(type["value"].get("shape", {}).get("dim", ()), sizes, strict=False):
            dim |= _texts(denotation=size)
    return {"name": name, **_texts(doc_string=value.doc), "type": type}


# --- nodes


def _node(node: ir.Node, slot: int, writing: _Writing, names: ScopedNames) -> Tree:
    definition = writing.definition(node)
    attributes = {**definition.defaults, **node.attributes}
    return {
        "name": node.name,
        "doc_string": node.doc,
        "domain": node.domain,
        "since_version": definition.since_version,
        "index": slot,
        "op_type": node.op_type,
        "execution_provider_type": writing.provider(node),
        "inputs": ["" if value is None else names[value] for value in node.inputs],
        "outputs": [names[value] for value in node.outputs],
        "attributes": [_attribute(node, name, attribute, writing, names) for name, attribute in attributes.items()],
        "input_arg_counts": derived.input_arg_counts(len(node.inputs), definition.formal_inputs),
        "implicit_inputs": [names[value] for value in node.implicit_inputs()],
    }


def _attribute(node: ir.Node, name: str, attribute: ir.Attribute, writing: _Writing, names: ScopedNames) -> Tree:
    tree: Tree = {"name": name, **_texts(doc_string=attribute.doc), "type": int(attribute.kind)}
    value = attribute.value
    match attribute.kind:
        case Kind.FLOAT:
            tree["f"] = value
        case Kind.INT:
            tree["i"] = int(value)
        case Kind.STRING:
            tree["s"] = _text(value)
        case Kind.TENSOR:
            tree["t"] = _tensor(value, value.name)
        case Kind.GRAPH:
            tree["g"] = _graph(value, writing, names)
        case Kind.FLOATS:
            tree["floats"] = list(value)
        case Kind.INTS:
            tree["ints"] = list(value)
        case Kind.STRINGS:
            tree["strings"] = [_text(text) for text in value]
        case Kind.TENSORS:
            tree["tensors"] = [_tensor(tensor, tensor.name) for tensor in value]
        case _:
            raise Fail(f"{node}: attribute '{name}' is {attribute.kind.name}, which the ORT format cannot hold.")
    return tree


def _text(text: str | bytes) -> str:
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


# --- types


def _stated(value: ir.Value) -> ir.Type | None:
    """The type to write: numbers that inference found win over declared names, declared names over inferred ones."""
    inferred, declared = value.type, value.declared
    if not isinstance(inferred, ir.TensorType) or not isinstance(declared, ir.TensorType):
        return inferred or declared
    if inferred.shape is None or declared.shape is None or len(inferred.shape) != len(declared.shape):
        return inferred
    sizes = zip(inferred.shape, declared.shape, strict=True)
    return inferred.with_shape(tuple(mine if isinstance(mine, int) or ir.dim.is_anonymous(its) else its for mine, its in sizes))


def _type_info(type: ir.Type | None, owner: str) -> Tree:
    match type:
        case ir.TensorType(dtype, shape) if dtype is not None:
            tensor: Tree = {"elem_type": dtype.code}
            if shape is not None:
                tensor["shape"] = {"dim": [{"value": _dimension(size)} for size in shape]}
            return {"value_type": TypeInfoValue.TENSOR_TYPE, "value": tensor}
        case ir.SequenceType(element):
            return {"value_type": TypeInfoValue.SEQUENCE_TYPE, "value": {"elem_type": _type_info(element, owner)}}
        case ir.MapType(key, value):
            return {
                "value_type": TypeInfoValue.MAP_TYPE,
                "value": {"key_type": key.code, "value_type": _type_info(_without_shape(value), owner)},
            }
        case None | ir.TensorType():
            raise Fail(f"The type of '{owner}' is not known, so the model cannot be saved in the ORT format.")
    raise Fail(
        f"'{owner}' is of type {type}. The ORT format holds tensors, sequences and maps only; save the model as .onnx instead."
    )


def _without_shape(type: ir.Type) -> ir.Type:
    """What a map holds is no tensor of its own, and the original gives it no shape."""
    return type.with_shape(None) if isinstance(type, ir.TensorType) else type


def _dimension(size: ir.Dim) -> Tree:
    if isinstance(size, int):
        return {"dim_type": DimensionValueType.VALUE, "dim_value": size}
    if any(symbol.is_anonymous for symbol in ir.dim.symbols(size)):
        return {}
    return {"dim_type": DimensionValueType.PARAM, "dim_param": str(size)}


# --- tensors


def _initializers(
    graph: ir.Graph, lifted: Mapping[ir.Value, ir.Tensor | ir.SparseTensor], names: ScopedNames
) -> tuple[list[Tree], list[Tree]]:
    """Dense and sparse ones."""
    dense, sparse = [], []
    contents: dict[ir.Value, Any] = {value: value.sparse or value.constant for value in graph.initializers.values()}
    for value, content in (*contents.items(), *lifted.items()):
        if content is None:
            raise InvalidGraph(f"Initializer {value.name!r} has no data.")
        if isinstance(content, ir.SparseTensor) and _fits_sparse(content):
            sparse.append(_sparse_tensor(content, names[value]))
        else:
            content = ir.Tensor.of(content.to_dense()) if isinstance(content, ir.SparseTensor) else content
            dense.append(_tensor(content, names[value]))
    return dense, sparse


def _tensor(tensor: ir.Tensor, name: str) -> Tree:
    tree: Tree = {**_texts(name=name, doc_string=tensor.doc), "dims": list(tensor.shape), "data_type": tensor.dtype.code}
    if tensor.dtype is dtypes.string:
        tree["string_data"] = [_text(text) for text in tensor.numpy().reshape(-1)]
    else:
        tree["raw_data"] = packing.encode(tensor.peek(), tensor.dtype)
    return tree


def _fits_sparse(sparse: ir.SparseTensor) -> bool:
    dtype = dtypes.from_numpy(sparse.values.dtype)
    return dtype is not dtypes.string and not dtype.is_packed


def _sparse_tensor(sparse: ir.SparseTensor, name: str) -> Tree:
    """Values and their positions in the flattened tensor, in order, without those whose bits are all zero."""
    flat = np.asarray(sparse.indices, np.int64)
    if flat.ndim == 2:
        flat = np.ravel_multi_index(tuple(flat.T), sparse.dense_shape) if len(flat) else flat[:, 0]
    flat, last = np.unique(flat[::-1], return_index=True)  # of two values at one place the later one counts
    values = np.ascontiguousarray(sparse.values[::-1][last])
    kept = values.view(np.uint8).reshape(len(values), -1).any(axis=1)
    flat, values = flat[kept], values[kept]
    largest = int(flat.max(initial=0))
    narrow = next(dtype for dtype in SPARSE_INDICES if largest <= np.iinfo(dtype).max)
    return {
        "values": _tensor(ir.Tensor.of(values), name),
        "indices": _tensor(ir.Tensor.of(flat.astype(narrow)), ""),
        "dims": list(sparse.dense_shape),
    }
