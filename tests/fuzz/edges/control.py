"""Ops whose graphs run inside of them."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto
from onnx.parser import parse_graph

from tests.fuzz.edges.table import audit, floats, scalar


def graph(text: str) -> GraphProto:
    return parse_graph(text)


audit(
    "If",
    {"cond": np.array(True), "x": floats(3, 4)},
    captured="x",
    then_branch=graph("t () => (float[A, B] p) { p0 = Exp(x) p = Tanh(p0) }"),
    else_branch=graph("e () => (float[C, D] q) { q = Neg(x) }"),
)
# the body ends by its condition, so that no number makes it run for ever
audit(
    "Loop",
    {"M": scalar(3), "cond": np.array(True), "v_initial": floats(2, 4)},
    "M=data",
    outputs=2,
    body=graph(
        """b (int64 i, bool c, float[2, 4] s) => (bool d, float[2, 4] t, float[2, 4] r) {
            most = Constant<value_int = 5>() d = Less(i, most) t0 = Exp(s) t = Tanh(t0) r = Neg(t)
        }"""
    ),
)
audit(
    "Scan",
    {"state": floats(4), "rows": floats(4, 3)},
    "num_scan_inputs=inference scan_input_axes=inference scan_input_directions=inference scan_output_axes=inference "
    "scan_output_directions=inference sequence_lens=claims directions=inference",
    outputs=2,
    num_scan_inputs=1,
    scan_input_axes=[1],
    scan_input_directions=[1],
    scan_output_axes=[1],
    scan_output_directions=[1],
    body=graph("b (float[4] s, float[4] x) => (float[4] t, float[4] y) { t0 = Add(s, x) t = Tanh(t0) y = Neg(t) }"),
)
