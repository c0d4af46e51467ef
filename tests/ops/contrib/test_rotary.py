"""Cases of com.microsoft's rotary embeddings, against products of complex numbers."""

import numpy as np

from sardonyx.dtypes import bfloat16, float16, float32
from tests.ops.cases import case, f32, i64, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}


def turned(heads, cos, sin, interleaved, width):
    """Heads (batch, heads, sequence, size) times the complex numbers cos + i·sin of (batch, sequence, width/2)."""
    turning, rest = heads[..., :width], heads[..., width:]
    half = width // 2
    pairs = turning.reshape(*turning.shape[:-1], *((half, 2) if interleaved else (2, half)))
    pairs = pairs if interleaved else pairs.swapaxes(-1, -2)
    product = (pairs[..., 0] + 1j * pairs[..., 1]) * (cos + 1j * sin)[:, None]
    parts = np.stack([product.real, product.imag], axis=-1 if interleaved else -2)
    return np.concatenate([parts.reshape(turning.shape), rest], axis=-1).astype(np.float32)


def rotary(
    input,
    position_ids,
    cos_cache,
    sin_cache,
    interleaved=0,
    num_heads=0,
    rotary_embedding_dim=0,
    mrope_section=None,
    mrope_layout=0,
):
    count = num_heads or input.shape[2] // (2 * cos_cache.shape[1])
    heads = input if input.ndim == 4 else np.stack(np.split(input, count, axis=2), axis=1)
    batch, _, length, size = heads.shape
    if position_ids.ndim == 1:
        position_ids = position_ids + np.tile(np.arange(length), (batch, 1))
    if mrope_section is not None:
        streams = [
            sum(j >= edge for edge in np.cumsum(mrope_section)[:2])
            if not mrope_layout
            else interleaved_stream(j, mrope_section)
            for j in range(cos_cache.shape[1])
        ]
        cos, sin = (
            np.stack([part[position_ids[stream], j] for j, stream in enumerate(streams)], axis=-1)
            for part in (cos_cache, sin_cache)
        )
    else:
        cos, sin = cos_cache[position_ids], sin_cache[position_ids]
    result = turned(heads, cos, sin, interleaved, rotary_embedding_dim or size)
    return result if input.ndim == 4 else np.concatenate(list(result.transpose(1, 0, 2, 3)), axis=2)


def interleaved_stream(j, sections):
    return j % 3 if j < 3 * sections[j % 3] else 0


TABLES = {"cos_cache": f32(10, 4), "sin_cache": f32(10, 4), **BOTH, "expect": rotary}
POSITIONS = i64(2, 3, low=0, high=10)
for interleaved in (0, 1):
    case("RotaryEmbedding", input=f32(2, 3, 16), position_ids=POSITIONS, **TABLES, interleaved=interleaved)
    case("RotaryEmbedding", input=f32(2, 3, 16), position_ids=np.array([4]), **TABLES, interleaved=interleaved)
    case("RotaryEmbedding", input=f32(2, 2, 3, 8), position_ids=POSITIONS, **TABLES, interleaved=interleaved)
    partial = {"num_heads": 2, "rotary_embedding_dim": 8, "interleaved": interleaved}
    case("RotaryEmbedding", input=f32(2, 3, 24), position_ids=POSITIONS, **TABLES, **partial)
    case("RotaryEmbedding", input=f32(2, 2, 3, 12), position_ids=POSITIONS, **TABLES, **partial)
case("RotaryEmbedding", input=f32(2, 3, 16), position_ids=POSITIONS, **TABLES, num_heads=2, scale=3.0, is_packed_batching=1)
case("RotaryEmbedding", input=f32(1, 1, 8), position_ids=np.array([[9]]), **TABLES)
case("RotaryEmbedding", input=f32(1, 1, 8), position_ids=np.array([0]), **TABLES)
case("RotaryEmbedding", input=f32(0, 3, 8), position_ids=i64(0, 3), **{**TABLES, "against_onnxruntime": False})
case(
    "RotaryEmbedding",
    input=f32(2, 3, 16),
    position_ids=POSITIONS,
    **TABLES,
    types={"T": {float16, float32, bfloat16}},
    rtol=2e-2,
    atol=2e-2,
)
ALONE = {"cos_cache": f32(10, 4), "sin_cache": f32(10, 4), "domain": CONTRIB}
refuse("RotaryEmbedding", input=f32(2, 3, 16), position_ids=POSITIONS + 8, **ALONE, match=r"out of range \[0, 10\)")
refuse("RotaryEmbedding", input=f32(2, 3, 16), position_ids=POSITIONS - 9, **ALONE, match=r"out of range \[0, 10\)")
refuse("RotaryEmbedding", input=f32(2, 3, 16), position_ids=np.array([8]), **ALONE, match=r"value 10 is out of range")
refuse("RotaryEmbedding", input=f32(2, 3, 16), position_ids=np.array([1, 2]), **ALONE, match="length of position_ids")
refuse(
    "RotaryEmbedding", input=f32(2, 3, 16), position_ids=POSITIONS, **ALONE, rotary_embedding_dim=8, match="num_heads must be"
)
refuse("RotaryEmbedding", input=f32(2, 3, 16), position_ids=POSITIONS, **ALONE, num_heads=1, match="rotary_embedding_dim/2")
refuse("RotaryEmbedding", input=f32(3, 16), position_ids=POSITIONS, **ALONE, match="rank 3 or 4")

STREAMS = i64(3, 2, 3, low=0, high=10)
WIDE = {"cos_cache": f32(10, 6), "sin_cache": f32(10, 6), "position_ids": STREAMS, **BOTH, "expect": rotary}
for layout in (0, 1):
    for sections in ([2, 2, 2], [4, 1, 1], [3, 2, 1], [6, 0, 0]):
        settings = {"mrope_section": sections, "mrope_layout": layout}
        case("MRotaryEmbedding", input=f32(2, 3, 24), num_heads=2, **WIDE, **settings)
    case("MRotaryEmbedding", input=f32(2, 2, 3, 12), **WIDE, mrope_section=[2, 2, 2], mrope_layout=layout, interleaved=1)
    partial = {"num_heads": 2, "rotary_embedding_dim": 12, "mrope_section": [2, 2, 2], "mrope_layout": layout}
    case("MRotaryEmbedding", input=f32(2, 3, 32), **WIDE, **partial)
case(
    "MRotaryEmbedding",
    input=f32(2, 3, 24),
    num_heads=2,
    **WIDE,
    mrope_section=[2, 2, 2],
    types={"T": {float16, float32, bfloat16}},
    rtol=2e-2,
    atol=2e-2,
)
BAD = {**{name: value for name, value in WIDE.items() if name not in ("expect", "against_onnxruntime")}, "num_heads": 2}
refuse("MRotaryEmbedding", input=f32(2, 3, 24), **BAD, mrope_section=[2, 2, 1], match="do not make up the 6 angles")
refuse("MRotaryEmbedding", input=f32(2, 3, 24), **BAD, mrope_section=[2, 4], match="three sizes")
