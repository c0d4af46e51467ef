"""Control flow that is decided before the first run: an If whose condition is constant is replaced by the branch that it takes."""

from __future__ import annotations

from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ir.cloning import Cloner, Names
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
    if changed:
        rewriting.driver.graph(graph)  # one branch says more of its outputs' types than both have in common
    return changed


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
    prefix = node.name or node.outputs[0].name or "If"
    cloner = Cloner(
        value_name=lambda name: names.value(f"{prefix}/{name}"), node_name=lambda name: names.node(f"{prefix}/{name}")
    )
    for value in branch.initializers.values():
        _adopt(graph, cloner.value(value))
    copies = [cloner.node(inner) for inner in branch.nodes]
    edit.insert_before(node, copies)
    for copy in copies:
        rewriting.driver.node(copy)
    for output, inner in zip(list(node.outputs), branch.outputs, strict=False):
        if output.name:
            edit.replace_all_uses(output, cloner.values.get(inner, inner) or inner)
    graph.remove(node)


def _adopt(graph: Graph, value: Value) -> None:
    value.graph = graph
    graph.initializers[value.name] = value
