"""Ranks that only a run would tell: what branches give with different numbers of axes, and the state of a loop that has other axes from
its second turn on.

Exporters write a number as a scalar in one branch and as a vector of one element in the other. Where everything behind broadcasts it to
more axes anyway, it may have them at once. Where a node behind cannot take the rank that one branch gives, a run that takes this branch
fails, and the rank is that of the other one; so it is where the model's outputs declare that rank. What is only reshaped or counted behind
a branch has one axis at once. Loops begin with a scalar in place of a tensor that the first turn makes; where a first turn
is certain, it is put in front of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sardonyx.errors import CODED
from sardonyx.ir import Graph, Node, Tensor, TensorType, Type, Value, edit
from sardonyx.ir.cloning import Names
from sardonyx.ops.facts import Operands
from sardonyx.ops.inference import Body
from sardonyx.ops.operand import Operand
from sardonyx.ops.reading import constant, operand
from sardonyx.ops.shapes import fresh_shape
from sardonyx.ops.table import facts_of
from sardonyx.optimizer.passes.building import TypingBuilder
from sardonyx.optimizer.passes.control import copy_before
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import FIRST_BROADCASTING, rank_of, shape_of


def give_equal_ranks(graph: Graph, rewriting: Rewriting) -> bool:
    """Let branches give equal ranks, and loops state of one rank, where that can be had."""
    changed = False
    if not _is_inside_loop(graph):
        for node in list(graph.nodes):
            changed = bool(_aligned(node, rewriting)) or changed
            changed = _declared(node, rewriting) or changed
            changed = _reformed(node, rewriting) or changed
    for node in list(graph.nodes):
        changed = _peeled(node, rewriting) or changed
    if changed:
        rewriting.driver.graph(graph)
    return changed


def _is_inside_loop(graph: Graph | None) -> bool:
    """Whether a graph stands in a loop: types there may be what the model says of the first turn alone."""
    while graph is not None and graph.parent is not None:
        if graph.parent.op_type != "If":
            return True
        graph = graph.parent.graph
    return False


# --- branches


Alignment = tuple[Graph, int, Value, Node]
"""A branch, the number of its output, what that was before, and the Reshape that gives it axes."""


def _aligned(node: Node, rewriting: Rewriting) -> list[Alignment]:
    """Give what the branches of an If have as one element as many axes in both."""
    if node.op_type != "If" or node.domain:
        return []
    branches: list[Graph] = [node.attributes[name].value for name in ("then_branch", "else_branch")]
    made = []
    for number, output in enumerate(node.outputs):
        then, other = (_rank_of_one(branch.outputs[number]) for branch in branches)
        if then is None or other is None or then == other or not _may_gain_axes(output, max(then, other)):
            continue
        made.append(_reshaped(branches[0 if then < other else 1], number, [1] * max(then, other), rewriting))
        rewriting.journal.add("EqualRanks", node)
    return made


def _rank_of_one(value: Value) -> int | None:
    """How many axes a tensor of one element has."""
    shape = shape_of(value)
    return len(shape) if shape is not None and all(size == 1 for size in shape) else None


def _may_gain_axes(value: Value, rank: int, is_one: bool = True) -> bool:
    """Whether nobody notices if a value, which has one element or not, has further axes of size 1 in front, `rank` in all."""
    if value.is_graph_output:
        return False
    return all(_may_read_more_axes(user, position, rank, is_one) for user, position in value.uses)


def _may_read_more_axes(user: Node, position: int, rank: int, is_one: bool) -> bool:
    if user.op_type in ("If", "Loop") and not user.domain:
        return is_one and position == (0 if user.op_type == "If" else 1)
    elementwise, others = facts_of(user).elementwise, []
    if elementwise is Operands.ALL and user.version >= FIRST_BROADCASTING:
        others = [other for place, other in enumerate(user.inputs) if other is not None and place != position]
        if any((rank_of(other) or 0) >= rank for other in others):
            return True
    elif elementwise is not Operands.FIRST or position != 0:
        return False
    is_one = is_one and all(_rank_of_one(other) is not None for other in others)
    return all(_may_gain_axes(output, rank, is_one) for output in user.outputs)


def _reshaped(branch: Graph, number: int, shape: Sequence[int], rewriting: Rewriting) -> Alignment:
    before = branch.outputs[number]
    op = TypingBuilder(branch, None, rewriting.model.opsets, f"{before.name}/ranks", rewriting.driver)
    branch.outputs[number] = op.Reshape(before, shape=np.array(shape, np.int64))
    return branch, number, before, op.made[-1]


def _undo(made: Sequence[Alignment]) -> None:
    for branch, number, before, reshape in reversed(made):
        branch.outputs[number] = before
        branch.remove(reshape)


def _reformed(node: Node, rewriting: Rewriting) -> bool:
    """Give the outputs of an If equal ranks where nobody notices: one axis, or those in front that others broadcast them to."""
    if node.op_type != "If" or node.domain:
        return False
    branches: list[Graph] = [node.attributes[name].value for name in ("then_branch", "else_branch")]
    changed = False
    for number, output in enumerate(node.outputs):
        ranks = [rank for rank in _ranks([branch.outputs[number].type for branch in branches]) if rank is not None]
        if not output.uses or rank_of(output) is not None or len(set(ranks)) < 2:
            continue
        if _is_read_flat(output):
            for branch in branches:
                _reshaped(branch, number, [-1], rewriting)
        elif _may_gain_axes(output, max(ranks), is_one=False):
            _unsqueezed(branches[ranks.index(min(ranks))], number, max(ranks) - min(ranks), rewriting)
        else:
            continue
        rewriting.journal.add("EqualRanks", node)
        changed = True
    return changed


def _unsqueezed(branch: Graph, number: int, count: int, rewriting: Rewriting) -> None:
    """Put so many axes of size 1 in front of what a branch gives."""
    before = branch.outputs[number]
    op = TypingBuilder(branch, None, rewriting.model.opsets, f"{before.name}/ranks", rewriting.driver)
    branch.outputs[number] = op.Unsqueeze(before, axes=np.arange(count))


def _is_read_flat(value: Value) -> bool:
    """Whether all that reads a value does with its elements the same, whatever axes they have."""
    return not value.is_graph_output and all(_reads_flat(user, position) for user, position in value.uses)


def _reads_flat(user: Node, position: int) -> bool:
    if position or user.domain:
        return False
    if user.op_type == "Reshape":
        shape = operand(user, "shape")
        return shape is not None and (0 not in np.reshape(shape, -1) or bool(operand(user, "allowzero")))
    is_unary = facts_of(user).elementwise is not Operands.NONE and len([one for one in user.inputs if one is not None]) == 1
    return user.op_type == "Size" or (is_unary and all(map(_is_read_flat, user.outputs)))


def _declared(node: Node, rewriting: Rewriting) -> bool:
    """Declare the ranks of an If's outputs that only one branch can give, as a node behind fails with the other's."""
    if node.op_type != "If" or node.domain:
        return False
    changed = False
    for number, output in enumerate(node.outputs):
        types = [node.attributes[name].value.outputs[number].type for name in ("then_branch", "else_branch")]
        if not output.uses or _ranks([output.type]) != [None] or None in _ranks(types):
            continue
        possible = [rank for rank in _ranks(types) if rank is not None and _is_possible(output, rank, rewriting)]
        if len(possible) == 2:
            told = declared_rank(output, min(possible))
            possible = [rank for rank in possible if rank == told]
        if len(possible) == 1:
            output.declared = _of_rank(output, possible[0])
            rewriting.journal.add("EqualRanks", node)
            changed = True
    return changed


def declared_rank(value: Value, least: int) -> int | None:
    """How many axes the model's outputs declare that have those of a value, which has `least` or more; None if others see them too."""
    ranks = set(_ranks([value.declared] if value.is_graph_output else []))
    for user, position in value.uses:
        if any(user.subgraphs) or not _keeps_axes(user, position, least):
            return None
        ranks.update(declared_rank(output, least) for output in user.outputs)
    return ranks.pop() if len(ranks) == 1 else None


def _keeps_axes(user: Node, position: int, least: int) -> bool:
    """Whether a node works element by element, and no other operand has more axes."""
    elementwise = facts_of(user).elementwise
    if elementwise is Operands.FIRST:
        return position == 0
    others = [rank_of(other) for place, other in enumerate(user.inputs) if other is not None and place != position]
    is_ready = elementwise is Operands.ALL and (not others or user.version >= FIRST_BROADCASTING)
    return is_ready and all(rank is not None and rank <= least for rank in others)


def _of_rank(value: Value, rank: int) -> TensorType:
    assert isinstance(value.type, TensorType)
    return TensorType(value.type.dtype, fresh_shape(rank))


def _is_possible(value: Value, rank: int, rewriting: Rewriting) -> bool:
    """Whether all nodes behind a value take so many axes. What stands in graphs inside of nodes is not asked: it may never run."""
    before, behind = value.type, [node for node in _behind(value) if not any(node.subgraphs)]
    try:
        value.type = _of_rank(value, rank)
        for node in behind:
            rewriting.driver.node(node)
    except CODED:
        return False
    finally:
        value.type = before
        for node in behind:
            rewriting.driver.node(node)
    return True


def _behind(value: Value) -> list[Node]:
    """The nodes of a value's graph that depend on it, in order."""
    graph, found = value.producer.graph, {value}  # type: ignore[union-attr]
    nodes = []
    for node in graph.nodes:  # type: ignore[union-attr]
        if any(operand in found for operand in node.inputs):
            nodes.append(node)
            found.update(node.outputs)
    return nodes


# --- loops


def _peeled(node: Node, rewriting: Rewriting) -> bool:
    """Put the first turn of a loop in front of it if the state has the same ranks in all turns after that."""
    if node.op_type != "Loop" or node.domain or not _has_first_turn(node):
        return False
    initial = [None if value is None else value.type for value in node.inputs[2:]]
    final = [value.inferred or value.type for value in node.outputs]
    if len(final) > len(initial) or None in _ranks(initial) or None not in _ranks(final):
        return False
    body: Graph = node.attributes["body"].value
    made = _stable(node, body, initial, rewriting)
    if made is None:
        return False
    _peel(node, body, rewriting)
    return True


def _has_first_turn(node: Node) -> bool:
    """Whether there is a first turn in every run."""
    most, condition = (None if value is None else constant(value) for value in node.inputs[:2])
    is_counted = node.inputs[0] is None or (most is not None and most.size == 1 and most.item() > 0)
    return is_counted and (node.inputs[1] is None or (condition is not None and condition.size == 1 and bool(condition.item())))


def _ranks(types: Sequence[Type | None]) -> list[int | None]:
    return [type.rank if isinstance(type, TensorType) else None for type in types]


def _stable(node: Node, body: Graph, initial: Sequence[Type | None], rewriting: Rewriting) -> list[Alignment] | None:
    """What had to be changed inside for the second turn to hand on the ranks that it gets; None if it does not."""
    made: list[Alignment] = []
    try:
        _turn(body, initial, rewriting)
        for inner in list(_branches(body)):
            made += _aligned(inner, rewriting)
        second = _turn(body, initial, rewriting)
        third = _turn(body, second, rewriting)
        is_stable = None not in _ranks(second) and _ranks(second) == _ranks(third) and all(map(_still_fits, made))
    except CODED:  # a turn may be impossible with such ranks
        is_stable = False
    if not is_stable:
        _undo(made)
    rewriting.driver.node(node)
    return made if is_stable else None


def _turn(body: Graph, state: Sequence[Type | None], rewriting: Rewriting) -> list[Type | None]:
    """Types of the state after a turn that begins with these."""
    first = [Operand(value.declared) for value in body.inputs[:2]]
    return [operand.type for operand in Body(rewriting.driver, body)(*first, *map(Operand, state))[1:]]


def _still_fits(made: Alignment) -> bool:
    """Whether both branches give what they gave when ranks were made equal: one element, with no more axes."""
    _, _, before, reshape = made
    rank, wanted = _rank_of_one(before), rank_of(reshape.outputs[0])
    return rank is not None and wanted is not None and rank <= wanted


def _branches(graph: Graph) -> Iterator[Node]:
    """The Ifs in a graph and in their branches."""
    for node in graph.nodes:
        if node.op_type == "If" and not node.domain:
            for branch in node.subgraphs:
                yield from _branches(branch)
            yield node


def _peel(node: Node, body: Graph, rewriting: Rewriting) -> None:
    graph = node.graph
    assert graph is not None
    rewriting.journal.add("EqualRanks", node)
    prefix = f"{node.name or 'Loop'}/first"
    op = TypingBuilder(graph, node, rewriting.model.opsets, prefix, rewriting.driver)
    shapes = [shape_of(value) or () for value in body.inputs[:2]]
    number, holds = (op.constant(np.full([1] * len(shape), item)) for shape, item in zip(shapes, (np.int64(0), np.True_)))
    state = [value for value in node.inputs[2:] if value is not None]
    given = dict(zip(body.inputs, [number, holds, *state]))
    condition, *following = copy_before(node, body, given, Names(edit.outermost(graph)), rewriting, prefix)
    _count_from_one(body, rewriting)
    most = None if node.inputs[0] is None else constant(node.inputs[0])
    if most is not None:
        node.set_input(0, op.constant(Tensor.of(most - 1)))
    node.set_input(1, condition)
    for position, value in enumerate(following, 2):
        node.set_input(position, value)


def _count_from_one(body: Graph, rewriting: Rewriting) -> None:
    """Let the turns of a loop know that there was one before."""
    number = body.inputs[0]
    uses = list(number.uses)
    if uses or number.is_graph_output:
        first = next(iter(body.nodes), None)
        op = TypingBuilder(body, first, rewriting.model.opsets, f"{number.name}/peeled", rewriting.driver)
        later = op.Add(number, op.constant(np.ones([1] * len(shape_of(number) or ()), np.int64)))
        for user, position in uses:
            user.set_input(position, later)
        body.outputs = [later if value is number else value for value in body.outputs]
