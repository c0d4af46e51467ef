"""Batches without their padding, and what attention is told of positions."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, audit, floats, int32s, ints

places, ends = int32s([0, 1, 3], [4, 2, 5]), int32s(0, 2, 4)

audit("RestorePadding", {"input": floats(4, 8), "token_offset": places}, "token_offset=status", domain=CONTRIB)
audit(
    "PackedAttention",
    {
        "input": floats(4, 8),
        "weights": floats(8, 24),
        "bias": floats(24),
        "token_offset": places,
        "cumulative_sequence_length": ends,
    },
    "token_offset=status cumulative_sequence_length=data num_heads=claims qkv_hidden_sizes=claims",
    domain=CONTRIB,
    num_heads=2,
    qkv_hidden_sizes=[8, 8, 8],
)
audit(
    "PackedMultiHeadAttention",
    {
        "query": floats(4, 8),
        "key": floats(4, 8),
        "value": floats(4, 8),
        "bias": None,
        "token_offset": places,
        "cumulative_sequence_length": ends,
    },
    "token_offset=status cumulative_sequence_length=data num_heads=claims",
    domain=CONTRIB,
    num_heads=2,
)
audit(
    "RelativePositionBias",
    {"bias_table": floats(32, 2), "query_length": ints(5), "key_length": ints(7)},
    "query_length=sizes key_length=sizes max_distance=claims is_bidirectional=flag",
    domain=CONTRIB,
    constants="query_length key_length",
    max_distance=128,
    is_bidirectional=1,
)
audit(
    "GatedRelativePositionBias",
    {
        "query_layer": floats(4, 8),
        "query_bias": floats(8),
        "rel_pos": floats(1, 2, 3, 3),
        "weight": floats(4, 8),
        "bias": floats(8),
        "eco_a": floats(1, 2, 1, 1),
        "token_offset": places,
    },
    "token_offset=status num_heads=claims",
    domain=CONTRIB,
    num_heads=2,
)
audit(
    "MRotaryEmbedding",
    {
        "input": floats(2, 5, 16),
        "position_ids": np.arange(30).reshape(3, 2, 5) % 20,
        "cos_cache": floats(20, 4),
        "sin_cache": floats(20, 4),
    },
    "position_ids=status interleaved=flag num_heads=claims rotary_embedding_dim=claims is_packed_batching=flag"
    " mrope_section=claims mrope_layout=flag",
    domain=CONTRIB,
    num_heads=2,
    mrope_section=[2, 1, 1],
)
