"""The loops over time of LSTM, GRU and RNN in generated code: the product with the state, gates, outputs. `recurrent` adds the steps.

State is held in float32 (float64) in padded rows of scratch memory: two copies of h, of which one is read while the other is written, and
behind them what else the cell keeps. Gates stand as `recurrent_product.packed` puts them: all gates of a vector of units together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.compiler import math as vector_math
from sardonyx.compiler.builder import Value
from sardonyx.compiler.pool import CALL_STATUS, CALL_STOP
from sardonyx.compiler.types import I32, I64, PTR, Type
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.recurrent.product import BLOCK_ROWS, double_tile, in_tiles, product_tile, tile_rows
from sardonyx.providers.native.recurrent.team import Team
from sardonyx.records import dataclass

Function = Callable[[Value], Value]


@dataclass(frozen=True)
class Activation:
    name: str
    """In lower case."""
    alpha: float | None = None
    beta: float | None = None


@dataclass(frozen=True)
class Cell:
    """What shapes the code of a recurrence."""

    op: str
    type: Type
    activations: tuple[Activation, ...]
    clip: float | None
    lengths: bool
    """Whether rows have their own lengths."""
    outputs: tuple[bool, ...]
    """Which of Y, Y_h, Y_c are wanted."""
    peepholes: bool = False
    input_forget: bool = False
    linear_before_reset: bool = False
    team: bool = False
    """Whether several threads may share a step."""
    ahead: int = 0
    """For so many steps together a single row's inputs are projected while the steps before are under way; 0 if they are projected at
    once. One row alone waits for the weights to come from memory, and the arithmetic units are free for that."""
    ratio: int = 1
    """How many elements of h go through the one product for each element of those inputs in the other, so that they end together."""

    @property
    def gates(self) -> int:
        return {"LSTM": 4, "GRU": 3, "RNN": 1}[self.op]

    @property
    def input_vectors(self) -> int:
        """Gates in a panel of the input weights: few, so that a tile has room for many rows."""
        return {"LSTM": 2, "GRU": 3, "RNN": 1}[self.op]

    @property
    def planes(self) -> int:
        """How many vectors of `hidden` numbers a row of the state has."""
        return {"LSTM": 3, "GRU": 2 if self.linear_before_reset else 4, "RNN": 2}[self.op]

    @property
    def products(self) -> tuple[int, ...]:
        """Gates in each product of a step. A GRU that resets h before it multiplies needs the reset gate of all units first."""
        return (2, 1) if self.op == "GRU" and not self.linear_before_reset else (self.gates,)


# --- activations


def activation_function(activation: Activation, clip: float | None) -> Function:
    function = ACTIVATIONS[activation.name](activation)
    return function if clip is None else lambda x: function(x.f.minimum(clip, x.f.maximum(-clip, x)))


def _with(make: Callable[[Value, float, float], Value]) -> Callable[[Activation], Function]:
    """A function of x, alpha and beta as one of the activation that holds them."""
    return lambda one: lambda x: make(x, one.alpha or 0.0, one.beta or 0.0)


ACTIVATIONS: dict[str, Callable[[Activation], Function]] = {
    "relu": _with(lambda x, a, b: x.f.maximum(0.0, x)),
    "tanh": _with(lambda x, a, b: vector_math.tanh(x)),
    "sigmoid": _with(lambda x, a, b: vector_math.sigmoid(x)),
    "affine": _with(lambda x, a, b: x * a + b),
    "leakyrelu": _with(lambda x, a, b: x.f.select(x < 0.0, x * a, x)),
    "thresholdedrelu": _with(lambda x, a, b: x.f.select(x >= a, x, 0.0)),
    "scaledtanh": _with(lambda x, a, b: vector_math.tanh(x * b) * a),
    "hardsigmoid": _with(lambda x, a, b: x.f.minimum(1.0, x.f.maximum(0.0, x * a + b))),
    "elu": _with(lambda x, a, b: x.f.select(x < 0.0, vector_math.expm1(x) * a, x)),
    "softsign": _with(lambda x, a, b: x / (x.f.abs(x) + 1.0)),
    "softplus": _with(lambda x, a, b: vector_math.softplus(x)),
}


# --- before the first step


@kernel("recurrent sizes")
def sizes_kernel(f: KernelFunction, count: int) -> None:
    """Set the status if the two sizes of any of `count` pairs differ."""
    status = f.pointer()
    for _ in range(count):
        with f.if_(f.size() != f.size()):
            f.store(f.const(I64, 1), status, 0, I64)


@kernel("recurrent state")
def state_kernel(f: KernelFunction, stored: Type, planes: int, cell_state: bool, team: bool) -> None:
    """Put initial_h (and initial_c) into rows of the state, zero behind their end. Items are rows of all directions.

    The first one also clears the words by which teams agree.
    """
    type = stored.computed
    lanes = f.lanes(type)
    state, batch, hidden, padded = f.pointer(), f.size(), f.size(), f.size()
    sources = [(plane, f.pointer(), f.size(), f.size()) for plane in ((0, 2) if cell_state else (0,))]
    if team:
        words, count = f.pointer(), f.size()
        with f.if_(f.begin == 0), f.loop(0, count) as word:
            f.store(f.const(I64, 0), words, word, I64)
    with f.loop(f.begin, f.end) as item:
        row = f.address(state, item * padded * planes, type)
        for plane, source, direction_stride, row_stride in sources:
            place = f.address(source, (item // batch) * direction_stride + (item % batch) * row_stride, stored)
            with f.loop(0, padded, lanes) as unit:
                value = f.load(place, unit, stored, lanes, remaining=hidden - unit)
                f.store(value, row, padded * plane + unit, type)


# --- the loop over time


@kernel("recurrence")
def recurrence_kernel(f: KernelFunction, cell: Cell) -> None:
    """All steps for blocks of rows. Items are blocks of all directions, and once more the same for those who help."""
    layer = _Layer(f, cell)
    with f.loop(f.begin, f.end) as item:
        _Block(layer, item).run()


class _Layer:
    """The arguments of a recurrence, in the order in which `recurrent` gives them."""

    def __init__(self, f: KernelFunction, cell: Cell):
        self.f = f
        self.cell = cell
        self.type = cell.type.computed
        self.lanes = f.lanes(self.type)
        self.steps, self.batch, self.hidden, self.padded = f.size(), f.size(), f.size(), f.size()
        self.directions, self.first, self.reverse = f.size(), f.size(), f.size()
        self.blocks, self.block_rows, self.teams = f.size(), f.size(), f.size()
        self.projected, self.bias, self.state = f.pointer(), f.pointer(), f.pointer()
        self.weights = [f.pointer() for _ in cell.products]
        self.beside = f.pointer() if cell.peepholes or cell.linear_before_reset else None
        self.status = f.pointer()
        if cell.lengths:
            self.lengths = f.pointer()
        if cell.team:
            self.words, self.team_words, self.pieces, self.members, self.swings = (f.pointer(), *(f.size() for _ in range(4)))
        if cell.ahead:
            self.X, self.step_stride, self.depth, self.input_weights = f.pointer(), f.size(), f.size(), f.pointer()
            self.lines = f.size()
            """Of projected inputs, for each panel."""
            self.coming = f.stack(I64, cell.ahead)
            """Where in X the steps begin whose projection comes next."""
        self.Y = (f.pointer(), f.size(), f.size(), f.size()) if cell.outputs[0] else None
        self.final = [(plane, f.pointer(), f.size(), f.size()) for plane, wanted in zip((0, 2), cell.outputs[1:]) if wanted]
        self.functions = [activation_function(one, cell.clip) for one in cell.activations]
        if cell.op == "LSTM":  # clip bounds the gates only, not the cell state
            self.functions[2] = activation_function(cell.activations[2], None)
        self.times = f.stack(I64, BLOCK_ROWS)
        """Which step of the sequence each row is at."""
        self.ends = f.stack(I64, BLOCK_ROWS)
        self.sums = f.stack(self.type, BLOCK_ROWS * max(cell.products) * self.lanes)
        """Products of one panel, row after row."""


class _Block:
    """A few rows of one direction on their way through time."""

    def __init__(self, layer: _Layer, item: Value):
        f = self.f = layer.f
        self.layer = layer
        self.cell = layer.cell
        self.item = item
        team = item % layer.teams
        self.team = team
        self.direction = team // layer.blocks + layer.first
        self.backwards = self.direction >= layer.reverse
        self.first_row = (team % layer.blocks) * layer.block_rows
        self.rows = f.minimum(layer.block_rows, layer.batch - self.first_row)
        self.row_size = layer.padded * self.cell.planes
        start = (self.direction * layer.batch + self.first_row) * self.row_size
        self.state = f.address(layer.state, start, layer.type)
        self.panels = layer.padded // layer.lanes
        self.longest = layer.steps

    def run(self) -> None:
        f = self.f
        if self.cell.lengths:
            self.longest = self._read_lengths()
        if self.cell.team:
            self._run_in_team()
            return
        if self.cell.ahead:
            self._find_coming(f.const(I64, 0))
            with f.loop(0, self.panels) as panel:
                self._project_first(panel)
        with f.loop(0, self.longest) as t, f.if_(~self._is_stopped()):
            self._begin_step(t)
            for phase in range(len(self.cell.products)):
                with f.loop(0, self.panels) as number:
                    self._do_panel(t, phase, self._to_and_fro(t, number))
        self._finish(self.longest)

    def _is_stopped(self) -> Value:
        """Whether the run shall end: a sequence may be long, and nobody looks at what is computed then."""
        f = self.f
        stop = f.load(self.layer.status, CALL_STOP - CALL_STATUS, PTR)  # the words of a call lie together
        return f.emit(I64, f"load atomic i64, {stop} monotonic, align 8") != 0

    def _to_and_fro(self, t: Value, number: Value) -> Value:
        """The panel that comes as the number-th: each step begins with those that the one before had last, and that are near still."""
        return self.f.select((t & 1) == 0, number, self.panels - 1 - number)

    def _run_in_team(self) -> None:
        """As many turns for each step as it has products; before them one for the first projection, if there is one."""
        f, layer, phases = self.f, self.layer, len(self.cell.products)
        leads = self.item < layer.teams
        words = f.address(layer.words, self.team * layer.team_words, I64)
        team = Team(f, words, layer.pieces, layer.members, layer.swings)
        team.run(leads, self.longest * phases + self._turns_before, self._is_stopped, self._begin_turn, self._do_piece)
        with f.if_(leads):
            self._finish(self.longest)

    @property
    def _turns_before(self) -> int:
        return 1 if self.cell.ahead else 0

    def _begin_turn(self, turn: Value) -> None:
        if not self.cell.ahead:
            self._begin_step((turn - 1) // len(self.cell.products))
            return
        with self.f.if_else(turn == 1) as otherwise:
            self._find_coming(self.f.const(I64, 0))
            otherwise()
            self._begin_step((turn - 2) // len(self.cell.products))

    def _begin_step(self, t: Value) -> None:
        self._find_times(t)
        if self.cell.ahead:
            self._find_coming((t // self.cell.ahead + 1) * self.cell.ahead)

    def _find_coming(self, first: Value) -> None:
        """Where the inputs of the steps from `first` on lie; those behind the end are the last one again, and not used."""
        f, layer = self.f, self.layer
        end = self.longest - 1
        for n in range(self.cell.ahead):
            t = f.minimum(first + n, end)
            f.store(f.select(self.backwards, end - t, t) * layer.step_stride, layer.coming, n, I64)

    def _read_lengths(self) -> Value:
        """Note every row's length; returns the longest. One that cannot be sets the status, and the row is cut."""
        f, layer = self.f, self.layer
        longest = f.variable(0, I64)
        with f.loop(0, self.rows) as row:
            length = f.convert(f.load(layer.lengths, self.first_row + row, I32), I64)
            with f.if_((length < 0) | (length > layer.steps)):
                f.store(f.const(I64, 1), layer.status, 0, I64)
            length = f.minimum(f.maximum(length, 0), layer.steps)
            f.store(length, layer.ends, row, I64)
            longest.set(f.maximum(longest.get(), length))
        return longest.get()

    def _find_times(self, t: Value) -> None:
        """Which step of its sequence each row is at: those who go backwards begin at their own end, and stand still behind it."""
        f, layer = self.f, self.layer
        with f.loop(0, self.rows) as row:
            end = f.load(layer.ends, row, I64) if self.cell.lengths else layer.steps
            time = f.select(self.backwards & (t < end), end - 1 - t, t)
            f.store(time, layer.times, row, I64)

    def _do_piece(self, turn: Value, piece: Value) -> None:
        """Some panels in one of a team's turns."""
        f, phases, pieces = self.f, len(self.cell.products), self.layer.pieces
        turn = turn - 1 - self._turns_before
        with f.loop((piece * self.panels) // pieces, ((piece + 1) * self.panels) // pieces) as panel:
            if self.cell.ahead:
                with f.if_(turn < 0):
                    self._project_first(panel)
            for phase in range(phases):
                with f.if_((turn >= 0) & (turn % phases == phase)):
                    self._do_panel(turn // phases, phase, panel)

    def _do_panel(self, t: Value, phase: int, panel: Value) -> None:
        """Multiply the state of all rows with a panel of weights, then compute the panel's units row by row."""
        f, layer, vectors = self.f, self.layer, self.cell.products[phase]
        width = vectors * layer.lanes
        weights = f.address(layer.weights[phase], (self.direction * self.panels + panel) * layer.hidden * width, layer.type)
        now = (t & 1) * layer.padded
        plane = now if phase == 0 else layer.padded * 3  # a GRU's h after its reset

        def tile(start: Value, size: int) -> None:
            rows = [f.address(self.state, (start + n) * self.row_size + plane, layer.type) for n in range(size)]
            for n, sums in enumerate(product_tile(f, rows, layer.type, weights, layer.hidden, vectors)):
                self._keep(sums, layer.sums, (start + n) * width)

        if not self.cell.ahead:
            in_tiles(f, self.rows, tile_rows(f, layer.type, vectors), tile)
        elif phase == 0:
            self._keep(self._multiply_and_project(t, panel, weights, f.address(self.state, now, layer.type)), layer.sums, 0)
        else:
            tile(f.const(I64, 0), 1)
        with f.loop(0, self.rows) as row:
            units = _Units(self, row, panel, t, width)
            if self.cell.lengths and not self.cell.ahead:
                with f.if_else(t < f.load(layer.ends, row, I64)) as otherwise:
                    self._do_units(units, phase)
                    otherwise()
                    if phase == len(self.cell.products) - 1:
                        units.stay()
            else:
                self._do_units(units, phase)

    def _keep(self, values: Sequence[Value], place: Value, offset: Value | int) -> None:
        for n, value in enumerate(values):
            self.f.store(value, place, self.layer.lanes * n + offset, self.layer.type)

    # --- projecting ahead

    def projected_at(self, t: Value, panel: Value) -> Value:
        """Where a panel's projected inputs of a step are kept: there is room for the group of steps that is being used and for the next
        if there is one.
        """
        line = (self.direction * self.panels + panel) * self.layer.lines + t % (2 * self.cell.ahead)
        return line * (self.cell.gates * self.layer.lanes)

    def _coming_row(self, number: Value | int, depth: Value | int = 0) -> Value:
        f, layer = self.f, self.layer
        return f.address(layer.X, f.load(layer.coming, number, I64) + depth, self.cell.type)

    def _input_panel(self, panel: Value, depth: Value | int) -> Value:
        """Input weights of one panel, from a depth on."""
        width = self.cell.input_vectors * self.layer.lanes
        return self.f.address(self.layer.input_weights, (panel * self.layer.depth + depth) * width, self.layer.type)

    def _project_first(self, panel: Value) -> None:
        """The projected inputs of the first steps."""
        f, layer, vectors = self.f, self.layer, self.cell.input_vectors
        parts = self.cell.gates // vectors
        with f.loop(0, parts) as part:
            number = (self.direction * self.panels + panel) * parts + part
            weights = self._input_panel(number, 0)

            def tile(start: Value, size: int) -> None:
                rows = [self._coming_row(start + n) for n in range(size)]
                for n, sums in enumerate(product_tile(f, rows, self.cell.type, weights, layer.depth, vectors)):
                    self._keep(sums, layer.projected, self.projected_at(start + n, panel) + part * (vectors * layer.lanes))

            in_tiles(f, f.minimum(self.longest, self.cell.ahead), tile_rows(f, layer.type, vectors), tile)

    def _multiply_and_project(self, t: Value, panel: Value, weights: Value, h: Value) -> list[Value]:
        """The product with h, and beside it a part of the next steps' projection: in each step other gates or another part of X's depth."""
        f, layer, ahead, vectors = self.f, self.layer, self.cell.ahead, self.cell.input_vectors
        parts = self.cell.gates // vectors
        slices = ahead // parts
        part, slice = t % ahead % parts, t % ahead // parts
        following = (t // ahead + 1) * ahead
        first, last = (layer.depth * slice) // slices, (layer.depth * (slice + 1)) // slices
        depth = f.select(following < self.longest, last - first, 0)
        number = (self.direction * self.panels + panel) * parts + part
        rows = [self._coming_row(n, first) for n in range(ahead)]
        near = (h, layer.type, weights, layer.hidden, self.cell.products[0])
        far = (rows, self.cell.type, self._input_panel(number, first), depth, vectors)
        product, sums = double_tile(f, near, far, self.cell.ratio)
        with f.if_(following < self.longest):
            start = f.address(layer.projected, self.projected_at(following, panel) + part * (vectors * layer.lanes), layer.type)
            for n, row in enumerate(sums):
                place = f.address(start, n * self.cell.gates * layer.lanes, layer.type)
                before = [f.load(place, k * layer.lanes, layer.type, layer.lanes) for k in range(vectors)]
                self._keep([value + f.select(slice > 0, kept, 0.0) for value, kept in zip(row, before)], place, 0)
        return product

    def _do_units(self, units: _Units, phase: int) -> None:
        if self.cell.op == "LSTM":
            _lstm(units)
        elif self.cell.op == "RNN":
            (f,) = self.layer.functions
            units.advance(f(units.input(0) + units.sum(0)))
        elif self.cell.linear_before_reset:
            _gru(units)
        elif phase == 0:
            _gru_reset(units)
        else:
            _gru_candidate(units)

    def _finish(self, longest: Value) -> None:
        """Zeros behind the longest row, and the final states. Those of a row without steps are zero where there are steps at all."""
        f, layer = self.f, self.layer
        with f.loop(0, self.rows) as row:
            if layer.Y is not None and self.cell.lengths:
                with f.loop(longest, layer.steps) as t:
                    self._copy(None, self.output(row, t))
            state = f.address(self.state, row * self.row_size, layer.type)
            for plane, pointer, direction_stride, row_stride in layer.final:
                place = f.address(
                    pointer, self.direction * direction_stride + (self.first_row + row) * row_stride, self.cell.type
                )
                held = layer.padded * plane if plane else (longest & 1) * layer.padded
                source = f.address(state, held, layer.type)
                if not self.cell.lengths:
                    self._copy(source, place)
                    continue
                with f.if_else((f.load(layer.ends, row, I64) == 0) & (layer.steps > 0)) as otherwise:
                    self._copy(None, place)
                    otherwise()
                    self._copy(source, place)

    def output(self, row: Value, time: Value) -> Value:
        """Where a row of Y begins."""
        assert self.layer.Y is not None
        pointer, step, direction, row_stride = self.layer.Y
        offset = time * step + self.direction * direction + (self.first_row + row) * row_stride
        return self.f.address(pointer, offset, self.cell.type)

    def _copy(self, source: Value | None, target: Value) -> None:
        """A row of the state, or zeros, to an output."""
        f, layer = self.f, self.layer
        with f.loop(0, layer.hidden, layer.lanes) as unit:
            if source is None:
                value = f.const(layer.type.vector(layer.lanes), 0.0)
            else:
                value = f.load(source, unit, layer.type, layer.lanes)
            self.write(value, target, unit)

    def write(self, value: Value, target: Value, unit: Value) -> None:
        """Units into an output row, which has no room behind its end."""
        f, layer = self.f, self.layer
        remaining = layer.hidden - unit
        with f.if_else(remaining >= layer.lanes) as otherwise:
            f.store(value, target, unit, self.cell.type)
            otherwise()
            f.store(value, target, unit, self.cell.type, remaining=remaining)


class _Units:
    """A vector of units of one row at one step."""

    def __init__(self, block: _Block, row: Value, panel: Value, t: Value, width: Value | int):
        self.block = block
        self.layer = block.layer
        f = self.f = block.f
        self.type, self.lanes = self.layer.type, self.layer.lanes
        self.row = row
        self.unit = panel * self.lanes
        self._sums = f.address(self.layer.sums, row * width, self.type)
        self._state = f.address(block.state, row * block.row_size + self.unit, self.type)
        self._now = (t & 1) * self.layer.padded
        self.time = f.load(self.layer.times, row, I64)
        if block.cell.ahead:
            inputs = block.projected_at(t, panel)
        else:
            line = (self.time * self.layer.batch + block.first_row + row) * self.layer.directions + block.direction
            inputs = (line * self.layer.padded + self.unit) * block.cell.gates
        self._inputs = f.address(self.layer.projected, inputs, self.type)
        bias = (block.direction * self.layer.padded + self.unit) * block.cell.gates
        self._bias = f.address(self.layer.bias, bias, self.type)

    def input(self, gate: int) -> Value:
        """The projected input, with its biases."""
        return self._at(self._inputs, gate) + self._at(self._bias, gate)

    def sum(self, number: int) -> Value:
        """One gate's part of the product with the state."""
        return self._at(self._sums, number)

    def _at(self, place: Value, number: int) -> Value:
        return self.f.load(place, number * self.lanes, self.type, self.lanes)

    def gate(self, number: int) -> Value:
        return self.input(number) + self.sum(number)

    def beside(self, number: int, count: int) -> Value:
        """Peepholes or the candidate's bias: `count` vectors for each direction."""
        assert self.layer.beside is not None
        offset = (self.block.direction * count + number) * self.layer.padded + self.unit
        return self.f.load(self.layer.beside, offset, self.type, self.lanes)

    @property
    def h(self) -> Value:
        return self.f.load(self._state, self._now, self.type, self.lanes)

    def held(self, plane: int) -> Value:
        return self.f.load(self._state, self.layer.padded * plane, self.type, self.lanes)

    def hold(self, plane: int, value: Value) -> None:
        self.f.store(value, self._state, self.layer.padded * plane, self.type)

    def advance(self, h: Value) -> None:
        """The next h, which is also the output."""
        self._set_next(h)
        self._write(h)

    def stay(self) -> None:
        """Behind the row's end h stays, and the output is zero."""
        self._set_next(self.h)
        self._write(self.f.const(self.type.vector(self.lanes), 0.0))

    def _set_next(self, h: Value) -> None:
        self.f.store(h, self._state, self.layer.padded - self._now, self.type)

    def _write(self, value: Value) -> None:
        if self.layer.Y is not None:
            self.block.write(value, self.block.output(self.row, self.time), self.unit)


def _lstm(units: _Units) -> None:
    """Gates stand in the order i, o, f, c."""
    cell, (f, g, h) = units.block.cell, units.layer.functions
    c = units.held(2)
    i, o, forget = units.gate(0), units.gate(1), units.gate(2)
    if cell.peepholes:
        i, forget = i + units.beside(0, 3) * c, forget + units.beside(2, 3) * c
    i = f(i)
    c = (1.0 - i if cell.input_forget else f(forget)) * c + i * g(units.gate(3))
    if cell.peepholes:
        o = o + units.beside(1, 3) * c
    units.hold(2, c)
    units.advance(f(o) * h(c))


def _gru(units: _Units) -> None:
    """Gates stand in the order update, reset, candidate; the reset scales the product with h."""
    f, g = units.layer.functions
    update, reset = f(units.gate(0)), f(units.gate(1))
    candidate = g(units.input(2) + reset * (units.sum(2) + units.beside(0, 1)))
    units.advance((1.0 - update) * candidate + update * units.h)


def _gru_reset(units: _Units) -> None:
    """Both gates of a GRU whose reset scales h itself, and that h."""
    f = units.layer.functions[0]
    units.hold(2, f(units.gate(0)))
    units.hold(3, f(units.gate(1)) * units.h)


def _gru_candidate(units: _Units) -> None:
    """The candidate, from the product with the scaled h."""
    candidate = units.layer.functions[1](units.input(2) + units.sum(0))
    update = units.held(2)
    units.advance((1.0 - update) * candidate + update * units.h)


def padded_size(hidden: int, lanes: int) -> int:
    """`hidden`, rounded up to whole vectors."""
    return -(-hidden // lanes) * lanes
