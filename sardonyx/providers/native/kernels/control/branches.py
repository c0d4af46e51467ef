"""If: both branches stand among the steps, and a step that jumps leads around the one that is not taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from sardonyx.ir import Dim, Graph, Node, Value
from sardonyx.providers.native.kernels.control.jumps import (
    compute_captured,
    consistent,
    in_buffer,
    land,
    require_equal,
    single,
    skip,
)
from sardonyx.providers.native.kernels.control.kernels import SameSizesArguments, same_sizes_kernel
from sardonyx.providers.native.kernels.control.sequences import is_sequence, memory_for, put_sequences
from sardonyx.providers.native.program.computed_sizes import shapes_of
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import rank_of, required
from sardonyx.providers.native.program.views import View


@lower("If", settles=True)
def lower_if(lowerer: Lowerer, node: Node) -> None:
    condition, before = single(lowerer, required(node.inputs[0])), frozenset(lowerer.settled)
    compute_captured(lowerer, node)
    outputs = {value: lowerer.output(value) for value in node.outputs if not is_sequence(value)}
    for value in filter(is_sequence, node.outputs):
        lowerer.set_sequence(value, memory_for(lowerer, value))
    to_else = skip(lowerer, condition)
    _lower_branch(lowerer, node.attributes["then_branch"].value, node.outputs, outputs, before)
    to_end = skip(lowerer)
    land(lowerer, to_else)
    _lower_branch(lowerer, node.attributes["else_branch"].value, node.outputs, outputs, before)
    land(lowerer, to_end)


def _lower_branch(
    lowerer: Lowerer, branch: Graph, made: Sequence[Value], outputs: Mapping[Value, View], before: Set[str]
) -> None:
    """Add the steps of a branch. One that gives other ranks than are declared leaves the run to NumPy."""
    first, known, settled_before = len(lowerer.program.steps), set(lowerer.program.conditions), set(lowerer.settled)
    results = list(zip(branch.outputs, made, strict=False))
    if any(rank_of(value) != rank_of(output) for value, output in results if output in outputs):
        _check_at(lowerer, first, [(0, 1)])
        return
    pairs = [(value, outputs[output]) for value, output in results if output in outputs]
    sequences = [(value, lowerer.sequence(output)) for value, output in results if output not in outputs]
    settled = [
        pair
        for value, output in results
        if output in outputs
        for shape in shapes_of(output)
        for pair in require_equal(lowerer, value, shape, before)
    ]
    places = {value: output.buffer for value, output in pairs if not lowerer.is_settled(*output.shape)}
    with lowerer.inside(branch, places):
        lowerer.lower_graph(branch)
        views = [lowerer.view(value) for value, _ in pairs]
        settled += put_sequences(lowerer, [lowerer.sequence(value) for value, _ in sequences], [held for _, held in sequences])
        lowerer.settle(consistent(lowerer, settled))
        for (value, output), view in zip(pairs, views):
            if view.buffer is not output.buffer or not view.is_contiguous:
                lowerer.copy(view, in_buffer(output.buffer, value))
    conditions = [
        pair for pair in lowerer.program.conditions if pair not in known and lowerer.sizes.data_sizes_in(pair) <= settled_before
    ]
    for pair in conditions:
        del lowerer.program.conditions[pair]
    _check_at(lowerer, first, conditions)


def _check_at(lowerer: Lowerer, place: int, conditions: Sequence[tuple[Dim, Dim]]) -> None:
    """Let a step look at conditions that need only hold if a branch is taken, whose first step it becomes."""
    if not conditions:
        return
    arguments = SameSizesArguments(
        left=[left for left, _ in conditions], right=[right for _, right in conditions], status=lowerer.status()
    )
    lowerer.call(same_sizes_kernel(lowerer.target, len(conditions)), arguments, 1)
    lowerer.program.steps.insert(place, lowerer.program.steps.pop())
