"""LSTM, GRU and RNN in NumPy: one product for the inputs of all time steps, then a loop over the steps.

`contrib/recurrent.py` runs `lstm_step` on quantized weights.
"""

from __future__ import annotations

import functools

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.recurrent import find_misfit, operand_shapes
from sardonyx.providers.cpu.activation import elu, hard_sigmoid, leaky_relu, relu, sigmoid, softplus, softsign
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched


@cpu.kernel("RNN", widen=True)
def rnn(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=(),
    activation_beta=(),
    activations=("Tanh", "Tanh"),
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
    output_sequence=0,
):
    hidden = hidden_size or R.shape[2]
    check_operands(1, X, hidden, direction, layout, W=W, R=R, B=B, initial_h=initial_h)
    functions = activation_functions(activations, activation_alpha, activation_beta, ("Tanh",), direction, clip)

    def layer(X, number):
        (f,), weights = functions[number], R[number].T
        inputs = project_inputs(X, W[number].T)
        if B is not None:
            inputs += B[number, :hidden] + B[number, hidden:]
        return inputs, lambda projected, h: (f(projected + h @ weights),)

    Y, final = run_layers(X, layer, direction, layout, sequence_lens, [initial_h], hidden)
    return Y, *final


@cpu.kernel("GRU", widen=True)
def gru(
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
    layout=0,
    linear_before_reset=0,
    output_sequence=0,
):
    hidden = hidden_size or R.shape[2]
    check_operands(3, X, hidden, direction, layout, W=W, R=R, B=B, initial_h=initial_h)
    functions = activation_functions(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh"), direction, clip)

    def layer(X, number):
        (f, g), weights = functions[number], R[number].T
        gate_weights, hidden_weights = weights[:, : 2 * hidden], weights[:, 2 * hidden :]
        inputs = project_inputs(X, W[number].T)
        reset_bias = 0
        if B is not None:
            recurrent_bias = B[number, 3 * hidden :].copy()
            if linear_before_reset:
                reset_bias = recurrent_bias[2 * hidden :].copy()
                recurrent_bias[2 * hidden :] = 0
            inputs += B[number, : 3 * hidden] + recurrent_bias

        def step(projected, h):
            gates = f(projected[:, : 2 * hidden] + h @ gate_weights)
            update, reset = gates[:, :hidden], gates[:, hidden:]
            if linear_before_reset:
                candidate = reset * (h @ hidden_weights + reset_bias)
            else:
                candidate = (reset * h) @ hidden_weights
            candidate = g(projected[:, 2 * hidden :] + candidate)
            return ((1 - update) * candidate + update * h,)

        return inputs, step

    Y, final = run_layers(X, layer, direction, layout, sequence_lens, [initial_h], hidden)
    return Y, *final


@cpu.kernel("LSTM", widen=True)
def lstm(
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
    layout=0,
    output_sequence=0,
):
    hidden = hidden_size or R.shape[2]
    check_operands(4, X, hidden, direction, layout, W=W, R=R, B=B, initial_h=initial_h, initial_c=initial_c, P=P)
    functions = lstm_functions(activations, activation_alpha, activation_beta, direction, clip)

    def layer(X, number):
        weights = R[number].T
        peepholes = None if P is None else P[number]
        step = lstm_step(functions[number], lambda h: h @ weights, peepholes, input_forget, hidden)
        return lstm_inputs(project_inputs(X, W[number].T), B, number), step

    Y, final = run_layers(X, layer, direction, layout, sequence_lens, [initial_h, initial_c], hidden)
    return Y, *final


def check_operands(gates, X, hidden, direction, layout, **operands):
    """Refuse operands that inference could not compare, as the model leaves their sizes open."""
    wanted = operand_shapes(gates, len(_reverses(direction)), X.shape[0 if layout else 1], X.shape[2], hidden, layout)
    misfit = find_misfit(wanted, {name: operand.shape for name, operand in operands.items() if operand is not None})
    if misfit is not None:
        raise KernelError(misfit)


def lstm_functions(activations, alphas, betas, direction, clip):
    """(f, g, h) of each direction. As in onnxruntime `clip` bounds the gates only, not the cell state that h is given."""
    defaults = ("Sigmoid", "Tanh", "Tanh")
    clipped = activation_functions(activations, alphas, betas, defaults, direction, clip)
    free = activation_functions(activations, alphas, betas, defaults, direction, None)
    return [(f, g, h) for (f, g, _), (_, _, h) in zip(clipped, free, strict=True)]


def lstm_inputs(inputs, B, number):
    """The projected inputs with both biases added."""
    if B is not None:
        gates = inputs.shape[-1]
        inputs += B[number, :gates] + B[number, gates:]
    return inputs


def lstm_step(functions, recur, peepholes, input_forget, hidden):
    """A function from the projected inputs of one step and (h, c) to the next (h, c); gates stand in the order i, o, f, c."""
    f, g, h_function = functions
    peep_i, peep_o, peep_f = (0, 0, 0) if peepholes is None else peepholes.reshape(3, hidden)

    def step(projected, h, c):
        gates = projected + recur(h)
        i, o, forget, cell = (gates[:, k * hidden : (k + 1) * hidden] for k in range(4))
        if peepholes is not None:
            i, forget = i + peep_i * c, forget + peep_f * c
        i = f(i)
        c = (1 - i if input_forget else f(forget)) * c + i * g(cell)
        return f(o + peep_o * c if peepholes is not None else o) * h_function(c), c

    return step


def project_inputs(X, weights):
    """X · weights for all steps and rows in one product."""
    steps, batch, size = X.shape
    return (X.reshape(steps * batch, size) @ weights).reshape(steps, batch, weights.shape[1])


def run_layers(X, layer, direction, layout, sequence_lens, initial, hidden):
    """Run the directions one after the other; `layer(X, number)` yields the projected inputs and the step function of each.

    Returns Y and the list of final states, in the given layout.
    """
    if layout:
        X = X.swapaxes(0, 1)
        initial = [state if state is None else state.swapaxes(0, 1) for state in initial]
    steps, batch = X.shape[:2]
    lengths = _checked_lengths(sequence_lens, steps, batch)
    reverses = _reverses(direction)
    Y = np.empty((steps, len(reverses), batch, hidden), X.dtype)
    final = [np.empty((len(reverses), batch, hidden), X.dtype) for _ in initial]
    for number, reverse in enumerate(reverses):
        order = _reversed_order(steps, batch, lengths) if reverse else None
        inputs, step = layer(X if order is None else X[order], number)
        states = [np.zeros((batch, hidden), X.dtype) if s is None else s[number] for s in initial]
        outputs, states = _run_steps(inputs, step, states, lengths)
        Y[:, number] = outputs if order is None else outputs[order]
        for whole, state in zip(final, states, strict=True):
            whole[number] = state
    if layout:
        return Y.transpose(2, 0, 1, 3), [state.swapaxes(0, 1) for state in final]
    return Y, final


def _run_steps(inputs, step, states, lengths):
    """Outputs of every step, zero behind a row's end, and the states at each row's end; those of an empty row are zero."""
    steps, batch = inputs.shape[:2]
    outputs = np.zeros((steps, batch, states[0].shape[1]), inputs.dtype)
    everyone = steps if lengths is None else int(lengths.min(initial=steps))
    longest = steps if lengths is None else int(lengths.max(initial=0))
    for t in watched(range(longest)):
        following = step(inputs[t], *states)
        if t < everyone:
            outputs[t], states = following[0], following
        else:
            alive = (t < lengths)[:, None]
            states = [np.where(alive, new, old) for new, old in zip(following, states, strict=True)]
            outputs[t] = np.where(alive, following[0], 0)
    if lengths is not None and not everyone:
        states = [np.where((lengths > 0)[:, None], state, 0) for state in states]
    return outputs, states


def _reverses(direction):
    if direction == "bidirectional":
        return (False, True)
    # GRU of opset 1 misspells its default
    if direction not in ("forward", "reverse", "foward"):
        raise KernelError(f"direction must be forward, reverse or bidirectional, not {direction!r}", InvalidArgument)
    return (direction == "reverse",)


def _checked_lengths(sequence_lens, steps, batch):
    """The lengths, or None if every row is complete."""
    if sequence_lens is None:
        return None
    if sequence_lens.shape != (batch,) or (batch and not 0 <= sequence_lens.min() <= sequence_lens.max() <= steps):
        raise KernelError(
            f"Invalid value/s in sequence_lens. All values must be > 0 and < seq_length. seq_length={steps}, "
            f"batch_size={batch}, sequence_lens={sequence_lens.tolist()}",
            InvalidArgument,
        )
    return None if (sequence_lens == steps).all() else sequence_lens


def _reversed_order(steps, batch, lengths):
    """An index that reverses the valid steps of every row and leaves the rest in place; it is its own inverse."""
    if lengths is None:
        return slice(None, None, -1)
    step = np.arange(steps)[:, None]
    return np.where(step < lengths, lengths - 1 - step, step), np.arange(batch)


def activation_functions(names, alphas, betas, defaults, direction, clip):
    """One tuple of functions per direction; alphas and betas are handed out in order to the activations that take them."""
    count = len(_reverses(direction))
    names = list(names) if names else list(defaults) * count
    if len(names) < len(defaults) * count:
        raise KernelError(f"{len(defaults) * count} activations are needed, {len(names)} are given", InvalidArgument)
    alphas, betas = iter(alphas), iter(betas)
    functions = [_activation(name, alphas, betas, clip) for name in names[: len(defaults) * count]]
    return [tuple(functions[k * len(defaults) : (k + 1) * len(defaults)]) for k in range(count)]


def _activation(name, alphas, betas, clip):
    key = name.lower()
    if key not in _ACTIVATIONS:
        raise KernelError(f"unknown activation function {name!r}", InvalidArgument)
    function, alpha, beta = _ACTIVATIONS[key]
    parameters = {}
    if alpha is not None:
        parameters["alpha"] = next(alphas, alpha)
    if beta is not None:
        parameters["beta"] = next(betas, beta)
    function = functools.partial(function, **parameters) if parameters else function
    return function if clip is None or not clip > 0 else lambda x: function(np.clip(x, -clip, clip))


_ACTIVATIONS = {
    "relu": (relu, None, None),
    "tanh": (np.tanh, None, None),
    "sigmoid": (sigmoid, None, None),
    "affine": (lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "leakyrelu": (leaky_relu, 0.01, None),
    "thresholdedrelu": (lambda x, alpha: np.where(x >= alpha, x, 0), 1.0, None),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), 1.0, 1.0),
    "hardsigmoid": (hard_sigmoid, 0.2, 0.5),
    "elu": (elu, 1.0, None),
    "softsign": (softsign, None, None),
    "softplus": (softplus, None, None),
}
"""Function, default alpha, default beta by lower-case name; None where a function has no such parameter."""
