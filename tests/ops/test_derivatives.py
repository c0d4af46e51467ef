"""The Gradient op: what it is replaced by agrees with finite differences."""

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


BODIES = {
    "add": "y = Add(a, b)",
    "sub": "y = Sub(a, b)",
    "mul": "y = Mul(a, b)",
    "div": "y = Div(a, b)",
    "neg exp": "n = Neg(a) e = Exp(n) y = Mul(e, b)",
    "log sqrt": "l = Log(a) s = Sqrt(b) y = Mul(l, s)",
    "tanh sigmoid": "t = Tanh(a) s = Sigmoid(b) y = Mul(t, s)",
    "sin cos": "s = Sin(a) c = Cos(b) y = Mul(s, c)",
    "relu": "d = Sub(a, b) y = Relu(d)",
    "pow": "y = Pow(a, b)",
    "matmul": "t = Transpose<perm = [1, 0]>(b) y = MatMul(a, t)",
    "reshape": "k = Constant<value_ints = [6]>() r = Reshape(a, k) q = Reshape(b, k) y = Mul(r, q)",
    "reduce": "k = Constant<value_ints = [1]>() r = ReduceSum<keepdims = 0>(a, k) m = ReduceMean<keepdims = 0>(b, k) y = Mul(r, m)",
    "used twice": "p = Mul(a, b) q = Mul(p, a) y = Add(p, q)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_gradients_agree_with_finite_differences(body):
    rng = np.random.default_rng(3)
    feeds = {name: rng.uniform(0.5, 2, (2, 3)) for name in "ab"}
    inputs = "double[2,3] a, double[2,3] b"
    gradient = f'{body} da, db = ai.onnx.preview.training.Gradient<xs = ["a", "b"], y = "y">(a, b)'
    found = run(gradient, feeds, inputs, "double[2,3] da, double[2,3] db")
    step = 1e-6
    for name, gradient_found in zip("ab", found, strict=True):
        expected = np.zeros((2, 3))
        for index in np.ndindex(2, 3):
            sides = []
            for sign in (1, -1):
                moved = {key: value.copy() for key, value in feeds.items()}
                moved[name][index] += sign * step
                sides.append(run(f"{body} z = ReduceSum<keepdims = 0>(y)", moved, inputs, "double z")[0])
            expected[index] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(gradient_found, expected, rtol=1e-5, atol=1e-6)


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


def test_an_op_without_derivative_is_named():
    with pytest.raises(Fail, match="no derivative is known for Floor 'y'"):
        run(
            'y = Floor(a) da = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)',
            {"a": np.ones(2)},
            "double[2] a",
            "double[2] da",
        )
