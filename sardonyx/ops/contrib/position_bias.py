"""Biases of com.microsoft that depend on how far a key stands from a query."""

from __future__ import annotations

from sardonyx.dtypes import float16, float32, int32, int64
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "RelativePositionBias",
    1,
    "(bias_table: T, query_length: U, key_length: U, *, max_distance: int, is_bidirectional: int = 0) -> (output: T)",
    T={float32, float16},
    U={int64},
)
define(
    "com.microsoft",
    "GatedRelativePositionBias",
    1,
    "(query_layer: T, query_bias: T, rel_pos: T, weight: T, bias: T, eco_a: T, token_offset: M?, *, num_heads: int)"
    " -> (output: T)",
    T={float32, float16},
    M={int32},
)


@contrib("RelativePositionBias")
def relative_position_bias(bias_table, query_length, key_length):
    _, heads = bias_table.require_rank(2, name="bias_table") or fresh_shape(2)
    return (1, heads, *(query_length.as_size("query_length"), key_length.as_size("key_length")))


@contrib("GatedRelativePositionBias")
def gated_relative_position_bias(query_layer, rel_pos, token_offset, num_heads):
    positions = rel_pos.require_rank(4, name="rel_pos") or fresh_shape(4)
    if token_offset is None:
        batch = (query_layer.require_rank(3, name="query_layer") or fresh_shape(3))[0]
    else:
        batch = (token_offset.require_rank(2, name="token_offset") or fresh_shape(2))[0]
    return batch, num_heads, *positions[2:]
