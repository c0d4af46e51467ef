"""The tree of a text -> graphs, functions and models. `ir.text` calls this with what the parser made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.ir import edit
from sardonyx.ir.attribute import Attribute, Kind
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.model import Function, Model
from sardonyx.ir.opsets import NEWEST
from sardonyx.ir.scope import Scope
from sardonyx.ir.tensor import ExternalLocation, Tensor
from sardonyx.ir.text_syntax import (
    AttributeText,
    ExternalText,
    FunctionText,
    GraphText,
    ModelText,
    NodeText,
    ValueText,
)
from sardonyx.startup.records import dataclass

Fetch = Callable[[ElementType, tuple[int, ...], ExternalLocation], Tensor]
"""Makes the tensor whose data is at an external location."""


@dataclass
class Linking:
    """What holds for all nodes of a graph or function."""

    opsets: Mapping[str, int]
    fetch: Fetch | None = None
    ir_version: int = 10
    lenient: bool = False
    """A domain without a version is taken as version 1."""

    def version(self, node: NodeText, domain: str) -> int:
        if domain in self.opsets:
            return self.opsets[domain]
        if self.lenient or domain == "com.microsoft":
            return 1
        raise Fail(
            f"Fatal error: {domain or 'ai.onnx'}:{node.op_type}(-1) is not a registered function/op, "
            f"for no opset of domain '{domain}' is imported."
        )

    def tensor(self, data: Tensor | ExternalText, name: str) -> Tensor:
        if isinstance(data, Tensor):
            return data
        if self.fetch is None:
            raise Fail(f"Data of '{name}' is external, and nobody said where to find it.")
        tensor = self.fetch(data.dtype, data.shape, data.location)
        tensor.name = name
        return tensor


def link_model(tree: ModelText, fetch: Fetch | None) -> Model:
    """The model that a text means."""
    header = dict(tree.header)
    linking = Linking(_opsets(header), fetch, _number(header, "ir_version", 10))
    model = Model(
        link_graph(tree.graph, linking),
        dict(linking.opsets),
        linking.ir_version,
        producer_name=_text(header, "producer_name"),
        producer_version=_text(header, "producer_version"),
        domain=_text(header, "domain"),
        model_version=_number(header, "model_version", None),
        doc=_text(header, "doc_string"),
        metadata={key: str(value) for key, value in (header.pop("metadata_props", None) or {}).items()},
    )
    _check_empty(header)
    for function_text in tree.functions:
        function = link_function(function_text, fetch)
        if function.key in model.functions:
            raise Fail(f"Duplicate definition of function ({function.domain}:{function.name}:{function.overload}).")
        model.functions[function.key] = function
    return model


def link_function(tree: FunctionText, fetch: Fetch | None) -> Function:
    """The function that a text means."""
    header = dict(tree.header)
    linking = Linking(_opsets(header), fetch)
    function = Function(
        _domain(_text(header, "domain")),
        tree.name,
        link_graph(tree.graph, linking),
        dict(linking.opsets),
        tree.required_attributes,
        {attribute.name: link_attribute(attribute, linking, Scope()) for attribute in tree.default_attributes},
        _text(header, "overload"),
        _text(header, "doc_string"),
    )
    _check_empty(header)
    return function


def _opsets(header: dict[str, Any]) -> dict[str, int]:
    imports = header.pop("opset_import", None)
    if imports is None:
        return {"": NEWEST[""]}
    if not isinstance(imports, dict) or not all(isinstance(version, int) for version in imports.values()):
        raise InvalidArgument(f"ONNX text: opset_import must be versions by domain, not {imports!r}.")
    return {_domain(domain): version for domain, version in imports.items()}


def _text(header: dict[str, Any], key: str) -> str:
    value = header.pop(key, "")
    if not isinstance(value, str):
        raise InvalidArgument(f"ONNX text: {key} must be a text, not {value!r}.")
    return value


def _number(header: dict[str, Any], key: str, default: Any) -> Any:
    value = header.pop(key, default)
    if value is not default and not isinstance(value, int):
        raise InvalidArgument(f"ONNX text: {key} must be a number, not {value!r}.")
    return value


def _check_empty(header: dict[str, Any]) -> None:
    if header:
        raise InvalidArgument(f"ONNX text: unknown key '{next(iter(header))}'.")


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


# --- graphs


def link_graph(tree: GraphText, linking: Linking, outer: Scope | None = None) -> Graph:
    """The graph that a text means, perhaps inside another."""
    scope = Scope.inside(outer, tree.name)
    graph = Graph(tree.name)
    inputs = [_define(scope, value_text) for value_text in tree.inputs]
    for value_text in (*tree.inputs, *tree.infos):
        if value_text.data is not None:
            _add_initializer(graph, scope, value_text.name, linking.tensor(value_text.data, value_text.name))
    for value in inputs:
        if value.constant is None or linking.ir_version >= 4:  # before that listing an initializer did not mean it can be fed
            graph.add_input(value)
    for node in tree.nodes:
        for name in node.outputs:
            if name:
                scope.define_later(name)
    for node in tree.nodes:
        graph.append(_link_node(node, linking, scope))
        scope.later.difference_update(node.outputs)
    for value_text in tree.infos:
        if value_text.data is None and value_text.name in scope.values:
            _describe(scope.values[value_text.name], value_text)
    graph.outputs = [_link_output(value_text, graph, scope, linking) for value_text in tree.outputs]
    if not scope.is_sorted:
        edit.topological_sort(graph)
    return graph


def _define(scope: Scope, text: ValueText) -> Value:
    value = scope.define(text.name)
    _describe(value, text)
    return value


def _describe(value: Value, text: ValueText) -> None:
    if value.declared is None:
        value.declared = text.type
        value.type = value.type or text.type


def _add_initializer(graph: Graph, scope: Scope, name: str, tensor: Tensor) -> None:
    value = scope.values.get(name)
    if value is None or value.constant is not None:
        value = scope.define(name)
    value.constant = tensor
    value.type = value.type or tensor.type
    value.graph = graph
    graph.initializers[name] = value


def _link_output(text: ValueText, graph: Graph, scope: Scope, linking: Linking) -> Value:
    value = scope.find_output(text.name, graph, linking.opsets.get("", 1))
    if value is None:
        raise Fail(f"This is an invalid model. Graph output ({text.name}) does not exist in the graph.")
    _describe(value, text)
    return value


def _link_node(tree: NodeText, linking: Linking, scope: Scope) -> Node:
    domain = _domain(tree.domain)
    attributes: dict[str, Attribute] = {}
    for attribute in tree.attributes:
        if attribute.name in attributes:
            raise InvalidArgument(f"ONNX text: {tree.op_type} '{tree.label}' has two attributes '{attribute.name}'.")
        attributes[attribute.name] = link_attribute(attribute, linking, scope)
    return Node(
        tree.op_type,
        [_operand(name, tree, scope) if name else None for name in tree.inputs],
        [scope.values[name] if name else "" for name in tree.outputs],
        attributes,
        domain=domain,
        version=linking.version(tree, domain),
        name=tree.label,
        overload=tree.overload,
    )


def _operand(name: str, tree: NodeText, scope: Scope) -> Value:
    value = scope.find(name)
    if value is None:
        label = f"{tree.op_type} '{tree.label or next(iter(tree.outputs), '')}'"
        raise InvalidArgument(
            f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a previous node. It is of {label}."
        )
    return value


def link_attribute(tree: AttributeText, linking: Linking, scope: Scope) -> Attribute:
    """An attribute; graphs in it see the values of `scope`."""
    value = tree.value
    if tree.kind is Kind.GRAPH and tree.reference is None:
        value = link_graph(value, linking, scope)
    elif tree.kind is Kind.GRAPHS and tree.reference is None:
        value = [link_graph(body, linking, scope) for body in value]
    elif tree.kind in (Kind.TENSOR, Kind.TENSORS) and tree.reference is None:
        tensors = [linking.tensor(data, tree.name) for data in (value if tree.kind is Kind.TENSORS else [value])]
        value = tensors if tree.kind is Kind.TENSORS else tensors[0]
    elif tree.kind in (Kind.STRING, Kind.STRINGS) and tree.reference is None:
        value = [_as_read(text) for text in value] if tree.kind is Kind.STRINGS else _as_read(value)
    return Attribute(tree.kind, value, tree.reference)


def _as_read(text: str) -> str | bytes:
    """Text, or bytes where it is no UTF-8, as readers of files have it."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
