"""Ops of com.microsoft on batches whose padding is taken out: all tokens of all sequences stand in one row after the other."""

from __future__ import annotations

from sardonyx.dtypes import float16, float32, int32
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.contrib.attention import hidden_sizes
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "RemovePadding",
    1,
    "(input: T, sequence_token_count: M) -> (output: T, token_offset: M, cumulated_seq_len: M, max_seq_len: M)",
    T={float32, float16},
    M={int32},
)
define("com.microsoft", "RestorePadding", 1, "(input: T, token_offset: M) -> (output: T)", T={float32, float16}, M={int32})
define(
    "com.microsoft",
    "PackedAttention",
    1,
    "(input: T, weights: T, bias: T, token_offset: M, cumulative_sequence_length: M, attention_bias: T?, *, num_heads: int,"
    " qkv_hidden_sizes: ints?, scale: float?) -> (output: T)",
    T={float32, float16},
    M={int32},
)
define(
    "com.microsoft",
    "PackedMultiHeadAttention",
    1,
    "(query: T, key: T?, value: T?, bias: T?, token_offset: M, cumulative_sequence_length: M, attention_bias: T?, *,"
    " num_heads: int, mask_filter_value: float = -10000.0, scale: float?) -> (output: T)",
    T={float32, float16},
    M={int32},
)


@contrib("RemovePadding")
def remove_padding(input, sequence_token_count):
    batch, length, hidden = input.require_rank(3, name="input") or fresh_shape(3)
    counts = sequence_token_count.ints
    tokens = dim.fresh() if counts is None else sum(counts)
    return [(tokens, hidden), (batch, length), (batch + 1,), (1,)]


@contrib("RestorePadding")
def restore_padding(input, token_offset):
    _, hidden = input.require_rank(2, name="input") or fresh_shape(2)
    return (*(token_offset.require_rank(2, name="token_offset") or fresh_shape(2)), hidden)


@contrib("PackedAttention")
def packed_attention(input, weights, num_heads, qkv_hidden_sizes):
    tokens, _ = input.require_rank(2, name="input") or fresh_shape(2)
    _, columns = weights.require_rank(2, name="weights") or fresh_shape(2)
    return tokens, hidden_sizes(qkv_hidden_sizes, columns, num_heads)[1]


@contrib("PackedMultiHeadAttention")
def packed_multi_head_attention(query, value):
    shape = query.require_rank(2, 4, name="query")
    if shape is None:
        return fresh_shape(2)
    if len(shape) == 4:
        return shape[0], shape[1] * shape[3]
    if value is None:
        raise InferenceError("without key and value the query must hold them too, (tokens, heads, 3, size)")
    return shape[0], (value.require_rank(2, name="value") or fresh_shape(2))[1]
