"""Scaled dot product attention, rotary embeddings and FlexAttention, in NumPy.

`contrib/attention.py` builds on `attention_scores` and `weigh_values`.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from sardonyx.dtypes import FLOATS, bfloat16, from_code
from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu


@cpu.kernel("Attention", T1={bfloat16})
@cpu.kernel("Attention", T1=FLOATS - {bfloat16}, widen=True)
def attention(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    kv_num_heads=None,
    left_window_size=-1,
    q_num_heads=None,
    qk_matmul_output_mode=0,
    right_window_size=-1,
    scale=None,
    softcap=0.0,
    softmax_precision=None,
    domain_version=25,
):
    """bfloat16 is rounded after every step of the spec's pattern: the standard's cases leave no room for less."""
    packed = Q.ndim == 3
    query, key, value = split_heads(Q, q_num_heads), split_heads(K, kv_num_heads), split_heads(V, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        key = np.concatenate([past_key, key], axis=2)
        value = np.concatenate([past_value, value], axis=2)
    queries, keys = query.shape[2], key.shape[2]

    raw = scores = attention_scores(query, key, scale)
    capped = scores = soft_capped(scores, softcap)
    allowed = _visible(queries, keys, past, nonpad_kv_seqlen, is_causal, left_window_size, right_window_size)
    if attn_mask is not None:
        scores, allowed = _apply_mask(scores, allowed, attn_mask, widest=keys, pads=domain_version >= 24)
    if allowed is not None:
        scores = np.where(allowed, scores, scores.dtype.type(-np.inf))
    weights = softmax_in_precision(scores, softmax_precision)
    output = weigh_values(weights, value)
    if packed:
        output = merge_heads(output)
    return output, key, value, (raw, capped, scores, weights)[qk_matmul_output_mode]


def split_heads(tensor, heads):
    """(batch, sequence, heads·size) as (batch, heads, sequence, size); a 4-D tensor has that layout already."""
    if tensor.ndim == 4:
        return tensor
    if not heads or tensor.shape[2] % heads:
        raise KernelError(f"a hidden size of {tensor.shape[2]} cannot be divided among {heads} heads", InvalidArgument)
    batch, sequence, hidden = tensor.shape
    return tensor.reshape(batch, sequence, heads, hidden // heads).transpose(0, 2, 1, 3)


def merge_heads(tensor):
    """(batch, heads, sequence, size) as (batch, sequence, heads·size)."""
    batch, heads, sequence, size = tensor.shape
    return tensor.transpose(0, 2, 1, 3).reshape(batch, sequence, heads * size)


def attention_scores(query, key, scale=None):
    """scale · query · keyᵀ per head; each key head serves a run of neighbouring query heads."""
    batch, heads, queries, size = query.shape
    key_heads, keys = key.shape[1:3]
    if not key_heads or heads % key_heads:
        raise KernelError(f"{heads} query heads are not a multiple of {key_heads} key heads", InvalidArgument)
    if scale is None:
        scale = 1.0 / math.sqrt(size) if size else 1.0
    if query.dtype == ml_dtypes.bfloat16:
        root = query.dtype.type(math.sqrt(scale))
        query, key = query * root, key * root
    else:
        query = query * query.dtype.type(scale)
    grouped = query.reshape(batch, key_heads, heads // key_heads * queries, size)
    return _product(grouped, key.swapaxes(-1, -2)).reshape(batch, heads, queries, keys)


def _product(a, b):
    """a · b; NumPy has no fast product of bfloat16."""
    if a.dtype != ml_dtypes.bfloat16:
        return a @ b
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


def soft_capped(scores, softcap):
    if not softcap > 0:  # NaN is no cap, as in onnxruntime
        return scores
    cap = scores.dtype.type(softcap)
    return np.tanh(scores / cap) * cap


def weigh_values(weights, value):
    batch, heads, queries, keys = weights.shape
    value_heads, size = value.shape[1], value.shape[3]
    grouped = weights.reshape(batch, value_heads, heads // value_heads * queries, keys)
    return _product(grouped, value).reshape(batch, heads, queries, size)


def softmax_rows(scores):
    """Softmax along the last axis, where a row of -inf alone yields zeros."""
    with np.errstate(invalid="ignore"):
        peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = scores - np.where(peak == -np.inf, peak.dtype.type(0), peak)
        np.exp(weights, out=weights)
        total = _row_sums(weights)
        return np.divide(weights, np.where(total == 0, total.dtype.type(1), total), out=weights)


def _row_sums(weights):
    """bfloat16 adds runs of 16 in its own precision, as the standard's cases do, but not a whole row: there, 256 + 1 is 256."""
    if weights.dtype != ml_dtypes.bfloat16 or not weights.shape[-1]:
        return weights.sum(axis=-1, keepdims=True)
    runs = np.add.reduceat(weights, np.arange(0, weights.shape[-1], 16), axis=-1)
    return runs.astype(np.float32).sum(axis=-1, keepdims=True).astype(weights.dtype)


def softmax_in_precision(scores, precision):
    """Softmax rounded to the element type of code `precision`, if there is one, returned in the type of the scores."""
    if not precision:
        return softmax_rows(scores)
    dtype = from_code(precision).numpy
    wide = np.promote_types(dtype, np.float32) if dtype.kind == "f" else np.dtype(np.float32)
    with np.errstate(over="ignore"):
        return softmax_rows(scores.astype(dtype).astype(wide)).astype(dtype).astype(scores.dtype)


def _visible(queries, keys, past, lengths, is_causal, left, right):
    """Which keys each query may attend, broadcastable to (batch, heads, queries, keys); None means all of them."""
    key = np.arange(keys)
    if lengths is None:
        offset, allowed = np.array(past), None
    else:
        lengths = np.asarray(lengths).reshape(-1, 1, 1, 1)
        offset, allowed = (lengths - queries if not past else np.array(past)), key < lengths
    if is_causal or left >= 0 or right >= 0:
        position = np.arange(queries)[:, None] + offset
        upper = 0 if is_causal else right
        if upper >= 0:
            allowed = _both(allowed, key <= position + (upper if right < 0 else min(upper, right)))
        if left >= 0:
            allowed = _both(allowed, key >= position - left)
    return allowed


def _both(allowed, condition):
    return condition if allowed is None else allowed & condition


def _apply_mask(scores, allowed, mask, widest, pads):
    """Add a numeric mask to the scores or intersect a boolean one with `allowed`.

    From opset 24 on a mask that is too short is padded with "no"; before, one of length 1 was broadcast.
    """
    length = mask.shape[-1] if mask.ndim else widest
    if length < widest and (pads or length != 1):
        allowed = _both(allowed, np.arange(widest) < length)
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, widest - length)])
    if mask.dtype == bool:
        return scores, _both(allowed, mask)
    mask = mask.astype(scores.dtype, copy=False)
    blocked = mask == -np.inf  # selected instead of added: -inf on top of an infinite or undefined score would be NaN
    if blocked.any():
        mask, allowed = np.where(blocked, mask.dtype.type(0), mask), _both(allowed, ~blocked)
    return scores + mask, allowed


@cpu.kernel("FlexAttention", domain="ai.onnx.preview", widen=True)
def flex_attention(Q, K, V, *, scale=None, softmax_precision=None, score_mod=None, prob_mod=None):
    scores = attention_scores(Q, K, scale)
    if softmax_precision:
        with np.errstate(over="ignore"):
            scores = scores.astype(from_code(softmax_precision).numpy)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    precise = np.float64 if scores.dtype == np.float64 else np.float32
    probabilities = softmax_rows(scores.astype(precise, copy=False)).astype(scores.dtype, copy=False)
    if prob_mod is not None:
        (probabilities,) = prob_mod(probabilities)
    return weigh_values(probabilities.astype(Q.dtype, copy=False), V)


@cpu.kernel("RotaryEmbedding", widen=True)
def rotary_embedding(X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0):
    heads = split_heads(X, num_heads)
    if position_ids is not None:
        _check_positions(position_ids, len(cos_cache))
        cos_cache, sin_cache = cos_cache[position_ids], sin_cache[position_ids]
    rotated = rotate(heads, cos_cache[:, None], sin_cache[:, None], interleaved, rotary_embedding_dim or heads.shape[3])
    return rotated if X.ndim == 4 else merge_heads(rotated)


def _check_positions(position_ids, count):
    if position_ids.size and (position_ids.min() < 0 or position_ids.max() >= count):
        bad = position_ids[(position_ids < 0) | (position_ids >= count)].flat[0]
        raise KernelError(f"position_ids value {bad} is out of range [0, {count})", InvalidArgument)


def rotate(heads, cos, sin, interleaved, width):
    """Turn pairs of the first `width` features by angles given as cos and sin of shape (batch, 1, sequence, width/2)."""
    half = width // 2
    if cos.shape[-1] != half or sin.shape[-1] != half:
        raise KernelError(
            f"cos_cache and sin_cache hold {cos.shape[-1]} and {sin.shape[-1]} values per position, rotary_embedding_dim/2 is {half}",
            InvalidArgument,
        )
    first, second = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, half), slice(half, width))
    real, imaginary = heads[..., first], heads[..., second]
    output = np.array(heads, order="C")
    output[..., first] = cos * real - sin * imaginary
    output[..., second] = sin * real + cos * imaginary
    return output
