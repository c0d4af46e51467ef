"""LSTM and GRU for training, and their gradients, in generated code: as NumPy has them, for all shapes, directions and absent operands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.native.agreement import assert_agrees

TYPES = {"float": np.float32, "double": np.float64}


def layer_model(op, sizes, direction, type="float", initial=True, bias=True, last=True, every=True, is_open=False):
    """A layer and its gradient in one graph, and what it is fed; with `is_open` nobody knows the steps and the rows before a run."""
    steps, batch, depth, hidden = sizes
    ways, count = (2 if direction == "bidirectional" else 1), (4 if op == "LSTM" else 3)
    rng, shapes = np.random.default_rng(hidden + steps), {}  # type: ignore[var-annotated]
    shapes |= {"x": (steps, batch, depth), "w": (ways, count * hidden, depth), "r": (ways, count * hidden, hidden)}
    shapes |= {"b": (ways, 2 * count * hidden)} if bias else {}
    shapes |= {"h0": (ways, batch, hidden)} if initial else {}
    shapes |= {"c0": (ways, batch, hidden)} if initial and op == "LSTM" else {}
    shapes |= {"dy": (steps, ways, batch, hidden)} if every else {}
    shapes |= {"dh": (ways, batch, hidden)} if last else {}
    shapes |= {"dc": (ways, batch, hidden)} if last and op == "LSTM" else {}
    has = {name: name if name in shapes else "" for name in ("b", "h0", "c0", "dy", "dh", "dc")}
    if op == "LSTM":
        text = (
            f"y, yh, yc, c, g = com.microsoft.LSTMTraining<{{form}}>(x, w, r, {has['b']}, , {has['h0']}, {has['c0']})"
            f" dx, dw, dr, db, d0, e0 = com.microsoft.LSTMGrad<{{form}}>(x, w, r, , {has['h0']}, {has['c0']}, y, c, g,"
            f" {has['dy']}, {has['dh']}, {has['dc']})"
        )
        results = ["y", "yh", "yc", "c", "g", "dx", "dw", "dr", "db", "d0", "e0"]
    else:
        text = (
            f"y, yh, g = com.microsoft.GRUTraining<{{form}}, linear_before_reset = 1>(x, w, r, {has['b']}, , {has['h0']})"
            f" dx, dw, dr, db, d0 = com.microsoft.GRUGrad<{{form}}, linear_before_reset = 1>(x, w, r, {has['b']}, ,"
            f" {has['h0']}, y, g, {has['dy']}, {has['dh']})"
        )
        results = ["y", "yh", "g", "dx", "dw", "dr", "db", "d0"]
    text = text.format(form=f'direction = "{direction}", hidden_size = {hidden}')
    names = {steps: "T", batch: "B"} if is_open else {}
    inputs = ", ".join(
        f"{type}[{','.join(str(names.get(size, size)) for size in shape)}] {name}" for name, shape in shapes.items()
    )
    known = {"y": (steps, ways, batch, hidden), "g": (steps, ways, batch, count * hidden), "yh": (ways, batch, hidden)}
    known |= {"c": known["y"], "db": (ways, 2 * count * hidden)} | dict.fromkeys(("yc", "d0", "e0"), known["yh"])
    known |= {f"d{name}": shapes[name] for name in "xwr"}
    outputs = ", ".join(f"{type}[{','.join(str(names.get(size, size)) for size in known[name])}] {name}" for name in results)
    scale = {"r": hidden**-0.5, "w": depth**-0.5}  # as layers begin, so that sums of products are about 1
    feeds = {name: (rng.uniform(-1, 1, shape) * scale.get(name, 1)).astype(TYPES[type]) for name, shape in shapes.items()}
    return f"g ({inputs}) => ({outputs}) {{ {text} }}", feeds


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_layers_of_any_direction(op, direction, type):
    assert_agrees(*layer_model(op, (5, 3, 4, 21), direction, type))


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 1, 3, 16), (3, 8, 5, 32), (4, 17, 2, 33), (6, 9, 40, 48), (2, 2, 3, 130)])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_layers_of_many_sizes(op, sizes):
    assert_agrees(*layer_model(op, sizes, "forward"))


@pytest.mark.parametrize("absent", [{"initial": False}, {"bias": False}, {"last": False}, {"every": False}])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_operands_may_be_absent(op, absent):
    assert_agrees(*layer_model(op, (4, 5, 6, 7), "bidirectional", **absent))


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_steps_and_rows_may_be_open(op):
    assert_agrees(*layer_model(op, (11, 3, 4, 21), "bidirectional", is_open=True))


@settings(max_examples=8, deadline=None)
@given(op=st.sampled_from(["LSTM", "GRU"]), sizes=st.tuples(*(st.integers(1, most) for most in (6, 20, 9, 40))))
def test_any_size(op, sizes):
    assert_agrees(*layer_model(op, sizes, "bidirectional"))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_a_row_that_is_not_finite_spoils_no_other(op, number):
    source, feeds = layer_model(op, (3, 10, 4, 20), "forward")
    feeds["x"][1, 4], feeds["dy"][0, 0, 9] = number, number
    assert_agrees(source, feeds)
