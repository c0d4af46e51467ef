"""Mixtures of experts of com.microsoft, in NumPy: each expert computes the tokens that were sent to it, all at once."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.expert_sizes import bits_of, fault_of, scale_block
from sardonyx.providers.cpu.activation import gelu, relu, swish
from sardonyx.providers.cpu.contrib.linalg import LONGEST_BLOCK, ROUNDED, rounded, unpack
from sardonyx.providers.cpu.normalization import softmax
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched
from sardonyx.startup.records import dataclass

contrib = cpu.in_domain("com.microsoft")

SPARSE_MIXER_TOLERANCE = 0.02
"""How far below the best, relative to it, an expert still takes part in the choice (twice the jitter of the paper, 2310.00811)."""

ACTIVATIONS = {
    "relu": relu,
    "gelu": lambda x: gelu(x, approximate="tanh"),
    "silu": swish,
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class _Gate:
    """How the hidden layer of an expert is activated."""

    activation: str
    alpha: float
    beta: float
    fusion: int
    limit: float | None

    def __call__(self, hidden, linear):
        """`linear` is what the third matrix made of the input, or None."""
        if self.activation != "swiglu":
            if self.activation not in ACTIVATIONS:
                raise KernelError(f"{self.activation!r} is not an activation of experts", InvalidArgument)
            activated = ACTIVATIONS[self.activation](hidden)
            return activated if linear is None else activated * linear
        if linear is None:
            hidden, linear = self._halves(hidden)
        if self.limit is not None:
            hidden, linear = np.minimum(hidden, self.limit), np.clip(linear, -self.limit, self.limit)
        return swish(hidden, self.alpha) * (linear + self.beta)

    def _halves(self, hidden):
        if self.fusion == 1:
            return hidden[:, 0::2], hidden[:, 1::2]
        if self.fusion == 2:
            return np.split(hidden, 2, axis=1)
        raise KernelError("swiglu needs fc3_experts_weights, or fc1 with swiglu_fusion 1 or 2", InvalidArgument)


@contrib("MoE", widen=True)
def mixture_of_experts(
    input,
    router_probs,
    fc1_experts_weights,
    fc1_experts_bias=None,
    fc2_experts_weights=None,
    fc2_experts_bias=None,
    fc3_experts_weights=None,
    fc3_experts_bias=None,
    *,
    activation_type="relu",
    activation_alpha=1.0,
    activation_beta=0.0,
    k=1,
    normalize_routing_weights=0,
    swiglu_fusion=0,
    swiglu_limit=None,
    use_sparse_mixer=0,
):
    operands = {
        "input": input,
        "router_probs": router_probs,
        "fc1_experts_weights": fc1_experts_weights,
        "fc1_experts_bias": fc1_experts_bias,
        "fc2_experts_weights": fc2_experts_weights,
        "fc2_experts_bias": fc2_experts_bias,
        "fc3_experts_weights": fc3_experts_weights,
        "fc3_experts_bias": fc3_experts_bias,
    }
    _check_sizes(operands, activation_type == "swiglu" and swiglu_fusion)
    layers = (
        _Layer(fc1_experts_weights.__getitem__, fc1_experts_bias),
        _Layer(fc2_experts_weights.__getitem__, fc2_experts_bias),
        None if fc3_experts_weights is None else _Layer(fc3_experts_weights.__getitem__, fc3_experts_bias),
    )
    gate = _Gate(activation_type, activation_alpha, activation_beta, swiglu_fusion, swiglu_limit)
    chosen, weights = routed(router_probs, None, k, normalize_routing_weights, use_sparse_mixer)
    return _mixed(input, chosen, weights, layers, gate)


def _check_sizes(operands, is_gated, bits=None):
    fault = fault_of(operands, is_gated, bits)
    if fault is not None:
        raise KernelError(fault, InvalidArgument)


@dataclass(frozen=True)
class _Layer:
    """One matrix of all experts; `weights` makes that of one of them, (outputs, inputs)."""

    weights: Any
    bias: np.ndarray | None
    block: int | None = None
    """How many numbers of a row are rounded to 8 bits together; None if they are not."""

    def __call__(self, rows, expert):
        rows = rows if self.block is None else rounded(rows, self.block)
        product = rows @ self.weights(expert).T
        return product if self.bias is None else product + self.bias[expert]


def _mixed(input, chosen, weights, layers, gate):
    """The sum of what the chosen experts, (tokens, k), make of each token."""
    first, second, third = layers
    tokens = input.reshape(math.prod(input.shape[:-1]), input.shape[-1])
    if len(tokens) != len(chosen):
        raise KernelError(f"router_probs has {len(chosen)} rows for {len(tokens)} tokens", InvalidArgument)
    output = np.zeros_like(tokens)
    for expert in watched(np.unique(chosen)):
        rows, places = np.nonzero(chosen == expert)
        taken = tokens[rows]
        hidden = gate(first(taken, expert), None if third is None else third(taken, expert))
        output[rows] += second(hidden, expert) * weights[rows, places][:, None]
    return output.reshape(input.shape)


def routed(router_probs, router_weights, k, normalize, use_sparse_mixer):
    """The experts of each token and their weights, (tokens, k); of equal experts the last ones, as in onnxruntime."""
    experts = router_probs.shape[1]
    if not 1 <= (1 if use_sparse_mixer else k) <= experts:
        raise KernelError(f"k is {k}, there are {experts} experts", InvalidArgument)
    if use_sparse_mixer:
        return _sparsely_mixed(router_probs, k)
    chosen = np.argsort(router_probs, axis=1, kind="stable")[:, : -k - 1 : -1]
    weights = np.take_along_axis(softmax(router_probs, 1) if router_weights is None else router_weights, chosen, axis=1)
    if normalize:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, np.float32(1), total)
    return chosen, weights


def _sparsely_mixed(logits, k):
    """Two experts one after the other, each weighed against those that come near it only."""
    if k != 2:
        raise KernelError(f"the sparse mixer chooses 2 experts, not {k}", InvalidArgument)
    chosen, weights, rest = [], [], logits
    for _ in range(2):
        best = rest.max(axis=1, keepdims=True)
        scale = np.maximum(np.abs(logits), best)
        near = (best - logits) / scale <= np.float32(SPARSE_MIXER_TOLERANCE)
        expert = rest.argmax(axis=1)[:, None]
        weights.append(np.take_along_axis(softmax(np.where(near, rest, np.float32(-np.inf)), 1), expert, axis=1))
        chosen.append(expert)
        rest = rest.copy()
        np.put_along_axis(rest, expert, -np.inf, axis=1)
    return np.concatenate(chosen, axis=1), np.concatenate(weights, axis=1)


@contrib("QMoE")
def quantized_mixture_of_experts(
    input,
    router_probs,
    fc1_experts_weights,
    fc1_scales=None,
    fc1_experts_bias=None,
    fc2_experts_weights=None,
    fc2_scales=None,
    fc2_experts_bias=None,
    fc3_experts_weights=None,
    fc3_scales=None,
    fc3_experts_bias=None,
    fc1_zero_points=None,
    fc2_zero_points=None,
    fc3_zero_points=None,
    router_weights=None,
    fc1_global_scale=None,
    fc2_global_scale=None,
    fc1_act_scale=None,
    fc2_act_scale=None,
    fc1_act_block_scale=None,
    fc2_act_block_scale=None,
    *,
    activation_type="relu",
    activation_alpha=1.0,
    activation_beta=0.0,
    k=1,
    normalize_routing_weights=0,
    swiglu_fusion=0,
    swiglu_limit=None,
    use_sparse_mixer=0,
    expert_weight_bits=4,
    fc1_expert_weight_bits=None,
    fc2_expert_weight_bits=None,
    fc3_expert_weight_bits=None,
    block_size=None,
    quant_type="int",
    weights_prepacked=-1,
    accuracy_level=0,
):
    """`accuracy_level` is the least precision that the model is content with: at 4 rows are rounded to 8 bits where weights have blocks."""
    if weights_prepacked == 1:
        raise KernelError("weights packed for a GPU (weights_prepacked=1) cannot be used here", InvalidArgument)
    if quant_type not in DEQUANTIZERS:
        raise KernelError(f"quant_type {quant_type!r} is not one of {', '.join(DEQUANTIZERS)}", InvalidArgument)

    def layer(weights, scales, zero_points, global_scale, bias, bits):
        if weights is None:
            return None
        dequantize = DEQUANTIZERS[quant_type]
        layer = _QuantizedLayer(weights, scales, zero_points, global_scale, bits, block_size or 0)
        block = _rounded_block(layer) if accuracy_level == ROUNDED and quant_type == "int" else None
        return _Layer(lambda expert: dequantize(layer, expert), None if bias is None else bias.astype(np.float32), block)

    own = fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits
    first, second, third = (bits_of(quant_type, number, expert_weight_bits) for number in own)
    operands = {
        "input": input,
        "router_probs": router_probs,
        "fc1_experts_weights": fc1_experts_weights,
        "fc1_scales": fc1_scales,
        "fc1_experts_bias": fc1_experts_bias,
        "fc2_experts_weights": fc2_experts_weights,
        "fc2_scales": fc2_scales,
        "fc2_experts_bias": fc2_experts_bias,
        "fc3_experts_weights": fc3_experts_weights,
        "fc3_scales": fc3_scales,
        "fc3_experts_bias": fc3_experts_bias,
        "fc1_zero_points": fc1_zero_points,
        "fc2_zero_points": fc2_zero_points,
        "fc3_zero_points": fc3_zero_points,
        "router_weights": router_weights,
        "fc1_global_scale": fc1_global_scale,
        "fc2_global_scale": fc2_global_scale,
    }
    if quant_type != "fp8":
        _check_sizes(operands, activation_type == "swiglu" and swiglu_fusion, {"fc1": first, "fc2": second, "fc3": third})
    layers = (
        layer(fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_global_scale, fc1_experts_bias, first),
        layer(fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_global_scale, fc2_experts_bias, second),
        layer(fc3_experts_weights, fc3_scales, fc3_zero_points, fc1_global_scale, fc3_experts_bias, third),
    )
    gate = _Gate(activation_type, activation_alpha, activation_beta, swiglu_fusion, swiglu_limit)
    shares = None if router_weights is None else router_weights.astype(np.float32)
    # without shares of their own onnxruntime weighs the chosen experts against each other, whatever the attribute says
    normalize = normalize_routing_weights or shares is None
    chosen, weights = routed(router_probs.astype(np.float32), shares, k, normalize, use_sparse_mixer)
    return _mixed(input.astype(np.float32), chosen, weights, layers, gate)


@dataclass(frozen=True)
class _QuantizedLayer:
    """The quantized weights of one layer of all experts."""

    weights: np.ndarray
    scales: np.ndarray | None
    zero_points: np.ndarray | None
    global_scale: np.ndarray | None
    bits: int
    block_size: int


def _rounded_block(layer):
    """How many numbers of a row are rounded together: those that meet weights of one scale, where these are blocks."""
    if layer.scales is None or layer.scales.ndim < 3:
        return None
    inner = layer.weights.shape[2] * 8 // layer.bits
    return min(scale_block(inner, layer.scales.shape[2]), LONGEST_BLOCK)


def _from_integers(layer, expert):
    """Whole numbers with a scale for each row or each block of a row."""
    rows = layer.weights[expert]
    values = unpack(rows, layer.bits, rows.shape[1] * 8 // layer.bits).astype(np.float32)
    scales = layer.scales[expert].astype(np.float32)
    if scales.ndim == 1:
        scales = scales[:, None]
    count, blocks = scales.shape
    shift = np.float32(1 << (layer.bits - 1))
    if layer.zero_points is not None:
        points = layer.zero_points[expert]
        flat = points.ndim == 1  # one number for each row, packed along the rows
        unpacked = unpack(points, layer.bits, count)[:, None] if flat else unpack(points, layer.bits, blocks)
        shift = unpacked.astype(np.float32)[:, :, None]
    grouped = values.reshape(count, blocks, values.shape[1] // blocks)
    return ((grouped - shift) * scales[:, :, None]).reshape(values.shape)


def _from_float8(layer, expert):
    """float8 numbers with a scale for each square of them, or for all."""
    values = layer.weights[expert].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    if not layer.block_size:
        return values * layer.global_scale[expert]
    scales = layer.scales[expert].astype(np.float32)
    for axis in range(2):
        scales = np.repeat(scales, layer.block_size, axis=axis)
    return values * scales[: values.shape[0], : values.shape[1]]


def _from_float4(layer, expert):
    """float4 numbers with a scale for each block of a row, and one for all."""
    rows = layer.weights[expert].view(np.uint8)
    values = FLOAT4[unpack(rows, 4, 2 * rows.shape[1])]
    scales = layer.scales[expert].astype(np.float32) * layer.global_scale[expert]
    return values * np.repeat(scales, values.shape[1] // scales.shape[1], axis=1)


FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""What the sixteen numbers of the type float4e2m1 are."""

DEQUANTIZERS = {"int": _from_integers, "fp8": _from_float8, "fp4": _from_float4, "nvfp4": _from_float4}
"""By `quant_type`: what makes floats of the weights of one expert."""
