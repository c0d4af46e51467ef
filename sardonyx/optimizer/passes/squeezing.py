"""Squeeze without axes: how many axes are left depends on sizes, and nothing behind it can be compiled.

Sizes that a model leaves open are seldom 1. Where the shapes of inputs tell them, they are supposed to be others, so that the axes
which are squeezed are those of size 1 that the model shows. Who runs the model compares the sizes. An output that declares another number
of axes speaks against it.
"""

from __future__ import annotations

from sardonyx.ir import Dim, Graph, Node, dim
from sardonyx.ir.suppositions import Supposition
from sardonyx.optimizer.passes.building import TypingBuilder, replace_value
from sardonyx.optimizer.passes.control import are_told, comparisons_around
from sardonyx.optimizer.passes.ranks import declared_rank
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import shape_of


def suppose_long_axes(graph: Graph, rewriting: Rewriting) -> bool:
    """Name the axes that a Squeeze drops, if all others are supposed to have other sizes than 1."""
    suppositions, outermost = rewriting.journal.suppositions, rewriting.model.graph
    comparisons = None if suppositions is None else comparisons_around(graph, outermost)
    if suppositions is None or comparisons is None:
        return False
    for node in list(graph.nodes):
        sizes = _open_sizes(node)
        if sizes is None or not are_told(sizes, outermost) or not _is_likely(node, len(sizes)):
            continue
        rewriting.journal.outputs = rewriting.journal.outputs or [value.type for value in outermost.outputs]
        suppositions.extend(Supposition(dim.minimum(size, 2), 2, comparisons) for size in sizes)
        _name_axes(graph, node, rewriting)
        rewriting.driver.graph(outermost)
        return True
    return False


def _open_sizes(node: Node) -> list[Dim] | None:
    """The sizes that may be 1, of a Squeeze that does not say which axes it drops; None for other nodes."""
    if node.op_type != "Squeeze" or node.domain or node.inputs[0] is None or "axes" in node.attributes:
        return None
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return None
    shape = shape_of(node.inputs[0])
    return [size for size in shape or () if not isinstance(size, int)] or None


def _is_likely(node: Node, left: int) -> bool:
    """Whether no output of the model that has the axes of the result declares other ones."""
    shape = shape_of(node.inputs[0])  # type: ignore[arg-type]
    rank = left + sum(isinstance(size, int) and size != 1 for size in shape or ())
    return declared_rank(node.outputs[0], 0) in (None, rank)


def _name_axes(graph: Graph, node: Node, rewriting: Rewriting) -> None:
    (data, *_), output = node.inputs, node.outputs[0]
    assert data is not None
    op = TypingBuilder(graph, node, rewriting.model.opsets, f"{output.name}/squeezed", rewriting.driver)
    axes = [axis for axis, size in enumerate(shape_of(data) or ()) if size == 1]
    rewriting.journal.add("EqualRanks", node)
    replace_value(output, op.Squeeze(data, axes=axes) if axes else op.Identity(data))
    graph.remove(node)
