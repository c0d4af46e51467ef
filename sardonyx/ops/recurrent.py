"""Type and shape inference of recurrent layers; `contrib/recurrent.py` uses `recurrent_shapes` too."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.shapes import fresh_shape, merge_dims
from sardonyx.ops.table import infer


@infer("RNN", "GRU")
def rnn(X, R, direction, hidden_size, layout):
    return recurrent_shapes(X, _hidden_size(R, hidden_size), direction, layout)[:2]


@infer("LSTM")
def lstm(X, R, direction, hidden_size, layout):
    return recurrent_shapes(X, _hidden_size(R, hidden_size), direction, layout)


def _hidden_size(R, declared):
    weights = R.require_rank(3, name="R")
    found = dim.fresh() if weights is None else weights[2]
    return merge_dims(found, declared, "hidden_size and R") if declared else found


def recurrent_shapes(X, hidden, direction, layout):
    """Shapes of Y, Y_h and Y_c."""
    if direction not in ("forward", "foward", "reverse", "bidirectional"):  # GRU of opset 1 misspells its default
        raise InferenceError(f"direction must be forward, reverse or bidirectional, not {direction!r}")
    directions = 2 if direction == "bidirectional" else 1
    first, second, _ = X.require_rank(3, name="X") or fresh_shape(3)
    if layout:
        return [(first, second, directions, hidden), (first, directions, hidden), (first, directions, hidden)]
    return [(first, directions, second, hidden), (directions, second, hidden), (directions, second, hidden)]
