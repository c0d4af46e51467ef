"""Loop and Scan. The steps of their graphs stand among those around them; a step that jumps leads back to the first of them.

What a graph reads of those around it is computed before. State lies in a buffer of its own, into which each turn puts its result.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import numpy as np

from sardonyx.compiler.types import BOOL, I64
from sardonyx.ir import Dim, Graph, Node, Value, dim
from sardonyx.ops.reading import constant, operand
from sardonyx.providers.native.kernels.control.jumps import compute_captured, consistent, in_buffer, land, require_equal, single
from sardonyx.providers.native.kernels.control.kernels import (
    RowArguments,
    SameSizesArguments,
    TurnArguments,
    row_kernel,
    same_sizes_kernel,
    turn_kernel,
)
from sardonyx.providers.native.kernels.control.sequences import is_sequence, memory_for, put_sequences
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES, raw
from sardonyx.providers.native.kernels.shape.walking import StridedTensor
from sardonyx.providers.native.program.computed_sizes import shapes_of
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, rank_of, required, stored
from sardonyx.providers.native.program.views import View, collapse, contiguous_strides
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass, replace


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
class Turns:
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


class _RowSizes:
    """Sizes of collected rows that nothing but the rows tells: the first row does, and all others have the same."""

    def __init__(self, lowerer: Lowerer, put: Sequence[_Rows], counted: Sequence[str]):
        self.lowerer = lowerer
        wanted = [(size, other) for rows in put for shape in shapes_of(rows.output) for size, other in _pairs(rows, shape)]
        self._wanted = [(size, other) for size, other in dict.fromkeys(wanted) if size != other]
        data_sizes = {*lowerer.sizes.data_sizes} - lowerer.settled - {*counted}
        self._free = {name for name in _names([other for _, other in self._wanted]) if name in data_sizes}
        self._has_turned = lowerer.sizes.add_data_size() if self._free else None
        self.compared: set[str] = set()
        """Names of sizes that do not change, as each turn compares them."""

    @property
    def before(self) -> list[tuple[str, Dim]]:
        """What is settled before the first turn."""
        return [(name, 0) for name in _names([self._has_turned])]

    def told(self, first: int) -> list[tuple[str, Dim]]:
        """What a turn settles, as far as no step since the first one of the turn has done it."""
        lowerer, found = self.lowerer, dict[str, Dim]()
        free = self._free - _settled_since(lowerer, first)
        for size, other in self._wanted:
            (name,) = _names([other]) or [""]
            lowerer.require(found.setdefault(name, size) if name in free else other, size)
        self.compared = {*found}
        if self._has_turned is None:
            return []
        if found:
            arguments = SameSizesArguments(
                left=[size * self._has_turned for size in found.values()],
                right=[dim.symbol(name) * self._has_turned for name in found],
                status=lowerer.status(),
            )
            lowerer.call(same_sizes_kernel(lowerer.target, len(found)), arguments, 1)
        return [*found.items(), *((name, 1) for name in _names([self._has_turned]))]


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
        turned = list(zip(state, map(required, initial), following, strict=True))
        tensors = [(value, first, then) for value, first, then in turned if not is_sequence(value)]
        self.state = [in_buffer(lowerer.scratch(_most_bytes((value, then))), value) for value, _, then in tensors]
        self._given = [(value, place) for (value, _, _), place in zip(tensors, self.state)]
        self._following = [then for _, _, then in tensors]
        self._sequences = [(value, then, memory_for(lowerer, value)) for value, _, then in turned if is_sequence(value)]
        self.turn = View(lowerer.scratch(8), I64, (), ())
        compute_captured(lowerer, node)
        views = [lowerer.view(first) for _, first, _ in tensors]
        self._before = frozenset(lowerer.settled)
        settled = [pair for value, first, _ in tensors for pair in require_equal(lowerer, first, dims(value), self._before)]
        begun = [lowerer.sequence(first) for value, first, _ in turned if is_sequence(value)]
        settled += put_sequences(lowerer, begun, [held for _, _, held in self._sequences])
        lowerer.settle(consistent(lowerer, settled))
        for (_, first, _), view, place in zip(tensors, views, self.state):
            lowerer.copy(view, in_buffer(place.buffer, first))

    def give(self, value: Value, view: View) -> None:
        """Let an input of the body be a view of what is there."""
        self._given.append((value, replace(view, shape=dims(value), strides=contiguous_strides(dims(value)))))

    def lower(self, turns: Turns, taken: Sequence[_Rows], put: Sequence[_Rows], asked: Value | None = None) -> None:
        """Add the steps. `asked` tells whether another turn is wanted. Turns count the rows put if nothing is taken."""
        lowerer = self.lowerer
        pairs = zip(self._following, self.state)
        settled = [pair for value, place in pairs for pair in require_equal(lowerer, value, place.shape, self._before)]
        counted = [] if taken else _counted(lowerer, put)
        rows_sizes = _RowSizes(lowerer, put, counted)
        lowerer.settle([*((name, 0) for name in counted), *rows_sizes.before])
        # what would have been collected without any turn has no size where the body does not declare one
        is_open = any(not isinstance(size, int) for rows in put for size in dims(rows.value))
        to_end = turns.add(lowerer, is_first=True, must_turn=is_open)
        first = len(lowerer.program.steps)
        # what a turn puts somewhere stays there while others come, though nothing may have been there before the loop
        kept = [rows.whole.buffer for rows in put] + [place.buffer for place in self.state]
        kept += [buffer for _, _, held in self._sequences for buffer in (held.data, held.table)]
        lowerer.program.steps[to_end].scratch = kept
        with lowerer.inside(self.body, {} if asked is None or turns.going is None else {asked: turns.going}):
            for value, view in self._given:
                lowerer.set_view(value, view)
            for value, _, held in self._sequences:
                lowerer.set_sequence(value, held)
            for rows in taken:
                row = _contiguous(rows.value, lowerer)
                lowerer.set_view(rows.value, row)
                self._move(rows, row, is_put=False)
            lowerer.lower_graph(self.body)
            if asked is not None and turns.going is not None:
                lowerer.deliver(asked, turns.going)
            views = [lowerer.view(rows.value) for rows in put]
            lowerer.settle([*((name, dim.symbol(name) + 1) for name in counted), *rows_sizes.told(first)])
            for rows, view in zip(put, views):
                self._move(rows, view, is_put=True)
            self._hand_on([lowerer.view(value) for value in self._following])
            results = [lowerer.sequence(then) for _, then, _ in self._sequences]
            lengths = put_sequences(lowerer, results, [held for _, _, held in self._sequences])
            lowerer.settle(consistent(lowerer, [*settled, *lengths]))
        _check_rows(lowerer, put, first, rows_sizes.compared)
        back = turns.add(lowerer, is_first=False)
        lowerer.program.steps[back].jump = first - back
        land(lowerer, to_end)

    def _hand_on(self, views: Sequence[View]) -> None:
        """Put the next state where the last one is; what is itself a part of that is copied first."""
        lowerer, places = self.lowerer, {place.buffer for place in self.state}
        following = [(view, in_buffer(place.buffer, value)) for view, value, place in zip(views, self._following, self.state)]
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
        settled, made = [], list(outputs)
        for value, (_, _, held) in zip(filter(is_sequence, made), self._sequences):
            lowerer.set_sequence(value, held)
        tensors = (value for value in made if not is_sequence(value))
        for value, (state, place) in zip(tensors, self._given[: len(self.state)]):
            settled += [pair for shape in shapes_of(value) for pair in require_equal(lowerer, state, shape, self._before)]
            lowerer.set_view(value, in_buffer(place.buffer, value))
        lowerer.settle(consistent(lowerer, settled))


def _counted(lowerer: Lowerer, put: Sequence[_Rows]) -> list[str]:
    """Names of sizes that count the rows which turns have put somewhere."""
    sizes = [shape[rows.axis] for rows in put for shape in shapes_of(rows.output)]
    symbols = [size.symbol for size in sizes if not isinstance(size, int) and size.symbol is not None]
    return list(dict.fromkeys(symbol.name for symbol in symbols if symbol.name in lowerer.sizes.data_sizes))


def _pairs(rows: _Rows, shape: Sequence[Dim]) -> Iterable[tuple[Dim, Dim]]:
    """The sizes of a row, and those that a shape of all rows has for them."""
    return zip(dims(rows.value), (*shape[: rows.axis], *shape[rows.axis + 1 :]))


def _names(sizes: Iterable[Dim | None]) -> list[str]:
    """The names of sizes that are symbols."""
    symbols = [None if size is None or isinstance(size, int) else size.symbol for size in sizes]
    return [symbol.name for symbol in symbols if symbol is not None]


def _settled_since(lowerer: Lowerer, first: int) -> set[str]:
    """Names of sizes that may have changed since a step."""
    settlements = [step.settles for step in lowerer.program.steps[first:] if step.settles is not None]
    return {name for one in settlements for name, size in one.sources if size != dim.symbol(name)}


def _check_rows(lowerer: Lowerer, put: Sequence[_Rows], first: int, compared: Container[str]) -> None:
    """Leave to NumPy, which refuses it, a loop whose turns since a step may change the size of the rows that it collects.

    Sizes that are compared in each turn do not change.
    """
    changed = {name for name in _settled_since(lowerer, first) if name not in compared}
    for rows in put:
        sizes = [size for axis, size in enumerate(rows.whole.shape) if axis != rows.axis]
        if changed & lowerer.sizes.data_sizes_in(sizes):
            raise CannotCompile(f"{rows.output.name} may have rows of several sizes", quiet=True)


def _most_bytes(values: Iterable[Value]) -> Dim:
    """Memory for any of some values."""
    return dim.maximum(*(dim.product(dims(value)) * stored(value).bytes for value in values))


def _contiguous(value: Value, lowerer: Lowerer) -> View:
    """Memory for a value inside of a loop."""
    return in_buffer(lowerer.scratch(_most_bytes([value])), value)


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
        if rank_of(row) + 1 != len(whole.shape):
            raise CannotCompile(f"{row.name} has {rank_of(row)} axes and not {len(whole.shape) - 1}", quiet=True)
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
        given = View(lowerer.constant(np.ones(1, np.bool_)), BOOL, (), ()) if condition is None else single(lowerer, condition)
        lowerer.copy(replace(given, shape=(), strides=()), View(going, BOOL, (), ()))
    turns = Turns(loop.turn, None if most is None else single(lowerer, most), going)
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
    loop.lower(Turns(loop.turn, lengths[0], None), taken, put)
    loop.finish(node.outputs)


def _for_each(node: Node, kind: str, count: int) -> tuple[list[int], list[int]]:
    """The axes and the directions of what is scanned."""
    axes, directions = (operand(node, f"{kind}_{name}") or [0] * count for name in ("axes", "directions"))
    if len(axes) != count or len(directions) != count:
        raise CannotCompile(f"axes or directions are not those of {count} tensors", quiet=True)
    return list(axes), list(directions)
