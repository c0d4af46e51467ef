"""Cases of com.microsoft's GroupQueryAttention, against a walk over rows, heads and queries."""

import math

import ml_dtypes
import numpy as np
import pytest

from sardonyx import errors
from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.providers.cpu.contrib.grouped_attention import group_query_attention
from tests.ops.cases import array, case, f32, i32, refuse

CONTRIB = "com.microsoft"
HEADS, SHARED, SIZE = 4, 2, 16
SETTINGS = {"num_heads": HEADS, "kv_num_heads": SHARED, "domain": CONTRIB, "against_onnxruntime": True}
ALONE = {**SETTINGS, "against_onnxruntime": False}


def heads_of(tensor, count):
    return np.stack(np.split(tensor, count, axis=2), axis=1)


def turned(heads, cos, sin, interleaved):
    half = cos.shape[-1]
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    product = (heads[..., first] + 1j * heads[..., second]) * (cos + 1j * sin)[:, None]
    result = heads.copy()
    result[..., first], result[..., second] = product.real, product.imag
    return result


def grouped(
    query,
    seqlens_k,
    total_sequence_length,
    key=None,
    value=None,
    past_key=None,
    past_value=None,
    cos_cache=None,
    sin_cache=None,
    attention_bias=None,
    head_sink=None,
    q_norm_weight=None,
    k_norm_weight=None,
    k_scale=None,
    v_scale=None,
    softcap=0.0,
    scale=None,
    local_window_size=-1,
    rotary_interleaved=0,
    smooth_softmax=0,
    causal=1,
    stored=lambda heads, scale: heads,
    real=lambda heads, scale: heads,
):
    """Output and both presents by the definition, one query at a time."""
    if key is None:
        width = query.shape[2] // (HEADS + 2 * SHARED)
        query, key, value = np.split(query, [HEADS * width, (HEADS + SHARED) * width], axis=2)
    query, key, value = heads_of(query, HEADS), heads_of(key, SHARED), heads_of(value, SHARED)
    if q_norm_weight is not None:
        query = query / np.sqrt((query**2).mean(-1, keepdims=True) + 1e-6) * q_norm_weight
        key = key / np.sqrt((key**2).mean(-1, keepdims=True) + 1e-6) * k_norm_weight
    batch, _, queries, size = query.shape
    totals, longest = [int(length) + 1 for length in seqlens_k], int(np.asarray(total_sequence_length).reshape(-1)[0])
    starts = [0 if queries == longest else total - queries for total in totals]
    if cos_cache is not None:
        positions = np.array([[start + i for i in range(queries)] for start in starts])
        query = turned(query, cos_cache[positions], sin_cache[positions], rotary_interleaved)
        key = turned(key, cos_cache[positions], sin_cache[positions], rotary_interleaved)
    key, value = stored(key, k_scale), stored(value, v_scale)
    rows = max(longest, 0 if past_key is None else past_key.shape[2])
    presents = [np.zeros((batch, SHARED, rows, key.shape[3]), key.dtype) for _ in range(2)]
    for present, past, new in zip(presents, (past_key, past_value), (key, value), strict=True):
        for b, start in enumerate(starts):
            if start:
                present[b, :, :start] = past[b, :, :start]
            present[b, :, start : start + queries] = new[b]
    keys, values = real(presents[0], k_scale), real(presents[1], v_scale)
    output = np.zeros((batch, queries, HEADS, size), np.float32)
    for b, h, i in np.ndindex(batch, HEADS, queries):
        position, end = starts[b] + i, totals[b]
        last = min(position + 1, end) if causal else end
        first = max(0, position + 1 - local_window_size) if local_window_size >= 0 else 0
        group = h // (HEADS // SHARED)
        row = keys[b, group, first:last] @ query[b, h, i] * (scale or 1 / math.sqrt(size))
        if softcap:
            row = softcap * np.tanh(row / softcap)
        if attention_bias is not None:
            row = row + np.broadcast_to(attention_bias, (batch, HEADS, queries, longest))[b, h, i, first:last]
        weights = np.exp(row)
        extra = np.exp(head_sink[h]) if head_sink is not None else 1 if smooth_softmax == 1 else 0
        output[b, i, h] = weights / (weights.sum() + extra) @ values[b, group, first:last]
    return output.reshape(batch, queries, HEADS * size), *presents


PROMPT = {"query": f32(2, 4, HEADS * SIZE), "key": f32(2, 4, SHARED * SIZE), "value": f32(2, 4, SHARED * SIZE)}
STEP = {"query": f32(2, 1, HEADS * SIZE), "key": f32(2, 1, SHARED * SIZE), "value": f32(2, 1, SHARED * SIZE)}
PAST = {"past_key": f32(2, SHARED, 5, SIZE), "past_value": f32(2, SHARED, 5, SIZE)}
BUFFER = {"past_key": f32(2, SHARED, 9, SIZE), "past_value": f32(2, SHARED, 9, SIZE)}
WHOLE = {"seqlens_k": np.array([3, 3], np.int32), "total_sequence_length": np.array([4], np.int32)}
PADDED = {"seqlens_k": np.array([3, 1], np.int32), "total_sequence_length": np.array([4], np.int32)}
NEXT = {"seqlens_k": np.array([5, 5], np.int32), "total_sequence_length": np.array([6], np.int32)}
RAGGED = {"seqlens_k": np.array([5, 2], np.int32), "total_sequence_length": np.array([6], np.int32)}
CHUNK = {
    "query": f32(1, 3, HEADS * SIZE),
    "key": f32(1, 3, SHARED * SIZE),
    "value": f32(1, 3, SHARED * SIZE),
    "past_key": f32(1, SHARED, 5, SIZE),
    "past_value": f32(1, SHARED, 5, SIZE),
    "seqlens_k": np.array([7], np.int32),
    "total_sequence_length": np.array([8], np.int32),
}
SITUATIONS = (
    {**PROMPT, **WHOLE},
    {**PROMPT, **PADDED},
    {**PROMPT, **PADDED, **BUFFER},
    {**STEP, **PAST, **NEXT},
    {**STEP, **PAST, **RAGGED},
    {**STEP, **BUFFER, **RAGGED},
    CHUNK,
)
TABLES = {"cos_cache": f32(10, SIZE // 2), "sin_cache": f32(10, SIZE // 2), "do_rotary": 1}
for situation in SITUATIONS:
    common = {**situation, **SETTINGS, "expect": grouped}
    batch, queries = situation["query"].shape[:2]
    total = int(situation["total_sequence_length"][0])
    case("GroupQueryAttention", **common)
    case("GroupQueryAttention", **common, **TABLES)
    case("GroupQueryAttention", **common, **TABLES, rotary_interleaved=1)
    # what comes out for padding is of no use to anybody, and differs
    settings = ALONE if situation["seqlens_k"].min() + 1 < queries else {}
    case("GroupQueryAttention", **{**common, **settings}, scale=0.5, softcap=1.5, local_window_size=2)
    case("GroupQueryAttention", **common, smooth_softmax=1)
    case("GroupQueryAttention", **common, head_sink=f32(HEADS))
    case("GroupQueryAttention", **common, attention_bias=f32(1, 1, queries, total), softcap=2.0)
    case("GroupQueryAttention", **common, attention_bias=f32(batch, HEADS, queries, total))
    case("GroupQueryAttention", **{**common, **ALONE}, q_norm_weight=f32(SIZE), k_norm_weight=f32(SIZE), **TABLES)
case("GroupQueryAttention", **PROMPT, **PADDED, **SETTINGS, causal=0, expect=grouped)
case("GroupQueryAttention", query=f32(2, 4, (HEADS + 2 * SHARED) * SIZE), **PADDED, **SETTINGS, **TABLES, expect=grouped)
for mode in (1, 2):
    for situation in ({**PROMPT, **WHOLE}, {**STEP, **PAST, **NEXT}):
        case("GroupQueryAttention", **situation, **SETTINGS, qk_output=mode, local_window_size=3, outputs=4)
ANYWHERE = {**TABLES, "position_ids": np.array([[2], [7]])}
case("GroupQueryAttention", **STEP, **PAST, **RAGGED, **SETTINGS, **ANYWHERE, outputs=3)
case(
    "GroupQueryAttention",
    **PROMPT,
    **WHOLE,
    **SETTINGS,
    **TABLES,
    position_ids=np.array([[2, 3, 4, 5], [7, 8, 9, 10]]),
    outputs=3,
)
case(
    "GroupQueryAttention",
    **PROMPT,
    **WHOLE,
    **ALONE,
    types={"T": {float16, float32, bfloat16}},
    expect=grouped,
    rtol=2e-2,
    atol=2e-2,
)
HALF = {name: value.astype(np.float16) for name, value in {**STEP, **PAST, **TABLES}.items() if name != "do_rotary"}
case("GroupQueryAttention", **HALF, do_rotary=1, **RAGGED, **SETTINGS, expect=grouped, rtol=1e-2, atol=1e-2)
one = {"query": f32(1, 1, HEADS * SIZE), "key": f32(1, 1, SHARED * SIZE), "value": f32(1, 1, SHARED * SIZE)}
case(
    "GroupQueryAttention",
    **one,
    seqlens_k=np.array([0], np.int32),
    total_sequence_length=np.array([1], np.int32),
    **SETTINGS,
    expect=grouped,
)
none = {"query": f32(0, 4, HEADS * SIZE), "key": f32(0, 4, SHARED * SIZE), "value": f32(0, 4, SHARED * SIZE)}
case("GroupQueryAttention", **none, seqlens_k=i32(0), total_sequence_length=np.array([4], np.int32), **ALONE, expect=grouped)
case(
    "GroupQueryAttention",
    **PROMPT,
    seqlens_k=np.array([3, 3], np.int32),
    total_sequence_length=np.array(4, np.int32),
    **SETTINGS,
    expect=grouped,
)

# --- quantized caches


def by_channel(scale, heads):
    return scale if scale.size == 1 else scale.reshape(SHARED, 1, heads.shape[3])


def as_int8(heads, scale):
    return np.clip(np.rint(heads / by_channel(scale, heads)), -128, 127).astype(np.int8)


def from_int8(heads, scale):
    return heads.astype(np.float32) * by_channel(scale, heads)


def as_int4(heads, scale):
    whole = np.clip(np.rint(heads / by_channel(scale, heads)), -8, 7).astype(np.int32) + 8
    return (whole[..., ::2] + 16 * whole[..., 1::2]).astype(np.uint8)


def from_int4(packed, scale):
    heads = np.zeros((*packed.shape[:-1], 2 * packed.shape[-1]), np.float32)
    heads[..., ::2], heads[..., 1::2] = packed % 16, packed // 16
    return (heads - 8) * by_channel(scale, heads)


def as_float8(heads, scale):
    return (heads / by_channel(scale, heads)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def quantized(stored, real):
    def expect(query, key, value, past_key, past_value, seqlens_k, total_sequence_length, k_scale, v_scale):
        return grouped(
            query,
            seqlens_k,
            total_sequence_length,
            key,
            value,
            past_key,
            past_value,
            k_scale=k_scale,
            v_scale=v_scale,
            stored=stored,
            real=real,
        )

    return expect


CHANNELS = f32(1, SHARED, 1, SIZE, low=0.01, high=0.03)
for scale, kind in ((np.array([0.02], np.float32), "PER_TENSOR"), (CHANNELS, "PER_CHANNEL")):
    kinds = {"k_quant_type": kind, "v_quant_type": kind}
    for capacity in (5, 9):
        bytes_ = {name: array(np.int8, 2, SHARED, capacity, SIZE, low=-128, high=128) for name in ("past_key", "past_value")}
        common = {**STEP, **RAGGED, **SETTINGS, **kinds}
        settings = {"k_scale": scale, "v_scale": scale, "kv_cache_bit_width": 8, "expect": quantized(as_int8, from_int8)}
        case("GroupQueryAttention", **common, **bytes_, **settings)
        bytes_ = {name: array(np.uint8, 2, SHARED, capacity, SIZE // 2, low=0, high=256) for name in ("past_key", "past_value")}
        wide = {"k_scale": 10 * scale, "v_scale": 10 * scale, "kv_cache_bit_width": 4}
        case("GroupQueryAttention", **common, **bytes_, **wide, expect=quantized(as_int4, from_int4))
    floats = {name: array(ml_dtypes.float8_e4m3fn, 2, SHARED, 5, SIZE) for name in ("past_key", "past_value")}
    settings = {"k_scale": scale, "v_scale": scale, "expect": quantized(as_float8, from_int8)}
    case("GroupQueryAttention", **STEP, **RAGGED, **ALONE, **kinds, **floats, **settings)

# --- a cache no longer than the window


@pytest.mark.parametrize(("capacity", "window"), [(5, 3), (5, 5), (6, 1), (4, 2)])
@pytest.mark.parametrize("steps", [(1,) * 12, (3, 1, 4, 2, 2), (9, 3), (2, 10)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_sliding_cache_gives_what_a_whole_one_gives(capacity, window, steps, biased):
    rng = np.random.default_rng(7)
    heads = {"num_heads": HEADS, "kv_num_heads": SHARED, "local_window_size": window}
    sliding = [np.full((1, SHARED, capacity, SIZE), np.nan, np.float32) for _ in range(2)]
    whole = [np.zeros((1, SHARED, sum(steps), SIZE), np.float32) for _ in range(2)]
    total = 0
    for step in steps:
        tensors = [rng.normal(size=(1, step, count * SIZE)).astype(np.float32) for count in (HEADS, SHARED, SHARED)]
        total += step
        lengths = np.array([total - 1], np.int32), np.array([total], np.int32)
        bias = rng.normal(size=(1, HEADS, step, total)).astype(np.float32) if biased else None
        expected, *whole, scores = group_query_attention(*tensors, *whole, *lengths, attention_bias=bias, qk_output=1, **heads)
        settings = {**heads, "sliding_window_cache": 1, "qk_output": 1, "attention_bias": bias}
        output, *sliding, moved = group_query_attention(*tensors, *sliding, *lengths, **settings)
        np.testing.assert_allclose(output, expected, atol=1e-5)
        np.testing.assert_allclose(moved, scores, atol=1e-5)
        held = (
            total
            if total <= capacity
            else total - (capacity - window + 1) * math.ceil((total - capacity) / (capacity - window + 1))
        )
        for part, cache in zip(sliding, whole, strict=True):
            np.testing.assert_array_equal(part[:, :, :held], cache[:, :, total - held : total])


SLIDING = {"local_window_size": 3, "sliding_window_cache": 1}
full = {"past_key": f32(1, SHARED, 5, SIZE), "past_value": f32(1, SHARED, 5, SIZE)}
for before, queries in ((7, 1), (2, 3), (4, 4)):
    tensors = {
        "query": f32(1, queries, HEADS * SIZE),
        "key": f32(1, queries, SHARED * SIZE),
        "value": f32(1, queries, SHARED * SIZE),
    }
    lengths = {
        "seqlens_k": np.array([before + queries - 1], np.int32),
        "total_sequence_length": np.array([before + queries], np.int32),
    }
    case("GroupQueryAttention", **tensors, **full, **lengths, **SETTINGS, **SLIDING, outputs=3)

# --- what is refused

refuse(
    "GroupQueryAttention",
    **PROMPT,
    **WHOLE,
    num_heads=4,
    kv_num_heads=3,
    domain=CONTRIB,
    match="not a multiple of kv_num_heads",
)
refuse(
    "GroupQueryAttention", **PROMPT, **WHOLE, num_heads=5, kv_num_heads=1, domain=CONTRIB, match="not a multiple of its 5 heads"
)
BAD = {"num_heads": HEADS, "kv_num_heads": SHARED, "domain": CONTRIB}
refuse(
    "GroupQueryAttention",
    **STEP,
    **PAST,
    seqlens_k=np.array([6, 5], np.int32),
    total_sequence_length=np.array([6], np.int32),
    **BAD,
    match="does not go with",
)
refuse("GroupQueryAttention", **STEP, **NEXT, **BAD, match="5 tokens came before, the cache has 0 rows")
refuse("GroupQueryAttention", **STEP, **PAST, **NEXT, **BAD, k_quant_type="PER_TENSOR", match="and their scales")
refuse(
    "GroupQueryAttention", **STEP, **PAST, **NEXT, **BAD, kv_cache_bit_width=2**40, match="kv_cache_bit_width must be 4 or 8"
)
refuse("GroupQueryAttention", **STEP, **PAST, **NEXT, **BAD, sliding_window_cache=1, match="local_window_size rows")


def test_layers_may_share_a_cache_without_new_keys():
    tensors = [f32(2, 1, HEADS * SIZE), f32(2, 0, SHARED * SIZE), f32(2, 0, SHARED * SIZE)]
    cache = [f32(2, SHARED, 6, SIZE), f32(2, SHARED, 6, SIZE)]
    output, *presents, _ = group_query_attention(*tensors, *cache, *NEXT.values(), num_heads=HEADS, kv_num_heads=SHARED)
    last = [part[:, :, 5:].transpose(0, 2, 1, 3).reshape(2, 1, SHARED * SIZE) for part in cache]
    shorter = [part[:, :, :5] for part in cache]
    expected, *_ = group_query_attention(tensors[0], *last, *shorter, *NEXT.values(), num_heads=HEADS, kv_num_heads=SHARED)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    np.testing.assert_array_equal(presents[0], cache[0])


def test_positions_beyond_the_tables_are_refused():
    with pytest.raises(errors.KernelError, match="out of range"):
        group_query_attention(
            **STEP, **PAST, **NEXT, cos_cache=f32(3, 8), sin_cache=f32(3, 8), num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1
        )
