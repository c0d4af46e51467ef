"""Rules that remove nodes which do nothing."""

from __future__ import annotations

import pytest

from sardonyx.optimizer.rules import elimination
from tests.optimizer.rewriting import assert_rewrites

PLAIN = "g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }"


def reasons(journal):
    return [event.reason for event in journal.events if event.reason]


def test_an_identity_goes():
    assert_rewrites(elimination.eliminate_identity, "g (float[N,3] x) => (float[N,3] y) { i = Identity(x) y = Neg(i) }", PLAIN)


def test_an_output_takes_the_place_of_its_copy():
    assert_rewrites(elimination.eliminate_identity, "g (float[N,3] x) => (float[N,3] y) { n = Neg(x) y = Identity(n) }", PLAIN)


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[2] x) => (float[2] y) { y = Identity(x) }",
        "g () => (float[2] y) <float[2] w = {1, 2}> { y = Identity(w) }",
        "g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Identity(y) }",
    ],
)
def test_an_output_that_only_a_copy_can_make_keeps_it(graph):
    journal = assert_rewrites(elimination.eliminate_identity, graph, None)
    assert reasons(journal) == ["an output of the graph cannot be its input, its constant, or another output"]


def test_an_identity_of_an_outer_value_stays_the_output_of_a_branch():
    branches = "then_branch = t () => (float[2] a) { a = Identity(x) }, else_branch = e () => (float[2] b) { b = Neg(x) }"
    text = "g (float[2] x, bool c) => (float[2] y) { y = If <" + branches + "> (c) }"
    assert_rewrites(elimination.eliminate_identity, text, None)


@pytest.mark.parametrize("opset", [7, 11])
def test_dropout_does_nothing_when_a_model_is_used(opset):
    assert_rewrites(
        elimination.eliminate_dropout,
        "g (float[N,3] x) => (float[N,3] y) { d = Dropout<ratio=0.4>(x) y = Neg(d) }",
        PLAIN,
        opset=opset,
    )


@pytest.mark.parametrize("constants", ["float r = {0.3}, bool t = {0}", "float r = {0}, bool t = {1}"])
def test_dropout_with_its_training_mode_off_or_nothing_to_drop(constants):
    assert_rewrites(
        elimination.eliminate_dropout,
        f"g (float[N,3] x) => (float[N,3] y) <{constants}> {{ d = Dropout(x, r, t) y = Neg(d) }}",
        PLAIN,
    )


def test_dropout_that_may_train_or_whose_mask_is_used_stays():
    training = "g (float[N,3] x, bool t) => (float[N,3] y) <float r = {0.5}> { d = Dropout(x, r, t) y = Neg(d) }"
    journal = assert_rewrites(elimination.eliminate_dropout, training, None, compare=False)
    assert reasons(journal) == ["training_mode may be set"]
    old = "g (float[N,3] x) => (float[N,3] y) { d = Dropout(x) y = Neg(d) }"
    journal = assert_rewrites(elimination.eliminate_dropout, old, None, opset=6, compare=False)
    assert reasons(journal) == ["up to opset 6 it drops unless is_test is set"]
    masked = "g (float[N,3] x) => (float[N,3] y, bool[N,3] m) { d, m = Dropout(x) y = Neg(d) }"
    assert reasons(assert_rewrites(elimination.eliminate_dropout, masked, None)) == ["its mask is used"]


@pytest.mark.parametrize("node", ["Add(x, c)", "Add(c, x)", "Sub(x, c)"])
@pytest.mark.parametrize("shape", ["", "[1]", "[1,1]"])
def test_adding_nothing(node, shape):
    assert_rewrites(
        elimination.eliminate_zero,
        f"g (float[N,3] x) => (float[N,3] y) <float{shape} c = {{0}}> {{ s = {node} y = Neg(s) }}",
        PLAIN,
    )


@pytest.mark.parametrize("node", ["Mul(x, c)", "Mul(c, x)", "Div(x, c)"])
def test_multiplying_by_one(node):
    assert_rewrites(
        elimination.eliminate_one, f"g (float[N,3] x) => (float[N,3] y) <float c = {{1}}> {{ s = {node} y = Neg(s) }}", PLAIN
    )
    assert_rewrites(
        elimination.eliminate_one,
        f"g (int64[N,3] x) => (int64[N,3] y) <int64 c = {{1}}> {{ s = {node} y = Neg(s) }}",
        "g (int64[N,3] x) => (int64[N,3] y) { y = Neg(x) }",
    )


@pytest.mark.parametrize(
    ("node", "constant", "reason"),
    [
        ("Sub(c, x)", "float c = {0}", "the operand is not 0"),
        ("Add(x, c)", "float c = {0.0000001}", "the operand is not 0"),
        ("Add(x, c)", "float[3] c = {0, 0, 0}", "the operand is not 0"),
        ("Add(x, c)", "float[1,1,1] c = {0}", "the constant may enlarge the result"),
    ],
)
def test_adding_something_stays(node, constant, reason):
    journal = assert_rewrites(
        elimination.eliminate_zero,
        f"g (float[N,3] x) => (float y) <{constant}> {{ s = {node} y = ReduceSum<keepdims=0>(s) }}",
        None,
    )
    assert reason in reasons(journal)


@pytest.mark.parametrize("op", ["Concat<axis=0>", "Sum", "Max", "Min", "Mean"])
def test_a_single_operand_is_the_result(op):
    assert_rewrites(
        elimination.eliminate_single_operand, f"g (float[N,3] x) => (float[N,3] y) {{ s = {op}(x) y = Neg(s) }}", PLAIN
    )


def test_a_product_with_a_reciprocal_is_a_quotient():
    assert_rewrites(
        elimination.divide_instead,
        "g (float[N,3] a, float[N,3] b) => (float[N,3] y) <float c = {1}> { r = Div(c, a) y = Mul(b, r) }",
        "g (float[N,3] a, float[N,3] b) => (float[N,3] y) { y = Div(b, a) }",
    )
    integers = "g (int64[N] b) => (int64[N] y) <int64 c = {1}, int64 a = {2}> { r = Div(c, a) y = Mul(b, r) }"
    assert_rewrites(elimination.divide_instead, integers, None)


def test_choosing_by_the_opposite():
    assert_rewrites(
        elimination.swap_where,
        "g (bool[N] c, float[N] a, float[N] b) => (float[N] y, bool[N] n) { n = Not(c) y = Where(n, a, b) }",
        "g (bool[N] c, float[N] a, float[N] b) => (float[N] y, bool[N] n) { n = Not(c) y = Where(c, b, a) }",
    )


# --- casts


def test_a_cast_to_the_same_type():
    assert_rewrites(elimination.eliminate_cast, "g (float[N,3] x) => (float[N,3] y) { c = Cast<to=1>(x) y = Neg(c) }", PLAIN)


@pytest.mark.parametrize(
    ("source", "between", "target"),
    [("float16", 1, "float16"), ("int32", 7, "float"), ("bool", 6, "float"), ("uint8", 6, "int64"), ("float", 11, "int32")],
)
def test_a_cast_that_loses_nothing_is_skipped(source, between, target):
    code = {"float16": 10, "float": 1, "int64": 7, "int32": 6}[target]
    after = "y = Identity(x)" if source == target else f"y = Cast<to={code}>(x)"
    journal = assert_rewrites(
        elimination.skip_exact_cast,
        f"g ({source}[N] x) => ({target}[N] y) {{ c = Cast<to={between}>(x) y = Cast<to={code}>(c) }}",
        f"g ({source}[N] x) => ({target}[N] y) {{ {after} }}" if source != target else None,
    )
    assert journal.events


def test_a_cast_that_rounds_is_skipped_only_on_request():
    text = "g (float[N] x) => (float[N] y) { a = Cast<to=10>(x) b = Cast<to=1>(a) y = Neg(b) }"
    assert_rewrites(elimination.skip_exact_cast, text, None)
    assert_rewrites(elimination.merge_float_casts, text, "g (float[N] x) => (float[N] y) { y = Neg(x) }", rtol=1e-2)
    through_integers = "g (float[N] x) => (float[N] y) { a = Cast<to=6>(x) y = Cast<to=1>(a) }"
    assert_rewrites(elimination.merge_float_casts, through_integers, None)


@pytest.mark.parametrize("number", [6, 7, 1])
def test_a_truth_value_plus_0_is_itself(number):
    name = {6: "int32", 7: "int64", 1: "float"}[number]

    def copied(x, zero):
        nodes = f"c = Cast<to={number}>(x) a = Add(c, z) b = Cast<to=9>(a) y = Not(b)"
        return f"g (bool{x} x) => (bool{x} y) <{name}{zero} z = {{0}}> {{ {nodes} }}"

    rule = elimination.eliminate_copied_truth
    assert_rewrites(rule, copied("[N]", ""), "g (bool[N] x) => (bool[N] y) { y = Not(x) }")
    assert_rewrites(rule, copied("[N]", "[1]"), "g (bool[N] x) => (bool[N] y) { y = Not(x) }")
    scalar = f"g (bool x) => (bool[1] y) <{name}[1] z = {{0}}> {{ c = Cast<to={number}>(x) a = Add(c, z) y = Cast<to=9>(a) }}"
    assert_rewrites(rule, scalar, "g (bool x) => (bool[1] y) <bool[1] z = {0}> { y = Or(x, z) }")
    assert_rewrites(rule, copied("[N]", "").replace("{0}", "{1}"), None)
    assert_rewrites(rule, copied("[N]", "").replace("to=9", "to=3").replace("y = Not(b)", "y = Cast<to=9>(b)"), None)


def test_numbers_are_spelled_by_their_own_precision():
    assert_rewrites(
        elimination.skip_exact_cast,
        "g (float[N] x) => (string[N] y) { a = Cast<to=11>(x) y = Cast<to=8>(a) }",
        None,
        compare=False,
    )


@pytest.mark.parametrize(("opset", "attributes"), [(13, ""), (21, "<start=1>"), (21, "<start=0, end=1>")])
def test_a_shape_is_taken_before_the_cast(opset, attributes):
    plain = attributes.replace("start=0, ", "")
    assert_rewrites(
        elimination.shape_before_cast,
        f"g (float[N,3] x) => (int64[K] s) {{ c = Cast<to=10>(x) s = Shape{attributes}(c) }}",
        f"g (float[N,3] x) => (int64[K] s) {{ s = Shape{plain}(x) }}",
        opset=opset,
    )


# --- shapes


@pytest.mark.parametrize(("start", "end"), [("0", "9223372036854775807"), ("0", "3"), ("-3", "7"), ("-9", "2147483647")])
def test_a_slice_of_everything(start, end):
    assert_rewrites(
        elimination.eliminate_slice,
        f"g (float[N,3] x) => (float[N,3] y) <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{1}}>"
        "{ t = Slice(x, s, e, a) y = Neg(t) }",
        PLAIN,
    )


def test_a_slice_up_to_the_symbolic_size():
    assert_rewrites(
        elimination.eliminate_slice,
        "g (float[N,3] x) => (float[N,3] y) <int64[1] s = {0}>{ e = Shape<start=0, end=1>(x) t = Slice(x, s, e) y = Neg(t) }",
        "g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }",
    )


def test_a_slice_whose_bounds_are_attributes():
    assert_rewrites(
        elimination.eliminate_slice,
        "g (float[N,3] x) => (float[N,3] y) { t = Slice<starts=[0], ends=[9], axes=[1]>(x) y = Neg(t) }",
        PLAIN,
        opset=9,
    )


@pytest.mark.parametrize(
    "bounds",
    [
        "int64[1] s = {1}, int64[1] e = {9}, int64[1] a = {1}, int64[1] p = {1}",
        "int64[1] s = {0}, int64[1] e = {-1}, int64[1] a = {1}, int64[1] p = {1}",
        "int64[1] s = {0}, int64[1] e = {9}, int64[1] a = {1}, int64[1] p = {2}",
        "int64[1] s = {0}, int64[1] e = {100}, int64[1] a = {0}, int64[1] p = {1}",
    ],
)
def test_a_slice_of_a_part_stays(bounds):
    text = f"g (float[N,3] x) => (float[M,K] y) <{bounds}> {{ t = Slice(x, s, e, a, p) y = Neg(t) }}"
    assert reasons(assert_rewrites(elimination.eliminate_slice, text, None)) == ["it takes a part"]


@pytest.mark.parametrize("opset", [11, 13])
def test_a_constant_is_stored_in_its_later_shape(opset):
    how = ("<axes=[0]>(w)", "") if opset == 11 else ("(w, a)", ", int64[1] a = {0}")
    assert_rewrites(
        elimination.unsqueeze_constant,
        f"g (float[2,3] x) => (float[2,3] y) <float[3] w = {{1, 2, 3}}{how[1]}> {{ u = Unsqueeze{how[0]} y = Add(x, u) }}",
        "g (float[2,3] x) => (float[2,3] y) <float[1,3] u = {1, 2, 3}> { y = Add(x, u) }",
        opset=opset,
    )


def test_an_expansion_to_the_same_shape():
    assert_rewrites(
        elimination.eliminate_expand,
        "g (float[N,3] x) => (float[N,3] y) { s = Shape(x) e = Expand(x, s) y = Neg(e) }",
        PLAIN,
    )
    assert_rewrites(
        elimination.eliminate_expand,
        "g (float[N,3] x) => (float[N,3] y) <int64[2] s = {1, 1}> { e = Expand(x, s) y = Neg(e) }",
        PLAIN,
    )
    text = "g (float[1,3] x) => (float[2,3] y) <int64[2] s = {2, 1}> { e = Expand(x, s) y = Neg(e) }"
    assert_rewrites(elimination.eliminate_expand, text, None)


def test_repeating_once():
    assert_rewrites(
        elimination.eliminate_tile,
        "g (float[N,3] x) => (float[N,3] y) <int64[2] r = {1, 1}> { e = Tile(x, r) y = Neg(e) }",
        PLAIN,
    )
    assert_rewrites(
        elimination.eliminate_tile, "g (float[2,3] x) => (float[4,3] y) <int64[2] r = {2, 1}> { y = Tile(x, r) }", None
    )


# --- clip


@pytest.mark.parametrize(("low", "raised"), [("-3", "0"), ("0.5", "0.5")])
def test_a_clip_does_what_relu_does(low, raised):
    assert_rewrites(
        elimination.clip_without_relu,
        f"g (float[N] x) => (float[N] y) <float a = {{{low}}}, float b = {{0.8}}> {{ r = Relu(x) y = Clip(r, a, b) }}",
        f"g (float[N] x) => (float[N] y) <float a = {{{raised}}}, float b = {{0.8}}> {{ y = Clip(x, a, b) }}",
    )
    assert_rewrites(
        elimination.clip_without_relu,
        f"g (float[N] x) => (float[N] y) {{ r = Relu(x) y = Clip<min={float(low)}, max=0.8>(r) }}",
        f"g (float[N] x) => (float[N] y) {{ y = Clip<max=0.8, min={float(raised)}>(x) }}",
        opset=10,
    )


def test_a_clip_without_bounds_gets_zero():
    assert_rewrites(
        elimination.clip_without_relu,
        "g (float[N] x) => (float[N] y) { r = Relu(x) y = Clip(r) }",
        "g (float[N] x) => (float[N] y) <float a = {0}> { y = Clip(x, a) }",
    )
    text = "g (float[N] x, float a) => (float[N] y) { r = Relu(x) y = Clip(r, a) }"
    assert reasons(assert_rewrites(elimination.clip_without_relu, text, None)) == ["the lower bound is not constant"]
