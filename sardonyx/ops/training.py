"""Type and shape inference of ai.onnx.preview.training: what is updated or differentiated looks like what went in."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ops.table import in_domain

training = in_domain("ai.onnx.preview.training")


@training("Adagrad", "Momentum")
def update_with_one_state(R, T, inputs):
    """(tensors, gradients, states) to (tensors, states)."""
    _check_numbers(R, T)
    tensors, _, states = _groups(inputs, 3)
    return [operand.type for operand in (*tensors, *states)]


@training("Adam")
def adam(R, T, inputs):
    _check_numbers(R, T)
    tensors, _, averages, squares = _groups(inputs, 4)
    return [operand.type for operand in (*tensors, *averages, *squares)]


def _check_numbers(R, T):
    """The learning rate and the number of updates are scalars."""
    R.require_one("R")
    T.require_one("T")


def _groups(inputs, count):
    if len(inputs) % count:
        raise InferenceError(f"{len(inputs)} tensors cannot be divided into {count} groups")
    size = len(inputs) // count
    return [inputs[k * size : (k + 1) * size] for k in range(count)]


@training("Gradient")
def gradient(Inputs, xs):
    if len(Inputs) < len(xs):
        raise InferenceError(f"xs names {len(xs)} tensors but there are {len(Inputs)} inputs")
    return [operand.type for operand in Inputs[: len(xs)]]
