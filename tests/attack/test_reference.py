"""What the attack takes for rounding is rounding: values on a step may fall to either side, others may not."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from tests.attack import opinions
from tests.attack.kinds import attributes, graphs
from tests.attack.reference import Expectation, Noise, Reference, _shaken
from tests.attack.subject import Problem, Subject, session_of

HEADER = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> '
INPUT, HIDDEN = 4, 3


def test_either_side_of_a_step_is_right() -> None:
    model = onnx.parser.parse_model(f"{HEADER} g (float[N] x) => (float[N] y) {{ y = Round(x) }}")
    down = np.arange(0, 400, 2, dtype=np.float32)
    expectation = Expectation(Reference(model), {"x": down + np.float32(0.5)})
    np.testing.assert_array_equal(expectation.values["y"], down)
    expectation.check([down + 1], "another order of summation")
    with pytest.raises(Problem, match="200 of 200 elements differ"):
        Expectation(Reference(model), {"x": down + np.float32(0.25)}).check([down + 1], "a wrong kernel")


def quantized_lstm() -> onnx.ModelProto:
    """A layer with large weights."""
    generator = np.random.default_rng(0)
    weights = {
        "W": generator.integers(0, 255, (1, INPUT, 4 * HIDDEN)).astype(np.uint8),
        "R": generator.integers(0, 255, (1, HIDDEN, 4 * HIDDEN)).astype(np.uint8),
        "W_scale": np.full(1, 0.01, np.float32),
        "R_scale": np.full(1, 0.1, np.float32),
        "zero": np.full(1, 128, np.uint8),
    }
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["X", "W", "R", "", "", "h", "c", "", "W_scale", "zero", "R_scale", "zero"],
        ["Y", "Y_h", "Y_c"],
        domain="com.microsoft",
        hidden_size=HIDDEN,
    )
    ranks = {"X": 3, "h": 3, "c": 3, "Y": 4, "Y_h": 3, "Y_c": 3}
    values = {name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * rank) for name, rank in ranks.items()}
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "layer", [values[one] for one in "Xhc"], [values[one] for one in node.output], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_either_side_of_a_step_between_the_rounds_of_a_layer_is_right() -> None:
    model = quantized_lstm()
    session = session_of(model, native="0")
    X = np.random.default_rng(19).uniform(-1, 1, (2, 1, INPUT)).astype(np.float32)
    nothing = np.zeros((1, 1, HIDDEN), np.float32)
    first, h, c = session.run(None, {"X": X[:1], "h": nothing, "c": nothing})
    h[0, 0, np.abs(h[0, 0]).argmin()] += (max(h.max(), 0) - min(h.min(), 0)) / 255  # a step of its quantization
    second, *states = session.run(None, {"X": X[1:], "h": h, "c": c})
    expectation = Expectation(Reference(model), {"X": X, "h": nothing, "c": nothing})
    assert np.abs(expectation.values["Y_h"] - states[0]).max() > 0.02
    expectation.check([np.concatenate([first, second]), *states], "another order of summation")


def test_onnxruntime_may_leave_a_constant_sparse() -> None:
    for places in (np.array([1, 5]), np.array([[0, 1], [1, 2]])):
        elements = helper.make_tensor("elements", onnx.TensorProto.FLOAT, [2], [3.0, 4.0])
        sparse = helper.make_sparse_tensor(elements, numpy_helper.from_array(places), [2, 3])
        node = helper.make_node("Constant", [], ["y"], sparse_value=sparse)
        graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])])
        subject = Subject(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), {})
        theirs = opinions.peer_opinion(subject.model, subject.feeds)
        assert theirs is not None
        wanted = np.array([[0, 3, 0], [0, 0, 4]], np.float32)
        np.testing.assert_array_equal(opinions.typed(theirs[0], wanted), wanted)
        graphs.judge(subject)


@pytest.mark.parametrize(("scale", "overflows"), [(-1e38, True), (float("inf"), True), (1e30, False), (float("nan"), False)])
def test_scores_beyond_float_are_not_judged(scale: float, overflows: bool) -> None:
    text = f"{HEADER} g (float[1,3,4] x, float[4,12] w) => (y) {{ y = com.microsoft.Attention<num_heads = 2>(x, w) }}"
    model = onnx.parser.parse_model(text)
    model.graph.node[0].attribute.append(helper.make_attribute("scale", scale))
    assert attributes.overflow_depends_on_order(Subject(model, {})) == overflows


@pytest.mark.parametrize(
    ("x", "alpha", "beta", "overflows"),
    [
        (1, -1e38, "-inf", True),
        (3e38, 9, "-inf", True),
        (3e38, 9, "1", False),
        (1, -1e38, "1", False),
        (1, 1e30, "-inf", False),
    ],
)
def test_sums_are_not_judged_that_overflow_if_rounded_twice(x: float, alpha: float, beta: str, overflows: bool) -> None:
    model = onnx.parser.parse_model(f"{HEADER} g (float[1] x) => (y) {{ y = HardSigmoid(x) }}")
    model.graph.node[0].attribute.extend([helper.make_attribute("alpha", alpha), helper.make_attribute("beta", float(beta))])
    subject = Subject(model, {"x": np.array([x], np.float32)})
    assert attributes.overflow_depends_on_order(subject) == overflows


def test_a_gelu_may_round_where_its_error_function_is_nearly_minus_1() -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> g (float x) => (float y) { y = Gelu(x) }')
    expectation = Expectation(Reference(model), {"x": np.float32(-5)})
    rounded = np.float32(0.5) * np.float32(-5) * (np.float32(1) + np.float32(-0.99999940395))
    expectation.check([np.float32(rounded)], "a sum of float32")
    with pytest.raises(Problem):
        expectation.check([np.float32(rounded * 4)], "a wrong sum")


@pytest.mark.parametrize("op", ["Elu", "Celu"])
def test_an_exponential_may_be_rounded_before_1_is_subtracted(op: str) -> None:
    """As onnxruntime does; a conversion to double does not make it more exact."""
    model = onnx.parser.parse_model(f"{HEADER} g (float x) => (double y) {{ e = {op}(x) y = Cast<to = 11>(e) }}")
    expectation = Expectation(Reference(model), {"x": np.float32(-4.3e-4)})
    rounded = np.exp(np.float32(-4.3e-4)) - np.float32(1)
    assert abs(rounded / np.expm1(-4.3e-4) - 1) > 1e-6
    expectation.check([np.float64(rounded)], "a difference of float32")
    with pytest.raises(Problem):
        expectation.check([np.float64(rounded * 1.01)], "a wrong difference")


def test_a_gelu_may_leave_nothing_to_quantize() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} g (float[1] x) => (float s) {{ y = Gelu(x) q, s, z = DynamicQuantizeLinear(y) }}"
    )
    expectation = Expectation(Reference(model), {"x": np.array([-10], np.float32)})
    assert 0 < expectation.values["s"] < 1e-20
    expectation.check([np.float32(1)], "the scale of zeros")
    with pytest.raises(Problem):
        Expectation(Reference(model), {"x": np.array([-3], np.float32)}).check([np.float32(1)], "the scale of something")


def test_nothing_or_hardly_anything_of_a_gelu_may_be_divided_by_0() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} g (float x, float d) => (float q) {{ y = com.microsoft.FastGelu(x) q = Div(y, d) }}"
    )
    for x, is_faint in ((-5.4047093, True), (-4.0, False)):
        expectation = Expectation(Reference(model), {"x": np.float32(x), "d": np.float32(0)})
        expectation.check([np.float32(-np.inf)], "of something")
        with contextlib.nullcontext() if is_faint else pytest.raises(Problem):
            expectation.check([np.float32(np.nan)], "of nothing")


def test_few_elements_that_were_rounded_more_are_asked_for_again() -> None:
    """Noise on x and on its half may cancel in all of the first samples, and most elements are of float32's precision."""
    model = onnx.parser.parse_model(
        f"{HEADER} g (float16[N] x, float[N] z, bool[N] c) => (float[N] y) {{ h = Exp(x) w = Cast<to = 1>(h) y = Where(c, w, z) }}"
    )
    x = np.linspace(-3, 3, 100_000).astype(np.float16)
    fed = {"x": x, "z": np.exp(x.astype(np.float32)), "c": np.arange(len(x)) % 3 == 0}
    Expectation(Reference(model), fed).check([np.exp(x.astype(np.float32))], "without the rounding between")
    with pytest.raises(Problem):
        Expectation(Reference(model), fed).check([1.01 * np.exp(x.astype(np.float32))], "something else")


@pytest.mark.parametrize("at", [0, 1])
def test_a_transform_may_multiply_an_infinity_by_0(at: int) -> None:
    """A fast one has no product for the imaginary part of the mean, a direct sum has one for each element."""
    model = onnx.parser.parse_model(f"{HEADER} g (float[1,4,1] x) => (float[1,4,2] y) {{ y = DFT(x) }}")
    x, k = np.zeros(4, np.float32), np.arange(4)
    x[at] = np.inf
    with np.errstate(invalid="ignore"):
        direct = np.stack([(x * part(2 * np.pi * k[:, None] * k / 4)).sum(axis=1) for part in (np.cos, np.sin)], axis=1)
    expectation = Expectation(Reference(model), {"x": x.reshape(1, 4, 1)})
    assert np.isnan(direct[0, 1]) and expectation.values["y"][0, 0, 1] == 0
    expectation.check([direct[None].astype(np.float32)], "a direct sum")
    finite = Expectation(Reference(model), {"x": np.ones((1, 4, 1), np.float32)})
    with pytest.raises(Problem):
        finite.check([finite.values["y"] + np.nan], "a wrong sum")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_noise_moves_every_element(dtype: type) -> None:
    """Next to a pole, as of Asin at 1, a single unit counts."""
    values = np.linspace(0.5, 1, 10_000, dtype=dtype)
    assert (_shaken(values, Noise(0, 1)) != values).all()
