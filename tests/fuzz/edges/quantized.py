"""Quantized numbers."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, ENTRIES, Entry, audit, floats, int32s


def whole(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    """Bytes from end to end of their type."""
    count = int(np.prod(shape, dtype=np.int64))
    return (np.arange(count) * 7919 % 256).astype(np.uint8).view(dtype).reshape(shape)


x, scale = floats(3, 8), np.abs(floats(3, 2)) + 0.1

audit("DynamicQuantizeLinear", {"x": x}, outputs=3)
audit(
    "QuantizeLinear",
    {"x": x, "y_scale": scale, "y_zero_point": whole(3, 2)},
    "axis=inference block_size=claims saturate=flag output_dtype=inference precision=inference y_zero_point=data",
    axis=1,
    block_size=4,
)
audit(
    "DequantizeLinear",
    {"x": whole(3, 8), "x_scale": scale, "x_zero_point": whole(3, 2)},
    "axis=inference block_size=claims output_dtype=inference x=data x_zero_point=data",
    axis=1,
    block_size=4,
)
p, q = np.float32(0.05), np.array(3, np.uint8)
audit(
    "QLinearAdd QLinearMul",
    {
        "A": whole(3, 8),
        "A_scale": p,
        "A_zero_point": q,
        "B": whole(8),
        "B_scale": p,
        "B_zero_point": q,
        "C_scale": p,
        "C_zero_point": q,
    },
    "A=data A_zero_point=data B=data B_zero_point=data C_zero_point=data",
    domain=CONTRIB,
)
audit(
    "QLinearSigmoid QLinearLeakyRelu",
    {"X": whole(3, 8), "X_scale": p, "X_zero_point": q, "Y_scale": p, "Y_zero_point": q},
    "X=data X_zero_point=data Y_zero_point=data",
    domain=CONTRIB,
)
audit(
    "QLinearWhere",
    {
        "condition": whole(3, 8) > 99,
        "X": whole(3, 8),
        "x_scale": p,
        "x_zero_point": q,
        "Y": whole(8),
        "y_scale": p,
        "y_zero_point": q,
        "z_scale": p,
        "z_zero_point": q,
    },
    "X=data x_zero_point=data Y=data y_zero_point=data z_zero_point=data",
    domain=CONTRIB,
)
channels = np.abs(floats(8)) + 0.1
audit(
    "QuantizeLinear",
    {"x": x, "y_scale": channels, "y_zero_point": whole(8)},
    "axis=inference y_zero_point=data",
    domain=CONTRIB,
    axis=1,
)
audit(
    "DequantizeLinear",
    {"x": whole(3, 8), "x_scale": channels, "x_zero_point": whole(8)},
    "axis=inference x=data x_zero_point=data",
    domain=CONTRIB,
    axis=1,
)

one, zero = np.float32(0.05), np.array(3, np.uint8)
A, B = whole(4, 6), whole(6, 5, dtype=np.int8)
b_scale, b_zero = np.abs(floats(5)) + 0.1, whole(5, dtype=np.int8)
audit(
    "MatMulInteger",
    {"A": A, "B": B, "a_zero_point": zero, "b_zero_point": b_zero},
    "A=data B=data a_zero_point=data b_zero_point=data",
)
quantized = {"a": A, "a_scale": one, "a_zero_point": zero, "b": B, "b_scale": b_scale, "b_zero_point": b_zero}
points = "a_zero_point=data b_zero_point=data y_zero_point=data"
audit("QLinearMatMul", {**quantized, "y_scale": one, "y_zero_point": zero}, f"a=data b=data {points}")
audit(
    "MatMulIntegerToFloat",
    {"A": A, "B": B, "a_scale": one, "b_scale": b_scale, "a_zero_point": zero, "b_zero_point": b_zero, "bias": floats(5)},
    "A=data B=data a_zero_point=data b_zero_point=data",
    domain=CONTRIB,
)
audit(
    "DynamicQuantizeMatMul",
    {"A": floats(4, 6), "B": B, "b_scale": b_scale, "b_zero_point": b_zero, "bias": floats(5)},
    "B=data b_zero_point=data",
    domain=CONTRIB,
)
audit(
    "QGemm",
    {
        **{name.upper() if len(name) == 1 else name: array for name, array in quantized.items()},
        "C": int32s(1, 2, 3, 4, 5),
        "y_scale": one,
        "y_zero_point": zero,
    },
    f"A=data B=data C=data {points} transA=flag transB=flag",
    domain=CONTRIB,
    constants="B b_zero_point",
)

audit(
    "MatMulNBits",
    {
        "A": floats(3, 32),
        "B": whole(6, 2, 8),
        "scales": floats(6, 2),
        "zero_points": whole(6, 1),
        "g_idx": int32s(*(k % 2 for k in range(32))),
        "bias": floats(6),
    },
    "K=inference N=inference bits=inference block_size=inference B=data zero_points=data g_idx=claims accuracy_level=flag"
    " weight_prepacked=claims",
    domain=CONTRIB,
    constants="B scales zero_points g_idx",
    K=32,
    N=6,
    bits=4,
    block_size=16,
    accuracy_level=0,
    weight_prepacked=0,
)

choice = "k=claims normalize_routing_weights=flag swiglu_fusion=claims use_sparse_mixer=claims"
for fusion in (0, 1):
    audit(
        "MoE",
        {
            "input": floats(5, 6),
            "router_probs": floats(5, 3),
            "fc1_experts_weights": floats(3, 8, 6),
            "fc1_experts_bias": floats(3, 8),
            "fc2_experts_weights": floats(3, 6, 8 // (1 + fusion)),
            "fc2_experts_bias": floats(3, 6),
        },
        choice,
        domain=CONTRIB,
        k=2,
        normalize_routing_weights=1,
        swiglu_fusion=fusion,
        use_sparse_mixer=0,
        activation_type="swiglu" if fusion else "relu",
        activation_alpha=1.5,
        activation_beta=1.0,
        swiglu_limit=7.0,
    )
for level in (0, 4):
    audit(
        "QMoE",
        {
            "input": floats(5, 32),
            "router_probs": floats(5, 3),
            "fc1_experts_weights": whole(3, 64, 16),
            "fc1_scales": floats(3, 64, 2),
            "fc1_experts_bias": floats(3, 64),
            "fc2_experts_weights": whole(3, 32, 16),
            "fc2_scales": floats(3, 32, 2),
            "fc2_experts_bias": floats(3, 32),
            "fc3_experts_weights": None,
            "fc3_scales": None,
            "fc3_experts_bias": None,
            "fc1_zero_points": whole(3, 64, 1),
            "fc2_zero_points": whole(3, 32, 1),
        },
        f"{choice} fc1_experts_weights=data fc2_experts_weights=data fc1_zero_points=data fc2_zero_points=data"
        " expert_weight_bits=inference fc1_expert_weight_bits=inference fc2_expert_weight_bits=inference"
        " fc3_expert_weight_bits=inference block_size=flag weights_prepacked=claims accuracy_level=flag",
        domain=CONTRIB,
        constants="fc1_experts_weights fc1_scales fc2_experts_weights fc2_scales fc1_zero_points fc2_zero_points",
        k=2,
        activation_type="swiglu",
        swiglu_fusion=1,
        expert_weight_bits=4,
        block_size=16,
        accuracy_level=level,
    )

image, filters = whole(1, 4, 5, 5), whole(6, 2, 3, 3, dtype=np.int8)
f_scale, f_zero = np.abs(floats(6)) + 0.1, whole(6, dtype=np.int8)
window = "auto_pad=inference dilations=inference group=inference kernel_shape=inference pads=inference strides=inference"
audit(
    "ConvInteger",
    {"x": image, "w": filters, "x_zero_point": zero, "w_zero_point": f_zero},
    f"x=data w=data x_zero_point=data w_zero_point=data {window}",
    constants="w w_zero_point",
    group=2,
    pads=[1, 1, 0, 0],
)
for domain in ("", CONTRIB):
    audit(
        "QLinearConv",
        {
            "x": image,
            "x_scale": one,
            "x_zero_point": zero,
            "w": filters,
            "w_scale": f_scale,
            "w_zero_point": f_zero,
            "y_scale": one,
            "y_zero_point": zero,
            "B": int32s(1, 2, 3, 4, 5, 6),
        },
        f"x=data w=data B=data x_zero_point=data w_zero_point=data y_zero_point=data {window}"
        + (" channels_last=flag" if domain else ""),
        domain=domain,
        constants="w w_zero_point",
        group=2,
        pads=[1, 1, 0, 0],
    )

parameters = {"x_scale": one, "x_zero_point": zero, "y_scale": one, "y_zero_point": zero}
kept = "x_zero_point=data y_zero_point=data"
POOLED = "auto_pad=inference kernel_shape=inference pads=inference strides=inference ceil_mode=flag"
pooling = {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "strides": [1, 2]}
for channels_last in (0, 1):
    audit(
        "QLinearAveragePool",
        {"X": whole(1, 4, 5, 5), **parameters},
        f"X=data {kept} {POOLED} count_include_pad=flag channels_last=flag",
        domain=CONTRIB,
        channels_last=channels_last,
        **pooling,
    )
    audit(
        "QLinearGlobalAveragePool",
        {"X": whole(1, 4, 5, 5), **parameters},
        f"X=data {kept} channels_last=flag",
        domain=CONTRIB,
        channels_last=channels_last,
    )
audit("NhwcMaxPool", {"x": whole(1, 5, 5, 4)}, f"x=data {POOLED} dilations=inference", domain=CONTRIB, **pooling)
audit(
    "QLinearReduceMean",
    {"data": whole(2, 3, 4), "data_scale": one, "data_zero_point": zero, "reduced_scale": one, "reduced_zero_point": zero},
    "data=data data_zero_point=data reduced_zero_point=data axes=inference keepdims=flag",
    domain=CONTRIB,
    axes=[0, -1],
    keepdims=1,
)
softmax = {"X": whole(2, 3, 4), "X_scale": one, "x_zero_point": zero, "y_scale": one, "y_zero_point": zero}
checks = {"X": "data", "x_zero_point": "data", "y_zero_point": "data", "axis": "inference", "opset": "flag"}
for version in (12, 13):  # an attribute, by a name that `audit` has for something else
    ENTRIES.append(Entry("QLinearSoftmax", softmax, checks, {"axis": 1, "opset": version}, CONTRIB))
audit(
    "QLinearConcat",
    {"Y_scale": one, "Y_zero_point": zero, "a": whole(2, 3), "sa": one, "za": zero, "b": whole(2, 1), "sb": one, "zb": zero},
    "Y_zero_point=data axis=inference",
    domain=CONTRIB,
    axis=1,
)
audit(
    "QAttention",
    {
        "input": whole(2, 3, 8),
        "weight": whole(8, 24, dtype=np.int8),
        "bias": floats(24),
        "input_scale": one,
        "weight_scale": one,
        "mask_index": int32s(2, 3),
        "input_zero_point": zero,
        "weight_zero_point": np.array(1, np.int8),
    },
    "input=data weight=data input_zero_point=data weight_zero_point=data mask_index=clamped num_heads=inference unidirectional=flag"
    " do_rotary=claims past_present_share_buffer=claims",
    domain=CONTRIB,
    num_heads=2,
)

audit(
    "GatherBlockQuantized",
    {
        "data": whole(5, 20),
        "indices": np.array([[4, -1], [0, 9]]),
        "scales": np.abs(floats(5, 3)) + 0.1,
        "zero_points": whole(5, 2),
    },
    "data=data indices=clamped zero_points=data gather_axis=inference quantize_axis=inference block_size=claims bits=inference",
    domain=CONTRIB,
    constants="data scales zero_points",
    gather_axis=0,
    quantize_axis=1,
    block_size=16,
    bits=4,
)
audit(
    "MatMulBnb4",
    {"A": floats(3, 32), "B": whole(96), "absmax": np.abs(floats(12)) + 0.1},
    "B=data K=inference N=inference block_size=claims quant_type=claims training_mode=flag transB=flag",
    domain=CONTRIB,
    constants="B absmax",
    K=32,
    N=6,
    block_size=16,
    quant_type=1,
)
audit(
    "MatMulFpQ4",
    {"A": floats(3, 32), "B": whole(6 * 21), "B_shape": np.array([32, 6])},
    "B=data B_shape=inference blk_quant_type=inference",
    domain=CONTRIB,
    constants="B B_shape",
    blk_quant_type=1,
)
audit(
    "MatMulInteger16",
    {"A": whole(4, 12).view(np.int16), "B": whole(6, 10).view(np.int16)},
    "A=data B=data",
    domain=CONTRIB,
)
coded = {"K": 32, "bits": 4, "block_size": 16, "accuracy_level": 0}
sizes = "K=inference bits=inference block_size=inference accuracy_level=flag"
audit(
    "MatMulNBitsMlp",
    {
        "A": floats(3, 32),
        "skip": floats(3, 32),
        "norm_scale": floats(32),
        "gate_B": whole(6, 2, 8),
        "gate_scales": floats(6, 2),
        "gate_bias": floats(6),
        "up_B": whole(6, 2, 8),
        "up_scales": floats(6, 2),
        "up_bias": floats(6),
    },
    f"gate_B=data up_B=data N=inference {sizes}",
    domain=CONTRIB,
    constants="gate_B gate_scales up_B up_scales",
    N=6,
    activation="silu",
    **coded,
)
audit(
    "MatMulNBitsQkv",
    {
        "A": floats(3, 32),
        "skip": floats(3, 32),
        "norm_scale": floats(32),
        "q_B": whole(6, 2, 8),
        "q_scales": floats(6, 2),
        "q_bias": floats(6),
        "k_B": whole(4, 2, 8),
        "k_scales": floats(4, 2),
        "k_bias": floats(4),
        "v_B": whole(4, 2, 8),
        "v_scales": floats(4, 2),
        "v_bias": floats(4),
    },
    f"q_B=data k_B=data v_B=data Nq=inference Nkv=inference {sizes}",
    domain=CONTRIB,
    constants="q_B q_scales k_B k_scales v_B v_scales",
    outputs=4,
    Nq=6,
    Nkv=4,
    **coded,
)
tables = {"w": whole(9, 8), "p": whole(4, 8), "s": whole(2, 8), "g": whole(8), "b": whole(8)}
prefixes = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")
audit(
    "QEmbedLayerNormalization",
    {
        "input_ids": int32s(1, 2, 8).reshape(1, 3),
        "segment_ids": int32s(0, 1, 1).reshape(1, 3),
        **dict(zip(("word_embedding_quant", "position_embedding_quant", "segment_embedding"), list(tables.values())[:3])),
        "gamma_quant": tables["g"],
        "beta_quant": tables["b"],
        "mask": int32s(1, 1, 0).reshape(1, 3),
        **{f"{prefix}_scale": one for prefix in prefixes},
        **{f"{prefix}_zero_point": zero for prefix in prefixes},
    },
    "input_ids=status segment_ids=status mask=data word_embedding_quant=data position_embedding_quant=data segment_embedding=data"
    " gamma_quant=data beta_quant=data " + " ".join(f"{prefix}_zero_point=data" for prefix in prefixes),
    domain=CONTRIB,
    outputs=2,
)
audit(
    "DynamicQuantizeLSTM",
    {
        "X": floats(3, 2, 4),
        "W": whole(1, 4, 12),
        "R": whole(1, 3, 12),
        "B": floats(1, 24),
        "sequence_lens": int32s(3, 1),
        "initial_h": floats(1, 2, 3),
        "initial_c": floats(1, 2, 3),
        "P": floats(1, 9),
        "W_scale": np.abs(floats(1)) + 0.1,
        "W_zero_point": whole(1),
        "R_scale": np.abs(floats(1)) + 0.1,
        "R_zero_point": whole(1),
    },
    "W=data R=data W_zero_point=data R_zero_point=data sequence_lens=status hidden_size=inference input_forget=flag",
    domain=CONTRIB,
    constants="W R B P W_scale W_zero_point R_scale R_zero_point",
    outputs=3,
    hidden_size=3,
)
