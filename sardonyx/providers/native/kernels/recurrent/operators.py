"""LSTM, GRU and RNN in generated code: weights are packed here, and the steps added that project the inputs and run through time.

The inputs of all steps are projected in one product; then each direction runs through time in one call, rows of the batch in blocks.
Directions and blocks are shared among threads, and where the recurrent weights are large two threads share each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I32, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, inputs_named, operand
from sardonyx.ops.recurrent import operand_shapes
from sardonyx.providers.native.kernels.linalg.equality import check_equal
from sardonyx.providers.native.kernels.linalg.tile_kernel import FactorArguments, GemmArguments, Tile, gemm_kernel, grain_of
from sardonyx.providers.native.kernels.recurrent.cells import ACTIVATIONS, Activation, Cell
from sardonyx.providers.native.kernels.recurrent.computed_weights import Gates, pack_gates
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

WEIGHTS = ("W", "R", "B", "P")
RANKS = {"W": 3, "R": 3, "B": 2, "P": 2, "sequence_lens": 1, "initial_h": 3, "initial_c": 3}
"""Of the operands beside X."""


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
    """Operands whose sizes are not known to be wrong, and attributes that mean something."""
    X, W, R = inputs_named(node, "X", "W", "R")
    if X is None or W is None or R is None or operand(node, "layout") not in (None, 0, 1):
        return False
    type, shape = element_of(X), shape_of(X)
    if type is None or not type.is_float or shape is None or len(shape) != 3:
        return False
    direction = operand(node, "direction")
    if direction not in ("forward", "foward", "reverse", "bidirectional") or activations_of(node) is None:
        return False
    return _operands_fit(node)


def _claims_training(node: Node) -> bool:
    """What the way back knows too: the usual activations, no clip, rows of one length, a product with the state that is reset; and
    weights of known sizes.
    """
    if not _claims(node) or input_named(node, "sequence_lens") is not None or input_named(node, "P") is not None:
        return False
    activations, usual = activations_of(node), DEFAULT_ACTIVATIONS[kind_of(node)]
    is_usual = activations is not None and all(tuple(each.name for each in way) == usual for way in activations)
    is_plain = not operand(node, "clip") and not operand(node, "input_forget")
    resets = kind_of(node) == "LSTM" or bool(operand(node, "linear_before_reset"))
    is_known = all(isinstance(size, int) for name in "WR" for size in dims(required(input_named(node, name))))
    return is_usual and is_plain and resets and is_known and len({bool(value.name) for value in kept_of(node)}) < 2


def _operands_fit(node: Node) -> bool:
    """Whether all operands have the right types and numbers of axes, and no size that is known to be wrong."""
    type = element_of(required(input_named(node, "X")))
    for name, value in _operands(node).items():
        wanted = I32 if name == "sequence_lens" else type
        shape = shape_of(value)
        if shape is None or len(shape) != RANKS[name] or element_of(value) != wanted:
            return False
    return all(not (isinstance(a, int) and isinstance(b, int)) or a == b for a, b in size_pairs(node))


def _operands(node: Node) -> dict[str, Value]:
    """The inputs beside X that a node has, by their names."""
    values = {name: input_named(node, name) for name in RANKS if kind_of(node) == "LSTM" or name not in ("initial_c", "P")}
    return {name: value for name, value in values.items() if value is not None}


def size_pairs(node: Node) -> list[tuple[Dim, Dim]]:
    """Sizes of the inputs that must be the same."""
    X = dims(required(input_named(node, "X")))
    hidden, depth, layout = hidden_of(node), depth_of(node), operand(node, "layout")
    wanted = operand_shapes(GATES[kind_of(node)], directions_of(node), X[0 if layout else 1], depth, hidden, layout)  # type: ignore[no-untyped-call]
    pairs = [(dim.maximum(hidden, 1), hidden), (operand(node, "hidden_size") or hidden, hidden), (X[2], depth)]
    for name, value in _operands(node).items():
        pairs += zip(dims(value), wanted[name], strict=True)
    return list(dict.fromkeys(pairs))


def hidden_of(node: Node) -> Dim:
    """How many units there are: a number, if an attribute or a weight has one."""
    declared, found = operand(node, "hidden_size"), dims(required(input_named(node, "R")))[2]
    return declared if declared and not isinstance(found, int) else found


def depth_of(node: Node) -> Dim:
    """How many inputs a step has: a number, if X or W has one."""
    X, W = (dims(required(value))[2] for value in inputs_named(node, "X", "W"))
    return W if isinstance(W, int) else X


# --- packing


class Weights:
    """The packed weights of a node, all directions one behind the other: packed before runs, or in each of those in which they `fit`."""

    def __init__(self, lowerer: Lowerer, node: Node, cell: Cell, lanes: int, fits: Dim):
        self._cell, self._lanes, self._lowerer, self._fits = cell, lanes, lowerer, fits
        self._dtype = np.dtype(np.float64 if cell.type.bits == 64 else np.float32)
        self.hidden, self.depth, self._directions = hidden_of(node), depth_of(node), directions_of(node)
        given = _operands(node)
        weights = {name: given[name] for name in WEIGHTS if name in given and (name != "P" or cell.peepholes)}
        self._column = self._directions * padded_size(self.hidden, lanes) * self._dtype.itemsize
        self.recurrent_bytes = [count * self._column * self.hidden for count in cell.products]
        buffers = self._constant(weights) if lowerer.can_pack(*weights.values()) else self._computed(weights)
        self.inputs, self.bias, *rest = buffers
        self.recurrent = rest[: len(cell.products)]
        self.beside = rest[len(cell.products)] if len(rest) > len(cell.products) else None

    def _constant(self, weights: Mapping[str, Value]) -> list[Buffer]:
        cell, column = self._cell, self._column
        sizes = [cell.gates * column * self.depth, cell.gates * column, *self.recurrent_bytes]
        if cell.linear_before_reset or cell.peepholes:
            sizes.append(column * (1 if cell.linear_before_reset else 3))
        return self._lowerer.packed(
            list(weights.values()),
            RECURRENT,
            (cell.op, cell.input_vectors, cell.products, cell.linear_before_reset, *weights, self._dtype.str, self._lanes),
            [fixed(size, "the size of a weight") for size in sizes],
            lambda *arrays: self._pack(**dict(zip(weights, arrays))),
        )

    def _computed(self, weights: Mapping[str, Value]) -> list[Buffer]:
        """The same buffers, filled by steps."""
        cell, hidden = self._cell, self.hidden
        W, R, B, P = map(weights.get, WEIGHTS)
        whole = cell.gates * hidden
        inputs = Gates(cell.input_vectors, whole * self.depth, groups=cell.gates // cell.input_vectors)
        added = tuple(gate for gate in range(cell.gates) if not (cell.linear_before_reset and gate == 2))
        bounds = [0, *itertools.accumulate(cell.products)]
        buffers = [
            self._gates_of(W, inputs, self.depth),
            self._gates_of(B, Gates(cell.gates, 2 * whole, second=whole, added=added)),
            *(
                self._gates_of(R, Gates(last - first, whole * hidden, first * hidden * hidden), hidden)
                for first, last in itertools.pairwise(bounds)
            ),
        ]
        if cell.linear_before_reset:
            buffers.append(self._gates_of(B, Gates(1, 2 * whole, whole + 2 * hidden)))
        elif cell.peepholes:
            buffers.append(self._gates_of(P, Gates(1, hidden), directions=3 * self._directions))
        return buffers

    def _gates_of(self, weight: Value | None, gates: Gates, depth: Dim = 1, directions: int | None = None) -> Buffer:
        directions = directions or self._directions
        if weight is None:
            return self._lowerer.zeros(gates.count * self._column // self._dtype.itemsize, self._cell.type.computed)
        sizes = (directions, self.hidden, depth)
        return pack_gates(self._lowerer, weight, gates, sizes, self._lanes, self._fits)

    def _pack(self, W: np.ndarray, R: np.ndarray, B: np.ndarray | None = None, P: np.ndarray | None = None) -> list[np.ndarray]:
        """Input weights, bias, weights of each product of a step, and what stands beside them."""
        cell, step = self._cell, self._cell.input_vectors
        W, R = W.astype(self._dtype), R.astype(self._dtype)
        groups = [self._gates(W, slice(first, first + step)) for first in range(0, cell.gates, step)]
        bounds = np.cumsum((0, *cell.products))
        recurrent = [self._gates(R, slice(first, last)) for first, last in itertools.pairwise(bounds)]
        both = np.zeros((len(R), 2, cell.gates, R.shape[-1]), self._dtype)
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
        chosen = weights.reshape(len(weights), self._cell.gates, -1, weights.shape[-1])[:, gates]
        count, hidden = chosen.shape[1:3]
        return aligned(np.stack([packed(block.reshape(count * hidden, -1), count, self._lanes) for block in chosen]))

    def _padded(self, vectors: np.ndarray) -> np.ndarray:
        missing = -vectors.shape[-1] % self._lanes
        return aligned(np.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, missing)]))


# --- steps


@lower("LSTMTraining", "GRUTraining", domain="com.microsoft", claims=_claims_training)
@lower("LSTM", "GRU", "RNN", claims=_claims)
def recurrent(lowerer: Lowerer, node: Node) -> None:
    """Project the inputs, set up the state, then run through time."""
    activations = activations_of(node)
    assert activations is not None
    Layer(lowerer, node, activations, check_sizes(lowerer, size_pairs(node))).lower()


def check_sizes(lowerer: Lowerer, given: Sequence[tuple[Dim, Dim]]) -> Dim:
    """Where only a run can tell whether sizes fit, have it tell. Returns 1 if they do, else 0: the other steps then have nothing to do."""
    pairs = [(a, b) for a, b in given if a != b]
    if not pairs:
        return 1
    check_equal(lowerer, pairs)
    return dim.product(dim.maximum(0, 1 - dim.maximum(a - b, b - a)) for a, b in pairs)


class Layer:
    """A node on its way into steps. Nothing is computed if `fits` turns out to be 0."""

    def __init__(self, lowerer: Lowerer, node: Node, activations: Sequence[tuple[Activation, ...]], fits: Dim):
        self.lowerer = lowerer
        self.fits = fits
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
        return Weights(self.lowerer, self.node, self.cell, self.lanes, self.fits)

    def _cell(self, stored: Type) -> Cell:
        node, hidden = self.node, hidden_of(self.node)
        clip = operand(node, "clip")
        weight_bytes = self._team_weight(stored, hidden)
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
            team=(not isinstance(weight_bytes, int) or weight_bytes >= TEAM_BYTES) and len(set(self.activations)) == 1,
            trained=any(value.name for value in kept_of(node)),
        )

    def _rows(self, value: Value) -> View:
        """A value whose innermost axis has no gaps."""
        view = self.lowerer.view(value)
        return view if view.strides[-1] == 1 else self.lowerer.contiguous(value)

    def lower(self) -> None:
        """Add the steps."""
        ahead, fits = self._ahead(), self.fits
        single = dim.minimum(1, dim.maximum(0, 2 - self.batch)) if ahead else 0
        self.panels = dim.floordiv(self.padded, self.lanes)
        blocks = dim.ceildiv(self.batch, self.cell.block_rows) * fits
        state = self.lowerer.scratch(self.number * self.batch * self.cell.planes * self.padded * self.bytes)
        words = self.lowerer.scratch(self.number * blocks * team_words(self.panels) * 8) if self.cell.team else None
        self._begin(state, words, self.number * blocks * team_words(self.panels))
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
        hidden, depth = self.hidden, self.weights.depth
        if not isinstance(hidden, int) or not isinstance(depth, int):
            return slices
        return max(1, min(slices, round(hidden * slices / max(1, depth))))

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
            batch * dim.ceildiv(rows, tile.rows) * dim.floordiv(columns, tile.width),
            grain_of(tile, rows, depth),
            flops=2 * batch * rows * columns * depth,
            traffic=columns * depth * self.bytes,
        )
        return result

    def _input_strides(self) -> tuple[Dim, Dim]:
        """Of X: from step to step, from row to row."""
        first, second = self.X.strides[:2]
        return (second, first) if self.layout else (first, second)

    def _begin(self, state: Buffer, words: Buffer | None, count: Dim) -> None:
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
            self.number * self.batch * self.fits,
            dim.maximum(1, dim.floordiv(ITEM_WORK, dim.maximum(1, self.hidden))),
        )

    def _initial_state(self, name: str) -> StateArguments:
        """An input of the node, zeros if it is absent."""
        value = input_named(self.node, name)
        if value is not None:
            return self._state_arguments(self._rows(value))
        return StateArguments(place=self.lowerer.zeros(self.hidden, self.cell.type), direction_stride=0, row_stride=0)

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
            teams * (self._members() if cell.team else 1),
            dim.ceildiv(ITEM_WORK, dim.maximum(1, self.steps * block_rows * work)),
            flops=2 * self.steps * self.batch * count * work,
            traffic=self.steps * count * cell.gates * self.hidden * self.hidden * self.bytes,
        )

    def _rounded_arguments(self) -> RoundedArguments | None:
        """What rounds the state, if weights are whole numbers."""
        return None

    def _team_weight(self, stored: Type, hidden: Dim) -> Dim:
        """Bytes of a direction's recurrent weights, by which it is decided whether threads share each step."""
        return GATES[kind_of(self.node)] * hidden * hidden * stored.computed.bytes

    def _members(self) -> Dim:
        """How many threads share each step."""
        is_large = dim.minimum(1, dim.floordiv(self._team_weight(self.cell.type, self.hidden), TEAM_BYTES))
        return 1 + is_large * (dim.minimum(MEMBERS, THREADS) - 1)

    def _team_arguments(self, words: Buffer) -> TeamArguments:
        weight_bytes = dim.floordiv(sum(self.weights.recurrent_bytes), self.number)
        near = self.lowerer.budgets.near_weights
        return TeamArguments(
            words=words,
            team_words=team_words(self.panels),
            pieces=dim.maximum(1, dim.minimum(self.panels, dim.floordiv(weight_bytes, PIECE_BYTES))),
            members=self._members(),
            swings=dim.minimum(1, dim.maximum(0, near + 1 - weight_bytes)),
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
