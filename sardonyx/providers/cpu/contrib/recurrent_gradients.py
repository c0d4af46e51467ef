"""LSTM and GRU for training, and their gradients, in NumPy.

The forms for training also return the gates of every step. States, gates and gradients lie in the order of time, whatever the direction;
a row that has ended takes no part.
"""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.activation import sigmoid
from sardonyx.providers.cpu.recurrent import check_operands, project_inputs
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched

contrib, ours = cpu.in_domain("com.microsoft"), cpu.in_domain("sardonyx")


class Passage:
    """One direction's way through time."""

    def __init__(self, steps, reverse, lengths):
        self.order = range(steps - 1, -1, -1) if reverse else range(steps)
        self._before = 1 if reverse else -1
        self._steps = steps
        self._lengths = lengths

    def forward(self):
        return watched(self.order)

    def backward(self):
        return watched(self.order[::-1])

    def alive(self, t, new, old):
        """What is new in the rows that have not ended at time t, and what is old in the others."""
        if self._lengths is None:
            return new
        inside = (t < self._lengths) if 0 <= t < self._steps else np.zeros(self._lengths.shape, bool)
        return np.where(inside[:, np.newaxis], new, old)

    def ended(self, state):
        """A state at the end; that of an empty row is zero."""
        return state if self._lengths is None else np.where((self._lengths > 0)[:, np.newaxis], state, 0)

    def previous(self, t, states, initial):
        """The states before time t."""
        before = t + self._before
        return self.alive(before, states[before], initial) if 0 <= before < self._steps else initial


def _passages(direction, steps, lengths):
    reverses = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in reverses:
        raise KernelError(f"direction must be forward, reverse or bidirectional, not {direction!r}", InvalidArgument)
    return [Passage(steps, reverse, lengths) for reverse in reverses[direction]]


def _check(activations, defaults, clip, input_forget=0, P=None):
    names = [name.lower() for name in activations or ()]
    if names and any(name != defaults[place % len(defaults)] for place, name in enumerate(names)):
        raise KernelError(f"training knows the activations {list(defaults)} alone, not {activations}", InvalidArgument)
    if clip or input_forget or P is not None:
        raise KernelError("training knows neither clip nor input_forget nor peepholes", InvalidArgument)


def _initial(state, number, batch, hidden, dtype):
    return np.zeros((batch, hidden), dtype) if state is None else state[number]


# --- LSTM


@contrib("LSTMTraining")
def lstm_training(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    *,
    activation_alpha=(),
    activation_beta=(),
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
):
    _check(activations, ("sigmoid", "tanh", "tanh"), clip, input_forget, P)
    (steps, batch, _), hidden, dtype = X.shape, R.shape[2], X.dtype
    check_operands(4, X, hidden, direction, 0, W=W, R=R, B=B, initial_h=initial_h, initial_c=initial_c)
    passages = _passages(direction, steps, sequence_lens)
    every, cells = (np.zeros((steps, len(passages), batch, hidden), dtype) for _ in range(2))
    gates = np.zeros((steps, len(passages), batch, 4 * hidden), dtype)
    last, last_cells = (np.zeros((len(passages), batch, hidden), dtype) for _ in range(2))
    for number, passage in enumerate(passages):
        inputs = project_inputs(X, W[number].T) + _bias(B, number, 4 * hidden)
        h, c = (_initial(state, number, batch, hidden, dtype) for state in (initial_h, initial_c))
        for t in passage.forward():
            whole = inputs[t] + h @ R[number].T
            whole[:, : 3 * hidden] = sigmoid(whole[:, : 3 * hidden])
            whole[:, 3 * hidden :] = np.tanh(whole[:, 3 * hidden :])
            i, o, f, cell = np.split(whole, 4, axis=1)
            new_c = f * c + i * cell
            new_h = o * np.tanh(new_c)
            every[t, number], cells[t, number] = passage.alive(t, new_h, 0), passage.alive(t, new_c, 0)
            gates[t, number] = passage.alive(t, whole, 0)
            h, c = passage.alive(t, new_h, h), passage.alive(t, new_c, c)
        last[number], last_cells[number] = passage.ended(h), passage.ended(c)
    return every, last, last_cells, cells, gates


def _bias(B, number, size):
    return 0 if B is None else B[number, :size] + B[number, size:]


@contrib("LSTMGrad")
def lstm_grad(
    X,
    W,
    R,
    SL=None,
    Ht0=None,
    Ct0=None,
    HAll=None,
    CAll=None,
    iofc=None,
    dHAll=None,
    dHFinal=None,
    dCFinal=None,
    *,
    activation_alpha=(),
    activation_beta=(),
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
):
    _check(activations, ("sigmoid", "tanh", "tanh"), clip, input_forget)
    (steps, batch, _), hidden, dtype = X.shape, R.shape[2], X.dtype
    passages = _passages(direction, steps, SL)
    gates, dH0, dC0 = _lstm_steps(passages, R, iofc, CAll, Ct0, dHAll, dHFinal, dCFinal)
    dX, dW, dR = np.zeros_like(X), np.zeros_like(W), np.zeros_like(R)
    dB = np.zeros((len(W), 8 * hidden), dtype)
    for number, passage in enumerate(passages):
        h0 = _initial(Ht0, number, batch, hidden, dtype)
        for t in passage.backward():
            whole = gates[t, number]
            dX[t] += whole @ W[number]
            dW[number] += whole.T @ X[t]
            dR[number] += whole.T @ passage.previous(t, HAll[:, number], h0)
            dB[number] += np.tile(whole.sum(axis=0), 2)
    return dX, dW, dR, dB, dH0, dC0, None


def _lstm_steps(passages, R, iofc, CAll, Ct0, dHAll, dHFinal, dCFinal):
    """The gradients of the gates of all steps before their activations, and of the initial states."""
    gates, (_, _, batch, hidden), dtype = np.zeros_like(iofc), CAll.shape, CAll.dtype
    dH0, dC0 = (np.zeros((len(R), batch, hidden), dtype) for _ in range(2))
    for number, passage in enumerate(passages):
        c0 = _initial(Ct0, number, batch, hidden, dtype)
        dh, dc = (passage.ended(_initial(part, number, batch, hidden, dtype)) for part in (dHFinal, dCFinal))
        for t in passage.backward():
            i, o, f, cell = np.split(iofc[t, number], 4, axis=1)
            dh_t = dh if dHAll is None else dh + dHAll[t, number]
            bent = np.tanh(CAll[t, number])
            dc_t = dc + dh_t * o * (1 - bent * bent)
            before = passage.previous(t, CAll[:, number], c0)
            parts = (dc_t * cell * i * (1 - i), dh_t * bent * o * (1 - o), dc_t * before * f * (1 - f))
            whole = passage.alive(t, np.concatenate([*parts, dc_t * i * (1 - cell * cell)], axis=1), 0)
            gates[t, number] = whole
            dh, dc = passage.alive(t, whole @ R[number], dh), passage.alive(t, dc_t * f, dc)
        dH0[number], dC0[number] = dh, dc
    return gates, dH0, dC0


@ours("LSTMStepsGrad")
def lstm_steps_grad(R, gates, CAll, Ct0=None, dHAll=None, dHFinal=None, dCFinal=None, direction="forward"):
    return _lstm_steps(_passages(direction, len(gates), None), R, gates, CAll, Ct0, dHAll, dHFinal, dCFinal)


# --- GRU


@contrib("GRUTraining")
def gru_training(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=(),
    activation_beta=(),
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    linear_before_reset=0,
):
    _check(activations, ("sigmoid", "tanh"), clip)
    (steps, batch, _), hidden, dtype = X.shape, R.shape[2], X.dtype
    check_operands(3, X, hidden, direction, 0, W=W, R=R, B=B, initial_h=initial_h)
    passages = _passages(direction, steps, sequence_lens)
    every = np.zeros((steps, len(passages), batch, hidden), dtype)
    gates = np.zeros((steps, len(passages), batch, 3 * hidden), dtype)
    last = np.zeros((len(passages), batch, hidden), dtype)
    for number, passage in enumerate(passages):
        input_bias, state_bias = _biases(B, number, 3 * hidden, dtype)
        inputs = project_inputs(X, W[number].T) + input_bias
        h = _initial(initial_h, number, batch, hidden, dtype)
        for t in passage.forward():
            z, r, new = _gru_gates(inputs[t], h, R[number], state_bias, linear_before_reset)
            new_h = (1 - z) * new + z * h
            every[t, number] = passage.alive(t, new_h, 0)
            gates[t, number] = passage.alive(t, np.concatenate([z, r, new], axis=1), 0)
            h = passage.alive(t, new_h, h)
        last[number] = passage.ended(h)
    return every, last, gates


def _biases(B, number, size, dtype):
    """Of the inputs and of the state."""
    if B is None:
        return np.zeros(size, dtype), np.zeros(size, dtype)
    return B[number, :size], B[number, size:]


def _gru_gates(inputs, h, R, bias, linear_before_reset):
    hidden = h.shape[1]
    both = sigmoid(inputs[:, : 2 * hidden] + h @ R[: 2 * hidden].T + bias[: 2 * hidden])
    z, r = both[:, :hidden], both[:, hidden:]
    weights, own = R[2 * hidden :].T, bias[2 * hidden :]
    recurrent = r * (h @ weights + own) if linear_before_reset else (r * h) @ weights + own
    return z, r, np.tanh(inputs[:, 2 * hidden :] + recurrent)


@contrib("GRUGrad")
def gru_grad(
    X,
    W,
    R,
    B=None,
    SL=None,
    H0=None,
    HAll=None,
    ZRH=None,
    dHAll=None,
    dHFinal=None,
    *,
    activation_alpha=(),
    activation_beta=(),
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    linear_before_reset=0,
):
    _check(activations, ("sigmoid", "tanh"), clip)
    (steps, batch, _), hidden, dtype = X.shape, R.shape[2], X.dtype
    dX, dW, dR = np.zeros_like(X), np.zeros_like(W), np.zeros_like(R)
    dB, dH0 = np.zeros((len(W), 6 * hidden), dtype), np.zeros((len(W), batch, hidden), dtype)
    for number, passage in enumerate(_passages(direction, steps, SL)):
        gate_weights, weights = R[number, : 2 * hidden], R[number, 2 * hidden :]
        own = _biases(B, number, 3 * hidden, dtype)[1][2 * hidden :]
        h0 = _initial(H0, number, batch, hidden, dtype)
        dh = passage.ended(_initial(dHFinal, number, batch, hidden, dtype))
        for t in passage.backward():
            z, r, new = np.split(ZRH[t, number], 3, axis=1)
            before = passage.previous(t, HAll[:, number], h0)
            dh_t = passage.alive(t, dh if dHAll is None else dh + dHAll[t, number], 0)
            d_new = dh_t * (1 - z) * (1 - new * new)
            if linear_before_reset:
                dr, d_state = d_new * (before @ weights.T + own), d_new * r
                d_before, d_weights = d_state @ weights, d_state.T @ before
            else:
                back, d_state = d_new @ weights, d_new
                dr, d_before, d_weights = back * before, back * r, d_new.T @ (r * before)
            d_gates = np.concatenate([dh_t * (before - new) * z * (1 - z), dr * r * (1 - r)], axis=1)
            whole = np.concatenate([d_gates, d_new], axis=1)
            dX[t] += whole @ W[number]
            dW[number] += whole.T @ X[t]
            dR[number] += np.concatenate([d_gates.T @ before, d_weights])
            dB[number] += np.concatenate([whole, d_gates, d_state], axis=1).sum(axis=0)
            dh = passage.alive(t, dh_t * z + d_before + d_gates @ gate_weights, dh)
        dH0[number] = dh
    return dX, dW, dR, dB, dH0


@ours("GRUStepsGrad")
def gru_steps_grad(R, gates, HAll, candidates, H0=None, dHAll=None, dHFinal=None, direction="forward"):
    """Of a GRU that resets the product with its state, which is given as `candidates`."""
    (steps, _, batch, hidden), dtype = HAll.shape, HAll.dtype
    by_gates, by_products = np.zeros_like(gates), np.zeros_like(gates)
    dH0 = np.zeros((len(R), batch, hidden), dtype)
    for number, passage in enumerate(_passages(direction, steps, None)):
        h0, dh = (_initial(state, number, batch, hidden, dtype) for state in (H0, dHFinal))
        for t in passage.backward():
            z, r, new = np.split(gates[t, number], 3, axis=1)
            dh_t = dh if dHAll is None else dh + dHAll[t, number]
            d_new = dh_t * (1 - z) * (1 - new * new)
            d_update = dh_t * (passage.previous(t, HAll[:, number], h0) - new) * z * (1 - z)
            both = np.concatenate([d_update, d_new * candidates[t, number] * r * (1 - r)], axis=1)
            by_gates[t, number] = np.concatenate([both, d_new], axis=1)
            by_products[t, number] = np.concatenate([both, d_new * r], axis=1)
            dh = dh_t * z + by_products[t, number] @ R[number]
        dH0[number] = dh
    return by_gates, by_products, dH0
