"""The Gradient op: other points than those of the graph, gradients of gradients, what is refused. `test_gradients` has the numbers."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats
from sardonyx.errors import Fail
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from tests.runtime.models import plan_of


def run(body: str, feeds: dict[str, np.ndarray], inputs: str, outputs: str) -> list[np.ndarray]:
    text = f"""
        <ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>
        g ({inputs}) => ({outputs}) {{ {body} }}
    """
    return execute(plan_of(formats.load(onnx.parser.parse_model(text)), [CPUExecutionProvider()]), feeds)


def test_a_broadcast_operand_gets_the_sum_over_what_it_was_spread_to():
    found = run(
        'y = Mul(a, b) db = ai.onnx.preview.training.Gradient<xs = ["b"], zs = ["a"], y = "y">(b, a)',
        {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3)},
        "double[2,3] a, double[3] b",
        "double[3] db",
    )
    np.testing.assert_array_equal(found[0], [3, 5, 7])


def test_the_gradient_of_a_gradient():
    found = run(
        """
        s = Mul(a, a) y = Mul(s, a)
        da = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)
        dda = ai.onnx.preview.training.Gradient<xs = ["a"], y = "da">(a)
        """,
        {"a": np.array([2.0, 3.0])},
        "double[2] a",
        "double[2] da, double[2] dda",
    )
    np.testing.assert_array_equal(found[0], [12, 27])
    np.testing.assert_array_equal(found[1], [12, 18])


def test_an_op_without_gradient_is_named():
    with pytest.raises(
        Fail, match="Hardmax 'y': there is no gradient for Hardmax, through which the result depends on 'a'. Freeze"
    ):
        run(
            'y = Hardmax(a) da = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)',
            {"a": np.ones((2, 2))},
            "double[2,2] a",
            "double[2,2] da",
        )
