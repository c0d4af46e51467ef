"""SequenceMap: its graph is lowered once, inside a loop over the tensors of the first sequence."""

from __future__ import annotations

from sardonyx.compiler.types import I64
from sardonyx.ir import Graph, Node, Value
from sardonyx.providers.native.kernels.control.jumps import compute_captured, require_equal
from sardonyx.providers.native.kernels.control.loops import Turns
from sardonyx.providers.native.kernels.control.sequences import Settled, is_sequence, lengths_of, memory_for
from sardonyx.providers.native.kernels.sequence.operators import append_tensor, find_tensor, settle_taken, take_tensor
from sardonyx.providers.native.program.held import HeldSequence
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import bytes_of, dims, required
from sardonyx.providers.native.program.views import View, contiguous_view
from sardonyx.startup.records import replace


def _maps_tensors(node: Node) -> bool:
    body: Graph = node.attributes["body"].value
    return all(map(is_sequence, (node.inputs[0], *node.outputs))) and not any(map(is_sequence, (*body.inputs, *body.outputs)))


@lower("SequenceMap", claims=_maps_tensors, settles=True)
def sequence_map(lowerer: Lowerer, node: Node) -> None:
    body: Graph = node.attributes["body"].value
    compute_captured(lowerer, node)
    given = [(value, required(operand)) for value, operand in zip(body.inputs, node.inputs, strict=True)]
    views = [(value, _given(lowerer, value, operand)) for value, operand in given if not is_sequence(operand)]
    sequences = [(value, lowerer.sequence(operand)) for value, operand in given if is_sequence(operand)]
    results = [memory_for(lowerer, value) for value in node.outputs]
    lowerer.settle([pair for held in results for pair in lengths_of(held, 0, 0)])
    turns = Turns(View(lowerer.scratch(I64.bytes), I64, (), ()), sequences[0][1].count, None)
    to_end = turns.add(lowerer, is_first=True)
    first = len(lowerer.program.steps)
    # what turns have put there stays while others come
    lowerer.program.steps[to_end].scratch = [buffer for held in results for buffer in (held.data, held.table)]
    with lowerer.inside(body, {}):
        for value, view in views:
            lowerer.set_view(value, view)
        for value, held in sequences:
            _take(lowerer, held, turns.turn, value)
        lowerer.lower_graph(body)
        lowerer.settle(_append(lowerer, results, [lowerer.view(value) for value in body.outputs]))
    back = turns.add(lowerer, is_first=False)
    lowerer.program.steps[back].jump = first - back
    lowerer.program.steps[to_end].jump = len(lowerer.program.steps) - to_end
    for value, held in zip(node.outputs, results):
        lowerer.set_sequence(value, held)


def _given(lowerer: Lowerer, value: Value, operand: Value) -> View:
    """A tensor that all turns are given."""
    view = lowerer.view(operand)
    lowerer.settle(require_equal(lowerer, operand, dims(value), frozenset(lowerer.settled)))
    return replace(view, shape=dims(value))


def _take(lowerer: Lowerer, held: HeldSequence, turn: View, value: Value) -> None:
    """Let an input of the graph be the tensor of the turn."""
    row = find_tensor(lowerer, held, turn.place, I64)
    settle_taken(lowerer, held, row, value)
    target = contiguous_view(value, lowerer.scratch(bytes_of(value)))
    take_tensor(lowerer, held, row, value, target)
    lowerer.set_view(value, target)


def _append(lowerer: Lowerer, results: list[HeldSequence], views: list[View]) -> Settled:
    """Put what a turn has made behind what earlier ones did."""
    grown = [append_tensor(lowerer, held, view) for held, view in zip(results, views, strict=True)]
    return [pair for held, larger in zip(results, grown) for pair in lengths_of(held, larger.count, larger.total)]
