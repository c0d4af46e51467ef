"""Biases of com.microsoft that depend on how far a key stands from a query, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.providers.cpu.activation import sigmoid
from sardonyx.providers.cpu.attention import split_heads
from sardonyx.providers.cpu.shape import bounded, whole
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("RelativePositionBias", widen=True)
def relative_position_bias(bias_table, query_length, key_length, *, max_distance, is_bidirectional=0):
    """The table says (buckets, heads), but its numbers stand head by head: that is how exporters write them."""
    buckets, heads = bias_table.shape
    table = bias_table.reshape(heads, buckets)
    lengths = [whole(query_length, "query_length"), whole(key_length, "key_length")]
    query, key = map(np.arange, bounded((heads, *lengths), bias_table.dtype)[1:])
    return table[:, bucket_of(key - query[:, None], buckets, max_distance, is_bidirectional)][None]


def bucket_of(distance, buckets, max_distance, is_bidirectional):
    """Near distances have buckets of their own, farther ones share them on a logarithmic scale; see T5, 1910.10683."""
    first = np.zeros_like(distance)
    if is_bidirectional:
        buckets //= 2
        first = np.where(distance > 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    near = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(near)) / np.float32(np.log(max_distance / near))
    far = np.minimum(near + (ratio * np.float32(buckets - near)).astype(np.int64), buckets - 1)
    return first + np.where(distance < near, distance, far)


@contrib("GatedRelativePositionBias", widen=True)
def gated_relative_position_bias(query_layer, query_bias, rel_pos, weight, bias, eco_a, token_offset=None, *, num_heads):
    """Two gates computed from each query and head decide how much of the bias it gets."""
    query = query_layer + query_bias
    if token_offset is not None:
        query = _restored(query, token_offset)
    projected = split_heads(query, num_heads) @ weight + bias
    pairs = projected.reshape(*projected.shape[:-1], 2, projected.shape[-1] // 2)
    update, reset = np.moveaxis(sigmoid(pairs.sum(axis=-1)), -1, 0)
    return (update * (reset * eco_a[..., 0] - 1) + 2)[..., None] * rel_pos


def _restored(tokens, token_offset):
    """Packed tokens at their places in (batch, sequence, hidden), zeros for padding."""
    batch, length = token_offset.shape
    whole = np.zeros((batch * length, tokens.shape[1]), tokens.dtype)
    whole[token_offset.reshape(-1)[: len(tokens)]] = tokens
    return whole.reshape(batch, length, tokens.shape[1])
