"""Rotary position embeddings of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32, int64
from sardonyx.errors import InferenceError
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import merge_dims
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

ATTRIBUTES = (
    "interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0, is_packed_batching: int = 0"
)

define(
    "com.microsoft",
    "RotaryEmbedding",
    1,
    f"(input: T, position_ids: M, cos_cache: T, sin_cache: T, *, {ATTRIBUTES}) -> (output: T)",
    T={float32, float16, bfloat16},
    M={int64},
)
define(
    "com.microsoft",
    "MRotaryEmbedding",
    1,
    f"(input: T, position_ids: M, cos_cache: T, sin_cache: T, *, {ATTRIBUTES}, mrope_section: ints, mrope_layout: int = 0)"
    " -> (output: T)",
    T={float32, float16, bfloat16},
    M={int64},
)


@contrib("RotaryEmbedding")
def rotary_embedding(input, position_ids):
    shape = input.require_rank(3, 4, name="input")
    positions = position_ids.require_rank(1, 2, name="position_ids")
    if positions is not None and len(positions) == 1:
        merge_dims(positions[0], 1, "the length of position_ids")
    return shape


@contrib("MRotaryEmbedding")
def m_rotary_embedding(input, position_ids, mrope_section):
    positions = position_ids.require_rank(3, name="position_ids")
    if positions is not None:
        merge_dims(positions[0], 3, "the streams of position_ids")
    if len(mrope_section) != 3 or min(mrope_section) < 0:
        raise InferenceError(f"mrope_section must be three sizes, not {mrope_section}")
    return input.require_rank(3, 4, name="input")
