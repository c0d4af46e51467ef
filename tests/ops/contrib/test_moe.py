"""Cases of com.microsoft's mixtures of experts, against a walk over tokens."""

import functools
import math

import ml_dtypes
import numpy as np
import pytest

from sardonyx import errors
from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.providers.cpu.contrib.moe import quantized_mixture_of_experts, routed
from tests.ops.cases import array, case, f32, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}
ALONE = {"domain": CONTRIB}
TOKENS, HIDDEN, INNER, EXPERTS = 6, 16, 32, 4
PLAIN = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "identity": lambda x: x,
}


def mixture(
    input,
    router_probs,
    fc1_experts_weights,
    fc2_experts_weights,
    fc1_experts_bias=None,
    fc2_experts_bias=None,
    fc3_experts_weights=None,
    fc3_experts_bias=None,
    activation_type="relu",
    activation_alpha=1.0,
    activation_beta=0.0,
    k=1,
    normalize_routing_weights=0,
    swiglu_fusion=0,
    swiglu_limit=np.inf,
    shares=None,
):
    tokens = input.reshape(len(router_probs), input.shape[-1]).astype(np.float64)
    chances = np.exp(router_probs.astype(np.float64))
    chances = chances / chances.sum(axis=1, keepdims=True) if shares is None else shares
    output = np.zeros_like(tokens)
    for row, token in enumerate(tokens):
        best = sorted(range(len(chances[row])), key=lambda expert: (router_probs[row, expert], expert))[-k:]
        total = chances[row, best].sum() if normalize_routing_weights else 1
        for expert in best:
            hidden = fc1_experts_weights[expert] @ token + (0 if fc1_experts_bias is None else fc1_experts_bias[expert])
            third = None
            if fc3_experts_weights is not None:
                third = fc3_experts_weights[expert] @ token + (0 if fc3_experts_bias is None else fc3_experts_bias[expert])
            if activation_type == "swiglu":
                if swiglu_fusion:
                    hidden, third = (hidden[::2], hidden[1::2]) if swiglu_fusion == 1 else np.split(hidden, 2)
                hidden, third = np.minimum(hidden, swiglu_limit), np.clip(third, -swiglu_limit, swiglu_limit)
                hidden = hidden / (1 + np.exp(-activation_alpha * hidden)) * (third + activation_beta)
            else:
                hidden = PLAIN[activation_type](hidden) * (1 if third is None else third)
            result = fc2_experts_weights[expert] @ hidden + (0 if fc2_experts_bias is None else fc2_experts_bias[expert])
            output[row] += chances[row, expert] / total * result
    return output.reshape(input.shape).astype(np.float32)


X, PROBS = f32(TOKENS, HIDDEN), f32(TOKENS, EXPERTS)
FIRST, SECOND = f32(EXPERTS, INNER, HIDDEN) / 4, f32(EXPERTS, HIDDEN, INNER) / 4
BIASES = {"fc1_experts_bias": f32(EXPERTS, INNER), "fc2_experts_bias": f32(EXPERTS, HIDDEN)}
WEIGHTS = {"router_probs": PROBS, "fc1_experts_weights": FIRST, "fc2_experts_weights": SECOND, "expect": mixture}
NEAR = {"rtol": 1e-4, "atol": 1e-5}
for activation in PLAIN:
    for normalize in (0, 1):
        settings = {"activation_type": activation, "normalize_routing_weights": normalize, "k": 2, **NEAR, **BOTH}
        case("MoE", input=X, **WEIGHTS, **BIASES, **settings)
for k in (1, 3, 4):
    case("MoE", input=f32(2, 3, HIDDEN), **WEIGHTS, k=k, **NEAR, **BOTH)
GATED = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0, "k": 2, **NEAR}
WIDE = {**WEIGHTS, "fc1_experts_weights": f32(EXPERTS, 2 * INNER, HIDDEN) / 4}
for limited in ({}, {"swiglu_limit": 0.75}):
    case("MoE", input=X, **WIDE, **GATED, **limited, swiglu_fusion=1, **BOTH)
    case("MoE", input=X, **WIDE, **GATED, **limited, swiglu_fusion=2, **ALONE)
    third = {"fc3_experts_weights": f32(EXPERTS, INNER, HIDDEN) / 4, "fc3_experts_bias": f32(EXPERTS, INNER)}
    case("MoE", input=X, **WEIGHTS, **GATED, **limited, **third, **ALONE)
case("MoE", input=X, **WIDE, **GATED, swiglu_fusion=1, fc1_experts_bias=f32(EXPERTS, 2 * INNER), **BOTH)
case("MoE", input=X, **WEIGHTS, fc3_experts_weights=f32(EXPERTS, INNER, HIDDEN), activation_type="silu", k=2, **NEAR, **ALONE)
case("MoE", input=X, **WEIGHTS, k=2, types={"T": {float32, float16, bfloat16}}, rtol=5e-2, atol=5e-2, **ALONE)
case("MoE", input=f32(0, HIDDEN), **{**WEIGHTS, "router_probs": f32(0, EXPERTS)}, **ALONE)
case("MoE", input=f32(1, 1, HIDDEN), **{**WEIGHTS, "router_probs": f32(1, EXPERTS)}, **NEAR, **BOTH)
even = {**WEIGHTS, "router_probs": np.zeros((TOKENS, EXPERTS), np.float32)}
case("MoE", input=X, **even, k=2, **NEAR, **BOTH)
BAD = {name: value for name, value in WEIGHTS.items() if name != "expect"}
refuse("MoE", input=X, **BAD, k=5, **ALONE, match="k is 5, there are 4 experts")
refuse("MoE", input=f32(5, HIDDEN), **BAD, **ALONE, match="router_probs has 6 rows for 5 tokens")
refuse("MoE", input=X, **BAD, activation_type="elu", **ALONE, match="'elu' is not an activation of experts")
refuse("MoE", input=X, **BAD, activation_type="swiglu", **ALONE, match="swiglu needs fc3_experts_weights")
odd = {**BAD, "fc1_experts_weights": f32(EXPERTS, INNER + 1, HIDDEN), "swiglu_fusion": 1}
refuse("MoE", input=X, **odd, activation_type="swiglu", **ALONE, match="fc1_experts_weights has 33 rows")
refuse("MoE", input=f32(HIDDEN), **BAD, **ALONE, match="rank 2 or 3")
refuse("MoE", input=X, **BAD, use_sparse_mixer=1, **ALONE, match="chooses 2 experts, not 1")
for name, wrong, asked in (
    ("fc1_experts_weights", f32(EXPERTS, INNER, HIDDEN + 1), "4, 32, 16"),
    ("fc1_experts_weights", f32(EXPERTS + 1, INNER, HIDDEN), "4, 32, 16"),
    ("fc1_experts_weights", f32(INNER, HIDDEN), "4, 16, 16"),
    ("fc2_experts_weights", f32(EXPERTS, HIDDEN, INNER - 1), "4, 16, 32"),
    ("fc2_experts_weights", f32(EXPERTS, HIDDEN - 1, INNER), "4, 16, 32"),
    ("fc3_experts_weights", f32(EXPERTS, INNER, HIDDEN - 1), "4, 32, 16"),
    ("fc1_experts_bias", f32(EXPERTS, 1), "4, 32"),
    ("fc2_experts_bias", f32(1, HIDDEN), "4, 16"),
    ("fc3_experts_bias", f32(EXPERTS, INNER + 1), "4, 32"),
):
    shown = rf"{name} is \[{', '.join(map(str, wrong.shape))}\], other operands ask for \[{asked}\]"
    extra = {"fc3_experts_weights": f32(EXPERTS, INNER, HIDDEN)} if name.startswith("fc3") else {}
    refuse("MoE", input=X, **{**BAD, **extra, name: wrong}, **ALONE, match=shown)


def test_the_sparse_mixer_weighs_an_expert_against_its_neighbours():
    logits = np.array([[5.0, 4.95, 1.0, 0.5], [3.0, 2.0, 1.0, 1.0]], np.float32)
    chosen, weights = routed(logits, None, 2, 0, 1)
    np.testing.assert_array_equal(chosen, [[0, 1], [0, 1]])
    # 4.95 is within 2 % of 5 and takes part in the first choice; in the second choice nothing comes near
    np.testing.assert_allclose(weights, [[1 / (1 + np.exp(-0.05)), 1], [1, 1]], rtol=1e-5)


# --- QMoE


def split_bytes(data, bits):
    parts = [(data >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*data.shape[:-1], -1)


def restored(weights, scales, zero_points, bits):
    """All experts' weights as floats."""
    values = split_bytes(weights, bits).astype(np.float32)
    experts, rows, columns = values.shape
    scales = scales.reshape(experts, rows, -1)
    blocks = scales.shape[2]
    shift = np.full(scales.shape, 2 ** (bits - 1), np.float32)
    if zero_points is not None:
        points = split_bytes(zero_points, bits)
        shift = (points[:, :rows, None] if zero_points.ndim == 2 else points[:, :, :blocks]).astype(np.float32)
    spread = columns // blocks
    return (values - np.repeat(shift, spread, axis=2)) * np.repeat(scales, spread, axis=2)


def quantized(
    input,
    router_probs,
    fc1_experts_weights,
    fc1_scales,
    fc2_experts_weights,
    fc2_scales,
    fc1_experts_bias=None,
    fc2_experts_bias=None,
    fc1_zero_points=None,
    fc2_zero_points=None,
    router_weights=None,
    expert_weight_bits=4,
    fc2_expert_weight_bits=None,
    activation_type="relu",
    swiglu_fusion=0,
    k=1,
    normalize_routing_weights=0,
    **ignored,
):
    return mixture(
        input,
        router_probs,
        restored(fc1_experts_weights, fc1_scales, fc1_zero_points, expert_weight_bits),
        restored(fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_expert_weight_bits or expert_weight_bits),
        fc1_experts_bias,
        fc2_experts_bias,
        activation_type=activation_type,
        swiglu_fusion=swiglu_fusion,
        k=k,
        normalize_routing_weights=normalize_routing_weights or router_weights is None,
        shares=router_weights,
    )


WIDTH, DEPTH = 32, 64
TOKEN_ROWS = {"input": f32(TOKENS, WIDTH), "router_probs": PROBS, "expect": quantized, "rtol": 1e-4, "atol": 1e-3}
numbers = functools.partial(array, np.uint8, low=0, high=256)
scales = functools.partial(f32, low=0.01, high=0.03)
for bits in (2, 4, 8):
    share = 8 // bits
    packed = {
        "fc1_experts_weights": numbers(EXPERTS, DEPTH, WIDTH // share),
        "fc2_experts_weights": numbers(EXPERTS, WIDTH, DEPTH // share),
        "expert_weight_bits": bits,
        "k": 2,
        **TOKEN_ROWS,
    }
    rows = {"fc1_scales": scales(EXPERTS, DEPTH), "fc2_scales": scales(EXPERTS, WIDTH)}
    points = {"fc1_zero_points": numbers(EXPERTS, DEPTH // share), "fc2_zero_points": numbers(EXPERTS, WIDTH // share)}
    biases = {"fc1_experts_bias": f32(EXPERTS, DEPTH), "fc2_experts_bias": f32(EXPERTS, WIDTH)}
    case("QMoE", **packed, **rows, **BOTH)
    case("QMoE", **packed, **rows, **points, **biases, **BOTH)
    case("QMoE", **packed, **rows, router_weights=f32(TOKENS, EXPERTS, low=0.1, high=1), **BOTH)
    normal = {"router_weights": f32(TOKENS, EXPERTS, low=0.1, high=1), "normalize_routing_weights": 1}
    case("QMoE", **packed, **rows, **normal, activation_type="silu", **BOTH)
    blocks = {"fc1_scales": scales(EXPERTS, DEPTH, WIDTH // 16), "fc2_scales": scales(EXPERTS, WIDTH, DEPTH // 16)}
    points = {
        "fc1_zero_points": numbers(EXPERTS, DEPTH, -(-WIDTH // 16 // share)),
        "fc2_zero_points": numbers(EXPERTS, WIDTH, -(-DEPTH // 16 // share)),
    }
    case("QMoE", **packed, **blocks, block_size=16, **BOTH)
    case("QMoE", **packed, **blocks, **points, **biases, block_size=16, **BOTH)
    fused = {"fc1_experts_weights": numbers(EXPERTS, 2 * DEPTH, WIDTH // share), "fc1_scales": scales(EXPERTS, 2 * DEPTH)}
    case("QMoE", **{**packed, **rows, **fused}, activation_type="swiglu", swiglu_fusion=1, **BOTH)
mixed = {
    "fc1_experts_weights": numbers(EXPERTS, DEPTH, WIDTH // 2),
    "fc2_experts_weights": numbers(EXPERTS, WIDTH, DEPTH),
    "fc1_scales": scales(EXPERTS, DEPTH),
    "fc2_scales": scales(EXPERTS, WIDTH),
}
case("QMoE", **mixed, **TOKEN_ROWS, fc2_expert_weight_bits=8, **ALONE)
four = {**mixed, "fc2_experts_weights": numbers(EXPERTS, WIDTH, DEPTH // 2)}
halves = {"types": {"T": {float32, float16, bfloat16}, "T2": {float32, float16}}, "rtol": 5e-2, "atol": 5e-2}
case("QMoE", **four, **{**TOKEN_ROWS, **halves}, accuracy_level=4, weights_prepacked=0, **ALONE)
case("QMoE", **four, **{**TOKEN_ROWS, "input": f32(0, WIDTH), "router_probs": f32(0, EXPERTS)}, **ALONE)
REFUSED = {**four, "input": f32(TOKENS, WIDTH), "router_probs": PROBS, **ALONE}
refuse("QMoE", **REFUSED, weights_prepacked=1, match="packed for a GPU")
for name, wrong, fault in (
    ("fc1_experts_weights", numbers(EXPERTS, DEPTH, WIDTH // 2 + 1), "fc1_experts_weights is"),
    ("fc2_experts_weights", numbers(EXPERTS, WIDTH, DEPTH // 2 - 1), "fc2_experts_weights is"),
    ("fc1_scales", scales(EXPERTS, DEPTH - 1), "fc1_scales is"),
    ("fc2_scales", scales(EXPERTS, WIDTH, 5), "fc2_scales has 5 blocks for rows of 64 numbers"),
    ("fc2_scales", scales(EXPERTS, WIDTH, 0), "fc2_scales has 0 blocks"),
    ("fc1_zero_points", numbers(EXPERTS, DEPTH // 2 - 1), "fc1_zero_points is"),
    ("fc2_zero_points", numbers(EXPERTS, WIDTH, 2), "fc2_zero_points is"),
    ("router_weights", f32(TOKENS, EXPERTS - 1), "router_weights is"),
    ("expert_weight_bits", 3, "fc1_expert_weight_bits must be 2, 4 or 8, not 3"),
    ("fc2_expert_weight_bits", 16, "fc2_expert_weight_bits must be 2, 4 or 8, not 16"),
):
    refuse("QMoE", **{**REFUSED, name: wrong}, match=fault)
refuse("QMoE", **REFUSED, quant_type="wfp4afp8", match="'wfp4afp8' is not one of int, fp8, fp4, nvfp4")


def test_experts_of_small_floats():
    rng = np.random.default_rng(3)
    tokens, probs = f32(3, 32), f32(3, 2)
    first, second = (rng.normal(size=shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((2, 32, 32), (2, 32, 32)))
    squares = rng.uniform(0.5, 1, size=(2, 2, 2)).astype(np.float32)
    output = quantized_mixture_of_experts(
        tokens, probs, first, squares, None, second, squares, quant_type="fp8", block_size=16, expert_weight_bits=8
    )
    large = np.repeat(np.repeat(squares, 16, axis=1), 16, axis=2)
    wide = first.astype(np.float32) * large, second.astype(np.float32) * large
    np.testing.assert_allclose(output, mixture(tokens, probs, *wide, normalize_routing_weights=1), rtol=1e-4, atol=1e-4)

    whole = np.array([0.5, 0.25], np.float32)
    output = quantized_mixture_of_experts(
        tokens, probs, first, None, None, second, fc1_global_scale=whole, fc2_global_scale=whole, quant_type="fp8"
    )
    wide = [part.astype(np.float32) * whole[:, None, None] for part in (first, second)]
    np.testing.assert_allclose(output, mixture(tokens, probs, *wide, normalize_routing_weights=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("quant_type", "block", "scale_type"), [("fp4", 32, ml_dtypes.float8_e8m0fnu), ("nvfp4", 16, ml_dtypes.float8_e4m3fn)]
)
def test_experts_of_float4(quant_type, block, scale_type):
    rng = np.random.default_rng(3)
    tokens, probs, whole = f32(3, 32), f32(3, 2), np.array([0.5, 0.25], np.float32)
    matrices, restored_ones = [], []
    for _ in range(2):
        values = rng.normal(size=(2, 32, 32)).astype(ml_dtypes.float4_e2m1fn)
        codes = values.view(np.uint8)
        block_scales = (2.0 ** rng.integers(-2, 2, size=(2, 32, 32 // block))).astype(scale_type)
        matrices.append((codes[..., ::2] | codes[..., 1::2] << 4, block_scales))
        spread = np.repeat(block_scales.astype(np.float32), block, axis=2) * whole[:, None, None]
        restored_ones.append(values.astype(np.float32) * spread)
    (first, first_scales), (second, second_scales) = matrices
    output = quantized_mixture_of_experts(
        tokens,
        probs,
        first,
        first_scales,
        None,
        second,
        second_scales,
        fc1_global_scale=whole,
        fc2_global_scale=whole,
        quant_type=quant_type,
    )
    expected = mixture(tokens, probs, *restored_ones, normalize_routing_weights=1)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_more_experts_than_there_are_cannot_be_chosen():
    with pytest.raises(errors.KernelError, match="k is 3, there are 2 experts"):
        routed(f32(3, 2), None, 3, 0, 0)
