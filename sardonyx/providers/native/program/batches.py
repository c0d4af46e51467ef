"""Whether a cluster treats each entry of a batch by itself, so that it may run on some entries after the others.

A large batch does not stay in the cache between two layers, and its arena is large. `batch_of` tells whether a cluster may instead run all
of its layers on one part of the batch before the next part.
"""

from __future__ import annotations

from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ir.dim import Expression, Symbol
from sardonyx.ops import checking
from sardonyx.ops.table import facts_of
from sardonyx.providers.native.program.known import is_symbolic, known_sizes
from sardonyx.providers.native.program.parts import Batch
from sardonyx.providers.native.program.scalars import find_scalar
from sardonyx.providers.native.program.values import rank_of, shape_of, stored
from sardonyx.providers.provider import Cluster


def batch_of(cluster: Cluster, weights: int) -> Batch | None:
    """The batch of a cluster all of whose outputs are computed row by row; None if it has none. `weights` are its constants' bytes."""
    if any(next(node.subgraphs, None) for node in cluster.nodes):  # what these read from outside is not among their inputs
        return None
    if any(map(_draws, cluster.nodes)):  # numbers are drawn for the whole batch at once
        return None
    symbols = {_first_symbol(value) for value in cluster.outputs}
    size = symbols.pop() if len(symbols) == 1 else None
    if size is None or not all(_is_batched(value, size) for value in cluster.outputs):
        return None
    if not all(_is_shared(value, size) or _is_batched(value, size) for value in cluster.inputs):
        return None
    if not all(is_symbolic(node) or _keeps_rows(node, size) for node in cluster.nodes):
        return None
    elements = [stored(value).bytes if _is_batched(value, size) else 0 for value in (*cluster.inputs, *cluster.outputs)]
    return Batch(size.name, elements, weights) if any(elements[: len(cluster.inputs)]) else None


def _draws(node: Node) -> bool:
    return not checking.signature_of(node).deterministic and find_scalar(node) is None


def _first_symbol(value: Value) -> Symbol | None:
    shape = shape_of(value)
    return shape[0].symbol if shape and isinstance(shape[0], Expression) else None


def _is_batched(value: Value, size: Symbol) -> bool:
    """Whether the batch is a value's first axis and nothing else of it."""
    shape = shape_of(value)
    return shape is not None and _first_symbol(value) == size and not any(_depends(length, size) for length in shape[1:])


def _is_shared(value: Value, size: Symbol) -> bool:
    """Whether a value is the same for all rows: neither its shape nor a content that shapes tell depends on the batch."""
    shape = shape_of(value)
    return shape is not None and not any(_depends(length, size) for length in (*shape, *(known_sizes(value) or ())))


def _depends(length: Dim, size: Symbol) -> bool:
    return size in dim.symbols(length)


def _keeps_rows(node: Node, size: Symbol) -> bool:
    inputs = [value for value in node.inputs if value is not None and value.name]
    outputs = [value for value in node.outputs if value.name]
    if all(_is_shared(value, size) for value in (*inputs, *outputs)):
        return True
    if not all(_is_batched(value, size) for value in outputs):
        return False
    facts = facts_of(node)
    if facts.reshapes:  # the second operand of Reshape may well depend on the batch
        return _is_batched(inputs[0], size)
    batched = [_is_batched(value, size) for value in inputs]
    if not all(is_batched or _is_shared(value, size) for is_batched, value in zip(batched, inputs)):
        return False
    if find_scalar(node) is not None:
        return all(rank_of(value) == rank_of(outputs[0]) for is_batched, value in zip(batched, inputs) if is_batched)
    return facts.rows(node, batched)
