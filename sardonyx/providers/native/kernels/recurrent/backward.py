"""The way back through time of LSTM and GRU: from gradients of all states to those of the gates, in generated code.

A block of rows of one direction goes from its last step to its first. A step first computes the gradients of its gates, unit by unit, then
multiplies them with the recurrent weights, which gives the gradient of the state before. All that is left of a layer's gradient are
products over all steps at once, which `gradients` composes around this. Vectors run along units; weights are read as they lie.
"""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import tanh
from sardonyx.compiler.types import Type
from sardonyx.providers.native.kernels.recurrent.product import in_tiles, tile_rows
from sardonyx.providers.native.kernels.recurrent.state import StateArguments
from sardonyx.providers.native.kernels.reduction.passes import sweep
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

BLOCK_ROWS = 8
"""How many rows go through the weights together."""
VECTORS = 2
"""How many vectors of units a tile of the product has."""


@dataclass(frozen=True)
class Way:
    """What shapes the code."""

    op: str
    """LSTM or GRU; a GRU resets the product with its state."""
    type: Type
    has_steps: bool
    """Whether states have gradients of their own in each step."""
    has_final: tuple[bool, bool]
    """Whether the last h and the last c have one."""

    @property
    def gates(self) -> int:
        return 4 if self.op == "LSTM" else 3


class WayArguments(Arguments):
    """All tensors lie without gaps: steps, directions, rows, units."""

    steps: Size
    batch: Size
    hidden: Size
    directions: Size
    reverse: Size
    """The first direction in which sequences go backwards."""
    blocks: Size
    """Of rows in each direction."""
    weights: Pointer
    """Directions, gates · units, units."""
    gates: Pointer
    """What the gates were."""
    states: Pointer
    """c of an LSTM, h of a GRU."""
    initial: StateArguments
    """The same before the first step."""
    candidates: Pointer | None = when(lambda way: way.op == "GRU")
    """The product of the state with the candidate's weights, and its bias."""
    steps_grad: Pointer | None = when(lambda way: way.has_steps)
    final_h_grad: Pointer | None = when(lambda way: way.has_final[0])
    final_c_grad: Pointer | None = when(lambda way: way.has_final[1])
    gates_grad: Pointer
    products_grad: Pointer | None = when(lambda way: way.op == "GRU")
    """Those of the gates' products with the state: the candidate's is reset."""
    h_grad: Pointer
    """Directions, rows, units: of h before each step, in the end of the initial one."""
    c_grad: Pointer | None = when(lambda way: way.op == "LSTM")


@kernel("back through time", WayArguments)
def backward_kernel(f: KernelFunction, a: WayArguments, way: Way) -> None:
    """Items are blocks of rows of all directions."""
    with f.loop(f.begin, f.end) as item:
        _Block(f, a, way, item).run()


class _Block:
    """A few rows of one direction on their way back."""

    def __init__(self, f: KernelFunction, a: WayArguments, way: Way, item: Value):
        self.f, self.a, self.way, self.type = f, a, way, way.type
        self.lanes = f.lanes(way.type)
        self.direction = item // a.blocks
        self.first = (item % a.blocks) * BLOCK_ROWS
        self.rows = f.minimum(BLOCK_ROWS, a.batch - self.first)
        self.backwards = self.direction >= a.reverse

    def run(self) -> None:
        f, a = self.f, self.a
        with f.loop(0, self.rows) as row:
            for running, final in ((a.h_grad, a.final_h_grad), (a.c_grad, a.final_c_grad)):
                if running is not None:
                    self._begin(running, final, self._line(row) * a.hidden)
        with f.loop(0, a.steps) as number:
            time = f.select(self.backwards, number, a.steps - 1 - number)
            with f.loop(0, self.rows) as row:
                self._gates(time, row)
            self._products(time)

    def _begin(self, running: Value, final: Value | None, place: Value) -> None:
        f, type, lanes = self.f, self.type, self.lanes

        def begin(copy: int, unit: Value, rest: Value | None) -> None:
            zero = f.const(type.vector(lanes), 0.0)
            value = zero if final is None else f.load(final, place + unit, type, lanes, remaining=rest)
            f.store(value, running, place + unit, type, remaining=rest)

        sweep(f, 0, self.a.hidden, lanes, 1, begin)

    def _line(self, row: Value) -> Value:
        """Of tensors without steps."""
        return self.direction * self.a.batch + self.first + row

    def _line_at(self, time: Value, row: Value) -> Value:
        return (time * self.a.directions + self.direction) * self.a.batch + self.first + row

    # --- gates

    def _gates(self, time: Value, row: Value) -> None:
        """The gradients of one row's gates at a step."""
        f, a, type, lanes = self.f, self.a, self.type, self.lanes
        line = self._line_at(time, row)
        gates = f.address(a.gates, line * a.hidden * self.way.gates, type)
        result = f.address(a.gates_grad, line * a.hidden * self.way.gates, type)
        states, before = f.address(a.states, line * a.hidden, type), self._before(time, row)
        running = self._line(row) * a.hidden
        h_grad = f.address(a.h_grad, running, type)

        def each(copy: int, unit: Value, rest: Value | None) -> None:
            def read(place: Value, offset: Value | int = 0) -> Value:
                return f.load(place, unit + offset, type, lanes, remaining=rest)

            def write(value: Value, place: Value, offset: Value | int = 0) -> None:
                f.store(value, place, unit + offset, type, remaining=rest)

            dh = read(h_grad)
            if a.steps_grad is not None:
                dh = dh + read(f.address(a.steps_grad, line * a.hidden, type))
            held = [read(gates, a.hidden * number) for number in range(self.way.gates)]
            if a.c_grad is not None:
                c_grad = f.address(a.c_grad, running, type)
                parts, dc = _lstm(held, read(states), read(before), dh, read(c_grad))
                write(dc, c_grad)
            else:
                assert a.candidates is not None and a.products_grad is not None
                parts, product, kept = _gru(held, read(f.address(a.candidates, line * a.hidden, type)), read(before), dh)
                write(kept, h_grad)
                target = f.address(a.products_grad, line * a.hidden * 3, type)
                for number, part in enumerate((*parts[:2], product)):
                    write(part, target, a.hidden * number)
            for number, part in enumerate(parts):
                write(part, result, a.hidden * number)

        sweep(f, 0, a.hidden, lanes, 1, each)

    def _before(self, time: Value, row: Value) -> Value:
        """Where a row's state before a step lies."""
        f, a = self.f, self.a
        before = f.select(self.backwards, time + 1, time - 1)
        is_inside = (before >= 0) & (before < a.steps)
        initial = a.initial
        first = self.direction * initial.direction_stride + (self.first + row) * initial.row_stride
        inside = f.address(a.states, f.select(is_inside, self._line_at(before, row), 0) * a.hidden, self.type)
        return f.select(is_inside, inside, f.address(initial.place, first, self.type))

    # --- products

    def _products(self, time: Value) -> None:
        """The gradients of h before a step: those of its gates' products times the recurrent weights."""
        f, a, type, lanes = self.f, self.a, self.type, self.lanes
        depth = a.hidden * self.way.gates
        source = a.gates_grad if a.products_grad is None else a.products_grad
        weights = f.address(a.weights, self.direction * depth * a.hidden, type)

        def columns(unit: Value, vectors: int, rest: Value | None) -> None:
            def tile(start: Value, size: int) -> None:
                rows = [f.address(source, self._line_at(time, start + n) * depth, type) for n in range(size)]
                places = [self._line(start + n) * a.hidden + unit for n in range(size)]
                self._tile(rows, places, f.address(weights, unit, type), depth, vectors, rest)

            in_tiles(f, self.rows, [size for size in tile_rows(f, type, vectors) if size <= BLOCK_ROWS], tile)

        whole = (a.hidden // (VECTORS * lanes)) * (VECTORS * lanes)
        with f.loop(0, whole, VECTORS * lanes) as unit:
            columns(unit, VECTORS, None)
        with f.loop(whole, a.hidden, lanes) as unit:
            columns(unit, 1, a.hidden - unit)

    def _tile(
        self, rows: list[Value], places: list[Value], weights: Value, depth: Value, vectors: int, rest: Value | None
    ) -> None:
        f, a, type, lanes = self.f, self.a, self.type, self.lanes
        zero = f.const(type.vector(lanes), 0.0)
        sums = [[f.variable(zero) for _ in range(vectors)] for _ in rows]
        with f.loop(0, depth) as k:
            line = k * a.hidden
            columns = [f.load(weights, line + n * lanes, type, lanes, remaining=rest) for n in range(vectors)]
            for row, totals in zip(rows, sums):
                factor = f.splat(f.load(row, k, type), lanes)
                for column, total in zip(columns, totals):
                    total.set(f.fma(factor, column, total.get()))
        for place, totals in zip(places, sums):
            for n, total in enumerate(totals):
                value = total.get()
                if self.way.op == "GRU":  # what went past the gates waits there
                    value = value + f.load(a.h_grad, place + n * lanes, type, lanes, remaining=rest)
                f.store(value, a.h_grad, place + n * lanes, type, remaining=rest)


def _lstm(gates: list[Value], c: Value, before: Value, dh: Value, dc: Value) -> tuple[list[Value], Value]:
    """Gradients of i, o, f and the candidate before their activations, and that of c before the step."""
    i, o, forget, candidate = gates
    bent = tanh(c)
    dc = dc + dh * o * (1.0 - bent * bent)
    parts = [dc * candidate * i * (1.0 - i), dh * bent * o * (1.0 - o), dc * before * forget * (1.0 - forget)]
    return [*parts, dc * i * (1.0 - candidate * candidate)], dc * forget


def _gru(gates: list[Value], product: Value, before: Value, dh: Value) -> tuple[list[Value], Value, Value]:
    """Gradients of update, reset and candidate before their activations, of the candidate's product, and what goes past the gates."""
    update, reset, candidate = gates
    d_candidate = dh * (1.0 - update) * (1.0 - candidate * candidate)
    d_update = dh * (before - candidate) * update * (1.0 - update)
    return [d_update, d_candidate * product * reset * (1.0 - reset), d_candidate], d_candidate * reset, dh * update
