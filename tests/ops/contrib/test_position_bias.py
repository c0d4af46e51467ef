"""Cases of com.microsoft's biases by position, of which onnxruntime has kernels for GPUs only."""

import math

import numpy as np

from sardonyx.dtypes import float16, float32
from tests.ops.cases import case, f32

CONTRIB = "com.microsoft"


def bucket(distance, buckets, max_distance, is_bidirectional):
    start = 0
    if is_bidirectional:
        buckets //= 2
        start = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    near = buckets // 2
    if distance < near:
        return start + distance
    far = near + int(math.log(distance / near) / math.log(max_distance / near) * (buckets - near))
    return start + min(far, buckets - 1)


def relative(bias_table, query_length, key_length, max_distance, is_bidirectional=0):
    buckets, heads = bias_table.shape
    by_head = bias_table.reshape(-1)
    output = np.zeros((1, heads, query_length.item(), key_length.item()), np.float32)
    for _, head, query, key in np.ndindex(output.shape):
        place = bucket(key - query, buckets, max_distance, is_bidirectional)
        output[0, head, query, key] = by_head[head * buckets + place]
    return output


for is_bidirectional in (0, 1):
    settings = {"is_bidirectional": is_bidirectional, "domain": CONTRIB, "expect": relative}
    lengths = {"query_length": np.array([7]), "key_length": np.array([7])}
    case("RelativePositionBias", bias_table=f32(8, 3), **lengths, max_distance=20, **settings)
    case(
        "RelativePositionBias",
        bias_table=f32(32, 2),
        query_length=np.array(1),
        key_length=np.array(40),
        max_distance=128,
        **settings,
    )
    case(
        "RelativePositionBias",
        bias_table=f32(32, 2),
        query_length=np.array([40]),
        key_length=np.array([3]),
        max_distance=30,
        **settings,
    )
    case(
        "RelativePositionBias",
        bias_table=f32(8, 3),
        query_length=np.array([0]),
        key_length=np.array([3]),
        max_distance=20,
        **settings,
    )
case(
    "RelativePositionBias",
    bias_table=f32(8, 3),
    query_length=np.array([5]),
    key_length=np.array([5]),
    max_distance=20,
    types={"T": {float16, float32}},
    domain=CONTRIB,
    expect=relative,
)


def gated(query_layer, query_bias, rel_pos, weight, bias, eco_a, num_heads, token_offset=None):
    query = query_layer + query_bias
    if token_offset is not None:
        whole = np.zeros((token_offset.size, query.shape[1]), np.float32)
        whole[token_offset.reshape(-1)[: len(query)]] = query
        query = whole.reshape(*token_offset.shape, -1)
    batch, length, _ = query.shape
    output = np.zeros((batch, num_heads, length, length), np.float32)
    for b, h, i in np.ndindex(batch, num_heads, length):
        row = np.split(query[b, i], num_heads)[h] @ weight + bias
        update, reset = (1 / (1 + np.exp(-part.sum())) for part in np.split(row, 2))
        output[b, h, i] = (update * (reset * eco_a[0, h, 0, 0] - 1) + 2) * rel_pos[0, h, i]
    return output


GATES = {
    "query_bias": f32(8),
    "rel_pos": f32(1, 2, 3, 3),
    "weight": f32(4, 6),
    "bias": f32(6),
    "eco_a": f32(1, 2, 1, 1),
    "num_heads": 2,
}
case("GatedRelativePositionBias", query_layer=f32(2, 3, 8), **GATES, domain=CONTRIB, expect=gated)
case(
    "GatedRelativePositionBias",
    query_layer=f32(1, 3, 8),
    **GATES,
    types={"T": {float16, float32}},
    domain=CONTRIB,
    expect=gated,
    rtol=2e-2,
    atol=2e-2,
)
OFFSETS = np.array([[0, 1, 3], [4, 5, 2]], np.int32)
case("GatedRelativePositionBias", query_layer=f32(5, 8), token_offset=OFFSETS, **GATES, domain=CONTRIB, expect=gated)
