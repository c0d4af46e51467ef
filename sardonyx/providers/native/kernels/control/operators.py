"""If, Loop and Scan. The steps of their graphs stand among those around them; steps that jump lead around them and back.

What a graph reads of those around it is computed before. State lies in a buffer of its own, into which each turn puts its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sardonyx.compiler.types import BOOL, I64
from sardonyx.ir import Dim, Graph, Node, Value, dim
from sardonyx.ops.reading import constant, operand
from sardonyx.providers.native.kernels.control.kernels import (
    RowArguments,
    SkipArguments,
    TurnArguments,
    row_kernel,
    skip_kernel,
    turn_kernel,
)
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES, raw
from sardonyx.providers.native.kernels.shape.walking import StridedTensor
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, required, stored
from sardonyx.providers.native.program.views import View, collapse, contiguous_strides
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass, replace


def _compute_captured(lowerer: Lowerer, node: Node) -> None:
    """Have all that graphs inside a node read from outside in memory."""
    for value in node.implicit_inputs():
        if not value.is_constant and known_sizes(value) is None:
            lowerer.view(value)


def _single(lowerer: Lowerer, value: Value) -> View:
    """A value of one element."""
    lowerer.require(dim.product(dims(value)), 1)
    return lowerer.view(value)


def _require_equal(lowerer: Lowerer, value: Value, shape: Sequence[Dim]) -> None:
    """Have NumPy compute whenever a value has not this shape."""
    sizes = dims(value)
    if len(sizes) != len(shape):
        raise CannotCompile(f"{value.name} has {len(sizes)} axes and not {len(shape)}", quiet=True)
    for size, wanted in zip(sizes, shape):
        lowerer.require(size, wanted)


def _land(lowerer: Lowerer, step: int) -> None:
    """Let a step jump to the one that comes next."""
    lowerer.program.steps[step].jump = len(lowerer.program.steps) - step


def _skip(lowerer: Lowerer, condition: View | None = None) -> int:
    """Add a step that jumps, unless a condition holds if one is given; its number."""
    arguments = SkipArguments(decision=lowerer.scratch(8), condition=None if condition is None else condition.place)
    lowerer.call(skip_kernel(lowerer.target, condition is not None), arguments, 1)
    return len(lowerer.program.steps) - 1


# --- If


@lower("If")
def lower_if(lowerer: Lowerer, node: Node) -> None:
    condition = _single(lowerer, required(node.inputs[0]))
    _compute_captured(lowerer, node)
    outputs = [lowerer.output(value) for value in node.outputs]
    known = len(lowerer.program.conditions)
    to_else = _skip(lowerer, condition)
    _lower_branch(lowerer, node.attributes["then_branch"].value, outputs)
    to_end = _skip(lowerer)
    _land(lowerer, to_else)
    _lower_branch(lowerer, node.attributes["else_branch"].value, outputs)
    _land(lowerer, to_end)
    if len(lowerer.program.conditions) > known:
        raise CannotCompile("a branch is for other shapes than the graph around it", quiet=True)


def _lower_branch(lowerer: Lowerer, branch: Graph, outputs: Sequence[View]) -> None:
    for value, output in zip(branch.outputs, outputs, strict=True):
        _require_equal(lowerer, value, output.shape)
    with lowerer.inside(branch, {value: output.buffer for value, output in zip(branch.outputs, outputs)}):
        lowerer.lower_graph(branch)
        for value, output in zip(branch.outputs, outputs):
            lowerer.deliver(value, output.buffer)


# --- what goes round


@dataclass(frozen=True)
class _Rows:
    """A tensor that is gone through, or collected, row by row."""

    value: Value
    """The row."""
    whole: View
    axis: int
    is_backward: bool = False


@dataclass(frozen=True)
class _Turns:
    """How often a loop goes round: `limit` is a size, or where the number lies."""

    turn: View
    limit: Dim | View | None
    going: Buffer | None

    def add(self, lowerer: Lowerer, is_first: bool) -> int:
        """Add the step that begins a turn; its number."""
        is_data = isinstance(self.limit, View)
        kind = "none" if self.limit is None else "data" if is_data else "size"
        arguments = TurnArguments(
            decision=lowerer.scratch(8),
            turn=self.turn.place,
            count=self.limit if kind == "size" else None,
            limit=self.limit.place if isinstance(self.limit, View) else None,
            going=self.going,
        )
        lowerer.call(turn_kernel(lowerer.target, is_first, kind, self.going is not None), arguments, 1)
        return len(lowerer.program.steps) - 1


class _Loop:
    """A body and its state on their way into a program."""

    def __init__(self, lowerer: Lowerer, node: Node, state: Sequence[Value], initial: Sequence[Value | None]):
        self.lowerer = lowerer
        self.node = node
        self.body: Graph = node.attributes["body"].value
        self.state = [_contiguous(value, lowerer) for value in state]
        self._given = list(zip(state, self.state))
        self.turn = View(lowerer.scratch(8), I64, (), ())
        _compute_captured(lowerer, node)
        for given, value, place in zip(initial, state, self.state, strict=True):
            _require_equal(lowerer, required(given), dims(value))
            lowerer.deliver(required(given), place.buffer)

    def give(self, value: Value, view: View) -> None:
        """Let an input of the body be a view of what is there."""
        self._given.append((value, replace(view, shape=dims(value), strides=contiguous_strides(dims(value)))))

    def lower(
        self,
        turns: _Turns,
        following: Sequence[Value],
        taken: Sequence[_Rows],
        put: Sequence[_Rows],
        asked: Value | None = None,
    ) -> None:
        """Add the steps. `following` is the next state, `asked` tells whether another turn is wanted."""
        lowerer = self.lowerer
        for value, place in zip(following, self.state, strict=True):
            _require_equal(lowerer, value, place.shape)
        to_end = turns.add(lowerer, is_first=True)
        first = len(lowerer.program.steps)
        # rows stay where they are put while the turns come that put others
        lowerer.program.steps[to_end].scratch = [rows.whole.buffer for rows in put]
        with lowerer.inside(self.body, {} if asked is None or turns.going is None else {asked: turns.going}):
            for value, view in self._given:
                lowerer.set_view(value, view)
            for rows in taken:
                row = _contiguous(rows.value, lowerer)
                lowerer.set_view(rows.value, row)
                self._move(rows, row, is_put=False)
            lowerer.lower_graph(self.body)
            if asked is not None and turns.going is not None:
                lowerer.deliver(asked, turns.going)
            for rows in put:
                self._move(rows, lowerer.view(rows.value), is_put=True)
            self._hand_on([lowerer.view(value) for value in following])
        back = turns.add(lowerer, is_first=False)
        lowerer.program.steps[back].jump = first - back
        _land(lowerer, to_end)

    def _hand_on(self, views: Sequence[View]) -> None:
        """Put the next state where the last one is; what is itself a part of that is copied first."""
        lowerer, places = self.lowerer, {place.buffer for place in self.state}
        moves = [(view, place) for view, place in zip(views, self.state) if view.buffer is not place.buffer or view != place]
        kept = [(_apart(lowerer, view) if view.buffer in places else view, place) for view, place in moves]
        for view, place in kept:
            lowerer.copy(view, place)

    def _move(self, rows: _Rows, row: View, is_put: bool) -> None:
        """Add the step that takes the row of a turn, or puts it where it is collected."""
        lowerer, whole, axis = self.lowerer, rows.whole, rows.axis
        first = replace(whole, shape=row.shape, strides=(*whole.strides[:axis], *whole.strides[axis + 1 :]))
        domain, strides = collapse(row.shape, [row.strides, first.strides])
        type = raw(row.type)
        total = dim.product(domain)
        is_dense = all(steps[-1] == 1 for steps in strides) or domain == (1,)
        lowerer.call(
            row_kernel(lowerer.target, type, len(domain), is_dense, rows.is_backward, is_put),
            RowArguments(
                turn=self.turn.place,
                length=whole.shape[axis],
                step=whole.strides[axis],
                sizes=domain[1:],
                row=StridedTensor(place=row.place, strides=strides[0]),
                first=StridedTensor(place=first.place, strides=strides[1]),
                status=lowerer.status(),
            ),
            total,
            PIECE_BYTES // type.bytes,
            traffic=2 * total * type.bytes,
        )

    def finish(self, outputs: Iterable[Value]) -> None:
        """The last state is what the node gives."""
        for value, place in zip(outputs, self.state):
            _require_equal(self.lowerer, value, place.shape)
            self.lowerer.set_view(value, replace(place, shape=dims(value)))


def _contiguous(value: Value, lowerer: Lowerer) -> View:
    """Memory for a value inside of a loop."""
    type, shape = stored(value), dims(value)
    return View(lowerer.scratch(dim.product(shape) * type.bytes), type, shape, contiguous_strides(shape))


def _apart(lowerer: Lowerer, view: View) -> View:
    made = View(
        lowerer.scratch(dim.product(view.shape) * view.type.bytes), view.type, view.shape, contiguous_strides(view.shape)
    )
    lowerer.copy(view, made)
    return made


def _collected(
    lowerer: Lowerer, outputs: Sequence[Value], rows: Sequence[Value], axes: Sequence[int], backward: Sequence[int]
) -> list[_Rows]:
    """Outputs into which the turns put rows."""
    found = []
    for output, row, axis, is_backward in zip(outputs, rows, axes, backward):
        whole = lowerer.output(output)
        axis %= len(whole.shape)
        _require_equal(lowerer, row, (*whole.shape[:axis], *whole.shape[axis + 1 :]))
        found.append(_Rows(row, whole, axis, bool(is_backward)))
    return found


@lower("Loop")
def lower_loop(lowerer: Lowerer, node: Node) -> None:
    body: Graph = node.attributes["body"].value
    count = len(node.inputs) - 2
    most, condition = node.inputs[:2]
    asked = body.outputs[0]
    loop = _Loop(lowerer, node, body.inputs[2:], node.inputs[2:])
    loop.give(body.inputs[0], loop.turn)
    loop.give(body.inputs[1], View(lowerer.constant(np.ones(1, np.bool_)), BOOL, (), ()))
    going = None
    if not (_always_holds(condition) and (_always_holds(asked) or asked is body.inputs[1])):
        going = lowerer.scratch(1)
        lowerer.require(dim.product(dims(asked)), 1)
        given = View(lowerer.constant(np.ones(1, np.bool_)), BOOL, (), ()) if condition is None else _single(lowerer, condition)
        lowerer.copy(replace(given, shape=(), strides=()), View(going, BOOL, (), ()))
    turns = _Turns(loop.turn, None if most is None else _single(lowerer, most), going)
    scans = len(node.outputs) - count
    collected = _collected(lowerer, node.outputs[count:], body.outputs[1 + count :], [0] * scans, [0] * scans)
    loop.lower(turns, body.outputs[1 : 1 + count], [], collected, asked)
    loop.finish(node.outputs)


def _always_holds(condition: Value | None) -> bool:
    """Whether a condition is constant and true, or left out."""
    content = None if condition is None else constant(condition)
    return condition is None or (content is not None and bool(np.all(content)))


@lower("Scan", since=9)
def lower_scan(lowerer: Lowerer, node: Node) -> None:
    body: Graph = node.attributes["body"].value
    scanned = int(operand(node, "num_scan_inputs"))
    count = len(node.inputs) - scanned
    loop = _Loop(lowerer, node, body.inputs[:count], node.inputs[:count])
    axes, backward = _for_each(node, "scan_input", scanned)
    wholes = [lowerer.view(required(value)) for value in node.inputs[count:]]
    taken = [
        _Rows(value, whole, axis % len(whole.shape), bool(is_backward))
        for value, whole, axis, is_backward in zip(body.inputs[count:], wholes, axes, backward, strict=True)
    ]
    lengths = [rows.whole.shape[rows.axis] for rows in taken]
    for length in lengths[1:]:
        lowerer.require(length, lengths[0])
    put = _collected(
        lowerer, node.outputs[count:], body.outputs[count:], *_for_each(node, "scan_output", len(body.outputs) - count)
    )
    for rows in put:
        lowerer.require(rows.whole.shape[rows.axis], lengths[0])
    loop.lower(_Turns(loop.turn, lengths[0], None), body.outputs[:count], taken, put)
    loop.finish(node.outputs)


def _for_each(node: Node, kind: str, count: int) -> tuple[list[int], list[int]]:
    """The axes and the directions of what is scanned."""
    axes, directions = (operand(node, f"{kind}_{name}") or [0] * count for name in ("axes", "directions"))
    return list(axes), list(directions)
