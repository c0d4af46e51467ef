"""Softmax and normalizations in generated code compute what NumPy does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import InvalidArgument
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, compare, model_of, native_plan

RNG = np.random.default_rng(0)
TYPES = {"float": np.float32, "double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SHAPES = [(1, 1, 1), (3, 5, 7), (9, 50, 100), (1, 2, 9000), (2, 0, 3), (2, 3, 0)]
IMAGES = [(1, 4, 1, 1), (3, 8, 5, 7), (1, 4, 3, 3000), (5, 16, 20, 30), (2, 4, 0, 3)]


def floats(*shape, type="float"):
    return (RNG.normal(size=shape) * 3 + 0.5).astype(TYPES[type])


def awkward(rows=8, columns=40):
    """Rows with NaN, infinities, nothing but -inf, and very large and very small numbers."""
    x = floats(rows, columns)
    x[0, 3], x[1, 5], x[6, 1], x[4, 0] = np.nan, np.inf, -np.inf, 1e38
    x[2], x[3, :20], x[5], x[7, ::3] = -np.inf, -np.inf, -1e30, 1e-40
    return x


# --- softmax


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax_agrees_along_any_axis(op, type, axis):
    feeds = [{"x": floats(*shape, type=type)} for shape in SHAPES]
    tolerance = 4e-3 if type == "float16" else None
    text = f"g ({type}[n,m,k] x) => ({type}[n,m,k] y) {{ y = {op}<axis={axis}>(x) }}"
    assert_agrees(text, feeds, tolerance=tolerance, steps=1)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_awkward_numbers(op, axis):
    feeds = [{"x": awkward()}, {"x": awkward().T.copy()}]
    assert_agrees(f"g (float[n,m] x) => (float[n,m] y) {{ y = {op}<axis={axis}>(x) }}", feeds)


def test_softmax_of_one_number_is_one():
    assert_agrees("g (float x) => (float y) { y = Softmax(x) }", {"x": np.array(3, np.float32)})


def test_masked_scores_have_no_weight():
    x = np.array([[0.5, -np.inf, 1.5, -1e9]], np.float32)
    plan = native_plan("g (float[n,m] x) => (float[n,m] y) { y = Softmax(x) }")
    (y,) = execute(plan, {"x": x})
    assert y[0, 1] == 0 and y[0, 3] == 0


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_was_of_flat_rows_up_to_opset_12(op):
    feeds = [{"x": floats(*shape)} for shape in SHAPES[:3]]
    assert_agrees(f"g (float[n,m,k] x) => (float[n,m,k] y) {{ y = {op}<axis=1>(x) }}", feeds, opset=11)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_what_stands_around_softmax_becomes_part_of_it(op):
    text = f"""g (float[n,m,k] x, float[n,1,1] b, float[k] c) => (float[n,m,k] y) {{
        t = Add(x, b) u = Mul(t, c) v = {op}(u) y = Mul(v, c) }}"""
    feeds = [
        {"x": floats(n, m, k), "b": floats(n, 1, 1), "c": floats(k)} for n, m, k in [(3, 5, 4), (9, 50, 100), (1, 2, 9000)]
    ]
    assert_agrees(text, feeds, steps=1)


def test_a_value_that_others_need_too_is_still_computed():
    text = """g (float[n,k] x) => (float[n,k] y, float[n,k] z) { t = Add(x, x) u = Mul(t, x) y = Softmax(u) z = Sub(t, y) }"""
    assert_agrees(text, [{"x": floats(3, 20)}])


SOFTMAX = "g (float[n,m,k] x) => (float[n,m,k] y, float[n,m,k] z) { y = Softmax(x) z = LogSoftmax<axis=0>(x) }"


@settings(max_examples=25, deadline=None)
@given(shape=st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 150)), scale=st.sampled_from([1e-3, 1, 50, 1e4]))
def test_softmax_of_any_shape(shape, scale):
    x = (RNG.normal(size=shape) * scale).astype(np.float32)
    compare(execute(native_plan(SOFTMAX), {"x": x}), execute(_reference(SOFTMAX), {"x": x}))


def _reference(text):
    from sardonyx.providers.cpu.provider import CPUExecutionProvider
    from sardonyx.runtime.preparation.plan import make_plan

    return make_plan(model_of(text).graph, [CPUExecutionProvider()])


# --- layer normalization


def parameters(shape, type, *names):
    return {name: floats(shape[-1], type=type) for name in names}


@pytest.mark.parametrize("type", TYPES)
def test_layer_normalization_with_its_statistics(type):
    stash = {"double": ("double", 11)}.get(type, ("float", 1))
    text = f"""g ({type}[n,m,k] x, {type}[k] s, {type}[k] b) => ({type}[n,m,k] y, {stash[0]}[n,m,1] a, {stash[0]}[n,m,1] c) {{
        y, a, c = LayerNormalization<stash_type={stash[1]}>(x, s, b) }}"""
    assert_agrees(text, [{"x": floats(*one, type=type), **parameters(one, type, "s", "b")} for one in SHAPES[:5]])


@pytest.mark.parametrize("type", TYPES)
def test_root_mean_square_normalizations(type):
    feeds = [{"x": floats(*one, type=type), **parameters(one, type, "s")} for one in SHAPES]
    text = f"g ({type}[n,m,k] x, {type}[k] s) => ({type}[n,m,k] y) {{ y = %s(x, s) }}"
    assert_agrees(text % "RMSNormalization", feeds, opset=23)
    assert_agrees(text % "SimplifiedLayerNormalization", feeds)


def test_layer_normalization_over_several_axes():
    text = "g (float[n,m,k] x, float[m,k] s, float[1] b) => (float[n,m,k] y) { y = LayerNormalization<axis=1>(x, s, b) }"
    assert_agrees(text, [{"x": floats(*one), "s": floats(*one[1:]), "b": floats(1)} for one in SHAPES])


def test_layer_normalization_of_awkward_numbers():
    text = "g (float[n,k] x, float[k] s, float[k] b) => (float[n,k] y) { y = LayerNormalization(x, s, b) }"
    assert_agrees(text, {"x": awkward(), "s": floats(40), "b": floats(40)})


def test_a_large_mean_costs_no_precision():
    x = (RNG.normal(size=(4, 3000)) + 1000).astype(np.float32)
    plan = native_plan("g (float[n,k] x, float[1] s) => (float[n,k] y) { y = LayerNormalization(x, s) }")
    (y,) = execute(plan, {"x": x, "s": np.ones(1, np.float32)})
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, wanted, atol=2e-4)


@pytest.mark.parametrize("type", ["float", "float16", "bfloat16"])
def test_skip_normalizations_with_the_sum(type):
    given = [
        {"x": floats(*one, type=type), "z": floats(*one, type=type), **parameters(one, type, *"sbe")} for one in SHAPES[:5]
    ]
    head = f"g ({type}[n,m,k] x, {type}[n,m,k] z, {type}[k] s, {type}[k] b, {type}[k] e) => ({type}[n,m,k] y, {type}[n,m,k] w)"
    bound = 2e-5 if type == "float" else None  # a row of two nearly equal numbers magnifies its rounding errors
    assert_agrees(
        head + " { y, a, c, w = com.microsoft.SkipLayerNormalization(x, z, s, b, e) }", given, steps=1, tolerance=bound
    )
    text = f"""g ({type}[n,m,k] x, {type}[n,m,k] z, {type}[k] s) => ({type}[n,m,k] v, float[n,m,1] c) {{
        y, a, c, w = com.microsoft.SkipSimplifiedLayerNormalization(x, z, s) v = Add(y, w) }}"""
    assert_agrees(text, [{name: one[name] for name in "xzs"} for one in given], steps=1, tolerance=bound)


def test_a_skip_may_be_shared_by_the_batch():
    text = """g (float[n,m,k] x, float[1,m,k] z, float[k] s) => (float[n,m,k] y) {
        y = com.microsoft.SkipLayerNormalization(x, z, s) }"""
    assert_agrees(text, [{"x": floats(*one), "z": floats(1, *one[1:]), "s": floats(one[2])} for one in SHAPES[:4]])


def test_what_stands_around_a_normalization_becomes_part_of_it():
    text = """g (float[n,m,k] x, float[k] c, float[n,m,k] r) => (float[n,m,k] y) {
        t = Add(x, c) u = Mul(t, x) v = LayerNormalization(u, c, c) y = Add(v, r) }"""
    feeds = [{"x": floats(*one), "c": floats(one[2]), "r": floats(*one)} for one in SHAPES[:4]]
    assert_agrees(text, feeds, steps=1, tolerance=1e-5)


# --- embeddings


def embedding_feeds(type, batch, length):
    tables = {"w": floats(30, 20, type=type), "p": floats(50, 20, type=type), "k": floats(2, 20, type=type)}
    ids = {"i": RNG.integers(0, 30, (batch, length)), "s": RNG.integers(0, 2, (batch, length))}
    masks = {"m": RNG.integers(0, 2, (batch, length)), "o": RNG.integers(0, 50, (batch, length))}
    vectors = {"g": floats(20, type=type), "e": floats(20, type=type)}
    return {**tables, **vectors, **{name: one.astype(np.int32) for name, one in {**ids, **masks}.items()}}


@pytest.mark.parametrize("type", ["float", "float16"])
def test_embeddings_are_looked_up_and_normalized(type):
    feeds = [embedding_feeds(type, *one) for one in [(2, 7), (1, 50), (3, 1)]]
    text = f"""g (int32[b,l] i, int32[b,l] s, {type}[v,20] w, {type}[q,20] p, {type}[r,20] k, {type}[20] g, {type}[20] e, int32[b,l] m)
        => ({type}[b,l,20] y, int32[b] z, {type}[b,l,20] u) {{
        y, z, u = com.microsoft.EmbedLayerNormalization(i, s, w, p, k, g, e, m) }}"""
    assert_agrees(text, [{name: one[name] for name in "iswpkgem"} for one in feeds])


EMBED = """g (int32[b,l] i, float[v,20] w, float[q,20] p, float[20] g, float[20] e, int32[b,l] o) => (float[b,l,20] y, int32[b] z) {
    y, z = com.microsoft.EmbedLayerNormalization(i, , w, p, , g, e, , o) }"""


def test_embeddings_without_segments_at_given_positions():
    assert_agrees(EMBED, [{name: embedding_feeds("float", *one)[name] for name in "iwpgeo"} for one in [(2, 7), (3, 1)]])


def test_an_id_outside_the_table_is_an_error():
    feeds = {name: embedding_feeds("float", 2, 3)[name] for name in "iwpgeo"}
    feeds["i"][1, 1] = 30
    with pytest.raises(InvalidArgument, match="input_ids holds 30"):
        execute(native_plan(EMBED), feeds)


# --- others


@pytest.mark.parametrize("axes", ["[0,2,3]", "[2,3]", "[1]"])
def test_mean_variance_normalization(axes):
    text = f"g (float[n,c,h,w] x) => (float[n,c,h,w] y) {{ y = MeanVarianceNormalization<axes={axes}>(x) }}"
    assert_agrees(text, [{"x": floats(*shape)} for shape in IMAGES if 0 not in shape])


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 1])
def test_lp_normalization(p, axis):
    text = f"g (float[n,c,h,w] x) => (float[n,c,h,w] y) {{ y = LpNormalization<axis={axis}, p={p}>(x) }}"
    assert_agrees(text, [{"x": floats(*shape)} for shape in IMAGES] + [{"x": np.zeros((1, 2, 3, 4), np.float32)}])


@pytest.mark.parametrize("type", TYPES)
def test_instance_and_group_normalization(type):
    feeds = [{"x": floats(*s, type=type), "s": floats(s[1], type=type), "b": floats(s[1], type=type)} for s in IMAGES]
    text = f"g ({type}[n,c,h,w] x, {type}[c] s, {type}[c] b) => ({type}[n,c,h,w] y) {{ y = %s(x, s, b) }}"
    assert_agrees(text % "InstanceNormalization", feeds, opset=22)
    assert_agrees(text % "GroupNormalization<num_groups=2>", feeds)


def test_parameters_belonged_to_groups_before_opset_21():
    text = (
        "g (float[n,c,h,w] x, float[2] s, float[2] b) => (float[n,c,h,w] y) { y = GroupNormalization<num_groups=2>(x, s, b) }"
    )
    assert_agrees(text, [{"x": floats(*shape), "s": floats(2), "b": floats(2)} for shape in IMAGES], opset=18)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", ["n,c,h,w", "n,c"])
def test_batch_normalization(type, shape):
    rank = shape.count(",") + 1
    head = f"g ({type}[{shape}] x, {type}[c] s, {type}[c] b, {type}[c] m, {type}[c] v) => ({type}[{shape}] y)"
    feeds = [
        {"x": floats(*one, type=type), **{name: np.abs(floats(one[1], type=type)) for name in "sbmv"}}
        for one in (image[:rank] for image in IMAGES)
    ]
    assert_agrees(head + " { y = BatchNormalization(x, s, b, m, v) }", feeds)


def test_constant_parameters_of_batch_normalization_are_combined_before():
    text = """g (float[n,2,w] x) => (float[n,2,w] y)
        <float[2] s = {1.0, 2.0}, float[2] b = {0.5, -1.0}, float[2] m = {0.1, 0.2}, float[2] v = {3.0, 4.0}> {
        t = BatchNormalization(x, s, b, m, v) y = Mul(t, x) }"""
    assert_agrees(text, {"x": floats(3, 2, 7)}, steps=1)


KEEP_THEIR_SHAPE = (
    "Softmax(v)",
    "LogSoftmax<axis = 1>(v)",
    "Hardmax(v)",
    "LayerNormalization(v, one, one)",
    "RMSNormalization(v, one)",
    "com.microsoft.SkipLayerNormalization(v, v, one, one)",
    "com.microsoft.SkipSimplifiedLayerNormalization(v, v, one)",
    "LpNormalization(v)",
    "MeanVarianceNormalization<axes = [2]>(v)",
    "InstanceNormalization(v, two, two)",
    "GroupNormalization<num_groups = 1>(v, two, two)",
    "BatchNormalization(v, two, two, two, two)",
    "CumSum(v, axis)",
    "LRN<size = 3>(v)",
)


@pytest.mark.parametrize("node", KEEP_THEIR_SHAPE)
def test_a_result_may_be_declared_where_its_operand_is_open(node: str) -> None:
    text = f"""g (float[2,5] x, int64[3] s) => (float[5,2,1] y) <float[1] one = {{1.5}}, float[2] two = {{1, 2}}, int64 axis = {{1}}>
        {{ v = Reshape(x, s) y = {node} }}"""
    x = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    assert_agrees(text, {"x": x, "s": np.array([5, 2, 1])}, opset=23, all_native=False)
