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
    SameSizesArguments,
    SkipArguments,
    TurnArguments,
    row_kernel,
    same_sizes_kernel,
    skip_kernel,
    turn_kernel,
)
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES, raw
from sardonyx.providers.native.kernels.shape.walking import StridedTensor
from sardonyx.providers.native.program.computed_sizes import shapes_of
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


def _require_equal(lowerer: Lowerer, value: Value, shape: Sequence[Dim]) -> list[tuple[str, Dim]]:
    """Have NumPy compute whenever a value has not this shape. Sizes of the shape that a run settles are to become the value's."""
    sizes = dims(value)
    if len(sizes) != len(shape):
        raise CannotCompile(f"{value.name} has {len(sizes)} axes and not {len(shape)}", quiet=True)
    found = []
    for size, wanted in zip(sizes, shape):
        symbol = None if isinstance(wanted, int) else wanted.symbol
        if symbol is not None and symbol.name in lowerer.sizes.data_sizes:
            found.append((symbol.name, size))
        else:
            lowerer.require(size, wanted)
    return found


def _in(buffer: Buffer, value: Value) -> View:
    """A value without gaps in a buffer."""
    return View(buffer, stored(value), dims(value), contiguous_strides(dims(value)))


def _land(lowerer: Lowerer, step: int) -> None:
    """Let a step jump to the one that comes next."""
    lowerer.program.steps[step].jump = len(lowerer.program.steps) - step


def _skip(lowerer: Lowerer, condition: View | None = None) -> int:
    """Add a step that jumps, unless a condition holds if one is given; its number."""
    arguments = SkipArguments(decision=lowerer.scratch(8), condition=None if condition is None else condition.place)
    lowerer.call(skip_kernel(lowerer.target, condition is not None), arguments, 1)
    return len(lowerer.program.steps) - 1


# --- If


@lower("If", settles=True)
def lower_if(lowerer: Lowerer, node: Node) -> None:
    condition = _single(lowerer, required(node.inputs[0]))
    _compute_captured(lowerer, node)
    outputs = [lowerer.output(value) for value in node.outputs]
    to_else = _skip(lowerer, condition)
    _lower_branch(lowerer, node.attributes["then_branch"].value, node.outputs, outputs)
    to_end = _skip(lowerer)
    _land(lowerer, to_else)
    _lower_branch(lowerer, node.attributes["else_branch"].value, node.outputs, outputs)
    _land(lowerer, to_end)


def _lower_branch(lowerer: Lowerer, branch: Graph, made: Sequence[Value], outputs: Sequence[View]) -> None:
    first, known, settled_before = len(lowerer.program.steps), set(lowerer.program.conditions), set(lowerer.settled)
    pairs = list(zip(branch.outputs, outputs, strict=True))
    settled = [
        pair
        for value, output in zip(branch.outputs, made, strict=True)
        for shape in shapes_of(output)
        for pair in _require_equal(lowerer, value, shape)
    ]
    places = {value: output.buffer for value, output in pairs if not lowerer.is_settled(*output.shape)}
    with lowerer.inside(branch, places):
        lowerer.lower_graph(branch)
        views = [lowerer.view(value) for value in branch.outputs]
        lowerer.settle(_consistent(lowerer, settled))
        for (value, output), view in zip(pairs, views):
            if view.buffer is not output.buffer or not view.is_contiguous:
                lowerer.copy(view, _in(output.buffer, value))
    conditions = [
        pair for pair in lowerer.program.conditions if pair not in known and lowerer.sizes.data_sizes_in(pair) <= settled_before
    ]
    _check_at(lowerer, first, conditions)


def _check_at(lowerer: Lowerer, place: int, conditions: Sequence[tuple[Dim, Dim]]) -> None:
    """Let a step look at conditions that need only hold if a branch is taken, whose first step it becomes."""
    if not conditions:
        return
    for pair in conditions:
        del lowerer.program.conditions[pair]
    arguments = SameSizesArguments(
        left=[left for left, _ in conditions], right=[right for _, right in conditions], status=lowerer.status()
    )
    lowerer.call(same_sizes_kernel(lowerer.target, len(conditions)), arguments, 1)
    lowerer.program.steps.insert(place, lowerer.program.steps.pop())


# --- what goes round


@dataclass(frozen=True)
class _Rows:
    """A tensor that is gone through, or collected, row by row."""

    value: Value
    """The row."""
    output: Value
    """All of them."""
    whole: View
    axis: int
    is_backward: bool = False


@dataclass(frozen=True)
class _Turns:
    """How often a loop goes round: `limit` is a size, or where the number lies."""

    turn: View
    limit: Dim | View | None
    going: Buffer | None

    def add(self, lowerer: Lowerer, is_first: bool, must_turn: bool = False) -> int:
        """Add the step that begins a turn; its number."""
        is_data = isinstance(self.limit, View)
        kind = "none" if self.limit is None else "data" if is_data else "size"
        arguments = TurnArguments(
            decision=lowerer.scratch(8),
            turn=self.turn.place,
            count=self.limit if kind == "size" else None,
            limit=self.limit.place if isinstance(self.limit, View) else None,
            going=self.going,
            status=lowerer.status() if must_turn else None,
        )
        lowerer.call(turn_kernel(lowerer.target, is_first, kind, self.going is not None, must_turn), arguments, 1)
        return len(lowerer.program.steps) - 1


class _Loop:
    """A body and its state on their way into a program."""

    def __init__(
        self,
        lowerer: Lowerer,
        node: Node,
        state: Sequence[Value],
        initial: Sequence[Value | None],
        following: Sequence[Value],
    ):
        self.lowerer = lowerer
        self.node = node
        self.body: Graph = node.attributes["body"].value
        self.state = [_in(lowerer.scratch(_most_bytes(pair)), pair[0]) for pair in zip(state, following, strict=True)]
        self._given = list(zip(state, self.state))
        self._following = following
        self.turn = View(lowerer.scratch(8), I64, (), ())
        _compute_captured(lowerer, node)
        settled = []
        views = [lowerer.view(required(given)) for given in initial]
        for given, value in zip(initial, state, strict=True):
            settled += _require_equal(lowerer, required(given), dims(value))
        lowerer.settle(_consistent(lowerer, settled))
        for given, view, place in zip(initial, views, self.state):
            lowerer.copy(view, _in(place.buffer, required(given)))

    def give(self, value: Value, view: View) -> None:
        """Let an input of the body be a view of what is there."""
        self._given.append((value, replace(view, shape=dims(value), strides=contiguous_strides(dims(value)))))

    def lower(self, turns: _Turns, taken: Sequence[_Rows], put: Sequence[_Rows], asked: Value | None = None) -> None:
        """Add the steps. `asked` tells whether another turn is wanted. Turns count the rows put if nothing is taken."""
        lowerer = self.lowerer
        pairs = zip(self._following, self.state)
        settled = [pair for value, place in pairs for pair in _require_equal(lowerer, value, place.shape)]
        counted = [] if taken else _counted(lowerer, put)
        lowerer.settle([(name, 0) for name in counted])
        # what would have been collected without any turn has no size where the body does not declare one
        is_open = any(not isinstance(size, int) for rows in put for size in dims(rows.value))
        to_end = turns.add(lowerer, is_first=True, must_turn=is_open)
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
            views = [lowerer.view(rows.value) for rows in put]
            lowerer.settle([(name, dim.symbol(name) + 1) for name in counted])
            for rows, view in zip(put, views):
                self._move(rows, view, is_put=True)
            self._hand_on([lowerer.view(value) for value in self._following])
            lowerer.settle(_consistent(lowerer, settled))
        _check_rows(lowerer, put, first)
        back = turns.add(lowerer, is_first=False)
        lowerer.program.steps[back].jump = first - back
        _land(lowerer, to_end)

    def _hand_on(self, views: Sequence[View]) -> None:
        """Put the next state where the last one is; what is itself a part of that is copied first."""
        lowerer, places = self.lowerer, {place.buffer for place in self.state}
        following = [(view, _in(place.buffer, value)) for view, value, place in zip(views, self._following, self.state)]
        moves = [(view, place) for view, place in following if view != place]
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
        lowerer = self.lowerer
        settled = []
        for value, (state, place) in zip(outputs, self._given[: len(self.state)]):
            settled += [pair for shape in shapes_of(value) for pair in _require_equal(lowerer, state, shape)]
            lowerer.set_view(value, _in(place.buffer, value))
        lowerer.settle(_consistent(lowerer, settled))


def _consistent(lowerer: Lowerer, settled: Sequence[tuple[str, Dim]]) -> list[tuple[str, Dim]]:
    """What sizes become, each once: where two axes have one name, both must become the same."""
    found: dict[str, Dim] = {}
    for name, size in settled:
        lowerer.require(found.setdefault(name, size), size)
    return list(found.items())


def _counted(lowerer: Lowerer, put: Sequence[_Rows]) -> list[str]:
    """Names of sizes that count the rows which turns have put somewhere."""
    sizes = [shape[rows.axis] for rows in put for shape in shapes_of(rows.output)]
    symbols = [size.symbol for size in sizes if not isinstance(size, int) and size.symbol is not None]
    return list(dict.fromkeys(symbol.name for symbol in symbols if symbol.name in lowerer.sizes.data_sizes))


def _check_rows(lowerer: Lowerer, put: Sequence[_Rows], first: int) -> None:
    """Leave to NumPy, which refuses it, a loop whose turns since a step may change the size of the rows that it collects."""
    settlements = [step.settles for step in lowerer.program.steps[first:] if step.settles is not None]
    changed = {name for one in settlements for name, size in one.sources if size != dim.symbol(name)}
    for rows in put:
        sizes = [size for axis, size in enumerate(rows.whole.shape) if axis != rows.axis]
        if changed & lowerer.sizes.data_sizes_in(sizes):
            raise CannotCompile(f"{rows.output.name} may have rows of several sizes", quiet=True)


def _most_bytes(values: Iterable[Value]) -> Dim:
    """Memory for any of some values."""
    return dim.maximum(*(dim.product(dims(value)) * stored(value).bytes for value in values))


def _contiguous(value: Value, lowerer: Lowerer) -> View:
    """Memory for a value inside of a loop."""
    return _in(lowerer.scratch(_most_bytes([value])), value)


def _apart(lowerer: Lowerer, view: View) -> View:
    made = View(
        lowerer.scratch(dim.product(view.shape) * view.type.bytes), view.type, view.shape, contiguous_strides(view.shape)
    )
    lowerer.copy(view, made)
    return made


def _require_row(lowerer: Lowerer, rows: _Rows) -> None:
    """Have NumPy compute whenever a row has not the shape that those of the whole have."""
    sizes = dims(rows.value)
    wanted = (*rows.whole.shape[: rows.axis], *rows.whole.shape[rows.axis + 1 :])
    if len(sizes) != len(wanted):
        raise CannotCompile(f"{rows.value.name} has {len(sizes)} axes and not {len(wanted)}", quiet=True)
    for size, other in zip(sizes, wanted):
        lowerer.require(size, other)


def _collected(
    lowerer: Lowerer, outputs: Sequence[Value], rows: Sequence[Value], axes: Sequence[int], backward: Sequence[int]
) -> list[_Rows]:
    """Outputs into which the turns put rows."""
    found = []
    for output, row, axis, is_backward in zip(outputs, rows, axes, backward):
        whole = lowerer.output(output)
        axis %= len(whole.shape)
        found.append(_Rows(row, output, whole, axis, bool(is_backward)))
        _require_row(lowerer, found[-1])
    return found


@lower("Loop", settles=True)
def lower_loop(lowerer: Lowerer, node: Node) -> None:
    body: Graph = node.attributes["body"].value
    count = len(node.inputs) - 2
    most, condition = node.inputs[:2]
    asked = body.outputs[0]
    loop = _Loop(lowerer, node, body.inputs[2:], node.inputs[2:], body.outputs[1 : 1 + count])
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
    loop.lower(turns, [], collected, asked)
    loop.finish(node.outputs)


def _always_holds(condition: Value | None) -> bool:
    """Whether a condition is constant and true, or left out."""
    content = None if condition is None else constant(condition)
    return condition is None or (content is not None and bool(np.all(content)))


@lower("Scan", since=9, settles=True)
def lower_scan(lowerer: Lowerer, node: Node) -> None:
    body: Graph = node.attributes["body"].value
    scanned = int(operand(node, "num_scan_inputs"))
    count = len(node.inputs) - scanned
    loop = _Loop(lowerer, node, body.inputs[:count], node.inputs[:count], body.outputs[:count])
    axes, backward = _for_each(node, "scan_input", scanned)
    wholes = [lowerer.view(required(value)) for value in node.inputs[count:]]
    taken = [
        _Rows(value, required(given), whole, axis % len(whole.shape), bool(is_backward))
        for value, given, whole, axis, is_backward in zip(
            body.inputs[count:], node.inputs[count:], wholes, axes, backward, strict=True
        )
    ]
    for rows in taken:
        _require_row(lowerer, rows)
    lengths = [rows.whole.shape[rows.axis] for rows in taken]
    for length in lengths[1:]:
        lowerer.require(length, lengths[0])
    put = _collected(
        lowerer, node.outputs[count:], body.outputs[count:], *_for_each(node, "scan_output", len(body.outputs) - count)
    )
    named = [(name, lengths[0]) for name in _counted(lowerer, put) if dim.symbol(name) not in lengths]
    lowerer.settle(named)
    for rows in put:
        length = rows.whole.shape[rows.axis]
        if (length, lengths[0]) not in [(dim.symbol(name), size) for name, size in named]:
            lowerer.require(length, lengths[0])
    loop.lower(_Turns(loop.turn, lengths[0], None), taken, put)
    loop.finish(node.outputs)


def _for_each(node: Node, kind: str, count: int) -> tuple[list[int], list[int]]:
    """The axes and the directions of what is scanned."""
    axes, directions = (operand(node, f"{kind}_{name}") or [0] * count for name in ("axes", "directions"))
    if len(axes) != count or len(directions) != count:
        raise CannotCompile(f"axes or directions are not those of {count} tensors", quiet=True)
    return list(axes), list(directions)
