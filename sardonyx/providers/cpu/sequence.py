"""Sequences are Python lists and an empty optional is None; the ops on them, in NumPy. The CPU table calls them."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.shape import braced, cut, integers, normal_axis, whole
from sardonyx.providers.cpu.table import OVER_ANY, cpu


@cpu.kernel("SequenceConstruct", alias=OVER_ANY, plain=True)
def sequence_construct(inputs):
    return list(inputs)


@cpu.kernel("SequenceEmpty")
def sequence_empty(dtype=None):
    return []


@cpu.kernel("SequenceAt")
def sequence_at(input_sequence, position):
    return input_sequence[_index(position, len(input_sequence), len(input_sequence))]


@cpu.kernel("SequenceInsert")
def sequence_insert(input_sequence, tensor, position=None):
    size = len(input_sequence)
    index = size if position is None else _index(position, size, size + 1)
    return [*input_sequence[:index], tensor, *input_sequence[index:]]


@cpu.kernel("SequenceErase")
def sequence_erase(input_sequence, position=None):
    size = len(input_sequence)
    index = _index(-1 if position is None else position, size, size)
    return input_sequence[:index] + input_sequence[index + 1 :]


def _index(position, size: int, end: int) -> int:
    """`position` counted from the front of a sequence of `size`; it must be below `end`."""
    index = whole(position, "position")
    if not -size <= index < end:
        raise KernelError(f"Invalid sequence index ({index}) specified for sequence of size ({size})", InvalidArgument)
    return index + size if index < 0 else index


@cpu.kernel("SequenceLength")
def sequence_length(input_sequence):
    return np.array(len(input_sequence), dtype=np.int64)


@cpu.kernel("ConcatFromSequence")
def concat_from_sequence(input_sequence, axis, new_axis=0):
    if not input_sequence:
        raise KernelError("Got an empty sequence, there is nothing to concatenate", InvalidArgument)
    axis = normal_axis(axis, input_sequence[0].ndim + (1 if new_axis else 0))
    try:
        return np.stack(input_sequence, axis=axis) if new_axis else np.concatenate(input_sequence, axis=axis)
    except ValueError:
        shapes = ", ".join(braced(tensor.shape) for tensor in input_sequence)
        raise KernelError(f"the tensors do not join along axis {axis}, their shapes are {shapes}", InvalidArgument) from None


@cpu.kernel("SplitToSequence")
def split_to_sequence(input, split=None, axis=0, keepdims=1):
    axis = normal_axis(axis, input.ndim)
    size = input.shape[axis]
    if split is None:
        parts = cut(input, [1] * size, axis)
        return list(parts) if keepdims else [np.squeeze(part, axis) for part in parts]
    if split.ndim == 0:
        length = int(split)
        if length <= 0:
            raise KernelError(
                f"Invalid value in 'split' input. All values must be greater than 0, it is {length}", InvalidArgument
            )
        sizes = [min(length, size - start) for start in range(0, size, length)]
    else:
        sizes = integers(split)
        if sum(sizes) != size or any(part < 0 for part in sizes):
            raise KernelError(f"split_size_sum ({sum(sizes)}) != split_dim_size ({size})", InvalidArgument)
    return list(cut(input, sizes, axis))


@cpu.kernel("SequenceMap")
def sequence_map(input_sequence, additional_inputs, body, *, output_count):
    rows = []
    for index, element in enumerate(input_sequence):
        others = [other[index] if isinstance(other, list) else other for other in additional_inputs]
        rows.append(body(element, *others))
    return tuple([row[output] for row in rows] for output in range(output_count))


@cpu.kernel("Optional")
def optional(input=None, type=None):
    return input


@cpu.kernel("OptionalGetElement")
def optional_get_element(input):
    if input is None:
        raise KernelError(
            "Trying to use OptionalGetElement on an optional type OrtValue which contains no data", InvalidArgument
        )
    return input


@cpu.kernel("OptionalHasElement")
def optional_has_element(input=None):
    return np.array(input is not None)
