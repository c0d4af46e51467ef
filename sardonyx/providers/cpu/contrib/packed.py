"""Ops of com.microsoft on batches whose padding is taken out, in NumPy.

`token_offset` holds the places in (batch, sequence) of all tokens in turn, and behind them those of the padding.
"""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.contrib.attention import attention_with_projection
from sardonyx.providers.cpu.contrib.multi_head_attention import multi_head_attention
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("RemovePadding")
def remove_padding(input, sequence_token_count):
    batch, length, hidden = input.shape
    counts = sequence_token_count.reshape(-1)
    if counts.size and not 0 <= counts.min() <= counts.max() <= length:
        raise KernelError(f"sequence_token_count {counts.tolist()} goes beyond the length {length}", InvalidArgument)
    is_token = (np.arange(length) < counts[:, None]).reshape(-1)
    offsets = np.concatenate([np.flatnonzero(is_token), np.flatnonzero(~is_token)]).reshape(batch, length)
    cumulated = np.concatenate([[0], np.cumsum(counts)])
    longest = np.array([counts.max(initial=0)])
    return input.reshape(batch * length, hidden)[is_token], offsets, cumulated, longest


@contrib("RestorePadding")
def restore_padding(input, token_offset):
    batch, length = token_offset.shape
    whole = np.zeros((batch * length, *input.shape[1:]), input.dtype)
    whole[token_offset.reshape(-1)[: len(input)]] = input
    return whole.reshape(batch, length, *input.shape[1:])


@contrib("PackedAttention", widen=True)
def packed_attention(
    input,
    weights,
    bias,
    token_offset,
    cumulative_sequence_length,
    attention_bias=None,
    *,
    num_heads,
    qkv_hidden_sizes=None,
    scale=None,
):
    output, _ = attention_with_projection(
        restore_padding(input, token_offset),
        weights,
        bias,
        np.diff(cumulative_sequence_length),
        attention_bias=attention_bias,
        num_heads=num_heads,
        qkv_hidden_sizes=qkv_hidden_sizes,
        scale=scale,
        mask_filter_value=NOTHING,
    )
    return _tokens(output, token_offset, len(input))


NOTHING = -1e30
"""What padding adds to a score, so that it gets no weight at all."""


def _tokens(output, token_offset, count):
    return output.reshape(token_offset.size, output.shape[2])[token_offset.reshape(-1)[:count]]


@contrib("PackedMultiHeadAttention", widen=True)
def packed_multi_head_attention(
    query,
    key=None,
    value=None,
    bias=None,
    token_offset=None,
    cumulative_sequence_length=None,
    attention_bias=None,
    *,
    num_heads,
    mask_filter_value=-10000.0,
    scale=None,
):
    output, *_ = multi_head_attention(
        *(None if part is None else restore_padding(part, token_offset) for part in (query, key, value)),
        bias,
        np.diff(cumulative_sequence_length),
        attention_bias,
        num_heads=num_heads,
        mask_filter_value=min(mask_filter_value, NOTHING),
        scale=scale,
        output_count=1,
    )
    return _tokens(output, token_offset, len(query))
