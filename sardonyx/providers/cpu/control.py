"""Control flow: If, Loop and Scan call the graphs that they are given. The CPU table calls them.

A graph is a callable; the types of its inputs and outputs, if it knows them, are its attributes `input_types` and `output_types`.
"""

from __future__ import annotations

import itertools

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.shape import braced, integers, normal_axis, whole
from sardonyx.providers.cpu.table import cpu


@cpu.kernel("If")
def if_else(cond, then_branch, else_branch):
    return tuple(then_branch() if _is_true(cond) else else_branch())


def _is_true(cond) -> bool:
    if np.size(cond) != 1:
        raise KernelError(f"a condition must have one element, its shape is {braced(np.shape(cond))}", InvalidArgument)
    return bool(np.reshape(cond, ()))


# --- Loop -----------------------------------------------------------------------------------------------------------


@cpu.kernel("Loop")
def loop(body, v_initial, M=None, cond=None, *, output_count, output_types):
    state = list(v_initial)
    count = len(state)
    scans: list[list[np.ndarray]] = [[] for _ in range(output_count - count)]
    going = cond is None or _is_true(cond)
    number_shape, condition_shape = _counter_shapes(body)
    for iteration in itertools.count() if M is None else range(whole(M, "M")):
        if not going:
            break
        outputs = body(np.full(number_shape, iteration, np.int64), np.full(condition_shape, True), *state)
        # the spec ignores it where the input `cond` is left out; onnxruntime does not, and we do as it does
        going = _is_true(outputs[0])
        state = list(outputs[1 : 1 + count])
        for rows, row in zip(scans, outputs[1 + count :], strict=False):
            rows.append(row)
    stacked = [
        _stacked(rows, output_types[count + index], _declared_shape(body, 1 + count + index))
        for index, rows in enumerate(scans)
    ]
    return (*state, *stacked)


def _counter_shapes(body) -> list[tuple[int, ...]]:
    """Shapes of a body's iteration number and condition: scalars, unless it declares vectors of one element."""
    declared = [getattr(type, "shape", None) for type in getattr(body, "input_types", ())[:2]]
    return [(1,) * len(shape or ()) for shape in (*declared, None, None)[:2]]


def _declared_shape(body, output: int) -> tuple[int, ...]:
    """The shape that an output of a body would have, as far as its types tell; what is unknown is 0."""
    types = getattr(body, "output_types", ())
    shape = getattr(types[output], "shape", None) if output < len(types) else None
    return tuple(size if isinstance(size, int) else 0 for size in shape or ())


def _stacked(rows, dtype, declared: tuple[int, ...], axis: int = 0):
    """What a graph gave in all its runs, along a new axis; if it never ran, nothing of the `declared` shape."""
    if not rows:
        axis = normal_axis(axis, len(declared) + 1)
        return np.zeros((*declared[:axis], 0, *declared[axis:]), np.float32 if dtype is None else dtype.numpy)
    _check_same_shape(rows)
    return np.stack(rows, axis=normal_axis(axis, rows[0].ndim + 1))


def _check_same_shape(rows) -> None:
    for row in rows:
        if row.shape != rows[0].shape:
            raise KernelError(
                "the shape of a scan output may not change between iterations, "
                f"expected {braced(rows[0].shape)} but got {braced(row.shape)}"
            )


# --- Scan -----------------------------------------------------------------------------------------------------------


@cpu.kernel("Scan", since=9)
def scan(
    initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
    *,
    output_count,
    output_types,
):
    count = len(initial_state_and_scan_inputs) - num_scan_inputs
    state, inputs = initial_state_and_scan_inputs[:count], initial_state_and_scan_inputs[count:]
    axes = scan_input_axes or [0] * num_scan_inputs
    backward = scan_input_directions or [0] * num_scan_inputs
    steps = [_steps(*each) for each in zip(inputs, axes, backward, strict=True)]
    state, scans = _run_scan(body, state, steps, len(steps[0]), output_count)
    axes = scan_output_axes or [0] * len(scans)
    backward = scan_output_directions or [0] * len(scans)
    # axes and directions may be of more outputs than the node has
    outputs = [
        _stacked(rows[::-1] if reverse else rows, dtype, _declared_shape(body, count + index), axis)
        for index, (rows, dtype, axis, reverse) in enumerate(zip(scans, output_types[count:], axes, backward, strict=False))
    ]
    return (*state, *outputs)


def _steps(tensor, axis: int, backward: int):
    """A view whose first axis is the one to walk along."""
    moved = np.moveaxis(tensor, normal_axis(axis, tensor.ndim), 0)
    return moved[::-1] if backward else moved


def _run_scan(body, state, steps, length: int, output_count: int):
    """Run `body` once per step; the last state, and all that each further output gave."""
    if any(len(step) != length for step in steps):
        lengths = ", ".join(str(len(step)) for step in steps)
        raise KernelError(f"Scan inputs have inconsistent sequence lengths: {lengths}", InvalidArgument)
    scans: list[list[np.ndarray]] = [[] for _ in range(output_count - len(state))]
    for index in range(length):
        outputs = body(*state, *(step[index, ...] for step in steps))
        state = outputs[: len(state)]
        for rows, row in zip(scans, outputs[len(state) :], strict=False):
            rows.append(row)
    return state, scans


@cpu.kernel("Scan", until=8)
def scan_batches(
    initial_state_and_scan_inputs, body, num_scan_inputs, sequence_lens=None, directions=None, *, output_count, output_types
):
    """At first Scan had a batch axis before the axis to walk along, and each batch its own length."""
    count = len(initial_state_and_scan_inputs) - num_scan_inputs
    state, inputs = initial_state_and_scan_inputs[:count], initial_state_and_scan_inputs[count:]
    batches, longest = inputs[0].shape[:2]
    if any(value.shape[:1] != (batches,) for value in state) or any(value.shape[:2] != (batches, longest) for value in inputs):
        shapes = ", ".join(str(list(value.shape)) for value in initial_state_and_scan_inputs)
        raise KernelError(
            f"states and scan inputs must have as many batches, and these as many rows: {shapes}", InvalidArgument
        )
    lengths = [longest] * batches if sequence_lens is None else integers(sequence_lens)
    if any(not 0 <= length <= longest for length in lengths):
        raise KernelError(
            f"Invalid entries in sequence_lens: {list(lengths)}, the longest possible is {longest}", InvalidArgument
        )
    states, scans = [], []
    for batch, length in enumerate(lengths):
        # the part beyond a sequence's length is not walked, in either direction
        steps = [
            _steps(scanned[batch, :length], 0, back)
            for scanned, back in zip(inputs, directions or [0] * num_scan_inputs, strict=True)
        ]
        last, rows = _run_scan(body, [value[batch, ...] for value in state], steps, length, output_count)
        states.append(last)
        scans.append(rows)
    final = [np.stack([last[index] for last in states]) for index in range(count)]
    types = output_types[count:]
    outputs = [
        _padded([rows[index] for rows in scans], longest, dtype, _declared_shape(body, count + index))
        for index, dtype in enumerate(types)
    ]
    return (*final, *outputs)


def _padded(batches, longest: int, dtype, declared: tuple[int, ...]):
    """Rows of several batches as one tensor, zeros after the shorter ones."""
    known = [row for rows in batches for row in rows]
    if not known:
        return np.zeros((len(batches), longest, *declared), np.float32 if dtype is None else dtype.numpy)
    _check_same_shape(known)
    padded = np.zeros((len(batches), longest, *known[0].shape), known[0].dtype)
    for batch, rows in enumerate(batches):
        if rows:
            padded[batch, : len(rows)] = rows
    return padded
