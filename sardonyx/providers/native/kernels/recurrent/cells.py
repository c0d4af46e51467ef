"""What cells of LSTM, GRU and RNN compute: their activations and, for a vector of units, their gates and next state. `loop` emits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sardonyx.compiler import math as vector_math
from sardonyx.compiler.builder import Value
from sardonyx.compiler.products import Product
from sardonyx.compiler.types import Type
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.kernels.recurrent.loop import Units

Function = Callable[[Value], Value]
BLOCK_ROWS = 8
"""How many rows go through a panel while it is in the nearest cache."""
ROUNDED_ROWS = 64
"""How many rows there may be where their state has one scale."""


@dataclass(frozen=True)
class Activation:
    name: str
    """In lower case."""
    alpha: float = 0.0
    beta: float = 0.0


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
    """Whether Y, Y_h and Y_c are wanted."""
    peepholes: bool = False
    input_forget: bool = False
    linear_before_reset: bool = False
    team: bool = False
    """Whether several threads may share a step."""
    ahead: int = 0
    """How many steps of a single row's inputs are projected together, while the steps before still run; 0 if all are projected first.
    A single row waits for weights from memory, so the arithmetic units are free for this."""
    ratio: int = 1
    """How many elements of h are multiplied for each element of the inputs ahead, so that both products end together."""
    rounded: Product | None = None
    """How h, rounded to 8 bits, is multiplied by weights of 8 bits; None for floats."""
    trained: bool = False
    """Whether the gates of every step are kept for the way back, and c with them."""

    @property
    def block_rows(self) -> int:
        """How many rows go through a panel together. All that are rounded together must."""
        return BLOCK_ROWS if self.rounded is None else ROUNDED_ROWS

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
    return lambda activation: lambda x: make(x, activation.alpha, activation.beta)


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


def cell_functions(cell: Cell) -> list[Function]:
    """The activations of a cell, in the order of the spec."""
    functions = [activation_function(activation, cell.clip) for activation in cell.activations]
    if cell.op == "LSTM":  # clip bounds the gates only, not the cell state
        functions[2] = activation_function(cell.activations[2], None)
    return functions


# --- gates and state

CELL_STATE = 2
"""The plane of a row's state in which an LSTM holds c: the first two are h by turns."""
UPDATE_GATE, RESET_STATE = 2, 3
"""Those in which a GRU holds what it needs for its second product."""


def compute_units(units: Units, phase: int) -> None:
    """What follows a step's product number `phase`: the gates of some units and, after the last product, their next state."""
    if units.cell.op == "LSTM":
        _lstm(units)
    elif units.cell.op == "RNN":
        (f,) = units.functions
        units.advance(f(units.gate(0)))
    elif units.cell.linear_before_reset:
        _gru(units)
    elif phase == 0:
        _gru_reset(units)
    else:
        _gru_candidate(units)


def _lstm(units: Units) -> None:
    """Gates stand in the order i, o, f, c."""
    cell, (f, g, h) = units.cell, units.functions
    c = units.held(CELL_STATE)
    i, o, forget = units.gate(0), units.gate(1), units.gate(2)
    if cell.peepholes:
        i, forget = i + units.beside(0, 3) * c, forget + units.beside(2, 3) * c
    i = f(i)
    forget, candidate = 1.0 - i if cell.input_forget else f(forget), g(units.gate(3))
    c = forget * c + i * candidate
    if cell.peepholes:
        o = o + units.beside(1, 3) * c
    o = f(o)
    units.hold(CELL_STATE, c)
    if cell.trained:
        units.keep([i, o, forget, candidate], c)
    units.advance(o * h(c))


def _gru(units: Units) -> None:
    """Gates stand in the order update, reset, candidate; the reset scales the product with h."""
    f, g = units.functions
    update, reset = f(units.gate(0)), f(units.gate(1))
    candidate = g(units.input(2) + reset * (units.sum(2) + units.beside(0, 1)))
    if units.cell.trained:
        units.keep([update, reset, candidate])
    units.advance((1.0 - update) * candidate + update * units.h)


def _gru_reset(units: Units) -> None:
    """Both gates of a GRU whose reset scales h itself, and that h."""
    f = units.functions[0]
    units.hold(UPDATE_GATE, f(units.gate(0)))
    units.hold(RESET_STATE, f(units.gate(1)) * units.h)


def _gru_candidate(units: Units) -> None:
    """The candidate, from the product with the scaled h."""
    candidate = units.functions[1](units.input(2) + units.sum(0))
    update = units.held(UPDATE_GATE)
    units.advance((1.0 - update) * candidate + update * units.h)
