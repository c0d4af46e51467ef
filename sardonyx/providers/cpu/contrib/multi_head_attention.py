"""MultiHeadAttention, its variant for one step of a decoder, and QAttention of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.attention import attention_scores, merge_heads, split_heads, weigh_values
from sardonyx.providers.cpu.contrib.attention import attend_with_past, score_mask
from sardonyx.providers.cpu.normalization import softmax
from sardonyx.providers.cpu.quantize import integer_product
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("MultiHeadAttention", widen=True)
def multi_head_attention(
    query,
    key=None,
    value=None,
    bias=None,
    key_padding_mask=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    cache_indirection=None,
    *,
    num_heads,
    mask_filter_value=-10000.0,
    scale=None,
    unidirectional=0,
    output_count=4,
):
    query, key, value = _with_bias(*_unpacked(query, key, value, num_heads), bias, is_projected=key is None or key.ndim != 4)
    length, present_key, present_value = 0, key, value
    if past_key is not None:
        length = past_key.shape[2] if past_sequence_length is None else int(past_sequence_length.reshape(-1)[0])
        present_key, present_value = _extended(past_key, key, length), _extended(past_value, value, length)
    elif output_count > 1:
        present_key, present_value = np.array(key), np.array(value)  # an output must not lie in the memory of an input
    total = length + key.shape[2]
    key, value = (_of_beams(part[:, :, :total], cache_indirection, length) for part in (present_key, present_value))

    scores = attention_scores(query, key, scale or None)
    if key_padding_mask is not None or unidirectional:
        mask = _checked_mask(key_padding_mask, scores.shape)
        scores += score_mask(mask, scores.shape, length, unidirectional, np.float32(mask_filter_value))
    if attention_bias is not None:
        scores += attention_bias
    return merge_heads(weigh_values(softmax(scores), value)), present_key, present_value, scores


def _unpacked(query, key, value, heads):
    """Query, key and value as (batch, heads, sequence, size), wherever they stand."""
    if query.ndim == 5:
        return _parts(query, 3, heads, "query")
    if key is None:
        raise KernelError("without a key the query must have rank 5, it is " + str(list(query.shape)), InvalidArgument)
    if key.ndim == 5:
        return split_heads(query, heads), *_parts(key, 2, heads, "key")
    for name, tensor in (("key", key), ("value", value)):
        if tensor is not None and tensor.ndim == 4 and tensor.shape[1] != heads:
            raise KernelError(f"{name} is {list(tensor.shape)}, its second axis must be the {heads} heads", InvalidArgument)
    return split_heads(query, heads), split_heads(key, heads), split_heads(value, heads)


def _parts(packed, count, heads, name):
    """What lies beside each other for every head."""
    if packed.shape[2:4] != (heads, count):
        raise KernelError(
            f"{name} is {list(packed.shape)}, its third and fourth axis must be {heads} heads and {count} parts",
            InvalidArgument,
        )
    return (packed[:, :, :, part].transpose(0, 2, 1, 3) for part in range(count))


def _with_bias(query, key, value, bias, is_projected):
    """The bias of the three projections; keys and values of an encoder have had theirs."""
    if bias is None:
        return query, key, value
    parts = np.split(bias, np.cumsum([part.shape[1] * part.shape[3] for part in (query, key)]))
    shifted = [
        tensor + part.reshape(tensor.shape[1], 1, tensor.shape[3])
        for tensor, part in zip((query, key, value) if is_projected else (query,), parts, strict=False)
    ]
    return (*shifted, key, value) if not is_projected else shifted


def _extended(past, new, length):
    """New rows behind `length` old ones, in a tensor as long as the buffer of the past if they fit there."""
    rows = length + new.shape[2]
    if past.shape[2] == length:
        return np.concatenate([past, new], axis=2)
    if past.shape[2] < rows:
        raise KernelError(f"the past has room for {past.shape[2]} rows, {rows} are needed", InvalidArgument)
    whole = np.array(past)
    whole[:, :, length:rows] = new
    return whole


def _of_beams(cache, indirection, length):
    """What each beam has seen: entry [i, j, k] tells which beam of batch i the old token k of beam j came from."""
    if indirection is None:
        return cache
    batch, beams, _ = indirection.shape
    origin = (indirection[:, :, :length] + beams * np.arange(batch)[:, None, None]).reshape(batch * beams, length)
    visible = np.array(cache)
    # the advanced indices stand apart, so their axes come first: (row, token, head, size)
    visible[:, :, :length] = cache[origin, :, np.arange(length)].transpose(0, 2, 1, 3)
    return visible


def _checked_mask(mask, shape):
    """A mask of keys; of one that serves packed batches, the lengths of the keys."""
    batch, _, queries, keys = shape
    if mask is None or mask.shape in ((batch,), (batch, keys), (batch, queries, keys)):
        return mask
    if mask.shape == (3 * batch + 2,):
        return mask[:batch]
    raise KernelError(
        f"Input 'key_padding_mask' shape is not expected: {list(mask.shape)} for {batch} rows, {queries} queries, {keys} keys",
        InvalidArgument,
    )


@contrib("DecoderMaskedMultiHeadAttention", widen=True)
def decoder_masked_multi_head_attention(
    query,
    key=None,
    value=None,
    mask_index=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    beam_width=None,
    cache_indirection=None,
    bias=None,
    *,
    num_heads,
    past_present_share_buffer=0,
    scale=None,
    mask_filter_value=-10000.0,
    output_qk=0,
    output_count=4,
):
    """The width of the beam also shows in the shape of `cache_indirection`."""
    if key is None:
        query, key, value = np.split(query, 3, axis=2)
    return multi_head_attention(
        query,
        key,
        value,
        bias,
        mask_index,
        attention_bias,
        past_key,
        past_value,
        past_sequence_length if past_present_share_buffer else None,
        cache_indirection,
        num_heads=num_heads,
        mask_filter_value=mask_filter_value,
        scale=scale,
        output_count=output_count,
    )


@contrib("QAttention", widen=True)
def q_attention(
    input,
    weight,
    bias,
    input_scale,
    weight_scale,
    mask_index=None,
    input_zero_point=None,
    weight_zero_point=None,
    past=None,
    *,
    num_heads,
    unidirectional=0,
    do_rotary=0,
    past_present_share_buffer=0,
    mask_filter_value=-10000.0,
    scale=None,
):
    if do_rotary:
        raise KernelError("rotary embedding inside of QAttention (do_rotary) is not supported", InvalidArgument)
    batch, length, width = input.shape
    rows = _centered(input, input_zero_point).reshape(batch * length, width)
    product = integer_product(rows, _centered(weight, weight_zero_point)).astype(np.float32)
    projected = product * (input_scale.reshape(()) * weight_scale.reshape(-1 if weight_scale.size > 1 else ())) + bias
    parts = np.split(projected.reshape(batch, length, weight.shape[1]), 3, axis=2)
    return attend_with_past(
        *(split_heads(part, num_heads) for part in parts),
        mask_index,
        past,
        mask_filter_value=mask_filter_value,
        past_present_share_buffer=past_present_share_buffer,
        scale=scale,
        unidirectional=unidirectional,
    )


def _centered(values, zero_point):
    wide = values.astype(np.int16)
    return wide if zero_point is None else wide - zero_point.astype(np.int16).reshape(-1 if zero_point.size > 1 else ())
