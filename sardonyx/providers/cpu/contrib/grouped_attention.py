"""GroupQueryAttention and SparseAttention of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.attention import (
    attention_scores,
    merge_heads,
    rotate,
    soft_capped,
    softmax_rows,
    split_heads,
    weigh_values,
)
from sardonyx.providers.cpu.contrib.key_value_cache import Format, Lengths, linear_cache, sliding_cache
from sardonyx.providers.cpu.contrib.rotary import angles
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")

BEFORE_SOFTMAX = 1
"""The `qk_output` that asks for scores; others get the weights that softmax made of them."""


@contrib("GroupQueryAttention", widen=True)
def group_query_attention(
    query,
    key=None,
    value=None,
    past_key=None,
    past_value=None,
    seqlens_k=None,
    total_sequence_length=None,
    cos_cache=None,
    sin_cache=None,
    position_ids=None,
    attention_bias=None,
    head_sink=None,
    k_scale=None,
    v_scale=None,
    q_norm_weight=None,
    k_norm_weight=None,
    *,
    num_heads,
    kv_num_heads,
    scale=None,
    softcap=0.0,
    local_window_size=-1,
    do_rotary=0,
    rotary_interleaved=0,
    smooth_softmax=-1,
    causal=1,
    qk_output=0,
    k_quant_type="NONE",
    v_quant_type="NONE",
    kv_cache_bit_width=0,
    sliding_window_cache=0,
    qk_norm_epsilon=1e-6,
    input_types=(),
):
    query, key, value = _heads_apart(query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None:
        query, key = _normalized(query, q_norm_weight, qk_norm_epsilon), _normalized(key, k_norm_weight, qk_norm_epsilon)
    lengths = Lengths.of(seqlens_k, total_sequence_length, query.shape[2], key.shape[2])
    if do_rotary:
        positions = _rotary_positions(position_ids, lengths)
        query, key = _rotated(query, key, positions, cos_cache, sin_cache, rotary_interleaved)

    cache_type = input_types[3] if len(input_types) > 3 else None
    formats = [
        Format.of(*quantization, cache_type, kv_cache_bit_width)
        for quantization in ((k_scale, k_quant_type), (v_scale, v_quant_type))
    ]
    new = [form.stored(tensor) for form, tensor in zip(formats, (key, value), strict=True)]
    if sliding_window_cache:
        window = sliding_cache(past_key, past_value, *new, lengths, local_window_size)
    else:
        window = linear_cache(past_key, past_value, *new, lengths)
    key, value = formats[0].real(window.key), formats[1].real(window.value)

    scores = soft_capped(attention_scores(query, key, scale or None), softcap)
    if attention_bias is not None:
        scores += window.columns_of(attention_bias)
    visible = _visible(lengths, window.positions, causal, local_window_size)
    weights = _softmax(
        np.where(visible, scores, np.float32(-np.inf)),
        np.zeros(1, np.float32) if head_sink is None and smooth_softmax == 1 else head_sink,
    )
    output = merge_heads(weigh_values(weights, value))
    qk = np.where(visible, scores, np.float32(0)) if qk_output == BEFORE_SOFTMAX else weights
    return output, window.present_key, window.present_value, window.by_position(qk, lengths.longest)


def _heads_apart(query, key, value, num_heads, kv_num_heads):
    if key is None:
        heads = split_heads(query, num_heads + 2 * kv_num_heads)
        return np.split(heads, [num_heads, num_heads + kv_num_heads], axis=1)
    return split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)


def _normalized(heads, weight, epsilon):
    mean = np.square(heads).mean(axis=-1, keepdims=True)
    return heads / np.sqrt(mean + np.float32(epsilon)) * weight


def _rotary_positions(position_ids, lengths):
    """Of a prompt's position_ids only the first number counts, as the op's text says."""
    queries = lengths.query_positions
    if position_ids is None:
        return queries
    return position_ids.reshape(-1)[:1] + queries if queries.shape[1] == lengths.longest else position_ids


def _rotated(query, key, positions, cos_cache, sin_cache, interleaved):
    cos, sin = (part[:, None] for part in angles(positions, cos_cache, sin_cache))
    width = 2 * cos.shape[-1]
    return rotate(query, cos, sin, interleaved, width), rotate(key, cos, sin, interleaved, width) if key.shape[2] else key


def _visible(lengths, positions, causal, window):
    """Which keys each query may attend, broadcastable to (batch, heads, queries, keys)."""
    key, query = positions[:, None, None], lengths.query_positions[:, None, :, None]
    visible = key >= 0
    if causal:
        visible = visible & (key <= query)
        if window >= 0:
            visible &= key > query - window
    return visible


def _softmax(scores, sink):
    """Softmax in which every row also has a weight for nothing, exp(sink)."""
    if sink is None:
        return softmax_rows(scores)
    sink = sink.reshape(-1, 1, 1)
    peak = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    weights = np.exp(scores - peak)
    return weights / (weights.sum(axis=-1, keepdims=True) + np.exp(sink - peak))


# --- SparseAttention


@contrib("SparseAttention", widen=True)
def sparse_attention(
    query,
    key,
    value,
    past_key,
    past_value,
    block_row_indices,
    block_col_indices,
    total_sequence_length,
    key_total_sequence_lengths,
    cos_cache=None,
    sin_cache=None,
    *,
    num_heads,
    kv_num_heads,
    sparse_block_size,
    scale=None,
    do_rotary=0,
    rotary_interleaved=0,
):
    """Causal attention in which each head sees some blocks of the keys only."""
    query, key, value = _heads_apart(query, key, value, num_heads, kv_num_heads)
    lengths = Lengths.of(key_total_sequence_lengths - 1, total_sequence_length, query.shape[2], key.shape[2])
    if do_rotary:
        query, key = _rotated(query, key, lengths.query_positions, cos_cache, sin_cache, rotary_interleaved)
    window = linear_cache(past_key, past_value, key, value, lengths)
    scores = attention_scores(query, window.key, scale or None)
    visible = _visible(lengths, window.positions, causal=1, window=-1)
    layouts = _layouts(block_row_indices, block_col_indices)
    rows, columns = lengths.query_positions // sparse_block_size, np.maximum(window.positions, 0) // sparse_block_size
    blocks = layouts[:, rows[:, :, None], columns[:, None, :]]  # (layout, batch, query, key)
    visible = visible & np.moveaxis(blocks, 0, 1)[:, np.arange(num_heads) % len(layouts)]
    weights = softmax_rows(np.where(visible, scores, np.float32(-np.inf)))
    return merge_heads(weigh_values(weights, window.value)), window.present_key, window.present_value


def _layouts(block_row_indices, block_col_indices):
    """Sparse matrices of blocks as dense ones; the columns of row i are those from its index to the next one's."""
    count = block_row_indices.shape[1] - 1
    dense = np.zeros((len(block_row_indices), count, count), bool)
    for layout, starts, columns in zip(dense, block_row_indices, block_col_indices, strict=True):
        layout[_entries(starts, columns, count)] = True
    return dense


def _entries(starts, columns, count):
    """Rows and columns of the blocks of one layout."""
    if starts[0] < 0 or starts[-1] > len(columns) or (starts[1:] < starts[:-1]).any():
        raise KernelError(
            f"block_row_indices must not decrease and lie in [0, {len(columns)}], the number of columns", InvalidArgument
        )
    columns = columns[starts[0] : starts[-1]]
    if ((columns < 0) | (columns >= count)).any():
        raise KernelError(f"block_col_indices must lie in [0, {count}), the blocks of a row", InvalidArgument)
    return np.repeat(np.arange(count), np.diff(starts)), columns
