"""Constant folding and sharing, and common subexpressions."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.optimizer.passes.constants import fold_constants, remove_unused, share_constants
from sardonyx.optimizer.passes.subexpressions import eliminate_common_subexpressions
from tests.optimizer.rewriting import assert_rewrites

GRAPH = "g (float[2,3] x) => (float[2,3] y) "


def test_a_node_over_constants_becomes_an_initializer():
    assert_rewrites(
        fold_constants,
        GRAPH + "<float[3] w = {1, 2, 3}> { e = Exp(w) n = Neg(e) y = Mul(x, n) }",
        GRAPH + "<float[3] w = {-2.7182817, -7.389056, -20.085537}> { y = Mul(x, w) }",
    )


def test_a_constant_output_keeps_its_name():
    assert_rewrites(
        fold_constants,
        "g () => (float[3] y) <float[3] w = {1, 2, 3}> { y = Neg(w) }",
        "g () => (float[3] y) <float[3] w = {-1, -2, -3}> { y = Identity(w) }",
    )


def test_the_shape_of_a_known_shape_is_a_constant():
    assert_rewrites(
        fold_constants,
        "g (float[2,3] x, float[6] z) => (float[2,3] y) { s = Shape(x) r = Reshape(z, s) y = Add(x, r) }",
        "g (float[2,3] x, float[6] z) => (float[2,3] y) <int64[2] s = {2, 3}> { r = Reshape(z, s) y = Add(x, r) }",
    )


def test_random_and_overridable_things_stay():
    assert_rewrites(fold_constants, "g () => (float[2] y) { r = RandomUniform<shape=[2], seed=1.0>() y = Neg(r) }", None)


def test_an_output_over_the_limit_stays():
    text = "g () => (float[5000] y) <int64[1] s = {5000}, float[1] one = {1}> { e = Expand(one, s) y = Exp(e) }"
    assert_rewrites(fold_constants, text, None, options={"optimization.constant_folding_max_output_size_in_bytes": "1000"})


def test_equal_constants_are_one():
    assert_rewrites(
        share_constants,
        GRAPH + "<float a = {2}, float b = {2}> { p = Mul(x, a) y = Add(p, b) }",
        GRAPH + "<float a = {2}> { p = Mul(x, a) y = Add(p, a) }",
    )


def test_equal_nodes_are_one():
    assert_rewrites(
        eliminate_common_subexpressions,
        GRAPH + "{ a = Exp(x) b = Exp(x) c = Neg(a) d = Neg(b) y = Add(c, d) }",
        GRAPH + "{ a = Exp(x) c = Neg(a) y = Add(c, c) }",
    )


@pytest.mark.parametrize(
    "body",
    [
        "a = ReduceSum<keepdims=1>(x) b = ReduceSum<keepdims=0>(x) y = Add(a, b)",
        "a = Dropout(x) b = Dropout(x) y = Add(a, b)",
    ],
)
def test_different_attributes_and_random_ops_stay_apart(body):
    assert_rewrites(eliminate_common_subexpressions, "g (float[2,3] x) => (float[N,M] y) {" + body + "}", None)


def test_two_outputs_of_the_graph_stay_two():
    assert_rewrites(
        eliminate_common_subexpressions, "g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x) z = Exp(x) }", None
    )


def test_what_no_output_needs_goes():
    assert_rewrites(remove_unused, GRAPH + "{ a = Exp(x) b = Neg(a) y = Abs(x) }", GRAPH + "{ y = Abs(x) }")


def test_an_output_that_identity_does_not_take_is_not_folded():
    """Cast gives 2-bit integers in opsets whose Identity does not know them."""
    model = onnx.parser.parse_model(
        '<ir_version: 12, opset_import: ["": 24]> g (float[1] x) => (float[1] z, y) <int64[2] c = {1, 0}>'
        " { z = Neg(x) y = Cast<to=26>(c) }"
    )
    z, y = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": np.ones(1, np.float32)})
    assert z.tolist() == [-1] and y.astype(np.int64).tolist() == [1, 0]
