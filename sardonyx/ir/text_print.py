"""Models, functions, graphs and nodes -> ONNX's text form. `ir.text` calls this.

The text reads back as the same thing, with the onnx package's parser too. What the text form has no place for is left out: documentation
and metadata of graphs, nodes and values; a sparse initializer appears as a dense one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sardonyx.errors import InvalidGraph
from sardonyx.ir import dim
from sardonyx.ir.attribute import Attribute, Kind
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.model import Function, Model
from sardonyx.ir.scope import ScopedNames
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.text_literals import decimal, literals, quoted
from sardonyx.ir.text_syntax import FLOAT_WORDS, TYPE_CONSTRUCTORS, TYPE_NAMES
from sardonyx.ir.types import MapType, OpaqueType, OptionalType, SequenceType, Shape, SparseTensorType, TensorType, Type
from sardonyx.startup.records import dataclass

STEP = "   "
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIST_ITEM = {
    Kind.FLOATS: Kind.FLOAT,
    Kind.INTS: Kind.INT,
    Kind.STRINGS: Kind.STRING,
    Kind.TENSORS: Kind.TENSOR,
    Kind.GRAPHS: Kind.GRAPH,
    Kind.SPARSE_TENSORS: Kind.SPARSE_TENSOR,
    Kind.TYPE_PROTOS: Kind.TYPE_PROTO,
}


@dataclass
class Printer:
    """How to print: `max_elements` abbreviates longer tensors and lists with `...`, which cannot be read back; `types` of inner values."""

    max_elements: int | None = None
    types: bool = True

    # --- models and functions

    def model(self, model: Model) -> str:
        entries = [f"ir_version: {model.ir_version}", f"opset_import: {_opsets(model.opsets)}"]
        for key, text in (
            ("producer_name", model.producer_name),
            ("producer_version", model.producer_version),
            ("domain", model.domain),
        ):
            entries += [f"{key}: {quoted(text)}"] if text else []
        if model.model_version is not None:
            entries.append(f"model_version: {model.model_version}")
        if model.doc:
            entries.append(f"doc_string: {quoted(model.doc)}")
        if model.metadata:
            pairs = ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in model.metadata.items())
            entries.append(f"metadata_props: [{pairs}]")
        parts = [_header(entries) + self.graph(model.graph)]
        parts += [self.function(function) for function in model.functions.values()]
        return "\n".join(parts) + "\n"

    def function(self, function: Function) -> str:
        names = ScopedNames.of(function.graph)
        entries = [f"domain: {quoted(function.domain)}"]
        entries += [f"overload: {quoted(function.overload)}"] if function.overload else []
        entries += [f"opset_import: {_opsets(function.opsets)}"]
        entries += [f"doc_string: {quoted(function.doc)}"] if function.doc else []
        attributes = [name_text(name) for name in function.required_attributes]
        attributes += [self.attribute(name, attribute, names, STEP) for name, attribute in function.default_attributes.items()]
        inputs = ", ".join(name_text(names[value]) for value in function.graph.inputs)
        outputs = ", ".join(name_text(names[value]) for value in function.graph.outputs)
        text = _header(entries) + name_text(function.name)
        text += f" <{', '.join(attributes)}>" if attributes else " "
        infos = [self._typed(value, names) for value in function.graph.values() if _is_known(value)]
        text += f"({inputs}) => ({outputs})"
        text += f"\n{STEP}<{', '.join(infos)}>" if infos and self.types else ""
        return f"{text}\n{self._nodes(function.graph, names, '')}"

    # --- graphs

    def graph(self, graph: Graph, outer: ScopedNames | None = None, indent: str = "") -> str:
        names = ScopedNames.of(graph, outer)
        inputs = ", ".join(self._typed(value, names) for value in graph.inputs)
        outputs = ", ".join(self._typed(value, names) for value in graph.outputs)
        infos = [self._initializer(value, names) for value in graph.initializers.values()]
        if self.types:
            known = {*graph.inputs, *graph.outputs, *graph.initializers.values()}
            infos += [
                self._typed(value, names)
                for value in graph.values()
                if value not in known and names[value] and _is_known(value)
            ]
        name = name_text(graph.name) if outer is None else _inner_name(graph.name)
        text = f"{name} ({inputs}) => ({outputs})"
        if infos:
            text += f"\n{indent}{STEP}<{', '.join(infos)}>\n{indent}"
        else:
            text += " " if outer is not None else "\n"
        return text + self._nodes(graph, names, indent)

    def _nodes(self, graph: Graph, names: ScopedNames, indent: str) -> str:
        lines = ["{"]
        lines += [f"{indent}{STEP}{self.node(node, names, indent + STEP)}" for node in graph.nodes]
        return "\n".join([*lines, f"{indent}}}"])

    def _typed(self, value: Value, names: ScopedNames) -> str:
        type = type_text(value.type or value.declared)
        return f"{type} {name_text(names[value])}" if type is not None else name_text(names[value])

    def _initializer(self, value: Value, names: ScopedNames) -> str:
        if value.constant is None:
            raise InvalidGraph(f"Initializer {value.name!r} has no data.")
        return f"{_tensor_type(value.constant)} {name_text(names[value])} = {self.elements(value.constant)}"

    # --- nodes

    def node(self, node: Node, names: ScopedNames | None = None, indent: str = "") -> str:
        """One node; without `names` its values are called as they call themselves."""
        names = names if names is not None else ScopedNames.of_node(node)
        label = f"[{name_text(node.name)}] " if node.name else ""
        outputs = ", ".join(name_text(names[value]) for value in node.outputs)
        inputs = ", ".join('""' if value is None else name_text(names[value]) for value in node.inputs)
        domain = ".".join(name_text(part) for part in node.domain.split(".")) + "." if node.domain else ""
        overload = f":{name_text(node.overload)}" if node.overload else ""
        attributes = ", ".join(self.attribute(name, attribute, names, indent) for name, attribute in node.attributes.items())
        brackets = f" <{attributes}>" if attributes else ""
        has_graph = any(True for _ in node.subgraphs)
        call = f" ({inputs}){brackets}" if has_graph else f"{brackets} ({inputs})"
        return f"{label}{outputs} = {domain}{name_text(node.op_type)}{overload}{call}"

    def attribute(self, name: str, attribute: Attribute, names: ScopedNames, indent: str) -> str:
        kind = attribute.kind
        start = f"{name_text(name)}: {kind.name.lower()} ="
        if attribute.reference is not None:
            return f"{start} @{name_text(attribute.reference)}"
        if kind in _LIST_ITEM:
            shown = attribute.value if self.max_elements is None else attribute.value[: self.max_elements]
            texts = [self._value(item, _LIST_ITEM[kind], names, indent) for item in shown]
            values = ", ".join(texts if len(shown) == len(attribute.value) else [*texts, "..."])
            return f"{start} [{values}]"
        return f"{start} {self._value(attribute.value, kind, names, indent)}"

    def _value(self, value: object, kind: Kind, names: ScopedNames, indent: str) -> str:
        match value:
            case Graph():
                return self.graph(value, names, indent)
            case Tensor():
                name = f" {value.name}" if _WORD.fullmatch(value.name) and not _is_reserved(value.name) else ""
                return f"{_tensor_type(value)}{name} {self.elements(value)}"
            case str():
                return quoted(value)
            case bytes():
                return quoted(value.decode("utf-8", "surrogateescape"))
            case int() | float() if kind is Kind.FLOAT:
                return decimal(value)
            case int():
                return str(int(value))
        if kind is Kind.TYPE_PROTO:
            return type_text(value) or "..."  # type: ignore[arg-type]
        return "..."

    def elements(self, tensor: Tensor) -> str:
        """The data in braces, or its beginning if there is too much."""
        if self.max_elements is None or tensor.size <= self.max_elements:
            return "{" + ",".join(literals(tensor.numpy(), tensor.dtype, readable=self.max_elements is not None)) + "}"
        beginning = tensor.numpy().reshape(-1)[: self.max_elements]
        return "{" + "".join(f"{text}," for text in literals(beginning, tensor.dtype, readable=True)) + "...}"


def _header(entries: Iterable[str]) -> str:
    return "<\n" + ",\n".join(f"{STEP}{entry}" for entry in entries) + "\n>\n"


def _opsets(opsets: dict[str, int]) -> str:
    return "[" + ", ".join(f"{quoted(domain)} : {version}" for domain, version in opsets.items()) + "]"


def _is_reserved(name: str) -> bool:
    return name in TYPE_NAMES or name in TYPE_CONSTRUCTORS or name.lower() in FLOAT_WORDS


def name_text(name: str) -> str:
    """A name as it stands, or in quotes where it could be taken for something else."""
    return name if _WORD.fullmatch(name) and not _is_reserved(name) else quoted(name)


def _inner_name(name: str) -> str:
    """The name of a graph in an attribute, where the onnx package's parser takes no quotes; nobody refers to it."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if _WORD.fullmatch(plain) and not _is_reserved(plain) else f"_{plain}"


# --- types


def _is_known(value: Value) -> bool:
    return type_text(value.type or value.declared) is not None


def type_text(type: Type | None) -> str | None:
    """The type, or None if something about it is unknown that the text form cannot leave open."""
    match type:
        case TensorType(dtype, shape) if dtype is not None:
            return f"{dtype}{_shape_text(shape)}"
        case SparseTensorType(dtype, shape) if dtype is not None:
            return f"sparse_tensor({dtype}{_shape_text(shape)})"
        case SequenceType(element) | OptionalType(element):
            inner = type_text(element)
            word = "seq" if isinstance(type, SequenceType) else "optional"
            return f"{word}({inner})" if inner is not None else None
        case MapType(key, value):
            inner = type_text(value)
            return f"map({key}, {inner})" if inner is not None else None
        case OpaqueType(domain, name):
            return f"opaque({domain}, {name})" if domain else f"opaque({name})"
    return None


def _shape_text(shape: Shape | None) -> str:
    if shape is None:
        return "[]"
    return "[" + ",".join(_size_text(size) for size in shape) + "]" if shape else ""


def _size_text(size: dim.Dim) -> str:
    if isinstance(size, int):
        return str(size)
    if any(symbol.is_anonymous for symbol in dim.symbols(size)):
        return "?"
    return str(size) if _WORD.fullmatch(str(size)) else quoted(str(size))


def _tensor_type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{_shape_text(tensor.shape)}"
