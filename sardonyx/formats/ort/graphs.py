"""Trees of graphs -> Graph: names become links between values and nodes. The reader of models calls `read_graph`; subgraphs come back
here through the attributes of nodes.

What breaks the format's rules is refused with the words of onnxruntime's full build; what that build computes anew (edges, versions,
implicit inputs) is checked as far as it does and not used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from sardonyx import ir
from sardonyx.errors import InvalidArgument, InvalidGraph
from sardonyx.formats.onnx.attributes import FIELDS
from sardonyx.formats.ort.decoding import Tree
from sardonyx.formats.ort.records import read_records
from sardonyx.formats.ort.tensors import invalid, read_denotation, read_sparse_tensor, read_tensor, read_type
from sardonyx.ir import Kind, edit
from sardonyx.ir.opsets import NEWEST
from sardonyx.ir.scope import Scope
from sardonyx.startup.records import dataclass, field

OVERRIDABLE_SINCE = 4
"""Up to this IR version an initializer among the inputs is a constant all the same."""
SMALLEST_INDEX_LIMIT, LARGEST_INDEX_LIMIT, INDEX_FACTOR = 1024, 1_000_000, 64
"""A node's number is below 64 times the number of entries, within these bounds."""

_PAYLOADS = {kind: FIELDS[kind] for kind in Kind if Kind.FLOAT <= kind <= Kind.TENSORS}
"""The field that holds the value of an attribute, for the kinds that the format can hold. Both formats call it the same."""

logger = logging.getLogger("sardonyx.formats")


@dataclass
class Reading:
    """What holds for a whole model, and what reading its graphs brings to light."""

    opsets: Mapping[str, int]
    ir_version: int
    optimizations: list[ir.SavedOptimizations] = field(default_factory=list)


@dataclass
class Level:
    """One graph while it is read: what the file says of its values by name, and the names that have been given a meaning."""

    reading: Reading
    scope: Scope
    types: Mapping[str, ir.Type | None]
    docs: Mapping[str, str]
    denotations: Mapping[str, ir.Denotation | None]
    outer: Level | None = None

    @staticmethod
    def of(tree: Tree, reading: Reading, outer: Level | None) -> Level:
        types: dict[str, ir.Type | None] = {}
        docs: dict[str, str] = {}
        denotations: dict[str, ir.Denotation | None] = {}
        for info in tree.get("node_args", ()):
            name = info.get("name")
            if name is None:
                raise invalid("NodeArg name is missing")
            if name in types:
                raise invalid(f"Duplicate NodeArg: {name}")
            if "type" not in info and name:
                raise invalid(f"Null type info for {name}")
            types[name] = read_type(info["type"], name) if name else None
            if info.get("doc_string"):
                docs[name] = info["doc_string"]
            denotations[name] = read_denotation(info["type"]) if name else None
        return Level(reading, Scope.inside(outer.scope if outer is not None else None, ""), types, docs, denotations, outer)

    def check(self, name: str, place: str) -> None:
        """Refuse a name that this graph's list of values lacks."""
        if name not in self.types:
            raise invalid(f"NodeArg name [{name}] of {place} is missing from the graph's NodeArgs")

    def knows(self, name: str) -> bool:
        """Whether this graph or one around it lists the value."""
        level: Level | None = self
        while level is not None and name not in level.types:
            level = level.outer
        return level is not None

    def describe(self, value: ir.Value) -> ir.Value:
        """Give a value of this graph the type that the file declares."""
        value.declared = self.types.get(value.name)
        value.type = value.type or value.declared
        value.doc = self.docs.get(value.name, "")
        value.denotation = self.denotations.get(value.name)
        return value


def read_graph(tree: Tree, reading: Reading, outer: Level | None = None) -> ir.Graph:
    """A main graph, or one inside the graph of `outer`."""
    level = Level.of(tree, reading, outer)
    with ir.released_on_failure(ir.Graph()) as graph:
        for name in tree.get("inputs", ()):
            level.check(name, "the graph's inputs")
            if not name:
                raise invalid("A graph input has no name")
            level.describe(level.scope.define(name))
        _read_initializers(tree, graph, level)
        for name in tree.get("inputs", ()):
            _add_input(graph, level.scope.values[name], reading)
        nodes = _read_nodes(tree, graph, level)
        for name in tree.get("outputs", ()):
            level.check(name, "the graph's outputs")
            graph.outputs.append(_read_output(name, graph, level))
        if not level.scope.is_sorted:
            edit.topological_sort(graph)
        saved = read_records(tree.get("runtime_optimizations", {}))
        if saved:
            reading.optimizations.append(ir.SavedOptimizations(graph, nodes, saved))
        return graph


def _add_input(graph: ir.Graph, value: ir.Value, reading: Reading) -> None:
    if value.constant is None or reading.ir_version >= OVERRIDABLE_SINCE:
        graph.add_input(value)
    else:
        value.type = value.constant.type


def _read_output(name: str, graph: ir.Graph, level: Level) -> ir.Value:
    value = level.scope.find_output(name, graph, level.reading.opsets.get("", 1))
    if value is None:
        raise invalid(f"Graph output ({name}) does not exist in the graph")
    return value


# --- initializers


def _read_initializers(tree: Tree, graph: ir.Graph, level: Level) -> None:
    for initializer in tree.get("initializers", ()):
        if not initializer.get("name"):
            raise invalid("Missing name of an initializer")
        _add_initializer(graph, level, read_tensor(initializer, f"tensor '{initializer['name']}'"))
    for initializer in tree.get("sparse_initializers", ()):
        sparse = read_sparse_tensor(initializer)
        dense = ir.Tensor(sparse.type.dtype, sparse.dense_shape, sparse.to_dense, name=sparse.name)  # type: ignore[arg-type]
        _add_initializer(graph, level, dense).sparse = sparse


def _add_initializer(graph: ir.Graph, level: Level, tensor: ir.Tensor) -> ir.Value:
    value = level.scope.values.get(tensor.name)
    if value is None:
        value = level.describe(level.scope.define(tensor.name))
    elif value.constant is not None:
        logger.warning("Duplicate initializer (dense or ConstantNode): '%s', the last one is used.", tensor.name)
    value.constant, value.sparse = tensor, None
    _check_initializer(tensor, value.declared)
    value.type = value.type or tensor.type
    value.graph = graph
    graph.initializers[tensor.name] = value
    return value


def _check_initializer(tensor: ir.Tensor, declared: ir.Type | None) -> None:
    if not isinstance(declared, ir.TensorType):
        return
    if declared.dtype is not tensor.dtype:
        raise invalid(f"Type Error: initializer '{tensor.name}' is declared {declared} but holds {tensor.type}")
    wanted = tensor.shape if declared.shape is None else declared.shape
    if len(wanted) != len(tensor.shape) or any(a != b for a, b in zip(wanted, tensor.shape, strict=True) if isinstance(a, int)):
        raise invalid(
            f"Type Error: Shape of initializer {tensor.name} does not match. {ir.described(declared)} != {ir.described(tensor.type)}"
        )


# --- nodes


def _read_nodes(tree: Tree, graph: ir.Graph, level: Level) -> dict[int, ir.Node]:
    """Append the nodes in the order of their numbers; returns them by number."""
    trees = _numbered(tree)
    for node_tree in trees.values():
        _check_node(node_tree, level)
        for name in node_tree["outputs"]:
            if name:
                level.scope.define_later(name)
                level.describe(level.scope.values[name])
    nodes: dict[int, ir.Node] = {}
    names: set[str] = set()
    for number, node_tree in trees.items():
        nodes[number] = node = graph.append(_read_node(node_tree, level))
        if node.name in names:
            raise invalid(f"Error: two nodes with same node name ({node.name})")
        names.update([node.name] if node.name else [])
        level.scope.later.difference_update(node_tree["outputs"])
    return nodes


def _numbered(tree: Tree) -> dict[int, Tree]:
    """The nodes' trees by their number, in its order; numbers and edges are checked."""
    trees: dict[int, Tree] = {}
    for node_tree in tree.get("nodes", ()):
        if trees.setdefault(node_tree["index"], node_tree) is not node_tree:
            raise invalid(f"Duplicate node index {node_tree['index']}")
    edges = tree.get("node_edges", ())
    highest = max(trees, default=-1)
    entries = len(trees) + len(edges)
    if highest >= min(max(SMALLEST_INDEX_LIMIT, INDEX_FACTOR * entries), LARGEST_INDEX_LIMIT):
        raise invalid(f"Node index {highest} is unreasonably large relative to the number of entries ({entries})")
    if tree["max_node_index"] < highest + 1:
        raise invalid("Serialized max node index is smaller than the required node slot count")
    for entry in edges:
        if entry["node_index"] not in trees:
            raise invalid(f"Edges have an out-of-range node index {entry['node_index']}")
        for end in (*entry.get("input_edges", ()), *entry.get("output_edges", ())):
            if end[0] not in trees:
                raise invalid(f"Edges of node {entry['node_index']} have an out-of-range node index {end[0]}")
    return dict(sorted(trees.items()))


def _check_node(tree: Tree, level: Level) -> None:
    label = _label(tree)
    for part in ("inputs", "outputs", "implicit_inputs", "input_arg_counts"):
        if part not in tree:
            raise invalid(f"{label} has no {part}; fbs_node_arg_names cannot be null")
    if not tree.get("op_type"):
        raise invalid(f"Node{label} has no op_type")
    if any(count < 0 for count in tree["input_arg_counts"]):
        raise invalid(f"Node::LoadFromOrtFormat, input_arg_counts contains a negative value for node {tree.get('name', '')}")
    total = sum(tree["input_arg_counts"])
    if total != len(tree["inputs"]):
        raise invalid(
            f"Node::LoadFromOrtFormat, input_arg_counts total ({total}) does not match number of explicit inputs "
            f"({len(tree['inputs'])}) for node {tree.get('name', '')}"
        )
    for name in (*tree["inputs"], *tree["outputs"]):
        level.check(name, label)
    for name in tree["implicit_inputs"]:
        if not level.knows(name):
            level.check(name, label)
    domain = tree.get("domain", "")
    if domain not in level.reading.opsets:
        raise InvalidGraph(f"This is an invalid model. In Node, {label} , Error No opset import for domain '{domain}'")


def _label(tree: Tree) -> str:
    name = tree.get("name") or next((name for name in tree.get("outputs", ()) if name), "")
    op_type, domain = tree.get("op_type", ""), tree.get("domain", "")
    return f"{domain}::{op_type} '{name}'" if domain else f"{op_type} '{name}'"


def _read_node(tree: Tree, level: Level) -> ir.Node:
    """A node whose tree has been checked."""
    label, domain = _label(tree), tree.get("domain", "")
    node = ir.Node(
        tree["op_type"],
        [_read_operand(name, level, label) if name else None for name in tree["inputs"]],
        [level.scope.values[name] if name else "" for name in tree["outputs"]],
        _read_attributes(tree.get("attributes", ()), label, level),
        domain=domain,
        version=_version(tree, level.reading.opsets[domain], label),
        name=tree.get("name", ""),
    )
    node.doc = tree.get("doc_string", "")
    return node


def _version(tree: Tree, imported: int, label: str) -> int:
    """The opset that a node is read for: what the model imports, as in the original, whatever the file says of the op's own version.

    That says what we need only if the model imports an opset of the future: most ops are in it what they were.
    """
    newest = NEWEST.get(tree.get("domain", ""), imported)
    if imported <= newest:
        return imported
    since: int = tree["since_version"]
    if not 0 < since <= newest:
        raise InvalidGraph(
            f"This is an invalid model. In Node, {label} , Error No Op registered for {tree['op_type']} with domain_version of "
            f"{imported}, the newest that is known is {newest}"
        )
    return since


def _read_operand(name: str, level: Level, label: str) -> ir.Value:
    value = level.scope.find(name)
    if value is None:
        raise InvalidArgument(
            f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a previous node. It is of {label}."
        )
    return value


# --- attributes


def _read_attributes(trees: Iterable[Tree], label: str, level: Level) -> dict[str, ir.Attribute]:
    attributes: dict[str, ir.Attribute] = {}
    for tree in trees:
        name = tree.get("name")
        if not name:
            raise invalid(f"An attribute of {label} has no name")
        if name in attributes:
            raise invalid(f"Attribute '{name}' of {label} appeared multiple times")
        attributes[name] = _read_attribute(tree, f"attribute '{name}' of {label}", level)
    return attributes


def _read_attribute(tree: Tree, label: str, level: Level) -> ir.Attribute:
    if tree["type"] not in _PAYLOADS:
        raise invalid(f"The type {tree['type']} of {label} is none that the format can hold")
    kind = Kind(tree["type"])
    value = tree.get(_PAYLOADS[kind])
    if value is None:
        raise invalid(f"Null payload of {label}, whose type is {kind.name}")
    return ir.Attribute(kind, _read_payload(value, kind, label, level), doc=tree.get("doc_string", ""))


def _read_payload(value: Any, kind: Kind, label: str, level: Level) -> Any:
    match kind:
        case Kind.STRING:
            return _text(value)
        case Kind.STRINGS:
            return [_text(text) for text in value]
        case Kind.TENSOR:
            return read_tensor(value, label)
        case Kind.TENSORS:
            return [read_tensor(tensor, label) for tensor in value]
        case Kind.GRAPH:
            return read_graph(value, level.reading, level)
    return value


def _text(value: str) -> str | bytes:
    """Content that is no UTF-8 is bytes in the IR."""
    if value.isascii():
        return value
    encoded = value.encode("utf-8", "surrogateescape")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return encoded
