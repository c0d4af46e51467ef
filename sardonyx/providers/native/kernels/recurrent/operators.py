"""LSTM, GRU and RNN in generated code: weights are packed here, and the steps added that project the inputs and run through time.

The inputs of all steps are projected in one product; then each direction runs through time in one call, rows of the batch in blocks.
Directions and blocks are shared among threads, and where the recurrent weights are large two threads share each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.target import Target
from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, inputs_named, operand
from sardonyx.providers.native.kernels.linalg.equality import check_equal
from sardonyx.providers.native.kernels.linalg.tile_kernel import FactorArguments, GemmArguments, Tile, gemm_kernel, grain_of
from sardonyx.providers.native.kernels.recurrent.cells import ACTIVATIONS, Activation, Cell
from sardonyx.providers.native.kernels.recurrent.computed_weights import pack_in_runs
from sardonyx.providers.native.kernels.recurrent.loop import (
    AheadArguments,
    OutputArguments,
    RecurrenceArguments,
    recurrence_kernel,
)
from sardonyx.providers.native.kernels.recurrent.product import aligned, packed, packed_units, padded_size
from sardonyx.providers.native.kernels.recurrent.rounded import RoundedArguments
from sardonyx.providers.native.kernels.recurrent.state import BeginArguments, StateArguments, WordArguments, state_kernel
from sardonyx.providers.native.kernels.recurrent.team import MEMBERS, TeamArguments, team_words
from sardonyx.providers.native.program.chain import Chain, Given, Store, pattern, stride_arguments
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.scalars import told_apart
from sardonyx.providers.native.program.sizes import THREADS
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, fixed, required, shape_of
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import replace

RECURRENT = PackedFormat("recurrent")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULT_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
"""Default alpha and beta of the activations that have them."""
TEAM_BYTES = 1 << 18
"""How many bytes of recurrent weights make it worth that two threads share each step."""
PIECE_BYTES = 1 << 15
"""Weights in a piece that one thread of a team takes."""
ITEM_WORK = 1 << 18
"""How many multiplications are worth handing to another thread."""

AHEAD = (8, 4)
"""For how many steps a single row's inputs are projected together: the largest number for which there are registers enough."""


# --- what is claimed


def kind_of(node: Node) -> str:
    """LSTM, GRU or RNN, of a form for training or with quantized weights too."""
    return node.op_type.removeprefix("DynamicQuantize").removesuffix("Training")


def states_of(node: Node) -> Sequence[Value]:
    """The outputs Y, Y_h and Y_c."""
    return node.outputs[: 3 if kind_of(node) == "LSTM" else 2]


def kept_of(node: Node) -> Sequence[Value]:
    """What a form for training returns besides: the gates of all steps, and before them an LSTM's c."""
    return node.outputs[len(states_of(node)) :]


def directions_of(node: Node) -> int:
    return 2 if operand(node, "direction") == "bidirectional" else 1


def activations_of(node: Node) -> list[tuple[Activation, ...]] | None:
    """The activations of each direction; None if there are too few or unknown ones. Alphas and betas are handed out in order."""
    defaults, directions = DEFAULT_ACTIVATIONS[kind_of(node)], directions_of(node)
    names = [str(name).lower() for name in operand(node, "activations") or defaults * directions]
    count = len(defaults)
    if len(names) < count * directions or not all(name in ACTIVATIONS for name in names[: count * directions]):
        return None
    alphas = iter(operand(node, "activation_alpha") or ())
    betas = iter(operand(node, "activation_beta") or ())
    activations = []
    for name in names[: count * directions]:
        both = zip((alphas, betas), PARAMETERS.get(name, (None, None)))
        numbers = (0.0 if default is None else told_apart(next(listed, default)) for listed, default in both)
        activations.append(Activation(name, *numbers))
    return [tuple(activations[k * count : (k + 1) * count]) for k in range(directions)]


def _claims(node: Node) -> bool:
    """Weights of known sizes that fit together, and attributes that mean something."""
    X, W, R = inputs_named(node, "X", "W", "R")
    if X is None or W is None or R is None or operand(node, "layout") not in (None, 0, 1):
        return False
    type, shape = element_of(X), shape_of(X)
    if type is None or not type.is_float or shape is None or len(shape) != 3:
        return False
    direction = operand(node, "direction")
    if direction not in ("forward", "foward", "reverse", "bidirectional") or activations_of(node) is None:
        return False
    return _weights_fit(node, W, R) and _states_fit(node)


def _claims_training(node: Node) -> bool:
    """What the way back knows too: the usual activations, no clip, rows of one length, a product with the state that is reset."""
    if not _claims(node) or input_named(node, "sequence_lens") is not None or input_named(node, "P") is not None:
        return False
    activations, usual = activations_of(node), DEFAULT_ACTIVATIONS[kind_of(node)]
    is_usual = activations is not None and all(tuple(each.name for each in way) == usual for way in activations)
    is_plain = not operand(node, "clip") and not operand(node, "input_forget")
    resets = kind_of(node) == "LSTM" or bool(operand(node, "linear_before_reset"))
    return is_usual and is_plain and resets and len({bool(value.name) for value in kept_of(node)}) < 2


def _weights_fit(node: Node, W: Value, R: Value) -> bool:
    shape = shape_of(R)
    if shape is None or len(shape) != 3 or not isinstance(shape[2], int) or shape[2] < 1:
        return False
    directions, rows, hidden = directions_of(node), GATES[kind_of(node)] * shape[2], shape[2]
    depth = (shape_of(W) or (None,))[-1]
    wanted: list[tuple[Value | None, tuple[Any, ...]]] = [
        (W, (directions, rows, depth)),
        (R, (directions, rows, hidden)),
        (input_named(node, "B"), (directions, 2 * rows)),
    ]
    if kind_of(node) == "LSTM":
        wanted.append((input_named(node, "P"), (directions, 3 * hidden)))
    declared = operand(node, "hidden_size")
    if not isinstance(depth, int) or declared not in (None, 0, hidden):
        return False
    return all(value is None or (shape_of(value) == shape and element_of(value) == element_of(W)) for value, shape in wanted)


def _states_fit(node: Node) -> bool:
    """Whether lengths and initial states have the right number of axes, and no size that is known to be wrong."""
    lengths = input_named(node, "sequence_lens")
    if lengths is not None and (len(shape_of(lengths) or ()) != 1 or str(element_of(lengths)) != "i32"):
        return False
    states = inputs_named(node, "initial_h", "initial_c")
    if any(value is not None and len(shape_of(value) or ()) != 3 for value in states):
        return False
    return all(not (isinstance(a, int) and isinstance(b, int)) or a == b for a, b in size_pairs(node))


def size_pairs(node: Node) -> list[tuple[Dim, Dim]]:
    """Sizes of the inputs that must be the same."""
    X, W, R = (shape_of(required(value)) for value in inputs_named(node, "X", "W", "R"))
    assert X is not None and W is not None and R is not None
    layout = operand(node, "layout")
    batch = X[0] if layout else X[1]
    pairs = [(X[2], W[2])]
    lengths = input_named(node, "sequence_lens")
    if lengths is not None:
        pairs += zip(shape_of(lengths) or (), (batch,))
    for value in inputs_named(node, "initial_h", "initial_c"):
        wanted = (batch, directions_of(node), R[2]) if layout else (directions_of(node), batch, R[2])
        pairs += zip((shape_of(value) or ()) if value is not None else (), wanted)
    return pairs


# --- packing


class Weights:
    """The packed weights of a node, all directions one behind the other."""

    def __init__(self, lowerer: Lowerer, node: Node, cell: Cell, lanes: int):
        operands = {name: input_named(node, name) for name in "WRB"}
        if cell.peepholes:
            operands["P"] = input_named(node, "P")
        self._cell, self._lanes = cell, lanes
        self._dtype = np.dtype(np.float64 if cell.type.bits == 64 else np.float32)
        self.hidden, self.depth = (_last_size(operands[name]) for name in "RW")
        weights = {name: value for name, value in operands.items() if value is not None}
        directions, padded = directions_of(node), padded_size(self.hidden, lanes)
        column = directions * padded * self._dtype.itemsize
        self.recurrent_bytes = [count * column * self.hidden for count in cell.products]
        sizes = [cell.gates * column * self.depth, cell.gates * column, *self.recurrent_bytes]
        if cell.linear_before_reset or cell.peepholes:
            sizes.append(column * (1 if cell.linear_before_reset else 3))
        if lowerer.can_pack(*weights.values()):
            buffers = lowerer.packed(
                list(weights.values()),
                RECURRENT,
                (cell.op, cell.input_vectors, cell.products, cell.linear_before_reset, *weights, self._dtype.str, lanes),
                sizes,
                lambda *arrays: self._pack(**dict(zip(weights, arrays))),
            )
        else:
            buffers = pack_in_runs(lowerer, weights, self._pack, cell.type.computed)
        self.inputs, self.bias, *rest = buffers
        self.recurrent = rest[: len(cell.products)]
        self.beside = rest[len(cell.products)] if len(rest) > len(cell.products) else None

    def _pack(self, W: np.ndarray, R: np.ndarray, B: np.ndarray | None = None, P: np.ndarray | None = None) -> list[np.ndarray]:
        """Input weights, bias, weights of each product of a step, and what stands beside them."""
        cell, step = self._cell, self._cell.input_vectors
        W, R = W.astype(self._dtype), R.astype(self._dtype)
        groups = [self._gates(W, slice(first, first + step)) for first in range(0, cell.gates, step)]
        bounds = np.cumsum((0, *cell.products))
        recurrent = [self._gates(R, slice(first, last)) for first, last in itertools.pairwise(bounds)]
        both = np.zeros((len(R), 2, cell.gates, self.hidden), self._dtype)
        if B is not None:
            both[...] = B.reshape(both.shape)
        bias = both.sum(1)
        beside = []
        if cell.linear_before_reset:
            bias[:, 2] = both[:, 0, 2]
            beside = [self._padded(both[:, 1, 2])]
        elif P is not None:
            beside = [self._padded(P.astype(self._dtype).reshape(len(R), 3, -1))]
        return [aligned(np.stack(groups, 2)), aligned(packed_units(bias, self._lanes)), *recurrent, *beside]

    def _gates(self, weights: np.ndarray, gates: slice) -> np.ndarray:
        """Some gates of [directions, gates · units, depth]."""
        chosen = weights.reshape(len(weights), self._cell.gates, self.hidden, -1)[:, gates]
        count = chosen.shape[1]
        return aligned(np.stack([packed(block.reshape(count * self.hidden, -1), count, self._lanes) for block in chosen]))

    def _padded(self, vectors: np.ndarray) -> np.ndarray:
        missing = padded_size(self.hidden, self._lanes) - self.hidden
        return aligned(np.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, missing)]))


def _last_size(value: Value | None) -> int:
    return fixed(dims(required(value))[-1], "the last size of a weight")


# --- steps


@lower("LSTMTraining", "GRUTraining", domain="com.microsoft", claims=_claims_training)
@lower("LSTM", "GRU", "RNN", claims=_claims)
def recurrent(lowerer: Lowerer, node: Node) -> None:
    """Project the inputs, set up the state, then run through time."""
    activations = activations_of(node)
    assert activations is not None
    Layer(lowerer, node, activations).lower(check_sizes(lowerer, size_pairs(node)))


def check_sizes(lowerer: Lowerer, given: Sequence[tuple[Dim, Dim]]) -> Dim:
    """Where only a run can tell whether sizes fit, have it tell. Returns 1 if they do, else 0: the other steps then have nothing to do."""
    pairs = [(a, b) for a, b in given if a != b]
    if not pairs:
        return 1
    check_equal(lowerer, pairs)
    return dim.product(dim.maximum(0, 1 - dim.maximum(a - b, b - a)) for a, b in pairs)


class Layer:
    """A node on its way into steps."""

    def __init__(self, lowerer: Lowerer, node: Node, activations: Sequence[tuple[Activation, ...]]):
        self.lowerer = lowerer
        self.node = node
        self.activations = activations
        self.layout = operand(node, "layout") or 0
        self.X = self._rows(required(input_named(node, "X")))
        stored = self.X.type
        self.lanes = lowerer.target.lanes(stored)
        sizes = self.X.shape[:2]
        self.steps, self.batch = (sizes[1], sizes[0]) if self.layout else sizes
        self.cell = self._cell(stored)
        self.weights = self._weights()
        self.hidden = self.weights.hidden
        self.padded = padded_size(self.hidden, self.lanes)
        self.number = len(activations)
        self.bytes = stored.computed.bytes

    def _weights(self) -> Weights:
        return Weights(self.lowerer, self.node, self.cell, self.lanes)

    def _cell(self, stored: Type) -> Cell:
        node = self.node
        R = [fixed(size, "the size of R") for size in dims(required(input_named(node, "R")))]
        clip = operand(node, "clip")
        return Cell(
            kind_of(node),
            stored,
            self.activations[0],
            clip if clip and clip > 0 else None,
            input_named(node, "sequence_lens") is not None,
            tuple(number < len(states_of(node)) and bool(node.outputs[number].name) for number in range(3)),
            peepholes=input_named(node, "P") is not None,
            input_forget=bool(operand(node, "input_forget")),
            linear_before_reset=bool(operand(node, "linear_before_reset")),
            team=R[1] * R[2] * stored.computed.bytes >= TEAM_BYTES and len(set(self.activations)) == 1,
            trained=any(value.name for value in kept_of(node)),
        )

    def _rows(self, value: Value) -> View:
        """A value whose innermost axis has no gaps."""
        view = self.lowerer.view(value)
        return view if view.strides[-1] == 1 else self.lowerer.contiguous(value)

    def lower(self, fits: Dim) -> None:
        """Add the steps. Nothing is computed if `fits` turns out to be 0."""
        ahead = self._ahead()
        single = dim.minimum(1, dim.maximum(0, 2 - self.batch)) if ahead else 0
        self.panels = self.padded // self.lanes
        blocks = dim.ceildiv(self.batch, self.cell.block_rows) * fits
        state = self.lowerer.scratch(self.number * self.batch * self.cell.planes * self.padded * self.bytes)
        words = self.lowerer.scratch(self.number * blocks * team_words(self.panels) * 8) if self.cell.team else None
        self._begin(state, words, self.number * blocks * team_words(self.panels), fits)
        self.outputs = [
            self.lowerer.output(self.node.outputs[number]) if wanted else None
            for number, wanted in enumerate(self.cell.outputs)
        ]
        self.kept = [self.lowerer.output(value) for value in kept_of(self.node)] if self.cell.trained else []
        if single != 0:
            lines = self._lines(ahead)
            projected = self.lowerer.scratch(self.number * lines * single * self.cell.gates * self.padded * self.bytes)
            self._run_directions(
                replace(self.cell, ahead=ahead, ratio=self._ratio(ahead)), projected, state, words, blocks * single
            )
        if single != 1:
            projected = self._project((1 - single) * fits)
            self._run_directions(self.cell, projected, state, words, blocks * (1 - single))

    def _ahead(self) -> int:
        """For how many steps together a single row's inputs are projected while earlier steps are under way; 0 if they are not."""
        cell = self.cell
        for count in AHEAD:
            if cell.gates + (count + 1) * cell.input_vectors + 2 <= self.lowerer.target.vector_registers:
                return count
        return 0

    def _lines(self, ahead: int) -> Dim:
        """How many steps' projected inputs are kept: a group of them and the next one, if there is a next one."""
        return dim.minimum(self.steps, ahead) + dim.minimum(1, dim.maximum(0, self.steps - ahead)) * ahead

    def _ratio(self, ahead: int) -> int:
        """Of the product with the state to the part of a projection that is made beside it."""
        slices = ahead * self.cell.input_vectors // self.cell.gates
        return max(1, min(slices, round(self.hidden * slices / max(1, self.weights.depth))))

    def _run_directions(self, cell: Cell, projected: Buffer, state: Buffer, words: Buffer | None, blocks: Dim) -> None:
        """Together if they are alike, else one after the other."""
        if len(set(self.activations)) == 1:
            self._run(cell, projected, state, words, blocks, 0, self.number)
            return
        for number, activations in enumerate(self.activations):
            self._run(replace(cell, activations=activations), projected, state, words, blocks, number, 1)

    def _project(self, wanted: Dim) -> Buffer:
        """The step that multiplies the inputs of all steps with W; it does nothing if `wanted` turns out to be 0.

        Rows of the batch are batches of the product, for in X they may lie anywhere; where steps and rows follow each other they are one.
        """
        columns, depth, type = self.number * self.cell.gates * self.padded, self.weights.depth, self.cell.type.computed
        step_stride, row_stride = self._input_strides()
        batch, rows = self.batch * wanted, self.steps
        strides: Dims = (columns, self.batch * columns, 1)
        if step_stride == row_stride * self.batch:
            batch, rows, step_stride, strides = wanted, self.steps * self.batch, row_stride, (0, columns, 1)
        result = self.lowerer.scratch(self.steps * self.batch * wanted * columns * self.bytes)
        vectors = self.cell.input_vectors
        tile = Tile(self.cell.type, type, _tile_rows(self.lowerer.target, vectors), vectors, self.lanes, "k", True)
        view = View(result, type, (batch, rows, columns), strides)
        self.lowerer.call(
            gemm_kernel(self.lowerer.target, tile, 1, Chain(3, (Given(type),), (Store(0, type, pattern(strides)),))),
            GemmArguments(
                left=FactorArguments(
                    place=self.X.place, tile_stride=step_stride * tile.rows, stride=step_stride, batch_strides=[row_stride]
                ),
                right=FactorArguments(
                    place=self.weights.inputs, tile_stride=depth * tile.width, stride=tile.width, batch_strides=[0]
                ),
                rows=rows,
                columns=columns,
                inner=depth,
                batch_sizes=[batch],
                bands=None,
                sink=stride_arguments(view, strides),
            ),
            batch * dim.ceildiv(rows, tile.rows) * (columns // tile.width),
            grain_of(tile, rows, depth),
            flops=2 * batch * rows * columns * depth,
            traffic=columns * depth * self.bytes,
        )
        return result

    def _input_strides(self) -> tuple[Dim, Dim]:
        """Of X: from step to step, from row to row."""
        first, second = self.X.strides[:2]
        return (second, first) if self.layout else (first, second)

    def _begin(self, state: Buffer, words: Buffer | None, count: Dim, fits: Dim) -> None:
        """The step that puts the initial state in place."""
        has_cell_state = self.cell.op == "LSTM"
        self.lowerer.call(
            state_kernel(self.lowerer.target, self.cell.type, self.cell.planes, has_cell_state, words is not None),
            BeginArguments(
                state=state,
                batch=self.batch,
                hidden=self.hidden,
                padded=self.padded,
                initial_h=self._initial_state("initial_h"),
                initial_c=self._initial_state("initial_c") if has_cell_state else None,
                words=None if words is None else WordArguments(place=words, count=count),
            ),
            self.number * self.batch * fits,
            max(1, ITEM_WORK // self.hidden),
        )

    def _initial_state(self, name: str) -> StateArguments:
        """An input of the node, zeros if it is absent."""
        value = input_named(self.node, name)
        if value is not None:
            return self._state_arguments(self._rows(value))
        zeros = np.zeros(self.hidden, np.float64)  # as many zero bytes as the widest type needs
        return StateArguments(place=self.lowerer.constant(zeros), direction_stride=0, row_stride=0)

    def _state_arguments(self, view: View) -> StateArguments:
        direction, row = self._state_strides(view)
        return StateArguments(place=view.place, direction_stride=direction, row_stride=row)

    def _state_strides(self, view: View) -> tuple[Dim, Dim]:
        """Of a state: from direction to direction, from row to row."""
        first, second = view.strides[:2]
        return (second, first) if self.layout else (first, second)

    def _run(
        self, cell: Cell, projected: Buffer, state: Buffer, words: Buffer | None, blocks: Dim, first: int, count: int
    ) -> None:
        """The step that runs `count` directions through time."""
        block_rows = dim.ceildiv(self.batch, dim.maximum(blocks, 1))
        teams = blocks * count
        lengths = input_named(self.node, "sequence_lens")
        Y, final_h, final_c = self.outputs
        work = cell.gates * self.hidden * (self.hidden + (self.weights.depth if cell.ahead else 0))
        self.lowerer.call(
            recurrence_kernel(self.lowerer.target, cell),
            RecurrenceArguments(
                steps=self.steps,
                batch=self.batch,
                hidden=self.hidden,
                padded=self.padded,
                directions=self.number,
                first=first,
                reverse={"reverse": 0, "bidirectional": 1}.get(operand(self.node, "direction"), self.number),
                blocks=dim.maximum(blocks, 1),
                block_rows=block_rows,
                teams=teams,
                projected=projected,
                bias=self.weights.bias,
                state=state,
                weights=self.weights.recurrent,
                beside=self.weights.beside,
                status=self.lowerer.status(),
                lengths=None if lengths is None else self.lowerer.contiguous(lengths).place,
                team=None if words is None else self._team_arguments(words),
                ahead=self._ahead_arguments(cell.ahead) if cell.ahead else None,
                rounded=self._rounded_arguments(),
                Y=None if Y is None else self._output_arguments(Y),
                final_h=None if final_h is None else self._state_arguments(final_h),
                final_c=None if final_c is None else self._state_arguments(final_c),
                gates=self.kept[-1].place if self.kept else None,
                cells=self.kept[0].place if len(self.kept) > 1 else None,
            ),
            teams * (MEMBERS if cell.team else 1),
            dim.ceildiv(ITEM_WORK, dim.maximum(1, self.steps * block_rows * work)),
            flops=2 * self.steps * self.batch * count * work,
            traffic=self.steps * count * cell.gates * self.hidden * self.hidden * self.bytes,
        )

    def _rounded_arguments(self) -> RoundedArguments | None:
        """What rounds the state, if weights are whole numbers."""
        return None

    def _team_arguments(self, words: Buffer) -> TeamArguments:
        weight_bytes = sum(self.weights.recurrent_bytes) // self.number
        return TeamArguments(
            words=words,
            team_words=team_words(self.panels),
            pieces=max(1, min(self.panels, weight_bytes // PIECE_BYTES)),
            members=dim.minimum(MEMBERS, THREADS),
            swings=int(weight_bytes <= self.lowerer.budgets.near_weights),
        )

    def _ahead_arguments(self, ahead: int) -> AheadArguments:
        return AheadArguments(
            X=self.X.place,
            step_stride=self._input_strides()[0],
            depth=self.weights.depth,
            weights=self.weights.inputs,
            lines=self._lines(ahead),
        )

    def _output_arguments(self, Y: View) -> OutputArguments:
        first, second, third, _ = Y.strides
        step, direction, row = (second, third, first) if self.layout else (first, second, third)
        return OutputArguments(place=Y.place, step_stride=step, direction_stride=direction, row_stride=row)


def _tile_rows(target: Target, vectors: int) -> int:
    """How many rows of sums leave registers for a row of weights and an element of X."""
    return max(1, (target.vector_registers - vectors - 1) // vectors)
