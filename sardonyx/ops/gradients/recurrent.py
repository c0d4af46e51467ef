"""Gradients of LSTM and GRU. Their nodes become the forms for training, which also return what every step computed."""

from __future__ import annotations

from sardonyx.errors import Fail
from sardonyx.ops.gradients.builder import CONTRIB
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
