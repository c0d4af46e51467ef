"""Mixtures of experts of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float8e4m3fn, float8e8m0, float16, float32, uint8
from sardonyx.errors import InferenceError
from sardonyx.ops.expert_sizes import FLOAT4_TYPES, LAYERS, bits_of, fault_of
from sardonyx.ops.quantize import check_scales
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

ROUTING = (
    "activation_type: string = 'relu', activation_alpha: float = 1.0, activation_beta: float = 0.0, k: int = 1,"
    " normalize_routing_weights: int = 0, swiglu_fusion: int = 0, swiglu_limit: float?, use_sparse_mixer: int = 0"
)

define(
    "com.microsoft",
    "MoE",
    1,
    "(input: T, router_probs: T, fc1_experts_weights: T, fc1_experts_bias: T?, fc2_experts_weights: T, fc2_experts_bias: T?,"
    f" fc3_experts_weights: T?, fc3_experts_bias: T?, *, {ROUTING}) -> (output: T)",
    T={float32, float16, bfloat16},
)
define(
    "com.microsoft",
    "QMoE",
    1,
    "(input: T, router_probs: T, fc1_experts_weights: T1, fc1_scales: T2?, fc1_experts_bias: T?, fc2_experts_weights: T1,"
    " fc2_scales: T2?, fc2_experts_bias: T?, fc3_experts_weights: T1?, fc3_scales: T2?, fc3_experts_bias: T?,"
    " fc1_zero_points: T1?, fc2_zero_points: T1?, fc3_zero_points: T1?, router_weights: T?, fc1_global_scale: T4?,"
    " fc2_global_scale: T4?, fc1_act_scale: T4?, fc2_act_scale: T4?, fc1_act_block_scale: T2?, fc2_act_block_scale: T2?, *,"
    f" {ROUTING}, expert_weight_bits: int = 4, fc1_expert_weight_bits: int?, fc2_expert_weight_bits: int?,"
    " fc3_expert_weight_bits: int?, block_size: int?, quant_type: string = 'int', weights_prepacked: int = -1,"
    " accuracy_level: int = 0) -> (output: T)",
    T={float32, float16, bfloat16},
    T1={uint8, float8e4m3fn},
    T2={float32, float16, bfloat16, float8e4m3fn, float8e8m0},
    T4={float32},
)


CODED = ("int", *FLOAT4_TYPES)
"""Values of `quant_type` for which weights are packed codes with scales along their rows."""


@contrib("MoE")
def mixture_of_experts(
    input,
    router_probs,
    fc1_experts_weights,
    fc1_experts_bias,
    fc2_experts_weights,
    fc2_experts_bias,
    fc3_experts_weights,
    fc3_experts_bias,
    activation_type,
    swiglu_fusion,
):
    router_probs.require_rank(2, name="router_probs")
    operands = {
        "fc1_experts_weights": fc1_experts_weights,
        "fc1_experts_bias": fc1_experts_bias,
        "fc2_experts_weights": fc2_experts_weights,
        "fc2_experts_bias": fc2_experts_bias,
        "fc3_experts_weights": fc3_experts_weights,
        "fc3_experts_bias": fc3_experts_bias,
    }
    shape = input.require_rank(2, 3, name="input")
    _check_sizes(activation_type == "swiglu" and swiglu_fusion, None, input=input, router_probs=router_probs, **operands)
    return shape


@contrib("QMoE")
def quantized_mixture_of_experts(
    input,
    router_probs,
    fc1_experts_weights,
    fc1_scales,
    fc1_experts_bias,
    fc2_experts_weights,
    fc2_scales,
    fc2_experts_bias,
    fc3_experts_weights,
    fc3_scales,
    fc3_experts_bias,
    fc1_zero_points,
    fc2_zero_points,
    fc3_zero_points,
    router_weights,
    fc1_global_scale,
    fc2_global_scale,
    activation_type,
    swiglu_fusion,
    expert_weight_bits,
    fc1_expert_weight_bits,
    fc2_expert_weight_bits,
    fc3_expert_weight_bits,
    quant_type,
    weights_prepacked,
):
    router_probs.require_rank(2, name="router_probs")
    shape = input.require_rank(2, 3, name="input")
    if quant_type not in CODED or weights_prepacked == 1:
        return shape
    operands = {
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
    own = zip(LAYERS, (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits))
    bits = {layer: bits_of(quant_type, number, expert_weight_bits) for layer, number in own}
    _check_sizes(activation_type == "swiglu" and swiglu_fusion, bits, input=input, router_probs=router_probs, **operands)
    check_scales(fc1_scales=fc1_scales, fc2_scales=fc2_scales, fc3_scales=fc3_scales)
    return shape


def _check_sizes(is_gated, bits, **operands):
    """Refuse operands whose sizes contradict each other."""
    fault = fault_of(operands, is_gated, bits)
    if fault is not None:
        raise InferenceError(fault)
