"""Cases of com.microsoft's ops without padding, of which onnxruntime has kernels for GPUs only."""

import itertools
import math

import numpy as np

from sardonyx.dtypes import float16, float32
from tests.ops.cases import case, f32, refuse

CONTRIB = "com.microsoft"
COUNTS = np.array([1, 2, 4], np.int32)
PLACES = [0, 4, 5, 8, 9, 10, 11]
OFFSETS = np.array([*PLACES, 1, 2, 3, 6, 7], np.int32).reshape(3, 4)
EDGES = np.array([0, 1, 3, 7], np.int32)
HALVES = {"types": {"T": {float16, float32}}, "rtol": 2e-2, "atol": 2e-2, "domain": CONTRIB}

case(
    "RemovePadding",
    input=f32(3, 4, 5),
    sequence_token_count=COUNTS,
    **HALVES,
    expect=lambda input: (input.reshape(12, 5)[PLACES], OFFSETS, EDGES, np.array([4], np.int32)),
)
case(
    "RemovePadding",
    input=f32(0, 4, 5),
    sequence_token_count=np.zeros(0, np.int32),
    domain=CONTRIB,
    expect=(np.zeros((0, 5), np.float32), np.zeros((0, 4), np.int32), [0], [0]),
)
refuse("RemovePadding", input=f32(3, 4, 5), sequence_token_count=COUNTS + 1, domain=CONTRIB, match="beyond the length 4")


def restored(input, token_offset):
    whole = np.zeros((12, 5), np.float32)
    whole[PLACES] = input
    return whole.reshape(3, 4, 5)


case("RestorePadding", input=f32(7, 5), token_offset=OFFSETS, **HALVES, expect=restored)


def attended(query, key, value, heads, scale=None, attention_bias=None):
    """Sequence by sequence, as if there were no others."""
    output = np.zeros(value.shape, np.float32)
    for number, (start, end) in enumerate(itertools.pairwise(EDGES)):
        parts = [np.stack(np.split(part[start:end], heads, axis=1)) for part in (query, key, value)]
        scores = parts[0] @ parts[1].transpose(0, 2, 1) * (scale or 1 / math.sqrt(parts[0].shape[2]))
        if attention_bias is not None:
            whole = np.broadcast_to(attention_bias, (3, heads, 4, 4))
            scores = scores + whole[number, :, : end - start, : end - start]
        weights = np.exp(scores)
        output[start:end] = np.concatenate(list(weights / weights.sum(axis=-1, keepdims=True) @ parts[2]), axis=1)
    return output


def projected(input, weights, bias, num_heads, qkv_hidden_sizes=None, scale=None, attention_bias=None):
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    parts = np.split(input @ weights + bias, np.cumsum(sizes)[:2], axis=1)
    return attended(*parts, num_heads, scale, attention_bias)


PACKED = {"token_offset": OFFSETS, "cumulative_sequence_length": EDGES, "num_heads": 2}
common = {"input": f32(7, 5), "weights": f32(5, 24), "bias": f32(24), **PACKED, "expect": projected}
case("PackedAttention", **common, **HALVES)
case("PackedAttention", **common, scale=0.3, attention_bias=f32(1, 2, 4, 4), domain=CONTRIB)
narrow = {**common, "weights": f32(5, 20), "bias": f32(20), "qkv_hidden_sizes": [8, 8, 4]}
case("PackedAttention", **narrow, domain=CONTRIB)
for sizes in ([8, 8, 2**31 - 2], [8, 4, 8], [8, 8, 3]):
    refuse("PackedAttention", **{**narrow, "expect": None, "qkv_hidden_sizes": sizes}, domain=CONTRIB, match="qkv_hidden_sizes")


def separate(query, num_heads, key=None, value=None, bias=None, scale=None, attention_bias=None):
    if query.ndim == 4:
        query, key, value = (query[:, :, part].reshape(7, -1) for part in range(3))
    if bias is not None:
        query, key, value = (part + shift for part, shift in zip((query, key, value), np.split(bias, 3), strict=True))
    return attended(query, key, value, num_heads, scale, attention_bias)


parts = {"query": f32(7, 8), "key": f32(7, 8), "value": f32(7, 8), **PACKED, "expect": separate}
case("PackedMultiHeadAttention", **parts, **HALVES)
case("PackedMultiHeadAttention", **parts, bias=f32(24), attention_bias=f32(3, 1, 4, 4), scale=0.3, domain=CONTRIB)
case("PackedMultiHeadAttention", query=f32(7, 2, 3, 4), **PACKED, bias=f32(24), domain=CONTRIB, expect=separate)
refuse("PackedMultiHeadAttention", query=f32(7, 8), **PACKED, domain=CONTRIB, match="without key and value")
