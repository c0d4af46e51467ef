"""Gradients of recurrent layers. LSTM and GRU become the forms for training, which also return what every step computed.

RNN is written as a Scan over its steps, whose gradient is taken.
"""

from __future__ import annotations

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ir import Graph, TensorType, Value
from sardonyx.ops.gradients.builder import CONTRIB, TypedBuilder
from sardonyx.ops.gradients.table import gradient

FORM = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size")


@gradient("LSTM")
def lstm(op, node, X, W, R, sequence_lens, initial_h, initial_c, P, Y_grad, Y_h_grad, Y_c_grad, layout, wanted):
    _check(node, layout, P is not None and "peepholes P")
    _becomes(node, "LSTMTraining")
    states, cells, gates = op.result(node, 0), op.result(node, 3), op.result(node, 4)
    form = {name: node.attribute(name) for name in (*FORM, "input_forget")}
    inputs = (X, W, R, sequence_lens, initial_h, initial_c, states, cells, gates, Y_grad, Y_h_grad, Y_c_grad)
    parts = op.contrib("LSTMGrad", *inputs, outputs=6, **form)
    return _named(("X", "W", "R", "B", "initial_h", "initial_c"), parts, wanted)


@gradient("GRU")
def gru(op, node, X, W, R, B, sequence_lens, initial_h, Y_grad, Y_h_grad, layout, wanted):
    _check(node, layout)
    _becomes(node, "GRUTraining")
    states, gates = op.result(node, 0), op.result(node, 2)
    form = {name: node.attribute(name) for name in (*FORM, "linear_before_reset")}
    inputs = (X, W, R, B, sequence_lens, initial_h, states, gates, Y_grad, Y_h_grad)
    parts = op.contrib("GRUGrad", *inputs, outputs=5, **form)
    return _named(("X", "W", "R", "B", "initial_h"), parts, wanted)


def _check(node, layout, extra=""):
    if layout or extra:
        raise Fail(f"{node}: there is no gradient of {node.op_type} with {extra or 'layout 1'}")


def _becomes(node, op_type):
    node.op_type, node.domain, node.version = op_type, CONTRIB, 1
    node.attributes.pop("layout", None)


def _named(names, parts, wanted):
    return {name: part for name, part in zip(names, parts, strict=True) if name in wanted}


# --- RNN

ACTIVATIONS = ("Tanh", "Relu", "Sigmoid", "Softsign", "Softplus")
"""Those that are ops without attributes."""


@gradient("RNN", since=7)
def rnn(op, node, X, W, R, B, sequence_lens, initial_h, activations, clip, direction, layout, through):
    reverses = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    names = [str(name).capitalize() for name in activations or ["Tanh"] * len(reverses)]
    unknown = next((name for name in names if name not in ACTIVATIONS), None)
    _check(node, layout, (unknown and f"the activation {unknown}") or (clip and "clip"))
    mask = None if sequence_lens is None else _mask(op, X, sequence_lens)
    layers = []
    for number, (reverse, name) in enumerate(zip(reverses, names, strict=False)):
        weights, recurrent = (op.Squeeze(_part(op, value, number, 0), axes=[0]) for value in (W, R))
        rows = X if not reverse or mask is None else op.ReverseSequence(X, op.Cast(sequence_lens, to=7))
        inputs = op.MatMul(rows, op.Transpose(weights, perm=[1, 0]))
        if B is not None:
            inputs = op.Add(inputs, _bias(op, B, number))
        start = op.Squeeze(_part(op, initial_h, number, 0), axes=[0]) if initial_h is not None else _zero_state(op, inputs)
        final, states = _steps(op, inputs, start, recurrent, mask, name, int(reverse and mask is None))
        if reverse and mask is not None:
            states = op.ReverseSequence(states, op.Cast(sequence_lens, to=7))
        layers.append((op.Unsqueeze(states, axes=[1]), op.Unsqueeze(final, axes=[0])))
    return through(*(op.Concat(*parts, axis=axis) for axis, parts in zip((1, 0), zip(*layers, strict=True), strict=True)))


def _part(op, value, number, axis):
    return op.Slice(value, starts=[number], ends=[number + 1], axes=[axis])


def _bias(op, B, number):
    """The sum of both halves of a direction's biases."""
    halves = op.Reshape(_part(op, B, number, 0), op.constant(np.array([2, -1], np.int64)))
    return op.ReduceSum(halves, axes=[0], keepdims=0)


def _zero_state(op, inputs):
    return op.zeros(op.Squeeze(_part(op, inputs, 0, 0), axes=[0]))


def _mask(op, X, lengths):
    """Whether a row has a step, as [steps, batch, 1]."""
    first, one = (op.constant(np.array(number, np.int64)) for number in (0, 1))
    count = op.Squeeze(op.Slice(op.Shape(X), starts=[0], ends=[1]), axes=[0])
    steps = op.Unsqueeze(op.Range(first, count, one), axes=[1, 2])
    return op.Less(steps, op.Unsqueeze(op.Cast(lengths, to=7), axes=[0, 2]))


def _steps(op, inputs, start, recurrent, mask, activation, direction):
    """The state after the last step, and those of all steps. Rows that have ended keep their state, and give zeros."""
    dtype, sizes = op.dtype(inputs), op.shape(inputs)[1:]
    h, row = (Value(op.unique(name), TensorType(dtype, sizes)) for name in ("state", "row"))
    there = Value(op.unique("mask"), None if mask is None else TensorType(op.dtype(mask), op.shape(mask)[1:]))
    body = Graph("step", [h, row] if mask is None else [h, row, there])
    inner = TypedBuilder(body, op.infer, opsets=op.opsets, prefix=op.prefix)
    following = inner.node(activation, inner.Add(row, inner.MatMul(h, inner.Transpose(recurrent, perm=[1, 0]))))
    state, shown = following, following
    if mask is not None:
        state, shown = inner.Where(there, following, h), inner.where(there, following)
    body.outputs = [inner.Identity(state), inner.Identity(shown)]
    slices = [inputs] if mask is None else [inputs, mask]
    directions = {"scan_input_directions": [direction] * len(slices), "scan_output_directions": [direction]}
    return op.Scan(start, *slices, outputs=2, body=body, num_scan_inputs=len(slices), **directions)
