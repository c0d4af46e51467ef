"""Type and shape inference of the ops that change or measure a shape, join and cut; sizes that they move stay known.

The driver calls these functions; the other families of data movement take `moved` and `content_sizes` from here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.facts import along_axis, always, exact, with_all_operands
from sardonyx.ops.operand import MAX_KNOWN_ELEMENTS, Known, sizes
from sardonyx.ops.shapes import axis_index, axis_indices, broadcast, fresh_shape, merge_dims, text
from sardonyx.ops.table import infer

INFINITE = 2**31 - 1
"""Bounds of slices from here on mean the end of the axis, however long it is."""
_WITHOUT_END = (2**31 - 1, 2**63 - 1)


def slice_end(end: Any, step: Any) -> Any:
    """The end of a slice. Going backward, the largest integers mean the front, as exporters write and onnxruntime reads them.

    The text of the standard clamps them into the axis, which would leave nothing.
    """
    return -(2**63) if isinstance(step, int) and step < 0 and end in _WITHOUT_END else end


def moved(shape, operand, function):
    """`shape`, and the content that `function` makes of the operand's if that is known and the result is not too large."""
    if operand.value is None or not is_small(shape):
        return shape
    return Known(shape, function(operand.value))


def is_small(shape) -> bool:
    """Whether all sizes are numbers and the content is worth following. NumPy has no array of huge sizes, one of them 0, either."""
    if shape is None or not all(isinstance(size, int) for size in shape):
        return False
    return math.prod(max(size, 1) for size in shape) <= MAX_KNOWN_ELEMENTS


def content_sizes(operand):
    """The sizes that an integer vector holds: its content, or as many fresh ones as it has elements, or None."""
    if operand.value is not None:
        return operand.dims
    length = operand.shape[0] if operand.shape is not None and len(operand.shape) == 1 else None
    return fresh_shape(length) if isinstance(length, int) else None


def element_count(operand) -> int | None:
    """How many elements an operand has, if that is a number."""
    count = None if operand.shape is None else dim.product(operand.shape)
    return count if isinstance(count, int) else None


# --- views and sizes ------------------------------------------------------------------------------------------------


@infer("Reshape", reshapes=True, moves=True)
def reshape(data, shape, allowzero):
    if shape is None:
        raise InferenceError("the attribute shape is missing")
    shape.require_rank(0, 1, name="shape")
    target = shape.dims
    if target is None:
        if element_count(shape) == 1 and data.shape is not None:
            return (dim.product(data.shape),)
        return content_sizes(shape)
    wanted = [_reshaped_size(data, axis, size, allowzero) for axis, size in enumerate(target)]
    result = _with_inferred_size(data.shape, wanted)
    return moved(result, data, lambda value: value.reshape(result))


def _reshaped_size(data, axis, size, allowzero):
    if not isinstance(size, int) or size != 0 or allowzero:
        return size
    if data.shape is None:
        return dim.fresh()
    if axis >= len(data.shape):
        raise InferenceError(f"size {axis} of the requested shape is 0, but data has no axis {axis}")
    return data.shape[axis]


def _with_inferred_size(shape, wanted):
    """The requested shape with -1 replaced by what is left of the elements of `shape`."""
    if wanted.count(-1) > 1 or any(isinstance(size, int) and size < -1 for size in wanted):
        raise InferenceError(f"At most one size can be -1, and none less: {text(wanted)}")
    if shape is None:
        return tuple(dim.fresh() if size == -1 else size for size in wanted)
    if -1 not in wanted:
        elements, requested = dim.product(shape), dim.product(wanted)
        if isinstance(elements, int) and isinstance(requested, int) and elements != requested:
            raise _cannot_reshape(shape, wanted)
        return tuple(wanted)
    left, further = list(shape), []
    for size in wanted:  # equal sizes on both sides cancel out before dividing
        if size in left:
            left.remove(size)
        elif size != -1:
            further.append(size)
    total, rest = dim.product(left), dim.product(further)
    if isinstance(total, int) and isinstance(rest, int) and (rest == 0 or total % rest):
        raise _cannot_reshape(shape, wanted)
    return tuple(dim.floordiv(total, rest) if size == -1 else size for size in wanted)


def _cannot_reshape(shape, wanted) -> InferenceError:
    return InferenceError(
        "The input tensor cannot be reshaped to the requested shape. "
        f"Input shape:{{{','.join(map(str, shape))}}}, requested shape:{{{','.join(map(str, wanted))}}}"
    )


@infer("Flatten", reshapes=True, moves=True)
def flatten(input, axis):
    if input.shape is None:
        return fresh_shape(2)
    if axis != len(input.shape):
        axis = axis_index(axis, len(input.shape))
    result = (dim.product(input.shape[:axis]), dim.product(input.shape[axis:]))
    return moved(result, input, lambda value: value.reshape(result))


@infer("Squeeze", reshapes=True, moves=True, takes_any_data=always)
def squeeze(data, axes):
    result = _squeezed(data.shape, axes)
    return result if result is None else moved(result, data, lambda value: value.reshape(result))


def _squeezed(shape, axes):
    if shape is None:
        return None
    if axes is None or element_count(axes) == 0:
        return tuple(size for size in shape if size != 1) if all(isinstance(size, int) for size in shape) else None
    if axes.ints is None:
        count = element_count(axes)
        return None if count is None else fresh_shape(len(shape) - count)
    dropped = {axis_index(axis, len(shape), "axes") for axis in axes.ints}
    for axis in dropped:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            raise InferenceError(f"Dimension of input {axis} must be 1 instead of {shape[axis]}, data is {text(shape)}")
    return tuple(size for axis, size in enumerate(shape) if axis not in dropped)


@infer("Unsqueeze", reshapes=True, moves=True, takes_any_data=always)
def unsqueeze(data, axes):
    count = element_count(axes)
    if data.shape is None or count is None:
        return None
    if axes.ints is None:
        return fresh_shape(len(data.shape) + count)
    rank = len(data.shape) + count
    added = axis_indices(axes.ints, rank)
    rest = iter(data.shape)
    result = tuple(1 if axis in added else next(rest) for axis in range(rank))
    return moved(result, data, lambda value: value.reshape(result))


@infer("Shape", reads_shapes=True)
def shape_of(data, start, end):
    if data.shape is None:
        return (dim.fresh(),)
    content = sizes(data.shape[start or 0 : end])
    return Known(content.shape, content)


@infer("Size", reads_shapes=True)
def size_of(data):
    return () if data.shape is None else Known((), sizes([dim.product(data.shape)]).reshape(()))


@infer("Expand", moves=True)
def expand(input, shape):
    shape.require_rank(1, name="shape")
    wanted = content_sizes(shape)
    if input.shape is None or wanted is None:
        return None
    if shape.value is None:
        # a size other than 1 that the input has stays, whatever is asked for
        padded = (1,) * (len(wanted) - len(input.shape)) + input.shape
        wanted = (1,) * (len(padded) - len(wanted)) + wanted
        return tuple(size if isinstance(size, int) and size != 1 else want for size, want in zip(padded, wanted, strict=True))
    if any(isinstance(size, int) and size < 0 for size in wanted):
        raise InferenceError(f"shape {text(wanted)} has a negative size")
    result = broadcast(input.shape, wanted)
    return moved(result, input, lambda value: np.broadcast_to(value, result))


@infer("Tile", since=6, moves=True)
def tile(input, repeats):
    counts = content_sizes(repeats)
    if input.shape is None or counts is None:
        return None if counts is None else fresh_shape(len(counts))
    if len(counts) != len(input.shape):
        raise InferenceError(f"repeats has {len(counts)} elements, input has the shape {text(input.shape)}")
    if repeats.value is None:
        return fresh_shape(len(counts))
    if any(isinstance(count, int) and count < 0 for count in counts):
        raise InferenceError(f"repeats {text(counts)} has a negative number")
    result = tuple(size * count for size, count in zip(input.shape, counts, strict=True))
    return moved(result, input, lambda value: np.tile(value, counts))


@infer("Tile", until=1, moves=True)
def tile_one_axis(input, repeats, axis):
    repeats.require_one("repeats")
    axis.require_one("axis")
    if input.shape is None or repeats.item is None or axis.item is None:
        return None if input.shape is None else fresh_shape(len(input.shape))
    tiled = axis_index(int(axis.item), len(input.shape))
    return tuple(size * int(repeats.item) if index == tiled else size for index, size in enumerate(input.shape))


# --- joining and cutting --------------------------------------------------------------------------------------------


@infer("Concat", non_negative=with_all_operands, rows=along_axis, precision=exact)
def concat(inputs, axis):
    result = joined_shape([operand.shape for operand in inputs], 1 if axis is None else axis)
    values = [operand.value for operand in inputs]
    if result is None or not is_small(result) or any(value is None for value in values):
        return result
    return Known(result, np.concatenate(values, axis=1 if axis is None else axis))


def joined_shape(shapes, axis):
    """The shape of tensors put together along an axis that they have."""
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return None
    rank = len(known[0])
    if any(len(shape) != rank for shape in known):
        raise InferenceError("All inputs to Concat must have same rank: " + ", ".join(map(text, known)))
    axis = axis_index(axis, rank)
    result = list(known[0])
    for shape in known[1:]:
        for position in range(rank):
            if position != axis:
                result[position] = merge_dims(result[position], shape[position], f"sizes along axis {position} of the inputs")
    result[axis] = sum(shape[axis] for shape in known) if len(known) == len(shapes) else dim.fresh()
    return tuple(result)


@infer("Split", moves=True, rows=along_axis)
def split(input, split, axis, num_outputs, output_count, domain_version):
    if input.shape is None:
        return [None] * output_count
    if num_outputs is not None and num_outputs != output_count:
        raise InferenceError(f"num_outputs is {num_outputs}, but there are {output_count} outputs")
    axis = axis_index(axis or 0, len(input.shape))
    parts = _part_sizes(input.shape[axis], split, output_count, uneven=domain_version >= 18)
    shapes = [(*input.shape[:axis], part, *input.shape[axis + 1 :]) for part in parts]
    if input.value is None or not all(is_small(shape) for shape in shapes):
        return shapes
    values = np.split(input.value, np.cumsum(parts)[:-1], axis=axis)
    return [Known(shape, value) for shape, value in zip(shapes, values, strict=True)]


def _part_sizes(size, split, count, uneven):
    if split is None:
        return _equal_parts(size, count, uneven)
    if split.value is None:
        return [size] if count == 1 else fresh_shape(count)
    parts = split.dims
    total = sum(parts)
    if len(parts) != count:
        raise InferenceError(f"Mismatch between the number of splits ({len(parts)}) and outputs ({count})")
    if isinstance(total, int) and isinstance(size, int) and total != size:
        raise InferenceError(
            f"Mismatch between the sum of 'split' ({total}) and the split dimension of the input ({size}): split is {text(parts)}"
        )
    return parts


def _equal_parts(size, count, uneven):
    if isinstance(size, int) and size % count and not uneven:
        raise InferenceError(f"The input is not evenly splittable: {size} into {count} outputs")
    if not uneven:
        return [dim.floordiv(size, count)] * count
    part = dim.ceildiv(size, count)
    if count == 2:
        return [part, dim.floordiv(size, 2)]
    return [dim.maximum(0, dim.minimum(part, size - index * part)) for index in range(count)]


@infer("Slice", moves=True)
def slice_data(data, starts, ends, axes, steps):
    if data.shape is None:
        return None
    if element_count(starts) is None:
        return fresh_shape(len(data.shape))
    count = element_count(starts)
    if axes is not None and axes.ints is None:
        return fresh_shape(len(data.shape))
    indexed = axis_indices(range(count) if axes is None else axes.ints, len(data.shape))
    if any(operand is not None and element_count(operand) not in (None, count) for operand in (ends, axes, steps)):
        raise InferenceError("'starts', 'ends', 'axes' and 'steps' differ in length")
    windows = [
        _window(data.shape[axis], _at(starts, index), _at(ends, index), 1 if steps is None else _at(steps, index))
        for index, axis in enumerate(indexed)
    ]
    shape = list(data.shape)
    for axis, (size, _) in zip(indexed, windows, strict=True):
        shape[axis] = size
    result = tuple(shape)
    slices = [slice(None)] * len(shape)
    for axis, (_, taken) in zip(indexed, windows, strict=True):
        slices[axis] = taken
    if None in slices:
        return result
    return moved(result, data, lambda value: value[tuple(slices)])


def _at(operand, index):
    dims = operand.dims
    return None if dims is None else dims[index]


def _window(size, start, end, step):
    """How many elements a slice takes of an axis, and the Python slice itself if all is known."""
    if start is None or end is None or not isinstance(step, int):
        return dim.fresh(), None
    if step == 0:
        raise InferenceError("'step' value cannot be 0")
    end = slice_end(end, step)
    if all(isinstance(number, int) for number in (size, start, end)):
        return _known_window(size, start, end, step)
    return (_forward(size, start, end, step) if step > 0 else _backward(size, start, end, step)), None


def _known_window(size, start, end, step):
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
        return len(range(start, end, step)), slice(start, end, step)
    # stepping backward, a start before the front means the first element
    start, end = max(min(start, size - 1), 0), min(max(end, -1), size - 1)
    taken = slice(start, end if end >= 0 else None, step)
    return len(range(size)[taken]), taken


def _forward(size, start, end, step):
    if start == -size:  # the front, also of an axis of no elements; T5 takes the last rows so
        start = 0
    if isinstance(start, int) and start < 0 and isinstance(end, int) and end >= INFINITE:
        return dim.ceildiv(dim.minimum(size, -start), step)
    first, last = _clamped(size, start), _clamped(size, end)
    if first is None or last is None:
        return dim.fresh()
    return dim.maximum(0, dim.ceildiv(last - first, step))


def _clamped(size, bound):
    """A bound of a slice inside [0, size], None if it is not known on which side it counts."""
    if isinstance(bound, int):
        if bound >= INFINITE:
            return size
        return dim.minimum(bound, size) if bound >= 0 else dim.maximum(0, size + bound)
    return dim.minimum(bound, size) if dim.is_nonnegative(bound) else None


def _backward(size, start, end, step):
    from_end = isinstance(start, int) and (start == -1 or start >= INFINITE)
    to_front = isinstance(end, int) and end <= -INFINITE
    if to_front and not from_end and isinstance(start, int) and start >= 0:
        return dim.ceildiv(dim.minimum(start + 1, size), -step)
    return dim.ceildiv(size, -step) if from_end and to_front else dim.fresh()


# --- padding --------------------------------------------------------------------------------------------------------


@infer("Pad", since=2, precision=exact)
def pad(data, pads, axes):
    if data.shape is None:
        return None
    if axes is not None and axes.ints is None:
        return fresh_shape(len(data.shape))
    padded = axis_indices(range(len(data.shape)) if axes is None else axes.ints, len(data.shape))
    if pads.dims is None:
        return tuple(dim.fresh() if axis in padded else size for axis, size in enumerate(data.shape))
    return _padded(data.shape, padded, pads.dims)


@infer("Pad", until=1, precision=exact)
def pad_by_paddings(data, paddings):
    return None if data.shape is None else _padded(data.shape, list(range(len(data.shape))), paddings)


def _padded(shape, axes, pads):
    if len(pads) != 2 * len(axes):
        raise InferenceError(f"pads has {len(pads)} values for {len(axes)} axes")
    result = list(shape)
    for index, axis in enumerate(axes):
        result[axis] = shape[axis] + pads[index] + pads[index + len(axes)]
    return tuple(result)


@infer("CenterCropPad", precision=exact)
def center_crop_pad(input_data, shape, axes):
    rank = input_data.rank
    if rank is None and axes is None:
        return content_sizes(shape)
    if rank is None:
        return None
    wanted = content_sizes(shape)
    cropped = axis_indices(range(rank) if axes is None else axes, rank)
    if wanted is None:
        wanted = fresh_shape(len(cropped))
    if len(wanted) != len(cropped):
        raise InferenceError(f"shape has {len(wanted)} sizes for {len(cropped)} axes")
    result = list(input_data.shape)
    for axis, size in zip(cropped, wanted, strict=True):
        result[axis] = size
    return tuple(result)
