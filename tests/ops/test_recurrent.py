"""Cases of RNN, GRU and LSTM, against cells that go row by row and step by step."""

import math

import numpy as np
import pytest

from sardonyx.dtypes import FLOATS
from sardonyx.providers.cpu.recurrent import lstm, rnn
from tests.ops.cases import case, f32, i32, refuse


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def clipped(function, clip):
    """A bound that is no positive number is none."""
    return function if clip is None or not clip > 0 else lambda x: function(np.clip(x, -clip, clip))


def lengths_of(X, sequence_lens):
    return [X.shape[0]] * X.shape[1] if sequence_lens is None else sequence_lens.tolist()


def walk(cell, X, hidden, direction, sequence_lens, initial):
    """Y and the final states: `cell(number, x, *states)` gives the next states of one row, the output first."""
    steps, batch, _ = X.shape
    reverses = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    Y = np.zeros((steps, len(reverses), batch, hidden))
    final = np.zeros((len(initial), len(reverses), batch, hidden))
    for number, reverse in enumerate(reverses):
        for row, length in enumerate(lengths_of(X, sequence_lens)):
            states = [np.zeros(hidden) if state is None else state[number, row] for state in initial]
            order = range(length)[::-1] if reverse else range(length)
            for t in order:
                states = cell(number, X[t, row].astype(np.float64), *states)
                Y[t, number, row] = states[0]
            if length:
                final[:, number, row] = states
    return Y, *final


def plain_rnn(X, W, R, B=None, sequence_lens=None, initial_h=None, direction="forward", clip=None, f=np.tanh):
    hidden, f = R.shape[2], clipped(f, clip)
    B = np.zeros((len(W), 2 * hidden)) if B is None else B

    def cell(d, x, h):
        return (f(W[d] @ x + R[d] @ h + B[d, :hidden] + B[d, hidden:]),)

    return walk(cell, X, hidden, direction, sequence_lens, [initial_h])


def plain_gru(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    direction="forward",
    clip=None,
    linear_before_reset=0,
    f=sigmoid,
    g=np.tanh,
):
    hidden, f, g = R.shape[2], clipped(f, clip), clipped(g, clip)
    B = np.zeros((len(W), 6 * hidden)) if B is None else B

    def cell(d, x, h):
        (wz, wr, wh), (rz, rr, rh) = np.split(W[d], 3), np.split(R[d], 3)
        bz, br, bh, cz, cr, ch = np.split(B[d], 6)
        z, r = f(wz @ x + rz @ h + bz + cz), f(wr @ x + rr @ h + br + cr)
        inner = r * (rh @ h + ch) if linear_before_reset else rh @ (r * h) + ch
        return ((1 - z) * g(wh @ x + inner + bh) + z * h,)

    return walk(cell, X, hidden, direction, sequence_lens, [initial_h])


def plain_lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    direction="forward",
    clip=None,
    input_forget=0,
    f=sigmoid,
    g=np.tanh,
    h_function=np.tanh,
):
    hidden, f, g = R.shape[2], clipped(f, clip), clipped(g, clip)
    B = np.zeros((len(W), 8 * hidden)) if B is None else B
    P = np.zeros((len(W), 3 * hidden)) if P is None else P

    def cell(d, x, h, c):
        i, o, forget, cell_input = np.split(W[d] @ x + R[d] @ h + B[d, : 4 * hidden] + B[d, 4 * hidden :], 4)
        peep_i, peep_o, peep_f = np.split(P[d], 3)
        i = f(i + peep_i * c)
        kept = 1 - i if input_forget else f(forget + peep_f * c)
        c = kept * c + i * g(cell_input)
        return f(o + peep_o * c) * h_function(c), c

    return walk(cell, X, hidden, direction, sequence_lens, [initial_h, initial_c])


STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 2
LENGTHS = i32(BATCH, low=1, high=STEPS + 1)
LAYERS = (("RNN", plain_rnn, 1), ("GRU", plain_gru, 3), ("LSTM", plain_lstm, 4))


def weights(gates, directions=1):
    return {"W": f32(directions, gates * HIDDEN, INPUT), "R": f32(directions, gates * HIDDEN, HIDDEN), "hidden_size": HIDDEN}


def states(op, directions=1):
    found = {"initial_h": f32(directions, BATCH, HIDDEN)}
    return found | {"initial_c": f32(directions, BATCH, HIDDEN)} if op == "LSTM" else found


X = f32(STEPS, BATCH, INPUT)
for op, plain, gates in LAYERS:
    case(op, X=X, **weights(gates), types={"T": FLOATS}, atol=2e-2, expect=plain)
    for direction in ("forward", "reverse", "bidirectional"):
        directions = 2 if direction == "bidirectional" else 1
        layer = {**weights(gates, directions), "direction": direction, "B": f32(directions, 2 * gates * HIDDEN)}
        case(op, X=X, **layer, expect=plain)
        case(op, X=X, **layer, sequence_lens=LENGTHS, **states(op, directions), expect=plain)
        case(op, X=X, **layer, sequence_lens=np.array([5, 5, 5], np.int32), expect=plain)
        case(op, X=X, **layer, sequence_lens=np.array([2, 0, 4], np.int32), **states(op, directions), expect=plain)
        case(op, X=X, **layer, clip=0.5, expect=plain)
        case(op, X=X, **layer, clip=math.nan, expect=plain)
    case(op, X=f32(0, BATCH, INPUT), **weights(gates), expect=plain)
    case(op, X=f32(STEPS, 0, INPUT), **weights(gates), expect=plain)
    case(op, X=f32(1, 1, INPUT), **weights(gates), expect=plain)
    refuse(op, X=X, **weights(gates), direction="sideways", match="direction must be")
    refuse(op, X=X, **weights(gates), sequence_lens=np.array([1, 6, 2], np.int32), match="Invalid value/s in sequence_lens")
    refuse(op, X=f32(5, 4), **weights(gates), match="X must have rank 3")
    refuse(op, X=X, **weights(gates), activations=["Sinus", "Tanh", "Tanh"], match="unknown activation function .Sinus")

case("GRU", X=X, **weights(3), B=f32(1, 6 * HIDDEN), linear_before_reset=1, expect=plain_gru)
case("GRU", X=X, **weights(3), linear_before_reset=1, **states("GRU"), expect=plain_gru)
case("LSTM", X=X, **weights(4), input_forget=1, expect=plain_lstm)
case("LSTM", X=X, **weights(4), P=f32(1, 3 * HIDDEN), **states("LSTM"), expect=plain_lstm)
case("LSTM", X=X, **weights(4), P=f32(1, 3 * HIDDEN), input_forget=1, clip=1.0, expect=plain_lstm)
both = {"direction": "bidirectional", "P": f32(2, 3 * HIDDEN), "sequence_lens": LENGTHS}
case("LSTM", X=X, **weights(4, 2), **both, expect=plain_lstm)
refuse("LSTM", X=X, **weights(4), activations=["Tanh"], match="3 activations are needed, 1 are given")
for op, _, gates in LAYERS:
    for size in (-1, 1, HIDDEN + 1, 2**40):
        refuse(op, X=X, **{**weights(gates), "hidden_size": size}, match="hidden_size|must have shape")


# the old versions say only whether there is a Y; we always have one
for op, plain, gates in LAYERS:
    case(op, X=X, **weights(gates), output_sequence=1, expect=plain)


def swapped(plain):
    """The same with the batch in front, inside and outside."""

    def batchwise(X, initial_h=None, **others):
        start = {} if initial_h is None else {"initial_h": initial_h.swapaxes(0, 1)}
        Y, *final = plain(X.swapaxes(0, 1), **start, **others)
        return Y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in final)

    return batchwise


batch_first = f32(BATCH, STEPS, INPUT)
h = f32(BATCH, 1, HIDDEN)
case(
    "RNN",
    X=batch_first,
    **weights(1),
    layout=1,
    initial_h=h,
    expect=lambda X, W, R, initial_h: swapped(plain_rnn)(X, initial_h, W=W, R=R),
)
case(
    "GRU",
    X=batch_first,
    **weights(3),
    layout=1,
    initial_h=h,
    expect=lambda X, W, R, initial_h: swapped(plain_gru)(X, initial_h, W=W, R=R),
)
case("LSTM", X=batch_first, **weights(4), layout=1, expect=lambda X, W, R: swapped(plain_lstm)(X, W=W, R=R))


# --- activations -----------------------------------------------------------------------------------------------------

ACTIVATIONS = (  # name, alpha, beta, formula
    ("Relu", None, None, lambda x: max(x, 0)),
    ("Tanh", None, None, math.tanh),
    ("Sigmoid", None, None, lambda x: 1 / (1 + math.exp(-x))),
    ("Affine", 0.5, 0.25, lambda x: 0.5 * x + 0.25),
    ("LeakyRelu", None, None, lambda x: x if x >= 0 else 0.01 * x),
    ("LeakyRelu", 0.5, None, lambda x: x if x >= 0 else 0.5 * x),
    ("ThresholdedRelu", None, None, lambda x: x if x >= 1 else 0),
    ("ThresholdedRelu", 0.5, None, lambda x: x if x >= 0.5 else 0),
    ("ScaledTanh", 0.5, 0.25, lambda x: 0.5 * math.tanh(0.25 * x)),
    ("HardSigmoid", None, None, lambda x: min(max(0.2 * x + 0.5, 0), 1)),
    ("HardSigmoid", 0.5, 0.25, lambda x: min(max(0.5 * x + 0.25, 0), 1)),
    ("Elu", None, None, lambda x: x if x >= 0 else math.expm1(x)),
    ("Elu", 0.5, None, lambda x: x if x >= 0 else 0.5 * math.expm1(x)),
    ("Softsign", None, None, lambda x: x / (1 + abs(x))),
    ("Softplus", None, None, lambda x: math.log1p(math.exp(x))),
)
for name, alpha, beta, formula in ACTIVATIONS:
    parameters = {} if alpha is None else {"activation_alpha": [alpha]}
    parameters |= {} if beta is None else {"activation_beta": [beta]}
    function = np.vectorize(formula, otypes=[np.float64])
    case(
        "RNN",
        X=f32(STEPS, BATCH, INPUT, low=-1, high=1),
        **weights(1),
        activations=[name],
        **parameters,
        expect=lambda X, W, R, f=function: plain_rnn(X, W, R, f=f),
    )


def leaky(alpha):
    return lambda x: np.where(x >= 0, x, alpha * x)


case(
    "LSTM",
    X=X,
    **weights(4),
    activations=["HardSigmoid", "LeakyRelu", "leakyrelu"],
    activation_alpha=[0.25, 0.5, 0.125],
    activation_beta=[0.75],
    expect=lambda X, W, R: plain_lstm(
        X, W, R, f=lambda x: np.clip(0.25 * x + 0.75, 0, 1), g=leaky(0.5), h_function=leaky(0.125)
    ),
)
case(
    "GRU",
    X=X,
    **weights(3),
    activations=["Tanh", "LeakyRelu"],
    activation_alpha=[0.5],
    expect=lambda X, W, R: plain_gru(X, W, R, f=np.tanh, g=leaky(0.5)),
)

for linear in (0, 1):  # h and the candidate are far apart: their difference is no float
    case(
        "GRU",
        X=np.ones((1, 1, 1), np.float32),
        W=np.array([[[0], [0], [2e38]]], np.float32),
        R=np.zeros((1, 3, 1), np.float32),
        initial_h=np.full((1, 1, 1), -3e38, np.float32),
        activations=["Sigmoid", "Relu"],
        linear_before_reset=linear,
        expect=(np.full((1, 1, 1, 1), -0.5e38, np.float32), np.full((1, 1, 1), -0.5e38, np.float32)),
    )


def test_the_clip_of_an_lstm_leaves_the_cell_state_alone():
    """As in onnxruntime: gates are bounded, what the last activation is given is not."""
    bias = np.array([[9, 9, 9, 9, 0, 0, 0, 0]], np.float32)
    zeros = np.zeros((1, 4, 1), np.float32)
    start = np.full((1, 1, 1), 2, np.float32)
    _, h, c = lstm(np.zeros((1, 1, 1), np.float32), zeros, zeros, bias, initial_c=start, clip=0.5)
    gate = 1 / (1 + math.exp(-0.5))
    np.testing.assert_allclose(c, 2 * gate + gate * math.tanh(0.5), rtol=1e-6)
    np.testing.assert_allclose(h, gate * np.tanh(c), rtol=1e-6)


@pytest.mark.parametrize("value", [1e4, -1e4])
def test_saturated_cells_do_not_warn(value):
    wide = np.full((1, 1, 1), value, np.float32)
    Y, _ = rnn(wide, wide, np.zeros((1, 1, 1), np.float32), activations=["Sigmoid"])
    assert Y.item() == (1.0 if value * value > 0 else 0.0)
