"""What is the same in all rounds of a Loop or Scan: state that bodies hand on as it came is read from outside, and what is computed from
such values alone is computed before. Exporters of whole programs carry all weights through their loops.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ir.cloning import Cloner, Names
from sardonyx.ops.table import facts_of
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import rank_of


def keep_invariants(graph: Graph, rewriting: Rewriting) -> bool:
    """Let the bodies of a graph's loops read what never changes from outside, and move out what depends on nothing else."""
    changed = False
    for node in list(graph.nodes):
        if not node.domain and node.op_type in ("Loop", "Scan") and node.version >= 9:
            body: Graph = node.attributes["body"].value
            if any([*_read_outside(node, body, rewriting), *_moved_out(graph, node, body, rewriting)]):
                rewriting.driver.node(node)
                changed = True
    return changed


def _read_outside(node: Node, body: Graph, rewriting: Rewriting) -> list[Value]:
    """State that every round hands on as it got it: inside and behind the loop stands what it began with."""
    invariants = []
    first, skipped = (2, 1) if node.op_type == "Loop" else (0, 0)
    states = len(node.inputs) - (first if node.op_type == "Loop" else int(node.attribute("num_scan_inputs")))
    for number in range(min(states, len(body.inputs) - first)):
        inner, initial = body.inputs[first + number], node.inputs[first + number]
        if initial is None or _origin(body.outputs[skipped + number]) is not inner:
            continue
        readers = [use for use in inner.uses if use[0].op_type != "Identity" or not use[0].outputs[0].is_graph_output]
        for user, position in readers:
            user.set_input(position, initial)
        wanted = node.outputs[number]
        if readers or wanted.uses:
            edit.replace_all_uses(wanted, initial)
            rewriting.journal.add("LoopInvariants", node)
            invariants.append(inner)
    return invariants


def _origin(value: Value) -> Value:
    """A value without the Identities that it went through."""
    while value.producer is not None and value.producer.op_type == "Identity" and value.producer.inputs[0] is not None:
        value = value.producer.inputs[0]
    return value


def _moved_out(graph: Graph, node: Node, body: Graph, rewriting: Rewriting) -> list[Node]:
    """Nodes of a body that read nothing of it, put in front of the loop."""
    names: Names | None = None
    moved_nodes = []
    for inner in list(body.nodes):
        if not _is_invariant(inner, body):
            continue
        names = names or Names(edit.outermost(graph))
        prefix = node.name or node.op_type
        cloner = Cloner(value_name=_named(names.value, prefix), node_name=_named(names.node, prefix))
        for value in {operand for operand in inner.inputs if operand is not None and operand.graph is body}:
            copy = cloner.value(value)
            copy.graph = graph
            graph.initializers[copy.name] = copy
        moved = cloner.node(inner)
        graph.insert_before(node, moved)
        rewriting.driver.node(moved)
        for old, new in zip(inner.outputs, moved.outputs):
            edit.replace_all_uses(old, new)
        body.remove(inner)
        rewriting.journal.add("LoopInvariants", inner)
        moved_nodes.append(inner)
    return moved_nodes


def _named(unique: Callable[[str], str], prefix: str) -> Callable[[str], str]:
    return lambda name: unique(f"{prefix}/{name}")


def _is_invariant(node: Node, body: Graph) -> bool:
    """Whether a node computes the same in each round, and cannot fail: all that it reads is constant or comes from outside.

    So a loop without rounds does not notice that it was computed.
    """
    if not facts_of(node).takes_any_data(node) or any(rank_of(value) is None for value in node.outputs):
        return False
    if node.op_type == "Identity" and node.outputs[0].is_graph_output:
        return False  # a body's output that comes from outside needs it
    operands = [value for value in node.inputs if value is not None]
    return not all(value.is_constant for value in operands) and all(
        value.is_constant or value.graph is not body for value in operands
    )
