"""Lowerings of mixtures of experts: MoE, and QMoE with constant weights.

The steps: experts are chosen and weighed (`routing`), tokens are brought into the order of their experts (`grouping`), and each layer is
one product in which every band of rows has the matrix of its expert (`matrices`). Activations and weights are what follows a product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx.compiler.types import F32
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.expert_sizes import LAYERS, bits_of
from sardonyx.ops.reading import input_named, inputs_named, operand
from sardonyx.providers.cpu.contrib.linalg import ROUNDED
from sardonyx.providers.cpu.contrib.moe import FLOAT4
from sardonyx.providers.native.kernels.linalg.tile_kernel import BandsArguments
from sardonyx.providers.native.kernels.moe.grouping import Groups, bands_of, grouped, mix, taken_rows
from sardonyx.providers.native.kernels.moe.matrices import (
    Coded,
    Matrices,
    Part,
    Rounding,
    coded_matrices,
    product,
    real_matrices,
)
from sardonyx.providers.native.kernels.moe.routing import SPARSELY_CHOSEN, routed
from sardonyx.providers.native.kernels.weight_only.rounding import rounded_rows
from sardonyx.providers.native.kernels.weight_only.steps import stride_apart
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, required, shape_of
from sardonyx.providers.native.program.views import View

CONTRIB = "com.microsoft"
MOST_CHOSEN = 64
"""How many experts a token may choose: they are found one after the other."""
GATED = "swiglu"
ACTIVATIONS = {
    "relu": [Operation("Relu", (None,))],
    "gelu": [Operation("Gelu", (None,), (("approximate", "tanh"),))],
    "silu": [Operation("Swish", (None,))],
    "identity": [],
}
INTERLEAVED, HALVES = 1, 2
"""How `swiglu_fusion` says that gates and values share the first matrix: rows in turns, or one half after the other."""

MakeMatrices = Callable[[str, Part], Matrices]
"""Makes those of a layer, fc1 to fc3, or of some of its rows."""


# --- claims


def _claims(node: Node) -> bool:
    """What both ops have in common: activations, ranks, and how many experts are chosen."""
    k, is_sparse = int(operand(node, "k")), bool(operand(node, "use_sparse_mixer"))
    if not 1 <= k <= MOST_CHOSEN or (is_sparse and k != SPARSELY_CHOSEN):
        return False
    third = input_named(node, "fc3_experts_weights")
    activation = operand(node, "activation_type")
    if activation == GATED:
        if third is None and operand(node, "swiglu_fusion") not in (INTERLEAVED, HALVES):
            return False
    elif activation not in ACTIVATIONS:
        return False
    ranks = {"input": (2, 3), "router_probs": (2,), "router_weights": (2,)}
    ranks |= {f"{layer}_experts_weights": (3,) for layer in LAYERS} | {f"{layer}_experts_bias": (2,) for layer in LAYERS}
    return all(_has_rank(node, name, *wanted) for name, wanted in ranks.items())


def _has_rank(node: Node, name: str, *ranks: int) -> bool:
    """Whether an input is absent, or has so many axes."""
    value = input_named(node, name)
    return value is None or len(shape_of(value) or ()) in ranks


def _claims_codes(node: Node) -> bool:
    """Constant weights of few bits, with scales of the sizes that they ask for."""
    if not _claims(node) or operand(node, "quant_type") not in BOOKS or operand(node, "weights_prepacked") == 1:
        return False
    return all(_is_sound(node, layer) for layer in LAYERS if input_named(node, f"{layer}_experts_weights") is not None)


BOOKS: dict[str, tuple[float, ...]] = {"int": (), "fp4": tuple(map(float, FLOAT4)), "nvfp4": tuple(map(float, FLOAT4))}
"""By `quant_type`: what the codes stand for."""


def _coded(node: Node, layer: str) -> Coded:
    kind = str(operand(node, "quant_type"))
    weights, scales, points = inputs_named(node, f"{layer}_experts_weights", f"{layer}_scales", f"{layer}_zero_points")
    # fc3 has the factor of fc1, whose input is its own
    factor = input_named(node, f"{'fc2' if layer == 'fc2' else 'fc1'}_global_scale") if BOOKS[kind] else None
    bits = bits_of(kind, operand(node, f"{layer}_expert_weight_bits"), operand(node, "expert_weight_bits"))
    return Coded(required(weights), required(scales), None if BOOKS[kind] else points, factor, bits, BOOKS[kind])


def _is_sound(node: Node, layer: str) -> bool:
    if input_named(node, f"{layer}_scales") is None:
        return False
    coded = _coded(node, layer)
    if coded.bits not in (2, 4, 8) or not all(value.is_constant for value in coded.sources):
        return False
    if coded.book and coded.global_scale is None:
        return False
    return coded.inner > 0 and _fits_scales(coded) and coded.block_size > 0 and _fits_points(coded)


def _fits_scales(coded: Coded) -> bool:
    shape, scales = dims(coded.weights), dims(coded.scales)
    factor = None if coded.global_scale is None else dims(coded.global_scale)
    return len(scales) in (2, 3) and scales[:2] == shape[:2] and 0 not in scales and factor in (None, shape[:1])


def _fits_points(coded: Coded) -> bool:
    """Zero points packed along the blocks of a row, or along the rows if they have one each."""
    if coded.zero_points is None:
        return True
    experts, rows = dims(coded.weights)[:2]
    points = dims(coded.zero_points)
    return points in (
        (experts, dim.ceildiv(rows * coded.bits, 8)),
        (experts, rows, -(-coded.blocks * coded.bits // 8)),
    )


# --- the ops


@lower("MoE", domain=CONTRIB, claims=_claims)
def mixture_of_experts(lowerer: Lowerer, node: Node) -> None:
    def matrices(layer: str, part: Part) -> Matrices:
        return real_matrices(lowerer, required(input_named(node, f"{layer}_experts_weights")), part)

    inner = {layer: _size(node, layer, 2) for layer in LAYERS}
    normalizes = bool(operand(node, "normalize_routing_weights"))
    _Mixture(lowerer, node, matrices, inner).add(normalizes, None)


@lower("QMoE", domain=CONTRIB, claims=_claims_codes, packs=True)
def quantized_mixture_of_experts(lowerer: Lowerer, node: Node) -> None:
    def matrices(layer: str, part: Part) -> Matrices:
        coded = _coded(node, layer)
        is_rounded = operand(node, "accuracy_level") == ROUNDED and coded.has_blocks and not coded.book
        return coded_matrices(lowerer, coded, part, is_rounded)

    present = [layer for layer in LAYERS if input_named(node, f"{layer}_experts_weights") is not None]
    inner: dict[str, Dim | None] = {layer: _coded(node, layer).inner if layer in present else None for layer in LAYERS}
    (shares,) = inputs_named(node, "router_weights")
    normalizes = shares is None or bool(operand(node, "normalize_routing_weights"))
    _Mixture(lowerer, node, matrices, inner).add(normalizes, shares)


def _size(node: Node, layer: str, axis: int) -> Any:
    """A size of the matrices of a layer, None if that is absent."""
    value = input_named(node, f"{layer}_experts_weights")
    return None if value is None else dims(value)[axis]


class _Mixture:
    """The steps of one node."""

    def __init__(self, lowerer: Lowerer, node: Node, matrices: MakeMatrices, inner: Mapping[str, Dim | None]):
        self.lowerer = lowerer
        self.node = node
        self.matrices = matrices
        self.columns: Mapping[str, Any] = {layer: _size(node, layer, 1) for layer in LAYERS}
        """How many rows the matrices of each layer have, None for one that is absent."""
        self.inner: Mapping[str, Any] = inner
        """How many numbers these have."""
        self.bands: dict[int, BandsArguments] = {}
        """By their height."""
        self.rounded: dict[tuple[View, Rounding], View] = {}

    def add(self, normalizes: bool, shares: Value | None) -> None:
        lowerer, node = self.lowerer, self.node
        tokens = _flat(lowerer.contiguous(required(input_named(node, "input"))))
        logits = lowerer.contiguous(required(input_named(node, "router_probs")))
        self._require_sizes(tokens.shape, logits.shape)
        weights = None
        if shares is not None:
            weights = lowerer.contiguous(shares)
            lowerer.require_shape(weights.shape, logits.shape)
        k, is_sparse = int(operand(node, "k")), bool(operand(node, "use_sparse_mixer"))
        experts, least = logits.shape[1], 1 if is_sparse else k
        lowerer.require(dim.minimum(experts, least), least)
        self.groups: Groups = grouped(lowerer, *routed(lowerer, logits, weights, k, normalizes, is_sparse), experts)
        rows = taken_rows(lowerer, tokens, self.groups, stride_apart(lowerer, tokens.shape[1]))
        result = self._product("fc2", self._whole("fc2"), self._hidden(rows), self._weighed())
        mix(lowerer, result, self.groups, lowerer.sink(node, (len(dims(node.outputs[0])) - 1, 1), given=F32))

    def _require_sizes(self, tokens: Sequence[Dim], logits: Sequence[Dim]) -> None:
        """Leave to NumPy what contradicts itself."""
        lowerer, hidden = self.lowerer, tokens[1]
        lowerer.require(tokens[0], logits[0])
        for layer in LAYERS:
            if self.columns[layer] is not None:
                lowerer.require(_size(self.node, layer, 0), logits[1])
        lowerer.require(self.inner["fc1"], hidden)
        lowerer.require(self.columns["fc2"], hidden)
        if self.columns["fc3"] is not None:
            lowerer.require(self.inner["fc3"], hidden)
            lowerer.require(self.columns["fc3"], self.columns["fc1"])

    def _whole(self, layer: str) -> Part:
        return Part(0, 1, self.columns[layer])

    def _hidden(self, rows: View) -> View:
        """What the first layer makes of rows, through its activation."""
        gates, values = self._parts()
        self.lowerer.require(gates.count, self.inner["fc2"])
        if values is None:
            return self._product("fc1", gates, rows, self._activations())
        layer, part = values
        linear = self._product(layer, part, rows, self._linear())
        return self._product("fc1", gates, rows, [*self._activations(), Operation("Mul", (None, _for_all(linear)))])

    def _parts(self) -> tuple[Part, tuple[str, Part] | None]:
        """Which rows of the first matrix are gates, and where the values are that they open to."""
        if self.columns["fc3"] is not None:
            return self._whole("fc1"), ("fc3", self._whole("fc3"))
        if operand(self.node, "activation_type") != GATED:
            return self._whole("fc1"), None
        half = dim.floordiv(self.columns["fc1"], 2)
        self.lowerer.require(half * 2, self.columns["fc1"])
        if operand(self.node, "swiglu_fusion") == INTERLEAVED:
            return Part(0, 2, half), ("fc1", Part(1, 2, half))
        return Part(0, 1, half), ("fc1", Part(half, 1, half))

    def _activations(self) -> list[Operation]:
        name, limit = operand(self.node, "activation_type"), operand(self.node, "swiglu_limit")
        if name != GATED:
            return list(ACTIVATIONS[name])
        limited = [] if limit is None else [Operation("Min", (None, float(limit)))]
        return [*limited, Operation("Swish", (None,), (("alpha", float(operand(self.node, "activation_alpha"))),))]

    def _linear(self) -> list[Operation]:
        """What the values go through before gates open to them."""
        limit, beta = operand(self.node, "swiglu_limit"), float(operand(self.node, "activation_beta"))
        if operand(self.node, "activation_type") != GATED:
            return []
        limited = [] if limit is None else [Operation("Clip", (None, -float(limit), float(limit)))]
        return [*limited, Operation("Add", (None, beta))] if beta else limited

    def _weighed(self) -> list[Operation]:
        groups = self.groups
        return [Operation("Mul", (None, _for_all(View(groups.weights, F32, (groups.count, 1), (1, 0)))))]

    def _product(self, layer: str, part: Part, rows: View, operations: Sequence[Operation]) -> View:
        """The product of a layer, with its bias, through operations: (rows, columns)."""
        lowerer, groups = self.lowerer, self.groups
        stride = stride_apart(lowerer, part.count)
        buffer = lowerer.scratch(groups.count * stride * F32.bytes)
        target = View(buffer, F32, (groups.experts, groups.count, part.count), (0, stride, 1))
        matrices = self.matrices(layer, part)
        height = matrices.tile.rows
        if height not in self.bands:
            self.bands[height] = bands_of(lowerer, groups, height)
        sink = lowerer.sink_into(target, [*self._bias(layer, part), *operations])
        product(lowerer, groups, self.bands[height], self._rounded(rows, matrices.rounding), matrices, sink)
        return View(buffer, F32, target.shape[1:], target.strides[1:])

    def _rounded(self, rows: View, rounding: Rounding | None) -> View:
        """Rows as a product asks for them; two may ask for the same."""
        if rounding is None:
            return rows
        if (rows, rounding) not in self.rounded:
            self.rounded[rows, rounding] = rounded_rows(self.lowerer, rows, rounding.codes, rounding.block, rounding.blocks)
        return self.rounded[rows, rounding]

    def _bias(self, layer: str, part: Part) -> list[Operation]:
        (bias,) = inputs_named(self.node, f"{layer}_experts_bias")
        if bias is None:
            return []
        view = self.lowerer.view(bias)
        self.lowerer.require(view.shape[0], self.groups.experts)
        self.lowerer.require(view.shape[1], self.columns[layer])
        own = part.of_view(view)
        across = View(own.buffer, own.type, (own.shape[0], 1, own.shape[1]), (own.strides[0], 0, own.strides[1]), own.offset)
        return [Operation("Add", (None, across))]


def _flat(view: View) -> View:
    """Tokens (tokens, columns) of a view without gaps."""
    flat = view.reshaped((dim.product(view.shape[:-1]), view.shape[-1]))
    assert flat is not None
    return flat


def _for_all(view: View) -> View:
    """Rows (rows, columns) in the domain of a product, whose first axis are experts."""
    return View(view.buffer, view.type, (1, *view.shape), (0, *view.strides), view.offset)
