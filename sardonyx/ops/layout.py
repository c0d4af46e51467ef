"""Type and shape inference of the ops that put elements in another order. The driver calls these functions."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.facts import always, by_entry, exact, in_order
from sardonyx.ops.shape import moved
from sardonyx.ops.shapes import fresh_shape, text
from sardonyx.ops.table import infer


@infer("Trilu", precision=exact)
def trilu(input, k):
    if k is not None:
        k.require_one("k")
    return input.shape


@infer("ReverseSequence", moves=True)
def reverse_sequence(input, sequence_lens, batch_axis, time_axis):
    sequence_lens.require_rank(1, name="sequence_lens")
    if input.rank is not None and input.rank < 2:
        raise InferenceError(f"input must have an axis of batch and one of time, its rank is {input.rank}")
    if {batch_axis, time_axis} != {0, 1}:
        raise InferenceError(f"batch_axis and time_axis must be 0 and 1, not {batch_axis} and {time_axis}")
    return input.shape


@infer("Transpose", moves=True, takes_any_data=always, rows=in_order)
def transpose(data, perm):
    if perm is not None and sorted(perm) != list(range(len(perm))):
        raise InferenceError(f"perm {perm} does not name each axis once")
    if data.shape is None:
        return None if perm is None else fresh_shape(len(perm))
    order = list(range(len(data.shape)))[::-1] if perm is None else perm
    if len(order) != len(data.shape):
        raise InferenceError(f"perm {perm} does not align with the rank of data, {text(data.shape)}")
    return moved(tuple(data.shape[axis] for axis in order), data, lambda value: np.transpose(value, order))


@infer("DepthToSpace", moves=True, has_layout=True, rows=by_entry)
def depth_to_space(input, blocksize):
    shape = _four_sizes(input, blocksize)
    if shape is None:
        return fresh_shape(4)
    batch, depth, height, width = shape
    return (batch, _divided(depth, blocksize**2, "depth"), height * blocksize, width * blocksize)


@infer("SpaceToDepth", moves=True, has_layout=True, rows=by_entry)
def space_to_depth(input, blocksize):
    shape = _four_sizes(input, blocksize)
    if shape is None:
        return fresh_shape(4)
    batch, channels, height, width = shape
    rows, columns = _divided(height, blocksize, "height"), _divided(width, blocksize, "width")
    return (batch, channels * blocksize**2, rows, columns)


def _four_sizes(input, blocksize):
    if blocksize < 1:
        raise InferenceError(f"blocksize must be positive, it is {blocksize}")
    return input.require_rank(4)


def _divided(size, by, name):
    if isinstance(size, int) and size % by:
        raise InferenceError(f"the {name} {size} is no multiple of {by}")
    return dim.floordiv(size, by)
