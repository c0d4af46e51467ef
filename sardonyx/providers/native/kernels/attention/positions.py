"""What attention is told of positions, composed of other ops: biases by distance, and rotations by several positions of a token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.cpu.contrib.position_bias import bucket_of
from sardonyx.providers.cpu.contrib.rotary import streams_of
from sardonyx.providers.native.kernels.attention.packed import CONTRIB, restored, sizes_of
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.values import dims, may_equal, rank_of
from sardonyx.providers.provider import CannotCompile

FARTHEST = 1 << 16
"""Of the distances that have a bucket of their own in a table."""


@compose("RelativePositionBias", domain=CONTRIB)
def relative_position_bias(
    op: Composer, bias_table: Value, query_length: Value, key_length: Value, max_distance: int, is_bidirectional: int
) -> Value:
    """Which bucket a distance has is NumPy's to say, for the last bit of a logarithm decides. Beyond the farthest all are the last."""
    (buckets, heads), lengths = sizes_of(bias_table, 2), [known_sizes(length) for length in (query_length, key_length)]
    if not isinstance(buckets, int) or not 0 < buckets // (4 if is_bidirectional else 2) < max_distance <= FARTHEST:
        raise CannotCompile(f"{buckets} buckets for distances up to {max_distance}", quiet=True)
    if lengths[0] is None or lengths[1] is None:
        raise CannotCompile("how long sequences are depends on data", quiet=True)
    queries, keys = lengths[0][0], lengths[1][0]
    before = bucket_of(-np.arange(max_distance + 1), buckets, max_distance, is_bidirectional)  # type: ignore[no-untyped-call]
    behind = bucket_of(np.arange(max_distance + 1), buckets, max_distance, is_bidirectional)  # type: ignore[no-untyped-call]
    distance = op.Sub(op.counted(keys), op.reshape(op.counted(queries), queries, 1))
    nearest = op.Max(op.Min(distance, op.constant(max_distance)), op.constant(-max_distance))
    bucket = op.Gather(op.constant(np.concatenate([before[:0:-1], behind])), op.Add(nearest, op.constant(max_distance)))
    biases = op.Gather(op.reshape(bias_table, heads, buckets), bucket, axis=1)
    return op.reshape(biases, 1, heads, queries, keys)


@compose("GatedRelativePositionBias", domain=CONTRIB, widen=True)
def gated_relative_position_bias(
    op: Composer,
    query_layer: Value,
    query_bias: Value,
    rel_pos: Value,
    weight: Value,
    bias: Value,
    eco_a: Value,
    token_offset: Value | None,
    num_heads: int,
) -> Value:
    """Two gates computed from each query and head decide how much of the bias it gets."""
    sizes_of(weight, 2)
    op.require_shape(query_bias, sizes_of(query_layer, 3 if token_offset is None else 2)[-1:])
    query = op.Add(query_layer, query_bias)
    query = query if token_offset is None else restored(op, query, token_offset)
    batch, length, hidden = sizes_of(query, 3)
    if num_heads < 1:
        raise CannotCompile("the number of heads is missing", quiet=True)
    size = dim.floordiv(hidden, num_heads)
    op.require(size * num_heads, hidden)
    heads = op.Transpose(op.reshape(query, batch, length, num_heads, size), perm=[0, 2, 1, 3])
    op.require_shape(bias, dims(weight)[1:])
    projected = op.Add(op.MatMul(heads, weight), bias)
    half = dim.floordiv(dims(projected)[3], 2)
    op.require(2 * half, dims(projected)[3])
    op.require_shape(eco_a, (1, num_heads, 1, 1))
    gates = op.Sigmoid(op.ReduceSum(op.reshape(projected, batch, num_heads, length, 2, half), op.constant([4]), keepdims=0))
    update, reset = (op.Gather(gates, op.constant([number]), axis=3) for number in (0, 1))
    share = op.Add(op.Mul(update, op.Sub(op.Mul(reset, eco_a), op.number(1, gates))), op.number(2, gates))
    made: Value = op.Mul(share, rel_pos)
    return made


@compose("MRotaryEmbedding", domain=CONTRIB, widen=True)
def m_rotary_embedding(
    op: Composer,
    input: Value,
    position_ids: Value,
    cos_cache: Value,
    sin_cache: Value,
    interleaved: int,
    num_heads: int,
    rotary_embedding_dim: int,
    mrope_section: Sequence[int],
    mrope_layout: int,
) -> Value:
    """Each angle goes by one of three positions: of time, height and width."""
    width: int = sum(mrope_section)
    if not may_equal(sizes_of(cos_cache, 2)[1], width) or len(mrope_section) != 3 or min(mrope_section) < 0 or width == 0:
        raise CannotCompile(f"the sections {list(mrope_section)} do not make up the angles of a position", quiet=True)
    op.require_shape(cos_cache, (dims(cos_cache)[0], width))
    op.require_shape(sin_cache, dims(cos_cache))
    batch, length = dims(input)[0], dims(input)[1 if rank_of(input) == 3 else 2]
    op.require_shape(position_ids, (3, batch, length))
    stream = op.constant(streams_of(mrope_section, mrope_layout).astype(np.int64))  # type: ignore[no-untyped-call]
    # a negative position, which would count from behind, is one beyond the last: it is refused as it must be
    positions = op.Where(op.Less(position_ids, op.constant(0)), op.constant(2**62), position_ids)
    cos, sin = (_chosen(op, op.Gather(cache, positions), stream, batch, length, width) for cache in (cos_cache, sin_cache))
    turned = {"interleaved": interleaved, "rotary_embedding_dim": rotary_embedding_dim}
    if rank_of(input) == 3 and not num_heads:
        if rotary_embedding_dim:
            raise CannotCompile("the number of heads is missing", quiet=True)
        heads: Dim = dim.maximum(1, dim.floordiv(dims(input)[2], 2 * width))
        op.require(heads * (2 * width), dims(input)[2])
        apart = op.Transpose(op.reshape(input, batch, length, heads, 2 * width), perm=[0, 2, 1, 3])
        merged = op.Transpose(op.RotaryEmbedding(apart, cos, sin, **turned), perm=[0, 2, 1, 3])
        return op.reshape(merged, batch, length, dims(input)[2])
    made: Value = op.RotaryEmbedding(input, cos, sin, num_heads=num_heads, **turned)
    return made


def _chosen(op: Composer, angles: Value, stream: Value, batch: Dim, length: Dim, width: Dim) -> Value:
    """Of the angles by each position those that go by it."""
    parts = [op.reshape(op.Gather(angles, op.constant([number]), axis=0), batch, length, width) for number in range(3)]
    others = op.Where(op.Equal(stream, op.constant(1)), parts[1], parts[2])
    made: Value = op.Where(op.Equal(stream, op.constant(0)), parts[0], others)
    return made
