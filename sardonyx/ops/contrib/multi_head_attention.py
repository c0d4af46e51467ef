"""Attentions of com.microsoft whose projections stand outside of them, and QAttention, whose projection is one of integers."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32, int8, int32, uint8
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.contrib.attention import hidden_sizes
from sardonyx.ops.quantize import check_counts, check_factor, check_scales
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape, merge_dims, require_positive
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "MultiHeadAttention",
    1,
    "(query: T, key: T?, value: T?, bias: T?, key_padding_mask: M?, attention_bias: T?, past_key: T?, past_value: T?,"
    " past_sequence_length: M?, cache_indirection: M?, *, num_heads: int, mask_filter_value: float = -10000.0,"
    " scale: float?, unidirectional: int = 0) -> (output: T, present_key: T?, present_value: T?, qk: QK?)",
    T={float32, float16, bfloat16},
    QK={float32, float16, bfloat16},
    M={int32},
)
define(
    "com.microsoft",
    "DecoderMaskedMultiHeadAttention",
    1,
    "(query: T, key: T?, value: T?, mask_index: M?, attention_bias: T?, past_key: T?, past_value: T?,"
    " past_sequence_length: M?, beam_width: M?, cache_indirection: M?, bias: T?, *, num_heads: int,"
    " past_present_share_buffer: int = 0, scale: float?, mask_filter_value: float = -10000.0, output_qk: int = 0)"
    " -> (output: T, present_key: T?, present_value: T?, qk: QK?)",
    T={float32, float16},
    QK={float32, float16},
    M={int32},
)
define(
    "com.microsoft",
    "QAttention",
    1,
    "(input: T1, weight: T2, bias: T3, input_scale: T3, weight_scale: T3, mask_index: T4?, input_zero_point: T1?,"
    " weight_zero_point: T2?, past: T3?, *, num_heads: int, unidirectional: int = 0, do_rotary: int = 0,"
    " past_present_share_buffer: int = 0, mask_filter_value: float = -10000.0, scale: float?)"
    " -> (output: T3, present: T3?)",
    T1={uint8, int8},
    T2={uint8, int8},
    T3={float32, float16},
    T4={int32},
)


@contrib("MultiHeadAttention")
def multi_head_attention(query, key, value, past_key, past_sequence_length, num_heads, declared_types):
    require_positive(num_heads=num_heads)
    rows = _query_rows(query, num_heads)
    keys, values = _keys_and_values(query, key, value, rows, num_heads)
    return _attended(query, rows, keys, values, past_key, past_sequence_length is not None, num_heads, declared_types)


@contrib("DecoderMaskedMultiHeadAttention")
def decoder_masked_multi_head_attention(
    query, key, value, past_key, num_heads, past_present_share_buffer, output_qk, declared_types
):
    require_positive(num_heads=num_heads)
    batch, length, hidden = query.require_rank(3, name="query") or fresh_shape(3)
    if key is None:
        size = dim.floordiv(hidden, 3 * num_heads)
        keys = values = (batch, num_heads, length, size)
        rows = (batch, num_heads, length, size)
    else:
        rows = (batch, num_heads, length, dim.floordiv(hidden, num_heads))
        keys, values = _keys_and_values(query, key, value, rows, num_heads)
    return _attended(query, rows, keys, values, past_key, past_present_share_buffer, num_heads, declared_types)


def _attended(query, rows, keys, values, past_key, shares, num_heads, declared_types):
    """Types of output, present_key, present_value and qk; all shapes given are (batch, heads, sequence, size)."""
    batch, _, length, _ = rows
    before = None if past_key is None else past_key.require_rank(4, name="past_key") or fresh_shape(4)
    total = keys[2] if before is None else before[2] + keys[2]
    kept = before[2] if shares and before is not None else total
    # the schema leaves the type of qk open; where nobody declares it, it is that of the query
    declared = declared_types[3] if len(declared_types) > 3 else None
    scores_type = getattr(declared, "dtype", None) or query.dtype
    key_length = dim.fresh() if shares else total
    return [
        (batch, length, num_heads * values[3]),
        (batch, num_heads, kept, keys[3]),
        (batch, num_heads, kept, values[3]),
        TensorType(scores_type, (batch, num_heads, length, key_length)),
    ]


def _query_rows(query, heads):
    shape = query.require_rank(3, 5, name="query") or fresh_shape(3)
    if len(shape) == 5:
        return _unpacked(shape, heads, 3, "query")
    batch, length, hidden = shape
    if isinstance(hidden, int) and hidden % heads:
        raise InferenceError(f"the query's hidden size {hidden} is not a multiple of num_heads {heads}")
    return batch, heads, length, dim.floordiv(hidden, heads)


def _keys_and_values(query, key, value, rows, heads):
    if query.rank == 5 or (key is None and query.rank is None):
        return rows, rows
    if key is None:
        raise InferenceError("without a key the query must hold query, key and value, (batch, sequence, heads, 3, size)")
    keys = _heads_apart(key, "key", rows[0], heads)
    if key.rank == 5 or (value is None and key.rank is None):
        return keys, keys
    if value is None:
        raise InferenceError("without a value the key must hold key and value, (batch, sequence, heads, 2, size)")
    return keys, _heads_apart(value, "value", rows[0], heads)


def _heads_apart(operand, name, batch, heads):
    shape = operand.require_rank(3, 4, 5, name=name)
    if shape is None:
        return batch, heads, *fresh_shape(2)
    if len(shape) == 3:
        return shape[0], heads, shape[1], dim.floordiv(shape[2], heads)
    if len(shape) == 4:
        merge_dims(shape[1], heads, f"the heads of the {name} and num_heads")
        return shape
    return _unpacked(shape, heads, 2, name)


def _unpacked(shape, heads, parts, name):
    """The shape of each of the tensors that stand in one, (batch, sequence, heads, parts, size)."""
    merge_dims(shape[2], heads, f"the heads of the {name} and num_heads")
    merge_dims(shape[3], parts, f"tensors in the {name}")
    return shape[0], heads, shape[1], shape[4]


@contrib("QAttention")
def q_attention(
    input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, past, num_heads, past_present_share_buffer
):
    check_scales(input_scale=input_scale, weight_scale=weight_scale)
    check_counts(input_scale=input_scale, input_zero_point=input_zero_point)
    check_factor(weight.shape, weight_scale=weight_scale, weight_zero_point=weight_zero_point)
    batch, length, _ = input.require_rank(3, name="input") or fresh_shape(3)
    _, columns = weight.require_rank(2, name="weight") or fresh_shape(2)
    hidden, _ = hidden_sizes(None, columns, num_heads)
    before = None if past is None else past.require_rank(5, name="past") or fresh_shape(5)
    total = length if before is None else before[3] if past_present_share_buffer else before[3] + length
    return [(batch, length, hidden), (2, batch, num_heads, total, dim.floordiv(hidden, num_heads))]
