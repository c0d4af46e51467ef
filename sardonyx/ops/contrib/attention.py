"""Attention of com.microsoft: the projections of input to query, key and value are part of it."""

from __future__ import annotations

from sardonyx.dtypes import FLOATS, int32
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape, require_positive
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "Attention",
    1,
    "(input: T, weights: T, bias: T?, mask_index: M?, past: T?, attention_bias: T?, past_sequence_length: M?, *,"
    " num_heads: int, unidirectional: int = 0, qkv_hidden_sizes: ints?, do_rotary: int = 0, rotary_embedding_dim: int = 0,"
    " mask_filter_value: float = -10000.0, scale: float?, past_present_share_buffer: int = 0)"
    " -> (output: T, present: T?)",
    T=FLOATS,
    M={int32},
)


def hidden_sizes(qkv_hidden_sizes, columns, num_heads):
    """The sizes of keys and of values, together over all heads: what the attribute says, or a third of the columns each."""
    require_positive(num_heads=num_heads)
    problem = wrong_hidden_sizes(qkv_hidden_sizes, columns, num_heads)
    if problem:
        raise InferenceError(problem)
    queries, _, values = qkv_hidden_sizes or [dim.floordiv(columns, 3)] * 3
    return queries, values


def wrong_hidden_sizes(qkv_hidden_sizes, columns, num_heads):
    """Why the columns of the weights cannot be queries, keys and values of these sizes; nothing if they can."""
    is_known = isinstance(columns, int)
    if not qkv_hidden_sizes:
        return f"{columns} columns of weights are not as many for queries, keys and values" if is_known and columns % 3 else ""
    sizes = list(qkv_hidden_sizes)
    if len(sizes) != 3:
        return f"qkv_hidden_sizes must be three sizes, not {sizes}"
    if sizes[0] != sizes[1]:
        return f"qkv_hidden_sizes {sizes} must be the same for queries and keys"
    if any(size < 0 or size % num_heads for size in sizes):
        return f"qkv_hidden_sizes {sizes} must be multiples of num_heads {num_heads}"
    return (
        f"qkv_hidden_sizes {sizes} are not the {columns} columns of the weights" if is_known and sum(sizes) != columns else ""
    )


@contrib("Attention")
def attention(input, weights, past, num_heads, qkv_hidden_sizes, past_present_share_buffer):
    batch, length, _ = input.require_rank(3, name="input") or fresh_shape(3)
    _, columns = weights.require_rank(2, name="weights") or fresh_shape(2)
    hidden, value_hidden = hidden_sizes(qkv_hidden_sizes, columns, num_heads)
    before = None if past is None else past.require_rank(5, name="past") or fresh_shape(5)
    total = length if before is None else before[3] if past_present_share_buffer else before[3] + length
    return [(batch, length, value_hidden), (2, batch, num_heads, total, dim.floordiv(hidden, num_heads))]
