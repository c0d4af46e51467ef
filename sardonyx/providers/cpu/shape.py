"""Ops that change or measure a tensor's shape, join and cut it, in NumPy: mostly views. The CPU table calls them.

The other families of data movement take `integers`, `scalar`, `normal_axis` and `bounded` from here.
"""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.shape import slice_end
from sardonyx.providers import memory_limit
from sardonyx.providers.cpu.table import EVERY, FIRST, cpu


def integers(values) -> tuple[int, ...]:
    """The numbers of an attribute's list or of an input's array, whatever its rank."""
    return tuple(int(value) for value in np.asarray(values).ravel().tolist())


def scalar(values, name: str) -> np.ndarray:
    """The only element of an operand, whatever its rank."""
    array = np.asarray(values)
    if array.size != 1:
        raise KernelError(f"{name} must be one number, it has {array.size}", InvalidArgument)
    return array.reshape(())


def whole(values, name: str) -> int:
    """The only number of an operand, as an integer."""
    return int(scalar(values, name))


def normal_axis(axis, rank: int) -> int:
    """`axis` counted from the front."""
    if not -rank <= axis < rank:
        raise KernelError(f"axis {axis} is not in valid range [{-rank},{rank - 1}]")
    return int(axis) % rank


def normal_axes(axes, rank: int) -> tuple[int, ...]:
    """Several axes counted from the front, none of them twice."""
    normal = tuple(normal_axis(axis, rank) for axis in integers(axes))
    if len(set(normal)) != len(normal):
        raise KernelError("'axes' has a duplicate axis", InvalidArgument)
    return normal


def bounded(shape, dtype: np.dtype) -> tuple[int, ...]:
    """`shape`, if there is memory for an array of it."""
    shape = integers(shape)
    if any(size < 0 for size in shape):
        raise KernelError(f"a size is negative in the requested shape {braced(shape)}", InvalidArgument)
    memory_limit.require(math.prod(shape) * np.dtype(dtype).itemsize, f"the requested shape {braced(shape)}")
    return shape


def braced(shape) -> str:
    """A shape as error messages show it: {2,3}."""
    return "{" + ",".join(str(size) for size in shape) + "}"


# --- views and sizes ------------------------------------------------------------------------------------------------


@cpu.kernel("Reshape", alias=FIRST, plain=True)
def reshape(data, shape, allowzero=0):
    requested = integers(shape)
    if requested == (-1,):
        return data.reshape(-1)
    if allowzero and 0 in requested and -1 in requested:
        raise KernelError(f"with allowzero=1 a shape may not hold both 0 and -1, requested shape:{braced(requested)}")
    if not allowzero and 0 in requested[data.ndim :]:
        raise KernelError("The dimension with value zero exceeds the dimension size of the input tensor.")
    wanted = [data.shape[axis] if size == 0 and not allowzero else size for axis, size in enumerate(requested)]
    if wanted.count(-1) > 1 or any(size < -1 for size in wanted):
        raise KernelError(f"At most one dimension can be -1, and no other negative: requested shape:{braced(requested)}")
    if -1 in wanted:
        rest = -math.prod(wanted)
        if rest == 0 or data.size % rest:
            raise _cannot_reshape(data, requested)
        wanted[wanted.index(-1)] = data.size // rest
    if math.prod(wanted) != data.size:
        raise _cannot_reshape(data, requested)
    return data.reshape(wanted)


def _cannot_reshape(data, requested) -> KernelError:
    return KernelError(
        "The input tensor cannot be reshaped to the requested shape. "
        f"Input shape:{braced(data.shape)}, requested shape:{braced(requested)}"
    )


@cpu.kernel("Flatten", alias=FIRST)
def flatten(input, axis):
    if axis != input.ndim:
        axis = normal_axis(axis, input.ndim)
    return input.reshape(math.prod(input.shape[:axis]), math.prod(input.shape[axis:]))


@cpu.kernel("Squeeze", alias=FIRST, plain=True)
def squeeze(data, axes=None):
    if axes is None or len(integers(axes)) == 0:
        return np.squeeze(data)
    normal = {normal_axis(axis, data.ndim) for axis in integers(axes)}
    for axis in normal:
        if data.shape[axis] != 1:
            raise KernelError(f"Dimension of input {axis} must be 1 instead of {data.shape[axis]}. shape={braced(data.shape)}")
    return data.reshape([size for axis, size in enumerate(data.shape) if axis not in normal])


@cpu.kernel("Unsqueeze", alias=FIRST, plain=True)
def unsqueeze(data, axes):
    rank = data.ndim + len(integers(axes))
    added = set(normal_axes(axes, rank))
    sizes = iter(data.shape)
    return data.reshape([1 if axis in added else next(sizes) for axis in range(rank)])


@cpu.kernel("Shape")
def shape_of(data, start=0, end=None):
    return np.array(data.shape[start:end], dtype=np.int64)


@cpu.kernel("Size")
def size_of(data):
    return np.array(data.size, dtype=np.int64)


@cpu.kernel("Expand", view=FIRST)
def expand(input, shape):
    requested = integers(shape)
    try:
        result = np.broadcast_shapes(input.shape, bounded(requested, input.dtype))
    except ValueError:
        raise KernelError(
            f"invalid expand shape: {braced(input.shape)} does not broadcast to {braced(requested)}", InvalidArgument
        ) from None
    return np.broadcast_to(input, bounded(result, input.dtype))


@cpu.kernel("Tile", since=6)
def tile(input, repeats):
    counts = integers(repeats)
    if len(counts) != input.ndim:
        raise KernelError(
            "'repeat' input tensor must have the same length as the 'input' tensor: "
            f"{len(counts)} repeats for shape {braced(input.shape)}",
            InvalidArgument,
        )
    if any(count < 0 for count in counts):
        raise KernelError(f"Tile repeat value must be non-negative, got: {min(counts)}", InvalidArgument)
    if all(count == 1 for count in counts):
        return input
    result = bounded([count * size for count, size in zip(counts, input.shape, strict=True)], input.dtype)
    one_axis_each = input.reshape([part for size in input.shape for part in (1, size)])
    copies = [part for count, size in zip(counts, input.shape, strict=True) for part in (count, size)]
    return np.broadcast_to(one_axis_each, copies).reshape(result)


@cpu.kernel("Tile", until=1)
def tile_one_axis(input, repeats, axis):
    """At first one axis was tiled, both numbers given as tensors of the data's type."""
    counts = [1] * input.ndim
    counts[normal_axis(whole(axis, "axis"), input.ndim)] = whole(repeats, "tiles")
    return tile(input, counts)


# --- joining and cutting --------------------------------------------------------------------------------------------


@cpu.kernel("Concat", plain=True)
def concat(inputs, axis=1):
    first = inputs[0]
    axis = normal_axis(axis, first.ndim)
    for other in inputs[1:]:
        _check_joins(first, other, axis)
    return np.concatenate(inputs, axis=axis)


def _check_joins(first, other, axis: int) -> None:
    if other.ndim != first.ndim:
        raise KernelError(
            f"Ranks of input data are different, cannot concatenate them. expected rank: {first.ndim} got: {other.ndim}",
            InvalidArgument,
        )
    for position, (expected, size) in enumerate(zip(first.shape, other.shape, strict=True)):
        if position != axis and expected != size:
            raise KernelError(
                f"Non concat axis dimensions must match: Axis {position} has mismatched dimensions of {size} and {expected}"
            )


@cpu.kernel("Split", view=EVERY, plain=True)
def split(input, split=None, axis=0, num_outputs=None, *, output_count, domain_version):
    axis = normal_axis(axis, input.ndim)
    size = input.shape[axis]
    if split is not None:
        parts = integers(split)
    else:
        parts = _equal_parts(size, num_outputs or output_count, uneven=domain_version >= 18)
    if len(parts) != output_count or sum(parts) != size or any(part < 0 for part in parts):
        raise KernelError(
            f"Cannot split using values in 'split' attribute. Axis={axis} Input shape={braced(input.shape)} "
            f"NumOutputs={output_count} Num entries in 'split' (must equal number of outputs) was {len(parts)} "
            f"Sum of sizes in 'split' (must equal size of selected axis) was {sum(parts)}"
        )
    return cut(input, parts, axis)


def _equal_parts(size: int, count: int, uneven: bool) -> tuple[int, ...]:
    """`count` parts of a size; if `uneven` is allowed, the last ones are smaller or empty."""
    if size % count and not uneven:
        raise KernelError(f"Input cannot be split evenly on selected axis: {size} elements, {count} outputs")
    part = -(-size // count)
    return tuple(max(0, min(part, size - index * part)) for index in range(count))


def cut(data, parts, axis: int) -> tuple[np.ndarray, ...]:
    """Views of `data`, cut along `axis` into parts of these sizes."""
    before = (slice(None),) * axis
    starts = [sum(parts[:index]) for index in range(len(parts))]
    return tuple(data[(*before, slice(start, start + part))] for start, part in zip(starts, parts, strict=True))


@cpu.kernel("Slice", view=FIRST)
def slice_data(data, starts, ends, axes=None, steps=None):
    starts, ends = integers(starts), integers(ends)
    axes = range(len(starts)) if axes is None else integers(axes)
    steps = [1] * len(starts) if steps is None else integers(steps)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise KernelError(
            f"'starts', 'ends', 'axes' and 'steps' differ in length: {len(starts)}, {len(ends)}, {len(axes)}, {len(steps)}",
            InvalidArgument,
        )
    window = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -data.ndim <= axis < data.ndim:
            raise KernelError(
                f"'axes' has an axis outside of the tensor dimension count: {axis} of {data.ndim}", InvalidArgument
            )
        axis %= data.ndim
        window[axis] = clamped_slice(start, end, step, data.shape[axis])
    return data[tuple(window)]


def clamped_slice(start: int, end: int, step: int, size: int) -> slice:
    """Python's slice for the spec's rules. They differ stepping backward: by `slice_end`, and a start before the front means 0."""
    if step == 0:
        raise KernelError("'step' value cannot be 0", InvalidArgument)
    end = slice_end(end, step)
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = max(min(start, size - 1), 0), min(max(end, -1), size - 1)
    return slice(start, end if end >= 0 else None, step)


# --- padding --------------------------------------------------------------------------------------------------------


@cpu.kernel("Pad", since=11)
def pad(data, pads, constant_value=None, axes=None, mode="constant"):
    pads = integers(pads)
    axes = range(data.ndim) if axes is None else normal_axes(axes, data.ndim)
    if len(pads) != 2 * len(axes):
        raise KernelError(
            f"Pads tensor size should be equal to twice the input dimension count: {len(pads)} values for {len(axes)} axes"
        )
    margins = [(0, 0)] * data.ndim
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        margins[axis] = (before, after)
    bounded([size + before + after for size, (before, after) in zip(data.shape, margins, strict=True)], data.dtype)
    if mode == "constant":
        return surround(data, margins, constant_value)
    if mode not in _SOURCES:
        raise KernelError(f"the mode of padding is one of constant, {', '.join(_SOURCES)}, not {mode!r}")
    return _continue_pattern(data, margins, mode)


@cpu.kernel("Pad", until=2)
def pad_by_attributes(data, mode, value, pads=None, paddings=None):
    """At first the sizes were called `paddings`, and the constant was an attribute."""
    return pad(data, paddings if pads is None else pads, np.asarray(value, dtype=data.dtype), mode=mode)


def surround(data, margins, constant_value=None):
    """Add constant elements around `data`, or take away where a margin is negative; without a constant, zeros."""
    shape = [size + before + after for size, (before, after) in zip(data.shape, margins, strict=True)]
    if constant_value is None:
        constant_value = "" if data.dtype == object else np.zeros((), data.dtype)
    padded = np.empty(shape, data.dtype)
    padded[...] = np.reshape(np.asarray(constant_value, dtype=data.dtype), ())
    source, target = [], []
    for size, (before, after) in zip(data.shape, margins, strict=True):
        first = max(0, -before)
        kept = max(0, size - max(0, -after) - first)
        source.append(slice(first, first + kept))
        target.append(slice(first + before, first + before + kept))
    padded[tuple(target)] = data[tuple(source)]
    return padded


def _continue_pattern(data, margins, mode: str):
    """Pad axis by axis with elements of `data` itself, after negative margins have cut it."""
    shape = data.shape
    ends = [max(0, size + min(0, after)) for size, (_, after) in zip(shape, margins, strict=True)]
    data = data[tuple(slice(max(0, -before), end) for end, (before, _) in zip(ends, margins, strict=True))]
    for axis, (before, after) in enumerate(margins):
        before, after, size = max(0, before), max(0, after), data.shape[axis]
        if before or after:
            if size == 0:
                raise KernelError(f"Cannot use '{mode}' mode to pad dimension with a value of 0. Input shape:{braced(shape)}")
            data = np.take(data, _SOURCES[mode](np.arange(-before, size + after), size), axis=axis)
    return data


def _reflected(positions, size: int):
    """Mirrored at the first and the last element, again and again where the margin is wider than the data."""
    if size == 1:
        return np.zeros_like(positions)
    return size - 1 - np.abs(size - 1 - positions % (2 * size - 2))


_SOURCES = {
    "reflect": _reflected,
    "edge": lambda positions, size: np.clip(positions, 0, size - 1),
    "wrap": lambda positions, size: positions % size,
}
"""Which element of an axis of a given size stands at positions beyond its ends."""


@cpu.kernel("CenterCropPad")
def center_crop_pad(input_data, shape, axes=None):
    shape = integers(shape)
    axes = range(input_data.ndim) if axes is None else normal_axes(axes, input_data.ndim)
    margins = [(0, 0)] * input_data.ndim
    for axis, wanted in zip(axes, shape, strict=True):
        size = input_data.shape[axis]
        before = (wanted - size) // 2 if wanted >= size else -((size - wanted) // 2)
        margins[axis] = (before, wanted - size - before)
    bounded([size + before + after for size, (before, after) in zip(input_data.shape, margins, strict=True)], input_data.dtype)
    if all(before <= 0 and after <= 0 for before, after in margins):
        window = [slice(-before, size + after) for size, (before, after) in zip(input_data.shape, margins, strict=True)]
        return input_data[tuple(window)]
    return surround(input_data, margins)
