"""DynamicQuantizeLSTM: an LSTM whose weights have 8 bits. Inputs are rounded to 8 bits all at once, the state in each step.

The steps are those of `operators`, with products of whole numbers in the place of floats.
"""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.products import Product
from sardonyx.compiler.types import F32, I8, I16, I32, U8, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, inputs_named, operand
from sardonyx.providers.native.kernels.linalg.matmul import Factor, gemm_step, packed_factor, with_flat_rows
from sardonyx.providers.native.kernels.linalg.packing import Packed
from sardonyx.providers.native.kernels.quantize.dynamic import dense_view, parameters_steps
from sardonyx.providers.native.kernels.quantize.operands import in_groups, pack_groups, product_for, quantized_rows, width_of
from sardonyx.providers.native.kernels.quantize.products import tile_of
from sardonyx.providers.native.kernels.recurrent.cells import ROUNDED_ROWS, Cell
from sardonyx.providers.native.kernels.recurrent.operators import (
    TEAM_BYTES,
    Layer,
    activations_of,
    check_sizes,
    directions_of,
)
from sardonyx.providers.native.kernels.recurrent.product import aligned, packed_units, padded_size
from sardonyx.providers.native.kernels.recurrent.rounded import RoundedArguments
from sardonyx.providers.native.kernels.recurrent.team import MEMBERS
from sardonyx.providers.native.program.chain import Apply, Chain, Given, Item, Load, Store, pattern, stride_arguments
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, required, shape_of
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.providers.scalars.quantize import scaled, uncentered
from sardonyx.providers.scalars.table import name_of, newest_scalar
from sardonyx.startup.records import replace

CODED = PackedFormat("coded-recurrent")
GATES = 4
WEIGHTS = ("W", "R", "W_scale", "W_zero_point", "R_scale", "R_zero_point", "B", "P")


# --- what is claimed


def _claims(node: Node) -> bool:
    """Constant weights of sizes that fit together, and attributes that mean something."""
    X, R = inputs_named(node, "X", "R")
    shape = shape_of(required(X))
    if shape is None or len(shape) != 3 or operand(node, "direction") not in ("forward", "reverse", "bidirectional"):
        return False
    if activations_of(node) is None or any(
        value is not None and not value.is_constant for value in inputs_named(node, *WEIGHTS)
    ):
        return False
    sizes = shape_of(required(R)) or ()
    if (
        len(sizes) != 3
        or not isinstance(sizes[1], int)
        or sizes[1] < 1
        or operand(node, "hidden_size") not in (None, 0, sizes[1])
    ):
        return False
    return _weights_fit(node, sizes[1]) and all(a == b or not _are_known(a, b) for a, b in _size_pairs(node))


def _weights_fit(node: Node, hidden: int) -> bool:
    directions, columns = directions_of(node), GATES * hidden
    each = ((directions,), (directions, columns))
    wanted: dict[str, tuple[Dims, ...]] = dict.fromkeys(WEIGHTS[2:6], each)
    wanted |= {"R": ((directions, hidden, columns),), "B": ((directions, 2 * columns),), "P": ((directions, 3 * hidden),)}
    values = {name: input_named(node, name) for name in wanted}
    W = shape_of(required(input_named(node, "W"))) or ()
    types = (("W", "W_zero_point"), ("R", "R_zero_point"))
    same = all(element_of(required(input_named(node, one))) == element_of(required(values[other])) for one, other in types)
    fits = all(value is None or shape_of(value) in wanted[name] for name, value in values.items())
    return same and fits and len(W) == 3 and (W[0], W[2]) == (directions, columns)


def _are_known(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int)


def _size_pairs(node: Node) -> list[tuple[Dim, Dim]]:
    """Sizes of the inputs that must be the same; -1 where a rank is wrong."""
    X, W, R = (shape_of(required(value)) or () for value in inputs_named(node, "X", "W", "R"))
    pairs = [(X[2], W[1])]
    expected = {
        "sequence_lens": (X[1],),
        "initial_h": (directions_of(node), X[1], R[1]),
        "initial_c": (directions_of(node), X[1], R[1]),
    }
    for name, wanted in expected.items():
        value = input_named(node, name)
        if value is not None:
            found = shape_of(value) or ()
            pairs += zip(found, wanted) if len(found) == len(wanted) else [(-1, 0)]
    return pairs


@lower("DynamicQuantizeLSTM", domain="com.microsoft", claims=_claims, packs=True)
def dynamic_quantize_lstm(lowerer: Lowerer, node: Node) -> None:
    activations = activations_of(node)
    assert activations is not None
    layer = _Layer(lowerer, node, activations, check_sizes(lowerer, _size_pairs(node)))
    lowerer.require(dim.minimum(layer.batch, ROUNDED_ROWS), layer.batch)
    layer.lower()


# --- weights


class _Weights:
    """The packed weights of a node, all directions one behind the other."""

    def __init__(self, lowerer: Lowerer, node: Node, product: Product, lanes: int):
        values = {name: value for name, value in zip(WEIGHTS, inputs_named(node, *WEIGHTS)) if value is not None}
        W, R = (shape_of(required(input_named(node, name))) or () for name in "WR")
        self.depth, self.hidden, self.directions = int(W[1]), int(R[1]), directions_of(node)  # type: ignore[arg-type]
        self._lanes, self._memory, self.state_product = lanes, lowerer.weights, product
        self.input_product = product_for(lowerer.target, _column_type(values["W"], values["W_zero_point"]))
        self.columns = self.directions * GATES * padded_size(self.hidden, lanes)
        self.width = width_of(lowerer.target, self.columns)
        self.recurrent_bytes = [self._bytes(product, self.hidden, self.columns)]
        padded = -(-self.columns // self.width) * self.width
        sizes = [self._bytes(self.input_product, self.depth, padded), *self.recurrent_bytes, *[self.columns * 4] * 5]
        sizes += [self.directions * 3 * padded_size(self.hidden, lanes) * 4] if "P" in values else []
        products = tuple((one.depth, str(one.column)) for one in (self.input_product, product))
        buffers = lowerer.packed(
            list(values.values()),
            CODED,
            (products, lanes, self.width, *values),
            sizes,
            lambda *arrays: self._pack(**dict(zip(values, arrays))),
        )
        self.inputs, state, self.bias, *rows = buffers[:7]
        self.recurrent = [state]
        self.input_sums, self.input_scales, self.sums, self.scales = rows
        self.beside = buffers[7] if len(buffers) > 7 else None

    @staticmethod
    def _bytes(product: Product, inner: int, columns: int) -> int:
        return -(-inner // product.depth) * product.depth * product.column.bytes * columns

    def _pack(
        self,
        W: np.ndarray,
        R: np.ndarray,
        W_scale: np.ndarray,
        W_zero_point: np.ndarray,
        R_scale: np.ndarray,
        R_zero_point: np.ndarray,
        B: np.ndarray | None = None,
        P: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """Weights of the inputs, of the state, bias, then sums and scales of both, and peepholes."""
        inputs, state = (self._ordered(less_zero(*pair)) for pair in ((W, W_zero_point), (R, R_zero_point)))
        panels = np.moveaxis(state, 1, 2)
        both = np.zeros((self.directions, 2, GATES * self.hidden), np.float32)
        if B is not None:
            both[...] = B.reshape(both.shape)
        packed = [
            pack_groups(self._memory, np.moveaxis(inputs, 1, 0).reshape(self.depth, -1), self.input_product, self.width),
            pack_groups(self._memory, panels.reshape(*panels.shape[:3], -1), self.state_product, GATES * self._lanes),
            aligned(self._ordered(both.sum(1, keepdims=True))),
        ]
        for matrix, scale in ((inputs, W_scale), (state, R_scale)):
            spread = np.broadcast_to(scale.reshape(self.directions, 1, -1), (self.directions, 1, GATES * self.hidden))
            packed += [aligned(matrix.sum(axis=1, dtype=np.int32)), aligned(self._ordered(spread.astype(np.float32)))]
        if P is not None:
            missing = padded_size(self.hidden, self._lanes) - self.hidden
            packed.append(aligned(np.pad(P.astype(np.float32).reshape(self.directions, 3, -1), [(0, 0), (0, 0), (0, missing)])))
        return packed

    def _ordered(self, columns: np.ndarray) -> np.ndarray:
        """(directions, rows, gates · units) as (directions, rows, panels, gates, lanes): what is missing is 0."""
        return packed_units(columns.reshape(*columns.shape[:2], GATES, self.hidden), self._lanes)


def less_zero(array: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """(directions, rows, columns) of 8 bits less zero points for each direction or each of its columns, in 16."""
    return array.astype(np.int16) - zero_point.reshape(len(array), 1, -1).astype(np.int16)


def _column_type(value: Value, zero_point: Value) -> Type:
    """The narrowest type that holds numbers less their zero points."""
    assert value.constant is not None and zero_point.constant is not None
    numbers = less_zero(value.constant.peek(), zero_point.constant.numpy())
    return I8 if numbers.min(initial=0) >= -128 and numbers.max(initial=0) <= 127 else I16


# --- steps


class _Layer(Layer):
    weights: _Weights  # type: ignore[assignment]

    def _cell(self, stored: Type) -> Cell:
        R, zero_point = map(required, inputs_named(self.node, "R", "R_zero_point"))
        product = product_for(self.lowerer.target, _column_type(R, zero_point))
        hidden = (shape_of(R) or ())[1]
        assert isinstance(hidden, int)
        is_shared = GATES * hidden * hidden >= TEAM_BYTES and len(set(self.activations)) == 1
        return replace(super()._cell(stored), op="LSTM", rounded=product, team=is_shared)

    def _weights(self) -> _Weights:  # type: ignore[override]
        assert self.cell.rounded is not None
        return _Weights(self.lowerer, self.node, self.cell.rounded, self.lanes)

    def _ahead(self) -> int:
        """All inputs have one scale, so all are read before the first step."""
        return 0

    def _project(self, wanted: Dim) -> Buffer:
        lowerer, weights, product = self.lowerer, self.weights, self.weights.input_product
        X = required(input_named(self.node, "X"))
        scale, zero = (View(lowerer.scratch(type.bytes), type, (), ()) for type in (F32, U8))
        parameters_steps(lowerer, dense_view(lowerer, X), scale, zero)
        rows = with_flat_rows(in_groups(quantized_rows(lowerer, product, X, scale, zero), product))
        assert rows is not None
        count, columns = rows.shape[0] * wanted, weights.columns
        sums = View(lowerer.scratch(count * columns * I32.bytes), I32, (count, columns), (columns, 1))
        tile = tile_of(lowerer.target, product, columns)
        groups = -(-weights.depth // product.depth)
        left = Factor(rows.place, tile.left, "k", rows.strides[0] * tile.rows, rows.strides[0], ())
        panels = Packed(weights.inputs, tile.right, groups * weights.width, 0)
        right = packed_factor((weights.depth, columns), panels, (), tile.width)
        chain = Chain(2, (Given(I32),), (Store(0, I32, pattern(sums.strides)),))
        gemm_step(
            lowerer,
            tile,
            left,
            right,
            (),
            (count, groups, columns),
            Sink(sums.shape, chain, stride_arguments(sums, sums.strides)),
        )
        return self._real(sums, scale, zero)

    def _real(self, sums: View, scale: View, zero: View) -> Buffer:
        """Sums of products as floats."""
        weights, lowerer = self.weights, self.lowerer
        vectors = [
            View(buffer, type, (weights.columns,), (1,))
            for buffer, type in ((weights.input_sums, I32), (weights.input_scales, F32))
        ]
        views = [sums]
        items: list[Item] = [Load(I32, ())]
        if weights.input_product.row == U8:
            views += [zero, vectors[0]]
            items += [Load(U8, ()), Load(I32, ()), Apply(name_of(uncentered), (0, 1, 2), I32, (("offset", 0),))]
        last = len(items) - 1
        views += [scale, vectors[1]]
        items += [Load(F32, ()), Load(F32, ()), Apply(name_of(newest_scalar("Mul")), (last + 1, last + 2), F32)]
        items.append(Apply(name_of(scaled), (last, last + 3), F32))
        target = View(lowerer.scratch(dim.product(sums.shape) * F32.bytes), F32, sums.shape, contiguous_strides(sums.shape))
        lowerer.combine(items, views, target)
        return target.buffer

    def _rounded_arguments(self) -> RoundedArguments:
        product = self.weights.state_product
        item = self.batch * self.padded
        return RoundedArguments(
            rows=self.lowerer.scratch(self.number * MEMBERS * item * product.row.bytes),
            item_stride=item,
            row_stride=self.padded,
            groups=-(-self.hidden // product.depth),
            sums=self.weights.sums,
            scales=self.weights.scales,
        )
