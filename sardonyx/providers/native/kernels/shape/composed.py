"""Ops that move elements, composed of others that do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Dim, Node, TensorType, Value, dim
from sardonyx.ops.reading import input_named
from sardonyx.providers.native.kernels.shape.blocks import margins_of
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile, element_type


@compose("CenterCropPad")
def center_crop_pad(op: Composer, input_data: Value, shape: Value, axes: Sequence[int] | None) -> Value:
    wanted = known_sizes(shape)
    if wanted is None:
        raise CannotCompile("the sizes of the result depend on data", quiet=True)
    rank, sizes = rank_of(input_data), dims(input_data)
    places = range(rank) if axes is None else [axis % rank for axis in axes]
    kept = list(sizes)
    starts: list[Dim] = [0] * rank
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for axis, target in zip(places, wanted, strict=True):
        size = sizes[axis]
        surplus, missing = dim.maximum(0, size - target), dim.maximum(0, target - size)
        starts[axis], kept[axis] = dim.floordiv(surplus, 2), dim.minimum(size, target)
        before[axis] = dim.floordiv(missing, 2)
        after[axis] = missing - before[axis]
    ends = [start + size for start, size in zip(starts, kept)]
    middle = op.Slice(input_data, op.sizes(*starts), op.sizes(*ends), op.constant(list(range(rank))))
    made: Value = op.Pad(middle, op.sizes(*before, *after))
    return made


@compose("Pad", since=11)
def pad(op: Composer, data: Value, pads: Value, axes: Value | None, mode: str, node: Node) -> Value:
    """Patterns that begin anew in margins wider than the data, axis by axis; and margins that take away more than there is."""
    margins = margins_of(node)
    if margins is None or mode not in ("constant", "reflect", "wrap"):
        raise CannotCompile("how wide the margins are depends on data", quiet=True)
    kept = [
        dim.maximum(0, size + dim.minimum(0, before) + dim.minimum(0, after))
        for size, (before, after) in zip(dims(data), margins)
    ]
    if mode == "constant":
        return _all_margin(op, kept, node)
    starts = [dim.maximum(0, -before) for before, _ in margins]
    ends = [start + size for start, size in zip(starts, kept)]
    made: Value = op.Slice(_as_bytes(op, data), op.sizes(*starts), op.sizes(*ends), op.constant(list(range(rank_of(data)))))
    for axis, (size, (before, after)) in enumerate(zip(kept, margins)):
        before, after = dim.maximum(0, before), dim.maximum(0, after)
        if before == 0 and after == 0:
            continue
        op.require(dim.maximum(size, 1), size)
        made = op.Gather(made, _sources(op, mode, size, before, size + before + after), axis=axis)
    return _of_bytes(op, made, data)


def _all_margin(op: Composer, kept: Sequence[Dim], node: Node) -> Value:
    """What is made of nothing: the constant alone."""
    if 0 not in kept:
        raise CannotCompile("some of the data may be left", quiet=True)
    constant, output = input_named(node, "constant_value"), node.outputs[0]
    if constant is None:
        assert isinstance(output.type, TensorType) and output.type.dtype is not None
        constant = op.constant(np.zeros((), output.type.dtype.numpy))
    return _of_bytes(op, op.Expand(_as_bytes(op, constant), op.sizes(*dims(output))), constant)


def _sources(op: Composer, mode: str, size: Dim, before: Dim, count: Dim) -> Value:
    """Which element of an axis stands at each place of the padded one."""
    places = op.Sub(op.counted(count), op.sizes(before))
    if mode == "wrap":
        return _remainder(op, places, size)
    last = op.sizes(size - 1)
    made: Value = op.Sub(last, op.Abs(op.Sub(last, _remainder(op, places, dim.maximum(1, 2 * size - 2)))))
    return made


def _remainder(op: Composer, numbers: Value, divisor: Dim) -> Value:
    """Never negative, as Python has it."""
    made: Value = op.Mod(numbers, op.constant([divisor]) if isinstance(divisor, int) else op.sizes(divisor))
    return made


@compose("TensorScatter")
def tensor_scatter(op: Composer, past_cache: Value, update: Value, write_indices: Value | None, axis: int, mode: str) -> Value:
    rank = rank_of(past_cache)
    axis %= rank
    if axis == 0 or rank_of(update) != rank:
        raise CannotCompile(f"axis {axis} is that of the batch, or update has not {rank} axes", quiet=True)
    batch, room, length = dims(past_cache)[0], dims(past_cache)[axis], dims(update)[axis]
    op.require_shape(update, [length if number == axis else size for number, size in enumerate(dims(past_cache))])
    if write_indices is not None:
        op.require_shape(write_indices, (batch,))
        count = dim.product(dims(update))
        op.require(dim.maximum(count, 1), count)  # where nothing is put, nobody would look at the indices
    places = op.counted(length)
    first = op.reshape(write_indices if write_indices is not None else op.Expand(op.constant(0), op.sizes(batch)), batch, 1)
    first = op.cast_to(first, dtypes.int64)
    positions = op.Add(first, places)
    end = op.sizes(room)
    if mode == "circular":
        positions = op.Sub(positions, op.Where(op.GreaterOrEqual(positions, end), end, op.constant([0])))
    # a negative index, which would count from behind, is one beyond the last: it is refused as it must be
    positions = op.Where(op.Less(first, op.constant([0])), end, positions)
    shape = [batch, *(length if number == axis else 1 for number in range(1, rank))]
    indices = op.Expand(op.reshape(positions, *shape), op.sizes(*dims(update)))
    scattered = op.ScatterElements(_as_bytes(op, past_cache), indices, _as_bytes(op, update), axis=axis)
    return _of_bytes(op, scattered, past_cache)


MOVED_AS = {
    dtypes.uint2: dtypes.uint8,
    dtypes.uint4: dtypes.uint8,
    dtypes.int2: dtypes.int8,
    dtypes.int4: dtypes.int8,
    dtypes.float4e2m1: dtypes.float32,
}
"""What holds all numbers of a type of fewer bits."""


def _as_bytes(op: Composer, value: Value) -> Value:
    """Small numbers as others that are moved where they are not: those of 8 bits as what they are stored as."""
    type = element_type(value)
    if type in MOVED_AS:
        return op.cast_to(value, MOVED_AS[type])
    made: Value = op.BitCast(value, to=dtypes.uint8.code) if type in dtypes.FLOAT8 else value
    return made


def _of_bytes(op: Composer, value: Value, like: Value) -> Value:
    type = element_type(like)
    if type in MOVED_AS:
        return op.cast_to(value, type)
    made: Value = op.BitCast(value, to=type.code) if type in dtypes.FLOAT8 else value
    return made
