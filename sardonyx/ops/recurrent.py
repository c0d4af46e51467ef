"""Type and shape inference of recurrent layers; `contrib/recurrent.py` uses it too, and kernels check shapes of runs by it."""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.errors import InferenceError
from sardonyx.ir import Shape, dim
from sardonyx.ops.shapes import fresh_shape, merge_dims, require_positive
from sardonyx.ops.table import infer


@infer("RNN")
def rnn(X, W, R, B, sequence_lens, initial_h, direction, hidden_size, layout):
    operands = {"W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    return recurrent_shapes(X, hidden_size_of(R, 2, hidden_size), direction, layout, 1, operands)[:2]


@infer("GRU")
def gru(X, W, R, B, sequence_lens, initial_h, direction, hidden_size, layout):
    operands = {"W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    return recurrent_shapes(X, hidden_size_of(R, 2, hidden_size), direction, layout, 3, operands)[:2]


@infer("LSTM")
def lstm(X, W, R, B, sequence_lens, initial_h, initial_c, P, direction, hidden_size, layout):
    operands = {"W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h, "initial_c": initial_c, "P": P}
    return recurrent_shapes(X, hidden_size_of(R, 2, hidden_size), direction, layout, 4, operands)


def hidden_size_of(R, axis, declared):
    """The size of the state, along an axis of R and as an attribute."""
    require_positive(hidden_size=declared or None)
    weights = R.require_rank(3, name="R")
    size = dim.fresh() if weights is None else weights[axis]
    return merge_dims(size, declared, "hidden_size and R") if declared else size


def recurrent_shapes(X, hidden, direction, layout, gates, operands):
    """Shapes of Y, Y_h and Y_c; refuses operands of other shapes than a layer of so many gates has."""
    first, second, inputs = X.require_rank(3, name="X") or fresh_shape(3)
    batch, directions = first if layout else second, directions_of(direction)
    wanted = operand_shapes(gates, directions, batch, inputs, hidden, layout)
    shapes = {name: operand.shape for name, operand in operands.items() if operand is not None and operand.shape is not None}
    misfit = find_misfit(wanted, shapes)
    if misfit is not None:
        raise InferenceError(misfit)
    batch = _told_batch(batch, shapes, layout)
    state = operand_shapes(gates, directions, batch, inputs, hidden, layout)["initial_h"]
    return [(batch, second, *state[1:]) if layout else (first, directions, batch, hidden), state, state]


def _told_batch(batch, shapes, layout):
    """The size of the batch. Where X leaves it open, a state or the lengths may have a number: any other is an error of the run."""
    for name, axis in (("sequence_lens", 0), ("initial_h", 0 if layout else 1), ("initial_c", 0 if layout else 1)):
        if name in shapes:
            batch = merge_dims(batch, shapes[name][axis], "the batch") if isinstance(shapes[name][axis], int) else batch
    return batch


def directions_of(direction) -> int:
    if direction not in ("forward", "foward", "reverse", "bidirectional"):  # GRU of opset 1 misspells its default
        raise InferenceError(f"direction must be forward, reverse or bidirectional, not {direction!r}")
    return 2 if direction == "bidirectional" else 1


def operand_shapes(gates, directions, batch, inputs, hidden, layout) -> dict[str, Shape]:
    """The shapes of all operands but X, by their names."""
    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    return {
        "W": (directions, gates * hidden, inputs),
        "R": (directions, gates * hidden, hidden),
        "B": (directions, 2 * gates * hidden),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
        "P": (directions, 3 * hidden),
    }


def find_misfit(wanted: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> str | None:
    """What is wrong with the first operand of another shape, in the words of onnxruntime; None if all fit."""
    for name, shape in shapes.items():
        sizes = zip(shape, wanted[name])
        if len(shape) != len(wanted[name]) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes):
            return f"Input {name} must have shape {_braced(wanted[name])}. Actual:{_braced(shape)}"
    return None


def _braced(shape: Shape) -> str:
    return "{" + ",".join(map(str, shape)) + "}"
