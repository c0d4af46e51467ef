"""Fused normalizations of com.microsoft and onnxruntime's SimplifiedLayerNormalization, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.normalization import scaled, standardize
from sardonyx.providers.cpu.shape import normal_axis
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@cpu.kernel("SimplifiedLayerNormalization", widen=True)
def simplified_layer_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    normalized, inverse = _divide_by_root_mean_square(X, tuple(range(normal_axis(axis, X.ndim), X.ndim)), epsilon)
    return scaled(normalized, scale), inverse


ROW_BY_ROW = ((0, 0), (1, 0), (0, 3), (1, 3))
"""The result and the sum may be written over input and skip: each row of them depends on the same row of those."""


@contrib("SkipSimplifiedLayerNormalization", widen=True, inplace=ROW_BY_ROW)
def skip_simplified_layer_normalization(input, skip, gamma, bias=None, *, epsilon=1e-12):
    total = _sum(input, skip, bias)
    normalized, inverse = _divide_by_root_mean_square(total, (total.ndim - 1,), epsilon)
    return normalized * gamma, None, inverse, total


@contrib("SkipLayerNormalization", widen=True, inplace=ROW_BY_ROW)
def skip_layer_normalization(input, skip, gamma, beta=None, bias=None, *, epsilon=1e-12):
    total = _sum(input, skip, bias)
    normalized, mean, inverse = standardize(total, (total.ndim - 1,), epsilon)
    output = normalized * gamma
    return output if beta is None else output + beta, mean, inverse, total


def _sum(input, skip, bias):
    total = input + skip
    return total if bias is None else total + bias


def _divide_by_root_mean_square(X, axes, epsilon):
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        count = X.dtype.type(math.prod(X.shape[axis] for axis in axes))
        inverse = 1 / np.sqrt(np.square(X).sum(axis=axes, keepdims=True) / count + X.dtype.type(epsilon))
        return X * inverse, inverse


@contrib("EmbedLayerNormalization", widen=True)
def embed_layer_normalization(
    input_ids,
    segment_ids,
    word_embedding,
    position_embedding,
    segment_embedding,
    gamma,
    beta,
    mask=None,
    position_ids=None,
    *,
    epsilon=1e-12,
    mask_index_type=None,
):
    """`mask_index_type` only tells type inference whether there is a mask_index."""
    batch, length = input_ids.shape
    if position_ids is None:
        position_ids = np.arange(length, dtype=np.int32)[None]
    total = _look_up(word_embedding, input_ids, "input_ids") + _look_up(position_embedding, position_ids, "position_ids")
    if segment_ids is not None and segment_embedding is not None:
        total = total + _look_up(segment_embedding, segment_ids, "segment_ids")
    normalized, *_ = standardize(total, (2,), epsilon)
    if mask is not None and mask.shape != input_ids.shape:
        raise KernelError(f"mask {list(mask.shape)} must have the shape of input_ids, {list(input_ids.shape)}", InvalidArgument)
    lengths = np.zeros(batch, np.int32) if mask is None else (mask == 1).sum(axis=1, dtype=np.int32)
    return normalized * gamma + beta, lengths, total


def _look_up(table, ids, name):
    if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
        bad = ids.min() if ids.min() < 0 else ids.max()
        raise KernelError(f"{name} holds {bad}, the embedding has {len(table)} rows", InvalidArgument)
    return table[ids]
