"""The loop over time of LSTM, GRU and RNN in generated code. `operators` adds its step.

State is held in float32 (float64) in padded rows of scratch memory: two copies of h, of which one is read while the other is written, and
behind them what else the cell keeps. Gates stand as `product.packed` puts them: all gates of a vector of units together, a panel. A step
goes from panel to panel: the state of all rows times the panel's weights (`_Block._multiply`, whose inner loop is `product.product_tile`),
then the panel's units row by row (`cells.compute_units`).

From the outside in: `recurrence_kernel` takes items, `_Block.run` goes from step to step, alone or in a team of threads, and `_do_panel`
does one panel of a step. The inner loop is `product.product_tile`, the epilogue of a step `cells.compute_units`, that of the whole
sequence `_finish`. The arguments are `RecurrenceArguments`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.pool import CALL_STATUS, CALL_STOP
from sardonyx.compiler.types import I32, I64, PTR
from sardonyx.providers.native.kernels.recurrent.cells import CELL_STATE, RESET_STATE, Cell, cell_functions, compute_units
from sardonyx.providers.native.kernels.recurrent.product import Factors, double_tile, in_tiles, product_tile, tile_rows
from sardonyx.providers.native.kernels.recurrent.rounded import RoundedArguments, RoundedState
from sardonyx.providers.native.kernels.recurrent.state import StateArguments
from sardonyx.providers.native.kernels.recurrent.team import Team, TeamArguments
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel


class AheadArguments(Arguments):
    """What projects the inputs of a single row while earlier steps still run: see `Cell.ahead`."""

    X: Pointer
    step_stride: Size
    depth: Size
    """Elements of an input."""
    weights: Pointer
    lines: Size
    """Of projected inputs, for each panel."""


class OutputArguments(Arguments):
    """The output Y."""

    place: Pointer
    step_stride: Size
    direction_stride: Size
    row_stride: Size


class RecurrenceArguments(Arguments):
    steps: Size
    batch: Size
    hidden: Size
    padded: Size
    """`hidden`, rounded up to whole vectors."""
    directions: Size
    """How many directions the layer has."""
    first: Size
    """The direction of the first items."""
    reverse: Size
    """The first direction in which sequences go backwards."""
    blocks: Size
    """Blocks of rows in each direction."""
    block_rows: Size
    """Rows of a block."""
    teams: Size
    """One for each block of each direction; a thread alone counts as one."""
    projected: Pointer
    """Inputs times their weights, without bias."""
    bias: Pointer
    state: Pointer
    weights: Sequence[Pointer] = each(lambda cell: len(cell.products))
    """Recurrent weights, for each product of a step."""
    beside: Pointer | None = when(lambda cell: cell.peepholes or cell.linear_before_reset)
    """Peepholes, or the bias of the candidate's product."""
    status: Pointer
    lengths: Pointer | None = when(lambda cell: cell.lengths)
    team: TeamArguments | None = when(lambda cell: cell.team)
    ahead: AheadArguments | None = when(lambda cell: cell.ahead)
    rounded: RoundedArguments | None = when(lambda cell: cell.rounded)
    Y: OutputArguments | None = when(lambda cell: cell.outputs[0])
    final_h: StateArguments | None = when(lambda cell: cell.outputs[1])
    final_c: StateArguments | None = when(lambda cell: cell.outputs[2])
    gates: Pointer | None = when(lambda cell: cell.trained)
    """Of every step: steps, directions, rows, gates · units."""
    cells: Pointer | None = when(lambda cell: cell.trained and cell.op == "LSTM")
    """c of every step."""


@kernel("recurrence", RecurrenceArguments)
def recurrence_kernel(f: KernelFunction, a: RecurrenceArguments, cell: Cell) -> None:
    """All steps for blocks of rows. Items are the blocks of all directions; with teams, each block once more for a helper."""
    layer = _Layer(f, a, cell)
    with f.loop(f.begin, f.end) as item:
        _Block(layer, item).run()


class _Layer:
    """What all blocks share: arguments, activations, and memory of a thread."""

    def __init__(self, f: KernelFunction, a: RecurrenceArguments, cell: Cell):
        self.f = f
        self.a = a
        self.cell = cell
        self.type = cell.type.computed
        self.lanes = f.lanes(self.type)
        self.functions = cell_functions(cell)
        self.coming = f.stack(I64, cell.ahead) if cell.ahead else None
        """Where the steps lie in X that are projected next."""
        self.times = f.stack(I64, cell.block_rows)
        """Which step of the sequence each row is at."""
        self.ends = f.stack(I64, cell.block_rows)
        self.sums = f.stack(self.type, cell.block_rows * max(cell.products) * self.lanes)
        """Products of one panel, row after row."""

    def keep(self, values: Sequence[Value], place: Value, offset: Value | int) -> None:
        """Store vectors side by side."""
        for n, value in enumerate(values):
            self.f.store(value, place, self.lanes * n + offset, self.type)


class _Block:
    """A few rows of one direction on their way through time."""

    def __init__(self, layer: _Layer, item: Value):
        f, a = layer.f, layer.a
        self.f, self.a, self.layer, self.cell = f, a, layer, layer.cell
        self.item = item
        self.team = item % a.teams
        self.direction = self.team // a.blocks + a.first
        self.backwards = self.direction >= a.reverse
        self.first_row = (self.team % a.blocks) * a.block_rows
        self.rows = f.minimum(a.block_rows, a.batch - self.first_row)
        self.row_size = a.padded * self.cell.planes
        start = (self.direction * a.batch + self.first_row) * self.row_size
        self.state = f.address(a.state, start, layer.type)
        self.panels = a.padded // layer.lanes
        self.longest = self._read_lengths() if self.cell.lengths else a.steps
        self.ahead = None if a.ahead is None else _Ahead(self, a.ahead)
        self.rounded: RoundedState | None = None
        if a.rounded is not None and self.cell.rounded is not None:
            self.rounded = RoundedState(f, a.rounded, self.cell.rounded, a.hidden, item)

    # --- from step to step

    def run(self) -> None:
        """All steps, by this thread or by a team."""
        f = self.f
        if self.a.team is not None:
            self._run_in_team(self.a.team)
            return
        if self.ahead is not None:
            self.ahead.find_coming(f.const(I64, 0))
            with f.loop(0, self.panels) as panel:
                self.ahead.project_first(panel)
        with f.loop(0, self.longest) as t, f.if_(~self._is_stopped()):
            self._begin_step(t)
            for phase in range(len(self.cell.products)):
                with f.loop(0, self.panels) as number:
                    self._do_panel(t, phase, self._to_and_fro(t, number))
        self._finish()

    def _is_stopped(self) -> Value:
        """Whether the run was stopped. A sequence may be long, so each step looks."""
        f = self.f
        stop = f.load(self.a.status, CALL_STOP - CALL_STATUS, PTR)  # the words of a call lie together
        return f.emit(I64, f"load atomic i64, {stop} monotonic, align 8") != 0

    def _to_and_fro(self, t: Value, number: Value) -> Value:
        """The panel at a place in the order of a step. Each step begins with the last panels of the step before, which are still cached."""
        return self.f.select((t & 1) == 0, number, self.panels - 1 - number)

    def _run_in_team(self, arguments: TeamArguments) -> None:
        """As many turns for each step as it has products; before them one for the first projection, if there is one."""
        leads = self.item < self.a.teams
        team = Team(self.f, arguments, self.team)
        turns = self.longest * len(self.cell.products) + self._turns_before
        team.run(leads, turns, self._is_stopped, self._begin_turn, self._do_piece)
        with self.f.if_(leads):
            self._finish()

    @property
    def _turns_before(self) -> int:
        return 1 if self.cell.ahead else 0

    def _begin_turn(self, turn: Value) -> None:
        if self.ahead is None:
            self._begin_step((turn - 1) // len(self.cell.products))
            return
        with self.f.if_else(turn == 1) as otherwise:
            self.ahead.find_coming(self.f.const(I64, 0))
            otherwise()
            self._begin_step((turn - 2) // len(self.cell.products))

    def _do_piece(self, turn: Value, piece: Value) -> None:
        """Some panels in one of a team's turns."""
        assert self.a.team is not None
        f, phases, pieces = self.f, len(self.cell.products), self.a.team.pieces
        turn = turn - 1 - self._turns_before
        with f.loop((piece * self.panels) // pieces, ((piece + 1) * self.panels) // pieces) as panel:
            if self.ahead is not None:
                with f.if_(turn < 0):
                    self.ahead.project_first(panel)
            for phase in range(phases):
                with f.if_((turn >= 0) & (turn % phases == phase)):
                    self._do_panel(turn // phases, phase, panel)

    # --- lengths and times of rows

    def _read_lengths(self) -> Value:
        """Note every row's length; returns the longest. One that cannot be sets the status, and the row is cut."""
        f, a, layer = self.f, self.a, self.layer
        assert a.lengths is not None
        longest = f.variable(0, I64)
        with f.loop(0, self.rows) as row:
            length = f.convert(f.load(a.lengths, self.first_row + row, I32), I64)
            with f.if_((length < 0) | (length > a.steps)):
                f.store(f.const(I64, 1), a.status, 0, I64)
            length = f.minimum(f.maximum(length, 0), a.steps)
            f.store(length, layer.ends, row, I64)
            longest.set(f.maximum(longest.get(), length))
        return longest.get()

    def _begin_step(self, t: Value) -> None:
        self._find_times(t)
        if self.rounded is not None:
            self.rounded.round(self.rows, lambda row: self._state_row(t, row))
        if self.ahead is not None:
            self.ahead.find_coming((t // self.cell.ahead + 1) * self.cell.ahead)

    def _find_times(self, t: Value) -> None:
        """Note at which step of its sequence each row is. Backwards, a row begins at its own end and stands still behind it."""
        f, layer = self.f, self.layer
        with f.loop(0, self.rows) as row:
            end = f.load(layer.ends, row, I64) if self.cell.lengths else self.a.steps
            time = f.select(self.backwards & (t < end), end - 1 - t, t)
            f.store(time, layer.times, row, I64)

    # --- a panel of a step

    def _do_panel(self, t: Value, phase: int, panel: Value) -> None:
        """Multiply the state of all rows with a panel of weights, then compute the panel's units row by row."""
        self._multiply(t, phase, panel)
        with self.f.loop(0, self.rows) as row:
            self._compute(Units(self, row, panel, t, phase), t, phase)

    def _multiply(self, t: Value, phase: int, panel: Value) -> None:
        """Products of the state with a panel of weights, in tiles of rows; a single row may have a projection made beside it."""
        f, a, layer, vectors = self.f, self.a, self.layer, self.cell.products[phase]
        width = vectors * layer.lanes
        if self.rounded is not None:
            self._multiply_rounded(self.rounded, panel, vectors)
            return
        weights = f.address(a.weights[phase], (self.direction * self.panels + panel) * a.hidden * width, layer.type)
        now = (t & 1) * a.padded
        plane = now if phase == 0 else a.padded * RESET_STATE

        def tile(start: Value, size: int) -> None:
            rows = [f.address(self.state, (start + n) * self.row_size + plane, layer.type) for n in range(size)]
            for n, sums in enumerate(product_tile(f, Factors(rows, layer.type, weights, a.hidden, vectors))):
                layer.keep(sums, layer.sums, (start + n) * width)

        if self.ahead is None:
            in_tiles(f, self.rows, tile_rows(f, layer.type, vectors), tile)
        elif phase == 0:
            h = f.address(self.state, now, layer.type)
            (sums,) = self.ahead.multiply_and_project(t, panel, Factors([h], layer.type, weights, a.hidden, vectors))
            layer.keep(sums, layer.sums, 0)
        else:
            tile(f.const(I64, 0), 1)

    def _state_row(self, t: Value, row: Value) -> Value:
        """Where h of a row lies before a step."""
        return self.f.address(self.state, row * self.row_size + (t & 1) * self.a.padded, self.layer.type)

    def _multiply_rounded(self, state: RoundedState, panel: Value, vectors: int) -> None:
        """The same of whole numbers."""
        f, layer, product = self.f, self.layer, state.product
        width, groups = vectors * layer.lanes, state.a.groups
        column = (self.direction * self.panels + panel) * width
        weights = f.address(self.a.weights[0], column * groups, product.column_group)

        def tile(start: Value, size: int) -> None:
            rows = [state.row(start + n) for n in range(size)]
            factors = Factors(rows, product.row_group, weights, groups, vectors, product)
            for n, sums in enumerate(product_tile(f, factors)):
                layer.keep(state.real(sums, column), layer.sums, (start + n) * width)

        in_tiles(f, self.rows, tile_rows(f, layer.type, vectors), tile)

    def _compute(self, units: Units, t: Value, phase: int) -> None:
        """The cell's functions; rows behind their end stay as they are."""
        f = self.f
        if not self.cell.lengths or self.cell.ahead:
            compute_units(units, phase)
            return
        with f.if_else(t < f.load(self.layer.ends, units.row, I64)) as otherwise:
            compute_units(units, phase)
            otherwise()
            if phase == len(self.cell.products) - 1:
                units.stay()

    # --- outputs

    def _finish(self) -> None:
        """Zeros behind the longest row, and the final states."""
        f, a = self.f, self.a
        with f.loop(0, self.rows) as row:
            if a.Y is not None and self.cell.lengths:
                with f.loop(self.longest, a.steps) as t:
                    self._copy(None, self.output(row, t))
            if a.final_h is not None:
                self._write_final(row, (self.longest & 1) * a.padded, a.final_h)
            if a.final_c is not None:
                self._write_final(row, a.padded * CELL_STATE, a.final_c)

    def _write_final(self, row: Value, plane: Value, final: StateArguments) -> None:
        """A row's final state. That of a row without steps is zero where there are steps at all."""
        f, layer = self.f, self.layer
        offset = self.direction * final.direction_stride + (self.first_row + row) * final.row_stride
        target = f.address(final.place, offset, self.cell.type)
        source = f.address(f.address(self.state, row * self.row_size, layer.type), plane, layer.type)
        if not self.cell.lengths:
            self._copy(source, target)
            return
        with f.if_else((f.load(layer.ends, row, I64) == 0) & (self.a.steps > 0)) as otherwise:
            self._copy(None, target)
            otherwise()
            self._copy(source, target)

    def output(self, row: Value, time: Value) -> Value:
        """Where a row of Y begins."""
        Y = self.a.Y
        assert Y is not None
        offset = time * Y.step_stride + self.direction * Y.direction_stride + (self.first_row + row) * Y.row_stride
        return self.f.address(Y.place, offset, self.cell.type)

    def _copy(self, source: Value | None, target: Value) -> None:
        """A row of the state, or zeros, to an output."""
        f, layer = self.f, self.layer
        with f.loop(0, self.a.hidden, layer.lanes) as unit:
            if source is None:
                value = f.const(layer.type.vector(layer.lanes), 0.0)
            else:
                value = f.load(source, unit, layer.type, layer.lanes)
            self.write(value, target, unit)

    def write(self, value: Value, target: Value, unit: Value) -> None:
        """Units into an output row, which has no room behind its end."""
        f, layer = self.f, self.layer
        remaining = self.a.hidden - unit
        with f.if_else(remaining >= layer.lanes) as otherwise:
            f.store(value, target, unit, self.cell.type)
            otherwise()
            f.store(value, target, unit, self.cell.type, remaining=remaining)


class _Ahead:
    """The inputs of a single row, projected for some steps while those before are under way."""

    def __init__(self, block: _Block, a: AheadArguments):
        self.f, self.a, self.block = block.f, a, block
        self.layer, self.cell = block.layer, block.cell
        self.vectors = self.cell.input_vectors
        self.parts = self.cell.gates // self.vectors
        """Panels of input weights for one of recurrent ones."""

    def find_coming(self, first: Value) -> None:
        """Where the inputs of the steps from `first` on lie; those behind the end are the last one again, and not used."""
        f, block = self.f, self.block
        end = block.longest - 1
        for n in range(self.cell.ahead):
            t = f.minimum(first + n, end)
            f.store(f.select(block.backwards, end - t, t) * self.a.step_stride, self._coming, n, I64)

    @property
    def _coming(self) -> Value:
        assert self.layer.coming is not None
        return self.layer.coming

    def _coming_row(self, number: Value | int, depth: Value | int = 0) -> Value:
        return self.f.address(self.a.X, self.f.load(self._coming, number, I64) + depth, self.cell.type)

    def projected_at(self, t: Value, panel: Value) -> Value:
        """Where a panel's projected inputs of a step are kept: there is room for the group of steps that is being used and for the next
        if there is one.
        """
        line = (self.block.direction * self.block.panels + panel) * self.a.lines + t % (2 * self.cell.ahead)
        return line * (self.cell.gates * self.layer.lanes)

    def _input_panel(self, panel: Value, part: Value, depth: Value | int) -> Value:
        """Input weights of a part of the gates, from a depth on."""
        number = (self.block.direction * self.block.panels + panel) * self.parts + part
        width = self.vectors * self.layer.lanes
        return self.f.address(self.a.weights, (number * self.a.depth + depth) * width, self.layer.type)

    def project_first(self, panel: Value) -> None:
        """The projected inputs of the first steps."""
        f, layer, vectors = self.f, self.layer, self.vectors
        projected = self.block.a.projected
        with f.loop(0, self.parts) as part:
            weights = self._input_panel(panel, part, 0)

            def tile(start: Value, size: int) -> None:
                rows = [self._coming_row(start + n) for n in range(size)]
                for n, sums in enumerate(product_tile(f, Factors(rows, self.cell.type, weights, self.a.depth, vectors))):
                    layer.keep(sums, projected, self.projected_at(start + n, panel) + part * (vectors * layer.lanes))

            in_tiles(f, f.minimum(self.block.longest, self.cell.ahead), tile_rows(f, layer.type, vectors), tile)

    def multiply_and_project(self, t: Value, panel: Value, near: Factors) -> list[list[Value]]:
        """The product with h, and beside it a part of the next steps' projection: in each step other gates or another part of X's depth."""
        f, ahead, longest = self.f, self.cell.ahead, self.block.longest
        slices = ahead // self.parts
        part, slice = t % ahead % self.parts, t % ahead // self.parts
        following = (t // ahead + 1) * ahead
        first, last = (self.a.depth * slice) // slices, (self.a.depth * (slice + 1)) // slices
        depth = f.select(following < longest, last - first, 0)
        weights = self._input_panel(panel, part, first)
        rows = [self._coming_row(n, first) for n in range(ahead)]
        products, sums = double_tile(f, near, Factors(rows, self.cell.type, weights, depth, self.vectors), self.cell.ratio)
        with f.if_(following < longest):
            self._add_to_projected(sums, self.projected_at(following, panel), part, slice)
        return products

    def _add_to_projected(self, sums: Sequence[Sequence[Value]], line: Value, part: Value, slice: Value) -> None:
        """Add a slice's sums for the next steps to those of the slices before."""
        f, layer = self.f, self.layer
        start = f.address(self.block.a.projected, line + part * (self.vectors * layer.lanes), layer.type)
        for n, row in enumerate(sums):
            place = f.address(start, n * self.cell.gates * layer.lanes, layer.type)
            before = [f.load(place, k * layer.lanes, layer.type, layer.lanes) for k in range(self.vectors)]
            layer.keep([value + f.select(slice > 0, kept, 0.0) for value, kept in zip(row, before)], place, 0)


class Units:
    """A vector of units of one row at one step."""

    def __init__(self, block: _Block, row: Value, panel: Value, t: Value, phase: int):
        layer, a, cell = block.layer, block.a, block.cell
        f = self.f = block.f
        self.block, self.a, self.cell, self.functions = block, a, cell, layer.functions
        self.type, self.lanes = layer.type, layer.lanes
        self.row = row
        self.unit = panel * self.lanes
        self._sums = f.address(layer.sums, row * (cell.products[phase] * self.lanes), self.type)
        self._state = f.address(block.state, row * block.row_size + self.unit, self.type)
        self._now = (t & 1) * a.padded
        self.time = f.load(layer.times, row, I64)
        if block.ahead is not None:
            inputs = block.ahead.projected_at(t, panel)
        else:
            line = (self.time * a.batch + block.first_row + row) * a.directions + block.direction
            inputs = (line * a.padded + self.unit) * cell.gates
        self._inputs = f.address(a.projected, inputs, self.type)
        self._bias = f.address(a.bias, (block.direction * a.padded + self.unit) * cell.gates, self.type)

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
        assert self.a.beside is not None
        offset = (self.block.direction * count + number) * self.a.padded + self.unit
        return self.f.load(self.a.beside, offset, self.type, self.lanes)

    @property
    def h(self) -> Value:
        return self.f.load(self._state, self._now, self.type, self.lanes)

    def held(self, plane: int) -> Value:
        return self.f.load(self._state, self.a.padded * plane, self.type, self.lanes)

    def hold(self, plane: int, value: Value) -> None:
        self.f.store(value, self._state, self.a.padded * plane, self.type)

    def advance(self, h: Value) -> None:
        """The next h, which is also the output."""
        self._set_next(h)
        self._write(h)

    def stay(self) -> None:
        """Behind the row's end h stays, and the output is zero."""
        self._set_next(self.h)
        self._write(self.f.const(self.type.vector(self.lanes), 0.0))

    def keep(self, gates: Sequence[Value], c: Value | None = None) -> None:
        """What the way back needs of a step."""
        f, a, block = self.f, self.a, self.block
        assert a.gates is not None
        line = ((self.time * a.directions + block.direction) * a.batch + block.first_row + self.row) * a.hidden
        target = f.address(a.gates, line * len(gates), self.cell.type)
        for number, gate in enumerate(gates):
            block.write(gate, f.address(target, a.hidden * number, self.cell.type), self.unit)
        if c is not None and a.cells is not None:
            block.write(c, f.address(a.cells, line, self.cell.type), self.unit)

    def _set_next(self, h: Value) -> None:
        self.f.store(h, self._state, self.a.padded - self._now, self.type)

    def _write(self, value: Value) -> None:
        if self.a.Y is not None:
            self.block.write(value, self.block.output(self.row, self.time), self.unit)
