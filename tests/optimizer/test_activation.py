"""Rules that recognize Gelu and its relatives."""

from __future__ import annotations

import pytest

from sardonyx.optimizer.rules import activation
from tests.optimizer.rewriting import assert_rewrites
from tests.optimizer.test_conv import reasons

CONSTANTS = (
    "float root = {1.41421356}, float inverse = {0.70710678}, float one = {1}, float half = {0.5}, float two = {2}, float three = {3},"
    "float c = {0.044715}, float k = {0.7978845608}, float alpha = {1.702}"
)
HEAD = f"g (float[N,S,4] x) => (float[N,S,4] y) <{CONSTANTS}, float[4] b = {{1, -1, 2, 0.5}}> "

HALVED = {
    "outside": "m = Mul(x, f) y = Mul(m, half)",
    "with the factor": "m = Mul(half, f) y = Mul(x, m)",
    "with x": "m = Mul(half, x) y = Mul(f, m)",
    "by division": "m = Div(x, two) y = Mul(m, f)",
    "last by division": "m = Mul(x, f) y = Div(m, two)",
}


@pytest.mark.parametrize("scaled", ["Div(x, root)", "Mul(inverse, x)"])
@pytest.mark.parametrize("halved", HALVED.values(), ids=HALVED)
def test_gelu_in_all_its_spellings(scaled, halved):
    text = HEAD + f"{{ s = {scaled} e = Erf(s) f = Add(one, e) {halved} }}"
    assert_rewrites(activation.gelu, text, HEAD + "{ y = Gelu(x) }")
    assert_rewrites(activation.contrib_gelu, text, HEAD + "{ y = com.microsoft.Gelu(x) }", opset=13)


def test_gelu_waits_for_the_opset_that_has_it():
    text = HEAD + "{ s = Div(x, root) e = Erf(s) f = Add(one, e) m = Mul(x, f) y = Mul(m, half) }"
    assert reasons(assert_rewrites(activation.gelu, text, None, opset=19)) == ["Gelu came with opset 20"]


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Div(x, root) e = Erf(s) f = Add(one, e) m = Mul(z, f) y = Mul(m, half)",
        "s = Div(x, alpha) e = Erf(s) f = Add(one, e) m = Mul(x, f) y = Mul(m, half)",
        "s = Div(x, root) e = Erf(s) f = Add(half, e) m = Mul(x, f) y = Mul(m, half)",
    ],
)
def test_what_is_almost_gelu_stays(nodes):
    head = HEAD.replace("float[N,S,4] x", "float[N,S,4] x, float[N,S,4] z")
    assert not reasons(assert_rewrites([activation.gelu, activation.contrib_gelu], head + f"{{ {nodes} }}", None))


def test_a_constant_that_enlarges_the_result_stays():
    text = "g (float[4] x) => (float[2,4] y) <float[2,1] half = {0.5, 0.5}, float root = {1.41421356}, float one = {1}>"
    text += "{ s = Div(x, root) e = Erf(s) f = Add(one, e) m = Mul(x, f) y = Mul(m, half) }"
    assert reasons(assert_rewrites(activation.gelu, text, None)) == ["a constant may enlarge the result"]


@pytest.mark.parametrize("halved", HALVED.values(), ids=HALVED)
@pytest.mark.parametrize(
    "angle",
    [
        "p = Pow(x, three) q = Mul(p, c) r = Add(x, q) a = Mul(k, r)",
        "o = Mul(x, x) p = Mul(x, o) q = Mul(c, p) r = Add(q, x) a = Mul(r, k)",
        "o = Mul(x, c) p = Mul(o, x) q = Add(p, one) r = Mul(x, k) a = Mul(r, q)",
        "o = Mul(x, x) p = Mul(c, o) q = Add(one, p) r = Mul(q, x) a = Mul(k, r)",
    ],
)
def test_gelu_by_tanh(angle, halved):
    text = HEAD + f"{{ {angle} t = Tanh(a) f = Add(t, one) {halved} }}"
    assert_rewrites(activation.fast_gelu, text, HEAD + "{ y = com.microsoft.FastGelu(x) }", opset=13)


@pytest.mark.parametrize(
    ("nodes", "alpha"),
    [
        ("s = Sigmoid(x) y = Mul(s, x)", 1.0),
        ("m = Mul(alpha, x) s = Sigmoid(m) y = Mul(x, s)", 1.702),
    ],
)
def test_gelu_by_a_sigmoid(nodes, alpha):
    assert_rewrites(
        activation.quick_gelu, HEAD + f"{{ {nodes} }}", HEAD + f"{{ y = com.microsoft.QuickGelu<alpha={alpha}>(x) }}"
    )


def test_a_sigmoid_of_something_else_stays():
    assert_rewrites(activation.quick_gelu, HEAD + "{ m = Mul(b, x) s = Sigmoid(m) y = Mul(x, s) }", None)
    double = "g (double[N] x) => (double[N] y) { s = Sigmoid(x) y = Mul(x, s) }"
    assert reasons(assert_rewrites(activation.quick_gelu, double, None)) == ["QuickGelu is not for this type"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Gelu(s)", "BiasGelu"),
        ("com.microsoft.Gelu(s)", "BiasGelu"),
        ('Gelu<approximate="tanh">(s)', "FastGelu"),
        ("com.microsoft.FastGelu(s)", "FastGelu"),
    ],
)
def test_a_bias_goes_in(before, after):
    assert_rewrites(
        [activation.bias_gelu, activation.bias_fast_gelu],
        HEAD + f"{{ s = Add(b, x) y = {before} }}",
        HEAD + f"{{ y = com.microsoft.{after}(x, b) }}",
    )


@pytest.mark.parametrize("shape", ["[N,S,4]", "[1]", "[1,4]"])
def test_what_is_no_bias_stays(shape):
    text = f"g (float[N,S,4] x, float{shape} z) => (float[N,S,4] y) {{ s = Add(x, z) y = Gelu(s) }}"
    assert reasons(assert_rewrites(activation.bias_gelu, text, None)) == ["what is added is not a bias along the last axis"]


@pytest.mark.parametrize(
    ("before", "after"), [("Gelu(x)", "(x)"), ("com.microsoft.Gelu(x)", "(x)"), ("com.microsoft.BiasGelu(x, b)", "(x, b)")]
)
def test_gelu_is_approximated_on_request(before, after):
    assert_rewrites(
        activation.approximate_gelu, HEAD + f"{{ y = {before} }}", HEAD + f"{{ y = com.microsoft.FastGelu{after} }}", rtol=1e-3
    )
