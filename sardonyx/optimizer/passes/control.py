"""Control flow that is decided before the first run: an If whose condition is constant is replaced by the branch that it takes.

Exporters write an If where an axis is squeezed only if its size is 1, so that nobody knows how many axes the result has. It nearly always
is 1. Where that may be supposed, the branch that squeezes is put in place, and who runs the model compares the sizes. Inside a branch of
another If it is supposed for the runs that take this branch, if that depends on an input that is one number, as a sampling rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sardonyx.ir import Dim, Graph, Node, TensorType, Value, dim, edit
from sardonyx.ir.cloning import Cloner, Names
from sardonyx.ir.suppositions import Comparison, Supposition
from sardonyx.ops.reading import constant
from sardonyx.optimizer.rewriting import Rewriting


def inline_taken_branches(graph: Graph, rewriting: Rewriting) -> bool:
    """Put the nodes of the branch that is always taken in place of an If."""
    names: Names | None = None
    changed = False
    for node in list(graph.nodes):
        branch = _taken(node)
        if branch is None:
            continue
        names = names or Names(edit.outermost(graph))
        _inline(graph, node, branch, names, rewriting)
        changed = True
    is_supposed = _suppose(graph, rewriting)
    if changed or is_supposed:
        # one branch says more of its outputs' types than both have in common, and so does the graph around it
        rewriting.driver.graph(rewriting.model.graph if is_supposed else graph)
    return changed or is_supposed


def _suppose(graph: Graph, rewriting: Rewriting) -> bool:
    """Suppose that an axis has the size 1, if an If asks for it that squeezes the axis then. Others may be decided by that."""
    suppositions, model_graph = rewriting.journal.suppositions, rewriting.model.graph
    comparisons = None if suppositions is None else comparisons_around(graph, model_graph)
    if suppositions is None or comparisons is None:
        return False
    for node in graph.nodes:
        sizes = _asked_sizes(node, model_graph) if _may_squeeze(node) else None
        if sizes is not None:
            rewriting.journal.outputs = rewriting.journal.outputs or [value.type for value in model_graph.outputs]
            suppositions.append(Supposition(*sizes, comparisons))
            _inline(graph, node, node.attributes["then_branch"].value, Names(model_graph), rewriting)
            return True
    return False


def comparisons_around(graph: Graph, outermost: Graph) -> list[Comparison] | None:
    """What must be true of inputs for a branch to be taken; None where something else decides."""
    found: list[Comparison] = []
    while graph is not outermost:
        node = graph.parent
        if node is None or node.op_type != "If" or node.domain or node.graph is None:
            return None
        comparison = _comparison(node.inputs[0], outermost, node.attributes["then_branch"].value is graph)
        if comparison is None:
            return None
        found.append(comparison)
        graph = node.graph
    return found


def _comparison(condition: Value | None, graph: Graph, is_wanted: bool) -> Comparison | None:
    """When a condition is true, or false, in terms of one input of the model."""
    node = None if condition is None else condition.producer
    while node is not None and not node.domain and node.op_type in ("Not", "Identity"):
        is_wanted = is_wanted != (node.op_type == "Not")
        condition = node.inputs[0]
        node = None if condition is None else condition.producer
    if node is None:
        return Comparison(condition.name, True, is_wanted) if _is_single_input(condition, graph) else None  # type: ignore[union-attr]
    if node.domain or node.op_type != "Equal":
        return None
    for given, number in (node.inputs, node.inputs[::-1]):
        content = None if number is None else constant(number)
        if _is_single_input(given, graph) and content is not None and content.size == 1 and content.dtype.kind in "biuf":
            return Comparison(given.name, content.item(), is_wanted)  # type: ignore[union-attr]
    return None


def _is_single_input(value: Value | None, graph: Graph) -> bool:
    """Whether a value is an input of the model with one number in it."""
    if value is None or value not in graph.inputs or value.constant is not None or not isinstance(value.type, TensorType):
        return False
    shape, dtype = value.type.shape, value.type.dtype
    return shape is not None and all(size == 1 for size in shape) and dtype is not None and dtype.numpy.kind in "biuf"


def _may_squeeze(node: Node) -> bool:
    """Whether a node squeezes a value, or leaves it as it is."""
    if node.op_type != "If" or node.domain or len(node.outputs) != 1:
        return False
    squeezing, leaving = (
        [inner for inner in node.attributes[name].value.nodes if inner.op_type != "Constant"]
        for name in ("then_branch", "else_branch")
    )
    if [inner.op_type for inner in (*squeezing, *leaving)] != ["Squeeze", "Identity"] or squeezing[0].domain:
        return False
    return squeezing[0].inputs[0] is leaving[0].inputs[0] and getattr(node.outputs[0].type, "shape", None) is None


def _asked_sizes(node: Node, graph: Graph) -> tuple[Dim, Dim] | None:
    """The sizes that an If compares, where the shapes of inputs tell them."""
    condition = node.inputs[0]
    equal = None if condition is None else condition.producer
    if equal is None or equal.op_type != "Equal" or equal.domain:
        return None
    left, right = (None if value is None else _only_size(value) for value in equal.inputs)
    if left is None or right is None:
        return None
    return (left, right) if are_told((left, right), graph) else None


def are_told(sizes: Sequence[Dim], graph: Graph) -> bool:
    """Whether the shapes of a model's inputs tell some sizes."""
    shapes = [getattr(value.type, "shape", None) or () for value in graph.inputs]
    told = {size.symbol for shape in shapes for size in shape if not isinstance(size, int)}
    return all(symbol in told for size in sizes for symbol in dim.symbols(size))


def _only_size(value: Value) -> Dim | None:
    content = constant(value) if value.is_constant else value.known
    if content is None or content.size != 1:
        return None
    size = np.reshape(content, -1).tolist()[0]
    return size if isinstance(size, (int, dim.Expression)) else None


def _taken(node: Node) -> Graph | None:
    """The branch of an If that it takes in every run."""
    if node.op_type != "If" or node.domain or node.inputs[0] is None:
        return None
    condition = constant(node.inputs[0])
    if condition is None or condition.size != 1:
        return None
    branch: Graph = node.attributes["then_branch" if condition.item() else "else_branch"].value
    return branch


def _inline(graph: Graph, node: Node, branch: Graph, names: Names, rewriting: Rewriting) -> None:
    rewriting.journal.add("ConstantFolding", node)
    results = copy_before(node, branch, {}, names, rewriting)
    for output, result in zip(list(node.outputs), results, strict=False):
        if output.name:
            edit.replace_all_uses(output, result)
    graph.remove(node)


def copy_before(
    node: Node, inner: Graph, given: Mapping[Value, Value], names: Names, rewriting: Rewriting, prefix: str = ""
) -> list[Value]:
    """Put a copy of the nodes of a graph inside a node in front of it; `given` stands for its inputs. Returns its outputs."""
    graph = node.graph
    assert graph is not None
    prefix = prefix or node.name or node.outputs[0].name or node.op_type
    cloner = Cloner(
        dict(given),
        value_name=lambda name: names.value(f"{prefix}/{name}"),
        node_name=lambda name: names.node(f"{prefix}/{name}"),
    )
    for value in inner.initializers.values():
        _adopt(graph, cloner.value(value))
    copies = [cloner.node(one) for one in inner.nodes]
    edit.insert_before(node, copies)
    for copy in copies:
        rewriting.driver.node(copy)
    return [cloner.values.get(value, value) or value for value in inner.outputs]


def _adopt(graph: Graph, value: Value) -> None:
    value.graph = graph
    graph.initializers[value.name] = value
