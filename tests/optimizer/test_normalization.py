"""Rules that recognize layer normalization and its relatives."""

from __future__ import annotations

import pytest

from sardonyx.optimizer.rules import normalization
from tests.optimizer.rewriting import assert_rewrites
from tests.optimizer.test_conv import reasons, rewritten

CONSTANTS = "float[4] g = {1, 2, 3, 4}, float[4] b = {4, 3, 2, 1}, float e = {0.001}, float two = {2}, float one = {1}, float half = {0.5}"
HEAD = f"g (float[N,S,4] x) => (float[N,S,4] y) <{CONSTANTS}, int64[1] a = {{-1}}> "
NEW = [normalization.layer_normalization, normalization.add_bias]
OLD = [normalization.old_layer_normalization, normalization.add_bias]

CENTRED = {
    "once": "m = ReduceMean(x, a) d = Sub(x, m) d2 = Identity(d)",
    "twice": "m = ReduceMean(x, a) d = Sub(x, m) d2 = Sub(x, m)",
    "all twice": "m = ReduceMean(x, a) m2 = ReduceMean(x, a) d = Sub(x, m) d2 = Sub(x, m2)",
}
SQUARED = {"by Pow": "q = Pow(d, two)", "by Mul": "q = Mul(d, d)"}
DIVIDED = {
    "Div": "r = Sqrt(w) n = Div(d2, r)",
    "Reciprocal": "r = Sqrt(w) i = Reciprocal(r) n = Mul(i, d2)",
    "one over": "r = Sqrt(w) i = Div(one, r) n = Mul(d2, i)",
    "Pow": "r = Pow(w, half) n = Div(d2, r)",
}


@pytest.mark.parametrize("divided", DIVIDED.values(), ids=DIVIDED)
@pytest.mark.parametrize("squared", SQUARED.values(), ids=SQUARED)
@pytest.mark.parametrize("centred", CENTRED.values(), ids=CENTRED)
def test_layer_normalization_in_all_its_spellings(centred, squared, divided):
    centred = centred.replace(" d2 = Identity(d)", "")
    divided = divided if "d2 =" in centred else divided.replace("d2", "d")
    text = HEAD + f"{{ {centred} {squared} v = ReduceMean(q, a) w = Add(v, e) {divided} s = Mul(g, n) y = Add(s, b) }}"
    assert_rewrites(NEW, text, HEAD + "{ y = LayerNormalization<axis=-1, epsilon=0.001>(x, g, b) }", rtol=1e-4)


PLAIN = (
    "m = ReduceMean{0} d = Sub(x, m) q = Pow(d, two) v = ReduceMean{1} w = Add(v, e) r = Sqrt(w) n = Div(d, r) s = Mul(n, g) "
)


def test_axes_may_be_attributes_and_the_opset_old():
    text = HEAD + "{" + PLAIN.format("<axes=[-1]>(x)", "<axes=[2]>(q)") + " y = Add(s, b) }"
    journal = assert_rewrites(NEW, text, None, opset=13)
    assert "LayerNormalization came with opset 17" in reasons(journal)
    assert_rewrites(OLD, text, HEAD + "{ y = LayerNormalization<axis=-1, epsilon=0.001>(x, g, b) }", opset=13, rtol=1e-4)


@pytest.mark.parametrize("scaled", ["i = Reciprocal(r) k = Mul(i, g)", "i = Div(one, r) k = Mul(g, i)", "k = Div(g, r)"])
def test_a_scale_that_is_divided_first(scaled):
    nodes = PLAIN.format("(x, a)", "(q, a)").replace("n = Div(d, r) s = Mul(n, g)", f"{scaled} s = Mul(d, k)")
    assert_rewrites(
        NEW,
        HEAD + f"{{ {nodes} y = Add(s, b) }}",
        HEAD + "{ y = LayerNormalization<axis=-1, epsilon=0.001>(x, g, b) }",
        rtol=1e-4,
    )


def test_without_bias():
    text = HEAD + "{" + PLAIN.format("(x, a)", "(q, a)") + " y = Neg(s) }"
    assert_rewrites(NEW, text, HEAD + "{ l = LayerNormalization<axis=-1, epsilon=0.001>(x, g) y = Neg(l) }", rtol=1e-4)


def test_without_scale():
    text = HEAD + "{" + PLAIN.format("(x, a)", "(q, a)").replace("s = Mul(n, g)", "") + " y = Mul(n, x) }"
    ones = HEAD.replace("float[4] g = {1, 2, 3, 4}", "float[4] g = {1, 1, 1, 1}")
    rules = [normalization.layer_normalization, normalization.without_scale]
    assert_rewrites(rules, text, ones + "{ l = LayerNormalization<axis=-1, epsilon=0.001>(x, g) y = Mul(l, x) }", rtol=1e-4)
    scaled = HEAD + "{" + PLAIN.format("(x, a)", "(q, a)") + " y = Neg(s) }"
    assert_rewrites(rules, scaled, HEAD + "{ l = LayerNormalization<axis=-1, epsilon=0.001>(x, g) y = Neg(l) }", rtol=1e-4)


def test_several_axes_and_parameters_with_leading_ones():
    constants = "float[1,2,2] g = {1, 2, 3, 4}, float[2] b = {4, 3}, float e = {0.001}, float two = {2}, int64[2] a = {2, 1}"
    head = f"g (float[N,2,2] x) => (float[N,2,2] y) <{constants}> "
    after = "float[2,2] g = {1, 2, 3, 4}, float[2,2] b = {4, 3, 4, 3}"
    assert_rewrites(
        NEW,
        head + "{" + PLAIN.format("(x, a)", "(q, a)") + " y = Add(s, b) }",
        f"g (float[N,2,2] x) => (float[N,2,2] y) <{after}> {{ y = LayerNormalization<axis=-2, epsilon=0.001>(x, g, b) }}",
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("first", "second", "scale"),
    [("(x, a)", "(q, a)", "float[N,S,4] g"), ("(x, mid)", "(q, mid)", "float[4] g"), ("(x, mid)", "(q, a)", "float[4] g")],
)
def test_other_axes_and_scales_stay(first, second, scale):
    constants = "float e = {0.001}, float two = {2}, int64[1] a = {-1}, int64[1] mid = {1}"
    text = f"g (float[N,S,4] x, {scale}) => (float[N,S,4] y) <{constants}> {{" + PLAIN.format(first, second) + "y = Neg(s) }"
    journal = assert_rewrites(NEW, text, None)
    assert reasons(journal)


def test_half_precision_with_a_wide_middle():
    constants = (
        "float16[4] g = {1, 2, 3, 4}, float16[4] b = {4, 3, 2, 1}, float e = {0.001}, float two = {2}, int64[1] a = {-1}"
    )
    head = f"g (float16[N,S,4] h) => (float16[N,S,4] y) <{constants}> "
    middle = PLAIN.format("(x, a)", "(q, a)").replace("s = Mul(n, g)", "n16 = Cast<to=10>(n) s = Mul(n16, g)")
    ops, _ = rewritten_half(NEW, head + "{ x = Cast<to=1>(h) " + middle + " y = Add(s, b) }")
    assert "LayerNormalization" in ops
    assert "Sqrt" not in ops


def test_half_precision_with_a_wide_variance():
    constants = (
        "float16[4] g = {1, 2, 3, 4}, float16[4] b = {4, 3, 2, 1}, float e = {0.001}, float two = {2}, int64[1] a = {-1}"
    )
    head = f"g (float16[N,S,4] x) => (float16[N,S,4] y) <{constants}> "
    nodes = (
        "m = ReduceMean(x, a) d = Sub(x, m) c = Cast<to=1>(d) q = Pow(c, two) v = ReduceMean(q, a) w = Add(v, e) r = Sqrt(w)"
        " r16 = Cast<to=10>(r) n = Div(d, r16) s = Mul(n, g) y = Add(s, b)"
    )
    ops, _ = rewritten_half(NEW, head + f"{{ {nodes} }}")
    assert ops == ["LayerNormalization"]


def rewritten_half(rules, text):
    return rewritten(rules, text, rtol=1e-2)


# --- root mean square

RMS = {
    "divided": "q = Pow(x, two) v = ReduceMean(q, a) w = Add(v, e) r = Sqrt(w) n = Div(x, r)",
    "by a reciprocal": "q = Mul(x, x) v = ReduceMean(q, a) w = Add(e, v) r = Sqrt(w) i = Reciprocal(r) n = Mul(x, i)",
    "by one over": "q = Pow(x, two) v = ReduceMean(q, a) w = Add(e, v) r = Sqrt(w) i = Div(one, r) n = Mul(i, x)",
}


@pytest.mark.parametrize(("opset", "name"), [(18, "SimplifiedLayerNormalization"), (23, "RMSNormalization")])
@pytest.mark.parametrize("nodes", RMS.values(), ids=RMS)
def test_root_mean_square_normalization(nodes, opset, name):
    assert_rewrites(
        normalization.rms_normalization,
        HEAD + f"{{ {nodes} y = Mul(g, n) }}",
        HEAD + f"{{ y = {name}<axis=-1, epsilon=0.001>(x, g) }}",
        opset=opset,
        rtol=1e-4,
    )


def test_root_mean_square_of_half_precision_with_a_wide_middle():
    constants = "float16[4] g = {1, 2, 3, 4}, float e = {0.001}, float two = {2}, int64[1] a = {-1}"
    head = f"g (float16[N,S,4] h) => (float16[N,S,4] y) <{constants}> "
    ops, _ = rewritten_half(
        [normalization.rms_normalization], head + f"{{ x = Cast<to=1>(h) {RMS['divided']} c = Cast<to=10>(n) y = Mul(c, g) }}"
    )
    assert ops[-1] == "SimplifiedLayerNormalization"
    assert "Sqrt" not in ops


# --- residuals

SKIP = [normalization.skip_layer_normalization, normalization.skip_rms_normalization]
TWO = f"g (float[N,S,4] u, float[N,S,4] x) => (float[N,S,4] y) <{CONSTANTS}> "


@pytest.mark.parametrize("parameters", ["g", "g, b"])
def test_a_sum_goes_into_the_normalization(parameters):
    assert_rewrites(
        SKIP,
        TWO + f"{{ s = Add(u, x) y = LayerNormalization<epsilon=0.001>(s, {parameters}) }}",
        TWO + f"{{ y = com.microsoft.SkipLayerNormalization<epsilon=0.001>(u, x, {parameters}) }}",
        rtol=1e-4,
    )


@pytest.mark.parametrize(("name", "opset"), [("SimplifiedLayerNormalization", 18), ("RMSNormalization", 23)])
def test_a_sum_goes_into_the_normalization_by_root_mean_square(name, opset):
    assert_rewrites(
        SKIP,
        TWO + f"{{ s = Add(u, x) y = {name}<epsilon=0.001>(s, g) }}",
        TWO + "{ y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.001>(u, x, g) }",
        rtol=1e-4,
        opset=opset,
    )


def test_a_sum_that_is_used_elsewhere_is_an_output():
    head = TWO.replace("(float[N,S,4] y)", "(float[N,S,4] y, float[N,S,4] z)")
    assert_rewrites(
        SKIP,
        head + "{ s = Add(u, x) z = Neg(s) y = LayerNormalization(s, g, b) }",
        head + "{ y, m, v, s = com.microsoft.SkipLayerNormalization<epsilon=0.00001>(u, x, g, b) z = Neg(s) }",
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("other", "norm"),
    [
        ("float[S,4]", "LayerNormalization"),
        ("float[N,S,4]", "LayerNormalization<axis=1>"),
        ("float[N,S,1]", "LayerNormalization"),
    ],
)
def test_other_sums_stay(other, norm):
    scale = "g" if "axis" not in norm else "g2"
    text = f"g ({other} u, float[N,S,4] x, float[S,4] g2) => (float[N,S,4] y) <{CONSTANTS}> {{ s = Add(u, x) y = {norm}(s, {scale}) }}"
    assert reasons(assert_rewrites(SKIP, text, None))


@pytest.mark.parametrize("place", ["t, x", "x, t"])
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("with_sum", [False, True])
def test_a_bias_goes_in_with_the_residual(place, op, with_sum):
    outputs = "y, m, v, s" if with_sum else "y"
    head = TWO.replace("(float[N,S,4] y)", "(float[N,S,4] y, float[N,S,4] z)")
    rest = "z = Neg(s)" if with_sum else "z = Neg(x)"
    assert_rewrites(
        normalization.bias_before_skip,
        head + f"{{ t = Add(u, b) {outputs} = com.microsoft.{op}<epsilon=0.001>({place}, g) {rest} }}",
        head
        + f"{{ {outputs} = com.microsoft.{op}<epsilon=0.001>(u, x, g, {', ' if 'Simplified' not in op else ''}b) {rest} }}",
        rtol=1e-4,
    )


def test_another_sum_before_the_residual_stays():
    text = TWO + "{ t = Add(u, two) y = com.microsoft.SkipLayerNormalization(t, x, g, b) }"
    assert_rewrites(normalization.bias_before_skip, text, None)
