"""Functions that change graphs and keep all links true: the readers, the optimizer and the runtime edit through these.

Nothing here recurses along nodes, so graphs may be as long as they like; recursion follows only graphs inside graphs.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from sardonyx.errors import Fail, InvalidGraph
from sardonyx.ir.attribute import Attribute
from sardonyx.ir.cloning import Cloner, Names, clone_graph, clone_model, unique_name
from sardonyx.ir.graph import Graph, Node, Value, all_graphs
from sardonyx.ir.model import Function, FunctionKey, Model

logger = logging.getLogger("sardonyx.ir")

__all__ = [
    "LATER",
    "Names",
    "all_graphs",
    "clone_graph",
    "clone_model",
    "discard",
    "inline_call",
    "inline_functions",
    "insert_before",
    "instantiate",
    "mark_alike",
    "operands",
    "opset_of",
    "outermost",
    "remove_nodes",
    "remove_unused",
    "replace_all_uses",
    "replace_node",
    "replace_output",
    "topological_sort",
    "unique_name",
]

# --- order


def topological_sort(graph: Graph) -> None:
    """Put each node after those whose outputs it or its subgraphs use; otherwise the order stays. Fail if there is a cycle."""
    nodes = list(graph.nodes)
    position = {node: number for number, node in enumerate(nodes)}
    waiting = [0] * len(nodes)
    followers: list[list[int]] = [[] for _ in nodes]
    for number, node in enumerate(nodes):
        for producer in dict.fromkeys(value.producer for value in operands(node)):
            if producer in position:
                followers[position[producer]].append(number)
                waiting[number] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[Node] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(nodes[number])
        for follower in followers[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    if len(order) < len(nodes):
        stuck = next(node for node, count in zip(nodes, waiting, strict=True) if count)
        raise Fail(
            f"This is an invalid model. Error: the graph is not acyclic. {stuck} depends on itself, or on a node that does."
        )
    graph.reorder(order)


def operands(node: Node) -> Iterator[Value]:
    """All values that a node or its subgraphs use, those that the subgraphs make included."""
    for value in node.inputs:
        if value is not None:
            yield value
    for graph in node.subgraphs:
        for nested in all_graphs(graph):
            yield from nested.outputs
            for inner in nested.nodes:
                yield from (value for value in inner.inputs if value is not None)


# --- replacing


def replace_all_uses(old: Value, new: Value) -> None:
    """Let everybody who uses `old` use `new`, the graph's outputs too.

    A main graph's or function's output keeps its name: `new` takes it, or, where it must keep its own (it is an input, an
    initializer, an output itself, or of another graph), an Identity at the end makes the output from it.
    """
    for node, position in list(old.uses):
        node.set_input(position, new)
    if old is new or not old.is_graph_output:
        return
    graph = old.graph
    assert graph is not None
    if graph.parent is None or new.graph is not graph:
        if new.producer is not None and new.graph is graph and not new.is_graph_output:
            new.name, old.name = old.name, new.name
            new.declared = old.declared or new.declared
        else:
            new = _identity_at_end(graph, old, new)
    graph.outputs = [new if output is old else output for output in graph.outputs]
    if graph.edited is not None:
        graph.edited += (value.producer for value in (old, new) if value.producer is not None)


def _identity_at_end(graph: Graph, old: Value, new: Value) -> Value:
    copy = Value(old.name, old.type)
    copy.declared, copy.doc, copy.metadata = old.declared, old.doc, old.metadata
    old.name = ""
    graph.append(Node("Identity", [new], [copy], version=opset_of(graph)))
    return copy


def opset_of(graph: Graph, default: int = 16) -> int:
    """The version of the standard domain that nodes around here are written for."""
    return next((node.version for node in outermost(graph).all_nodes() if not node.domain), default)


def outermost(graph: Graph) -> Graph:
    """The main graph or function body that `graph` is part of."""
    while graph.parent is not None and graph.parent.graph is not None:
        graph = graph.parent.graph
    return graph


def insert_before(anchor: Node, nodes: Iterable[Node]) -> None:
    """Put new nodes, in order, in front of `anchor`."""
    assert anchor.graph is not None
    for node in nodes:
        anchor.graph.insert_before(anchor, node)


def replace_node(node: Node, nodes: Sequence[Node], outputs: Sequence[Value | None]) -> None:
    """Put `nodes` in place of `node`; whoever used its outputs uses `outputs` from now on (None: nobody did)."""
    insert_before(node, nodes)
    for old, new in zip(node.outputs, outputs, strict=False):
        if new is not None:
            replace_all_uses(old, new)
    assert node.graph is not None
    node.graph.remove(node)


def replace_output(node: Node, position: int, value: Value) -> Value:
    """Let a node make `value`, a new one, at an output's position; returns what it made before, which has no producer then."""
    old = node.outputs[position]
    old.producer = None
    node._outputs[position] = value
    value.producer, value.graph = node, node.graph
    return old


# --- removing


LATER = "sardonyx-later"
"""What the metadata of a node has that shall not run together with nodes that have it not, so that its results need not wait."""


def mark_alike(new: Node, old: Node) -> None:
    """Of nodes that come in the place of others: they run no earlier than these."""
    if LATER in old.metadata:
        new.metadata[LATER] = old.metadata[LATER]


def remove_nodes(nodes: Iterable[Node]) -> None:
    """Remove nodes that nobody else uses, in whichever order they come."""
    waiting = list(nodes)
    while waiting:
        blocked = [node for node in waiting if any(output.uses for output in node.outputs)]
        for node in waiting:
            if not any(output.uses for output in node.outputs):
                assert node.graph is not None
                node.graph.remove(node)
        if len(blocked) == len(waiting):
            raise ValueError(f"{blocked[0]} cannot be removed, it is used")
        waiting = blocked


def remove_unused(graph: Graph) -> int:
    """Remove nodes and initializers, inner graphs included, that no output needs; say how many."""
    removed = 0
    wanted = {id(value) for value in graph.outputs}
    for node in reversed(list(graph.nodes)):
        for output in node.outputs:
            if output.uses or id(output) in wanted:
                break
        else:
            graph.remove(node)
            removed += 1
            continue
        for inner in node.subgraphs:
            removed += remove_unused(inner)
    for value in list(graph.initializers.values()):
        if not value.uses and not value.is_input and id(value) not in wanted:
            graph.remove_initializer(value)
            removed += 1
    return removed


# --- functions

NODE_LIMIT = 1_000_000
"""How many nodes functions may expand to: few bytes can mean very many nodes."""
MAX_DEPTH = 64
"""How deep graphs may nest."""


def instantiate(
    function: Function, call: Node, names: Names | None = None, node_limit: int = NODE_LIMIT
) -> tuple[list[Node], list[Value]]:
    """Nodes that do what `call` of `function` does, in no graph yet, and the values in place of its outputs.

    Inner names get the call's as a prefix. An attribute that refers to one of the call's takes its value, else the function's
    default, else is dropped.
    """
    _check_call(function, call)
    names = names if names is not None else Names(outermost(call.graph) if call.graph else None)
    prefix = call.name or next((output.name for output in call.outputs if output.name), function.name)
    cloner = Cloner(
        value_name=lambda name: names.value(f"{prefix}/{name}"),
        node_name=lambda name: names.node(f"{prefix}/{name}"),
        resolve=lambda name, attribute: _resolved(function, call, name, attribute),
        node_limit=node_limit,
    )
    operands = [*call.inputs, *[None] * (len(function.graph.inputs) - len(call.inputs))]
    cloner.values.update(zip(function.graph.inputs, operands, strict=True))
    nodes = [cloner.node(node) for node in function.graph.nodes]
    return nodes, [_output(function, call, cloner, value, nodes) for value in function.graph.outputs]


def _check_call(function: Function, call: Node) -> None:
    for what, count, possible in (
        ("input", len(call.inputs), len(function.graph.inputs)),
        ("output", len(call.outputs), len(function.graph.outputs)),
    ):
        if count > possible:
            raise InvalidGraph(
                f"This is an invalid model. In Node, {call}, Error it has {count} {what}s, its function has {possible}."
            )
    known = {*function.required_attributes, *function.default_attributes}
    unknown = next((name for name in call.attributes if name not in known), None)
    if unknown is not None:
        logger.warning("%s: the attribute '%s' is unknown to its function and left out.", call, unknown)


def _resolved(function: Function, call: Node, name: str, attribute: Attribute) -> Attribute | None:
    assert attribute.reference is not None
    resolved = call.attributes.get(attribute.reference) or function.default_attributes.get(attribute.reference)
    if resolved is not None and resolved.kind is not attribute.kind:
        raise InvalidGraph(
            f"This is an invalid model. In Node, {call}, Error Mismatched attribute type: '{attribute.reference}' is "
            f"{resolved.kind.name}, attribute '{name}' in function {function.name} needs {attribute.kind.name}."
        )
    return resolved


def _output(function: Function, call: Node, cloner: Cloner, value: Value, nodes: list[Node]) -> Value:
    """What stands for an output of the function.

    A mere input of it goes through an Identity; what the body does not make becomes a value without name and producer.
    """
    if value.producer is None and not value.is_input:
        return Value("")
    result = cloner.values.get(value, value)
    if result is None:
        raise Fail(f"{call}: output {value.name!r} of the function is its input, which this call leaves out.")
    if value.producer is not None:
        return result
    identity = Node("Identity", [result], [cloner.value_name(value.name)], version=function.opsets.get("", 16))
    nodes.append(identity)
    return identity.outputs[0]


def discard(nodes: Iterable[Node]) -> None:
    """Let nodes that are in no graph give up all uses of values."""
    for node in nodes:
        node.release()


def inline_call(
    graph: Graph, call: Node, function: Function, names: Names | None = None, node_limit: int = NODE_LIMIT
) -> list[Node]:
    """Replace `call`, a node of `graph`, by the body of its function. The call's outputs stay the same values."""
    nodes, results = instantiate(function, call, names, node_limit)
    insert_before(call, nodes)
    adopted: dict[Value, Value] = {}
    for output, result in zip(list(call.outputs), results, strict=False):
        if result in adopted:  # two outputs of the function are one value
            identity = Node("Identity", [adopted[result]], [], version=function.opsets.get("", 16))
            nodes.append(graph.insert_before(call, identity))
            output.producer = None
            identity.append_output(output)
        elif adopt(output, result):
            adopted[result] = output
    graph.unlink(call)
    discard([call])
    return nodes


def adopt(output: Value, result: Value) -> bool:
    """Put the call's own value in place of `result` among its producer's outputs, unless nobody wants it."""
    if not (output.name or output.uses):
        output.producer = None
        return False
    producer = result.producer
    if producer is None:
        raise Fail(f"{output.producer}: its function does not make output {output.name!r}.")
    for node, operand in list(result.uses):
        node.set_input(operand, output)
    position = next(number for number, value in enumerate(producer.outputs) if value is result)
    producer._outputs[position] = output
    output.producer, output.graph = producer, producer.graph
    output.type = output.type or result.type
    return True


def inline_functions(
    model: Model, keep: Callable[[FunctionKey], bool] = lambda key: False, node_limit: int = NODE_LIMIT
) -> None:
    """Expand all calls of model-local functions but those to keep, and forget the functions that are not called any more.

    Fail if a function calls itself, or if more than `node_limit` nodes or too deeply nested graphs would come out.
    """
    expanded = {key: function for key, function in model.functions.items() if not keep(key)}
    kept = [function.graph for key, function in model.functions.items() if key not in expanded]
    _check_sizes([model.graph, *kept], expanded, node_limit)
    for graph in (model.graph, *kept):
        _inline_in(graph, expanded, node_limit)
    for key, function in expanded.items():
        model.functions.pop(key)
        for domain, version in function.opsets.items():
            model.opsets.setdefault(domain, version)


def _inline_in(graph: Graph, functions: dict[FunctionKey, Function], node_limit: int) -> None:
    names = Names(graph)
    stack = [(node, 0) for node in graph.nodes][::-1]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise Fail(f"{node} is nested deeper than {MAX_DEPTH} graphs.")
        function = functions.get(_key(node))
        if function is None:
            for inner in node.subgraphs:
                stack.extend([(member, depth + 1) for member in inner.nodes][::-1])
            continue
        assert node.graph is not None
        new = inline_call(node.graph, node, function, names, node_limit)
        node_limit -= len(new) + sum(1 for member in new for inner in member.subgraphs for _ in inner.all_nodes())
        stack.extend([(member, depth) for member in new][::-1])


def _key(node: Node) -> FunctionKey:
    return node.domain, node.op_type, node.overload


def _check_sizes(graphs: Sequence[Graph], functions: dict[FunctionKey, Function], node_limit: int) -> None:
    """Fail if a function calls itself, or if too many nodes would come out; nothing is expanded for that."""
    calls = {key: _calls(function.graph, functions) for key, function in functions.items()}
    sizes: dict[FunctionKey, int] = {}
    for start in functions:
        path: dict[FunctionKey, Iterator[FunctionKey]] = {start: iter(calls[start])} if start not in sizes else {}
        while path:
            key, rest = next(reversed(path.items()))
            callee = next((other for other in rest if other not in sizes), None)
            if callee is None:
                sizes[key] = sum(1 for _ in functions[key].graph.all_nodes()) + sum(sizes[other] for other in calls[key])
                path.popitem()
            elif callee in path:
                raise Fail(f"Function {_spelled(callee)} calls itself: {' -> '.join(map(_spelled, [*path, callee]))}.")
            else:
                path[callee] = iter(calls[callee])
    total = sum(sizes[key] for graph in graphs for key in _calls(graph, functions))
    if total > node_limit:
        raise Fail(f"The model's functions expand to {total} nodes, more than the limit of {node_limit}.")


def _calls(graph: Graph, functions: dict[FunctionKey, Function]) -> list[FunctionKey]:
    return [key for node in graph.all_nodes() if (key := _key(node)) in functions]


def _spelled(key: FunctionKey) -> str:
    domain, name, overload = key
    return f"{domain}:{name}:{overload}" if overload else f"{domain}:{name}"
