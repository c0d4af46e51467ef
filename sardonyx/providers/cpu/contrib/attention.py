"""Attention of com.microsoft, in NumPy. The other attentions of this domain take `attend_with_past` and `score_mask` from here."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.contrib.attention import wrong_hidden_sizes
from sardonyx.providers.cpu.attention import attention_scores, merge_heads, split_heads, weigh_values
from sardonyx.providers.cpu.normalization import softmax
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("Attention", widen=True)
def attention_with_projection(
    input,
    weights,
    bias=None,
    mask_index=None,
    past=None,
    attention_bias=None,
    past_sequence_length=None,
    *,
    num_heads,
    do_rotary=0,
    mask_filter_value=-10000.0,
    past_present_share_buffer=0,
    qkv_hidden_sizes=None,
    rotary_embedding_dim=0,
    scale=None,
    unidirectional=0,
):
    if do_rotary:
        raise KernelError("rotary embedding inside of Attention (do_rotary) is not supported", InvalidArgument)
    query, key, value = _project(input, weights, bias, qkv_hidden_sizes, num_heads)
    return attend_with_past(
        query,
        key,
        value,
        mask_index,
        past,
        attention_bias,
        past_sequence_length,
        mask_filter_value=mask_filter_value,
        past_present_share_buffer=past_present_share_buffer,
        scale=scale,
        unidirectional=unidirectional,
    )


def attend_with_past(
    query,
    key,
    value,
    mask_index=None,
    past=None,
    attention_bias=None,
    past_sequence_length=None,
    *,
    mask_filter_value,
    past_present_share_buffer,
    scale,
    unidirectional,
):
    """Output and present; the past holds keys and values in one tensor."""
    length = 0 if past is None else past.shape[3]
    if past_present_share_buffer and past_sequence_length is not None:
        length = int(past_sequence_length.reshape(-1)[0])
    if past is not None:
        key = np.concatenate([past[0, :, :, :length], key], axis=2)
        value = np.concatenate([past[1, :, :, :length], value], axis=2)
    scores = attention_scores(query, key, scale or None)
    if mask_index is not None or unidirectional:
        scores += score_mask(mask_index, scores.shape, length, unidirectional, np.float32(mask_filter_value))
    if attention_bias is not None:
        scores += attention_bias
    output = merge_heads(weigh_values(softmax(scores), value))
    return output, _present(key, value, past if past_present_share_buffer else None)


def _project(input, weights, bias, sizes, heads):
    """Query, key and value stand side by side in the columns of the weights."""
    problem = wrong_hidden_sizes(sizes, weights.shape[1], heads)
    if problem:
        raise KernelError(problem, InvalidArgument)
    if not sizes:
        sizes = [weights.shape[1] // 3] * 3
    batch, length, width = input.shape
    projected = input.reshape(batch * length, width) @ weights
    if bias is not None:
        projected += bias
    projected = projected.reshape(batch, length, weights.shape[1])
    return [split_heads(part, heads) for part in np.split(projected, np.cumsum(sizes)[:2], axis=2)]


def score_mask(mask_index, shape, past, unidirectional, filter_value):
    """What is added to scores of shape (batch, heads, queries, keys)."""
    batch, _, queries, keys = shape
    mask = np.zeros((1, 1, 1, 1), np.float32)
    if mask_index is not None:
        mask = np.where(_kept(mask_index, batch, queries, keys, past), np.float32(0), filter_value)
    if unidirectional:
        later = np.arange(keys) > np.arange(queries)[:, None] + past
        mask = np.where(later, np.finfo(np.float32).min, mask)
    return mask


def _kept(mask_index, batch, queries, keys, past):
    """Which keys a mask lets through, in four dimensions."""
    if mask_index.ndim == 4:
        return mask_index[:, :, past : past + queries, :keys] > 0
    if mask_index.ndim == 3:
        return mask_index[:, None] > 0
    if mask_index.ndim == 2:
        return mask_index[:, None, None] > 0
    if mask_index.shape[0] not in (batch, 2 * batch):
        raise KernelError(f"a mask_index of shape {list(mask_index.shape)} is not supported", InvalidArgument)
    key = np.arange(keys)
    kept = key < mask_index[:batch].reshape(-1, 1, 1, 1)
    return kept if len(mask_index) == batch else kept & (key >= mask_index[batch:].reshape(-1, 1, 1, 1))


def _present(key, value, buffer):
    """Key and value in one tensor; as long as the shared buffer if there is one."""
    if key.shape != value.shape:
        return None
    present = np.stack([key, value])
    if buffer is None:
        return present
    whole = np.array(buffer)
    whole[:, :, :, : present.shape[3]] = present
    return whole
