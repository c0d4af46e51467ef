"""Layers of LSTM and GRU, one direction at a time. torch's gates are i, f, g, o and r, z, n; ours i, o, f, c and z, r, h."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported

LSTM_ORDER, GRU_ORDER = (0, 3, 1, 2), (1, 0, 2)
"""Where our gates are among torch's."""


def _refuse_halves(op, value):
    if op.dtype(value) in dtypes.HALVES:
        raise Unsupported("recurrent layers in half precision")


def _inverse(order):
    return [order.index(place) for place in range(len(order))]


def _reordered(op, value, order, axis):
    """Gates along an axis in another order."""
    width = op.shape(value)[axis]
    if not isinstance(width, int):
        raise Unsupported("a recurrent layer of open width")
    part = width // len(order)
    parts = [op.Slice(value, starts=[place * part], ends=[(place + 1) * part], axes=[axis]) for place in order]
    return op.Concat(*parts, axis=axis)


def _weights(op, w_ih, w_hh, b_ih, b_hh, order):
    """W, R and B of a direction."""
    W, R = (op.Unsqueeze(_reordered(op, weights, order, 0), axes=[0]) for weights in (w_ih, w_hh))
    if b_hh is None:
        return W, R, None
    biases = [_reordered(op, bias, order, 0) for bias in (b_ih, b_hh)]
    return W, R, op.Unsqueeze(op.Concat(*biases, axis=0), axes=[0])


def _with_direction(op, value, axis):
    return None if value is None else op.Unsqueeze(value, axes=[axis])


def _direction(reverse):
    return "reverse" if reverse else "forward"


@aten("lstm.default")
def lstm(op, input, h, c, w_ih, w_hh, b_ih, b_hh, reverse):
    _refuse_halves(op, input)
    W, R, B = _weights(op, w_ih, w_hh, b_ih, b_hh, LSTM_ORDER)
    states = (op.Unsqueeze(state, axes=[0]) for state in (h, c))
    found = op.contrib("LSTMTraining", input, W, R, B, None, *states, outputs=5, direction=_direction(reverse))
    every, last, last_c, cells, gates = (op.Squeeze(value, axes=[axis]) for value, axis in zip(found, (1, 0, 0, 1, 1)))
    return every, last, last_c, cells, gates


@aten("lstm_backward.default")
def lstm_backward(op, d_states, d_h, d_c, input, h, c, w_ih, w_hh, states, cells, gates, reverse):
    """`gates` are as our op gave them, whose order nobody else sees."""
    W, R, _ = _weights(op, w_ih, w_hh, None, None, LSTM_ORDER)
    ends = [_with_direction(op, value, 0) for value in (h, c, d_h, d_c)]
    steps = [_with_direction(op, value, 1) for value in (states, cells, gates, d_states)]
    operands = (input, W, R, None, *ends[:2], *steps, *ends[2:])
    dX, dW, dR, dB, dH, dC = op.contrib("LSTMGrad", *operands, outputs=6, direction=_direction(reverse))
    by_weights = [_reordered(op, op.Squeeze(value, axes=[0]), _inverse(LSTM_ORDER), 0) for value in (dW, dR)]
    bias = op.Slice(op.Squeeze(dB, axes=[0]), starts=[0], ends=[op.shape(w_hh)[0]], axes=[0])
    return dX, op.Squeeze(dH, axes=[0]), op.Squeeze(dC, axes=[0]), *by_weights, _reordered(op, bias, _inverse(LSTM_ORDER), 0)


@aten("gru.default")
def gru(op, input, h, w_ih, w_hh, b_ih, b_hh, reverse):
    _refuse_halves(op, input)
    W, R, B = _weights(op, w_ih, w_hh, b_ih, b_hh, GRU_ORDER)
    form = {"direction": _direction(reverse), "linear_before_reset": 1}
    every, last, gates = op.contrib("GRUTraining", input, W, R, B, None, op.Unsqueeze(h, axes=[0]), outputs=3, **form)
    return op.Squeeze(every, axes=[1]), op.Squeeze(last, axes=[0]), op.Squeeze(gates, axes=[1])


@aten("gru_backward.default")
def gru_backward(op, d_states, d_h, input, h, w_ih, w_hh, b_hh, states, gates, reverse):
    W, R, B = _weights(op, w_ih, w_hh, b_hh, b_hh, GRU_ORDER)  # the input's bias changes no gradient
    form = {"direction": _direction(reverse), "linear_before_reset": 1}
    steps = [_with_direction(op, value, 1) for value in (states, gates, d_states)]
    operands = (input, W, R, B, None, op.Unsqueeze(h, axes=[0]), *steps, _with_direction(op, d_h, 0))
    dX, dW, dR, dB, dH = op.contrib("GRUGrad", *operands, outputs=5, **form)
    by_weights = [_reordered(op, op.Squeeze(value, axes=[0]), _inverse(GRU_ORDER), 0) for value in (dW, dR)]
    width, both = op.shape(w_hh)[0], op.Squeeze(dB, axes=[0])
    halves = [op.Slice(both, starts=[place * width], ends=[(place + 1) * width], axes=[0]) for place in range(2)]
    biases = [_reordered(op, half, _inverse(GRU_ORDER), 0) for half in halves]
    return dX, op.Squeeze(dH, axes=[0]), *by_weights, *biases
