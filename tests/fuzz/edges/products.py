"""Products, normalizations, recurrent networks and attention."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, audit, floats, int32s, ints

A, B, C = floats(3, 4), floats(4, 5), floats(5)
x = floats(2, 3, 8)

audit("MatMul", {"A": A, "B": B})
audit("Gemm", {"A": A, "B": B, "C": C}, "transA=flag transB=flag broadcast=flag")
audit("FusedGemm", {"A": A, "B": B, "C": C}, "transA=flag transB=flag", domain=CONTRIB, activation="Relu")
audit("FusedMatMul", {"A": A, "B": B}, "transA=flag transB=flag transBatchA=flag transBatchB=flag", domain=CONTRIB)
audit(
    "FusedMatMulActivation",
    {"A": A, "B": B},
    "transA=flag transB=flag transBatchA=flag transBatchB=flag activation_axis=flag",
    domain=CONTRIB,
    activation="Relu",
)
audit("TransposeMatMul", {"A": A, "B": B}, "transA=flag transB=flag", domain=CONTRIB)
audit("GemmFastGelu", {"X": A, "W": B, "bias": C}, domain=CONTRIB)
audit("Einsum", {"a": A, "b": B}, equation="ij,jk->ki")
audit("CDist", {"A": A, "B": floats(5, 4)}, domain=CONTRIB)

audit(
    "BatchNormalization",
    {"X": x, "scale": floats(3), "B": floats(3), "input_mean": floats(3), "input_var": np.abs(floats(3)) + 1},
    "training_mode=flag spatial=flag is_test=flag",
)
audit("InstanceNormalization", {"input": x, "scale": floats(3), "B": floats(3)}, "")
audit(
    "GroupNormalization",
    {"X": floats(2, 4, 5), "scale": floats(4), "bias": floats(4)},
    "num_groups=inference stash_type=inference",
    num_groups=2,
)
audit("LayerNormalization", {"X": x, "Scale": floats(8), "B": floats(8)}, "axis=inference stash_type=inference", axis=-1)
audit("RMSNormalization", {"X": x, "scale": floats(8)}, "axis=inference stash_type=inference", axis=-1, opset=23)
audit("SimplifiedLayerNormalization", {"X": x, "scale": floats(8)}, "axis=inference stash_type=inference", axis=-1)
audit("SkipLayerNormalization", {"input": x, "skip": x, "gamma": floats(8), "beta": floats(8)}, domain=CONTRIB)
audit("SkipSimplifiedLayerNormalization", {"input": x, "skip": x, "gamma": floats(8)}, domain=CONTRIB)
audit("MeanVarianceNormalization", {"X": floats(2, 3, 2, 2)}, "axes=inference", axes=[0, 2, 3])
audit("LpNormalization", {"input": x}, "axis=inference p=claims", axis=1, p=2)
audit(
    "EmbedLayerNormalization",
    {
        "input_ids": int32s([1, 3, 0], [2, 2, 4]),
        "segment_ids": int32s([0, 1, 0], [1, 1, 0]),
        "word_embedding": floats(5, 8),
        "position_embedding": floats(4, 8),
        "segment_embedding": floats(2, 8),
        "gamma": floats(8),
        "beta": floats(8),
        "mask": int32s([1, 1, 0], [1, 1, 1]),
        "position_ids": int32s([0, 1, 2], [1, 2, 3]),
    },
    "input_ids=status segment_ids=status position_ids=status mask=data mask_index_type=flag",
    domain=CONTRIB,
    outputs=2,
)

lengths = int32s(1, 3)
for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    peepholes = {"initial_c": None, "P": None} if op == "LSTM" else {}
    flags = {"LSTM": "input_forget=flag", "GRU": "linear_before_reset=flag", "RNN": ""}[op]
    audit(
        op,
        {
            "X": floats(3, 2, 4),
            "W": floats(1, gates * 5, 4),
            "R": floats(1, gates * 5, 5),
            "B": floats(1, gates * 10),
            "sequence_lens": lengths,
            "initial_h": floats(1, 2, 5),
            **peepholes,
        },
        f"hidden_size=inference sequence_lens=status layout=inference output_sequence=flag {flags}",
        outputs=2,
        constants="W R B",
        hidden_size=5,
    )

q = floats(2, 3, 8)
audit(
    "Attention",
    {"Q": q, "K": q, "V": q, "attn_mask": floats(3, 3)},
    "q_num_heads=inference kv_num_heads=inference is_causal=flag left_window_size=clamped right_window_size=clamped "
    "qk_matmul_output_mode=inference softmax_precision=inference",
    opset=24,
    q_num_heads=2,
    kv_num_heads=2,
)
audit(
    "Attention",
    {
        "Q": q,
        "K": q,
        "V": q,
        "attn_mask": None,
        "past_key": None,
        "past_value": None,
        "nonpad_kv_seqlen": ints(2, 3),
    },
    "q_num_heads=inference kv_num_heads=inference nonpad_kv_seqlen=clamped",
    opset=24,
    q_num_heads=2,
    kv_num_heads=2,
)
audit(
    "MultiHeadAttention",
    {"query": q, "key": q, "value": q, "bias": floats(24), "key_padding_mask": int32s([1, 1, 0], [1, 1, 1])},
    "num_heads=inference key_padding_mask=clamped unidirectional=flag past_sequence_length=claims cache_indirection=claims",
    domain=CONTRIB,
    num_heads=2,
    unidirectional=0,
)
audit(
    "MultiHeadAttention",
    {"query": q, "key": q, "value": q, "bias": None, "key_padding_mask": int32s(2, 3)},
    "num_heads=inference key_padding_mask=clamped",
    domain=CONTRIB,
    num_heads=2,
)
audit(
    "Attention",
    {"input": q, "weights": floats(8, 24), "bias": floats(24), "mask_index": int32s(2, 3)},
    "num_heads=inference mask_index=clamped unidirectional=flag qkv_hidden_sizes=inference do_rotary=claims "
    "rotary_embedding_dim=claims past_present_share_buffer=claims past_sequence_length=claims",
    domain=CONTRIB,
    num_heads=2,
    qkv_hidden_sizes=[8, 8, 8],
)
audit(
    "Attention",
    {"input": q, "weights": floats(8, 24), "bias": floats(24), "mask_index": int32s(2, 3, 0, 1)},
    "num_heads=inference mask_index=clamped",
    domain=CONTRIB,
    num_heads=2,
)
audit(
    "GroupQueryAttention",
    {
        "query": floats(2, 1, 16),
        "key": floats(2, 1, 8),
        "value": floats(2, 1, 8),
        "past_key": floats(2, 2, 6, 4),
        "past_value": floats(2, 2, 6, 4),
        "seqlens_k": int32s(3, 5),
        "total_sequence_length": np.array(6, np.int32),
        "cos_cache": floats(16, 2),
        "sin_cache": floats(16, 2),
    },
    "num_heads=inference kv_num_heads=inference seqlens_k=status total_sequence_length=status position_ids=status "
    "local_window_size=clamped do_rotary=flag rotary_interleaved=flag smooth_softmax=flag causal=flag qk_output=claims "
    "kv_cache_bit_width=claims sliding_window_cache=claims",
    domain=CONTRIB,
    outputs=3,
    num_heads=4,
    kv_num_heads=2,
    do_rotary=1,
    local_window_size=-1,
)
audit(
    "RotaryEmbedding",
    {"X": floats(2, 3, 8), "cos_cache": floats(6, 2), "sin_cache": floats(6, 2), "position_ids": ints([0, 1, 2], [3, 4, 5])},
    "position_ids=status num_heads=inference rotary_embedding_dim=inference interleaved=flag",
    opset=23,
    num_heads=2,
)
audit(
    "RotaryEmbedding",
    {
        "input": floats(2, 3, 8),
        "position_ids": ints([0, 1, 2], [3, 4, 5]),
        "cos_cache": floats(6, 2),
        "sin_cache": floats(6, 2),
    },
    "position_ids=status num_heads=inference rotary_embedding_dim=inference interleaved=flag is_packed_batching=claims",
    domain=CONTRIB,
    num_heads=2,
)
audit(
    "RotaryEmbedding",
    {"input": floats(2, 3, 8), "position_ids": ints(2), "cos_cache": floats(6, 2), "sin_cache": floats(6, 2)},
    "position_ids=status",
    domain=CONTRIB,
    num_heads=2,
)

# the same with operands that the above leave out
heads = floats(2, 2, 3, 4)
audit(
    "Attention",
    {
        "Q": heads,
        "K": heads,
        "V": heads,
        "attn_mask": floats(2, 2, 3, 5),
        "past_key": floats(2, 2, 2, 4),
        "past_value": floats(2, 2, 2, 4),
    },
    "is_causal=flag qk_matmul_output_mode=inference",
    opset=24,
    outputs=3,
    is_causal=1,
)
audit(
    "MultiHeadAttention",
    {
        "query": q,
        "key": q,
        "value": q,
        "bias": None,
        "key_padding_mask": None,
        "attention_bias": floats(1, 2, 3, 5),
        "past_key": floats(2, 2, 2, 4),
        "past_value": floats(2, 2, 2, 4),
    },
    "num_heads=inference unidirectional=flag",
    domain=CONTRIB,
    outputs=3,
    num_heads=2,
    unidirectional=1,
)
audit("MultiHeadAttention", {"query": q, "key": floats(2, 3, 2, 2, 4)}, "num_heads=inference", domain=CONTRIB, num_heads=2)
audit("MultiHeadAttention", {"query": floats(2, 3, 2, 3, 4)}, "num_heads=inference", domain=CONTRIB, num_heads=2)
for mask in (int32s([1, 1, 0, 1, 1], [1, 1, 1, 1, 1]), int32s(*[[[1, 1, 0, 1, 1]] * 3] * 2)):
    audit(
        "Attention",
        {
            "input": q,
            "weights": floats(8, 24),
            "bias": floats(24),
            "mask_index": mask,
            "past": floats(2, 2, 2, 2, 4),
            "attention_bias": floats(2, 2, 3, 5),
        },
        "mask_index=clamped unidirectional=flag",
        domain=CONTRIB,
        outputs=2,
        num_heads=2,
        unidirectional=1,
    )
prompt = {"query": floats(2, 3, 16), "key": floats(2, 3, 8), "value": floats(2, 3, 8)}
audit(
    "GroupQueryAttention",
    {
        **prompt,
        "past_key": None,
        "past_value": None,
        "seqlens_k": int32s(2, 2),
        "total_sequence_length": int32s(3),
        "cos_cache": floats(4, 2),
        "sin_cache": floats(4, 2),
        "position_ids": ints([0, 1, 2], [0, 1, 2]),
    },
    "seqlens_k=status total_sequence_length=status position_ids=status",
    domain=CONTRIB,
    outputs=3,
    num_heads=4,
    kv_num_heads=2,
    do_rotary=1,
)
audit(
    "GroupQueryAttention",
    {
        **prompt,
        "past_key": floats(2, 2, 5, 4),
        "past_value": floats(2, 2, 5, 4),
        "seqlens_k": int32s(4, 4),
        "total_sequence_length": int32s(5),
        "cos_cache": None,
        "sin_cache": None,
        "position_ids": None,
        "attention_bias": floats(1, 4, 3, 5),
        "head_sink": floats(4),
    },
    "seqlens_k=status total_sequence_length=status local_window_size=clamped",
    domain=CONTRIB,
    outputs=3,
    num_heads=4,
    kv_num_heads=2,
    local_window_size=2,
)
audit(
    "GroupQueryAttention",
    {
        "query": floats(2, 1, 32),
        "key": None,
        "value": None,
        "past_key": floats(2, 2, 6, 4),
        "past_value": floats(2, 2, 6, 4),
        "seqlens_k": int32s(3, 5),
        "total_sequence_length": int32s(6),
    },
    "seqlens_k=status total_sequence_length=status num_heads=inference",
    domain=CONTRIB,
    outputs=3,
    num_heads=4,
    kv_num_heads=2,
)
audit(
    "RotaryEmbedding",
    {"X": floats(2, 2, 3, 8), "cos_cache": floats(2, 3, 2), "sin_cache": floats(2, 3, 2)},
    "rotary_embedding_dim=inference interleaved=flag",
    opset=23,
    rotary_embedding_dim=4,
    interleaved=1,
)
audit(
    "LSTM",
    {
        "X": floats(3, 2, 4),
        "W": floats(2, 20, 4),
        "R": floats(2, 20, 5),
        "B": floats(2, 40),
        "sequence_lens": None,
        "initial_h": floats(2, 2, 5),
        "initial_c": floats(2, 2, 5),
        "P": floats(2, 15),
    },
    "hidden_size=inference layout=inference",
    outputs=3,
    direction="bidirectional",
    hidden_size=5,
)
every, state = floats(3, 2, 2, 5), floats(2, 2, 5)
weights = {"X": floats(3, 2, 4), "W": floats(2, 20, 4), "R": floats(2, 20, 5)}
both = {"domain": CONTRIB, "direction": "bidirectional", "hidden_size": 5}
audit(
    "LSTMTraining",
    {**weights, "B": floats(2, 40), "sequence_lens": None, "initial_h": state, "initial_c": state},
    "hidden_size=claims sequence_lens=claims input_forget=claims",
    outputs=5,
    **both,
)
audit(
    "LSTMGrad",
    {**weights, "SL": None, "Ht0": state, "Ct0": state, "HAll": every, "CAll": every, "iofc": floats(3, 2, 2, 20)}
    | {"dHAll": every, "dHFinal": state, "dCFinal": state},
    "hidden_size=data SL=claims input_forget=claims",
    outputs=6,
    **both,
)
weights = {"X": floats(3, 2, 4), "W": floats(2, 15, 4), "R": floats(2, 15, 5), "B": floats(2, 30)}
both["linear_before_reset"] = 1
audit(
    "GRUTraining",
    {**weights, "sequence_lens": None, "initial_h": state},
    "hidden_size=claims sequence_lens=claims linear_before_reset=claims",
    outputs=3,
    **both,
)
audit(
    "GRUGrad",
    {**weights, "SL": None, "H0": state, "HAll": every, "ZRH": floats(3, 2, 2, 15), "dHAll": every, "dHFinal": state},
    "hidden_size=data SL=claims linear_before_reset=claims",
    outputs=5,
    **both,
)
audit(
    "LSTMStepsGrad",
    {"R": floats(2, 20, 5), "gates": floats(3, 2, 2, 20), "CAll": every, "Ct0": state, "dHAll": every},
    domain="sardonyx",
    outputs=3,
    direction="bidirectional",
)
audit(
    "GRUStepsGrad",
    {"R": floats(2, 15, 5), "gates": floats(3, 2, 2, 15), "HAll": every, "candidates": every, "H0": state},
    domain="sardonyx",
    outputs=3,
    direction="bidirectional",
)
audit("LayerNormalization", {"X": x, "Scale": floats(3, 8), "B": floats(3, 8)}, "axis=inference", outputs=3, axis=1)
audit(
    "SkipLayerNormalization",
    {"input": x, "skip": floats(1, 3, 8), "gamma": floats(8), "beta": floats(8), "bias": floats(8)},
    domain=CONTRIB,
)
audit("Gemm", {"A": floats(4, 3), "B": floats(5, 4), "C": floats(3, 1)}, "transA=flag transB=flag", transA=1, transB=1)
audit("Einsum", {"a": A, "b": B, "c": floats(2, 5)}, equation="ij,jk,lk->il")
audit("MatMul", {"A": floats(2, 1, 3, 4), "B": floats(3, 4, 5)})
audit(
    "FusedMatMul", {"A": floats(2, 4, 3), "B": floats(2, 5, 4)}, "transA=flag transB=flag", domain=CONTRIB, transA=1, transB=1
)
