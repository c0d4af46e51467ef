"""Rotary position embeddings of com.microsoft, in NumPy. GroupQueryAttention takes `angles` from here."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.attention import merge_heads, rotate, split_heads
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")
STREAMS = 3
"""Positions of a token in time, and in the height and width of a picture."""


@contrib("RotaryEmbedding", widen=True)
def rotary_embedding(
    input,
    position_ids,
    cos_cache,
    sin_cache,
    *,
    interleaved=0,
    num_heads=0,
    rotary_embedding_dim=0,
    scale=1.0,
    is_packed_batching=0,
):
    """`scale` is without effect in onnxruntime's kernels too; packed batches differ only in what it would check of their length."""
    heads = _heads_apart(input, cos_cache, num_heads, rotary_embedding_dim)
    if position_ids.ndim == 1:
        if len(position_ids) != 1:
            raise KernelError(f"the length of position_ids is 1 if it is a vector, not {len(position_ids)}", InvalidArgument)
        position_ids = position_ids[:1, None] + np.arange(heads.shape[2])
    cos, sin = angles(position_ids, cos_cache, sin_cache)
    return _rotated_like(input, heads, cos, sin, interleaved, rotary_embedding_dim)


def _heads_apart(input, cos_cache, num_heads, rotary_embedding_dim):
    if input.ndim == 4 or num_heads:
        return split_heads(input, num_heads)
    if rotary_embedding_dim:
        raise KernelError("num_heads must be provided if rotary_embedding_dim is specified", InvalidArgument)
    return split_heads(input, input.shape[2] // (2 * cos_cache.shape[1]) if cos_cache.shape[1] else 0)


def _rotated_like(input, heads, cos, sin, interleaved, rotary_embedding_dim):
    rotated = rotate(heads, cos[:, None], sin[:, None], interleaved, rotary_embedding_dim or heads.shape[3])
    return rotated if input.ndim == 4 else merge_heads(rotated)


def angles(position_ids, cos_cache, sin_cache):
    """Cosines and sines of each position."""
    rows = len(cos_cache)
    if position_ids.size and (position_ids.min() < 0 or position_ids.max() >= rows):
        bad = position_ids[(position_ids < 0) | (position_ids >= rows)].flat[0]
        raise KernelError(f"position_ids value {bad} is out of range [0, {rows})", InvalidArgument)
    return cos_cache[position_ids], sin_cache[position_ids]


@contrib("MRotaryEmbedding", widen=True)
def m_rotary_embedding(
    input,
    position_ids,
    cos_cache,
    sin_cache,
    mrope_section,
    *,
    interleaved=0,
    num_heads=0,
    rotary_embedding_dim=0,
    scale=1.0,
    is_packed_batching=0,
    mrope_layout=0,
):
    heads = _heads_apart(input, cos_cache, num_heads, rotary_embedding_dim)
    width = cos_cache.shape[1]
    if sum(mrope_section) != width:
        raise KernelError(
            f"the sections {list(mrope_section)} do not make up the {width} angles of a position", InvalidArgument
        )
    if len(position_ids) != STREAMS:
        raise KernelError(f"position_ids must have {STREAMS} streams, not {len(position_ids)}", InvalidArgument)
    stream = streams_of(mrope_section, mrope_layout)
    cos, sin = angles(position_ids, cos_cache, sin_cache)
    chosen = [np.moveaxis(part[stream, :, :, np.arange(width)], 0, -1) for part in (cos, sin)]
    return _rotated_like(input, heads, *chosen, interleaved, rotary_embedding_dim)


def streams_of(sections, layout):
    """Which of the streams of positions (time, height, width) each angle goes by."""
    if layout == 0:
        return np.repeat(np.arange(STREAMS), sections)
    stream = np.zeros(sum(sections), np.intp)
    for number in range(1, STREAMS):
        stream[number : sections[number] * STREAMS : STREAMS] = number
    return stream
