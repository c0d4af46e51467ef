"""Texts become numbers: categories before they are moved about, classes until they are answers."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.optimizer.passes.categories import number_texts
from tests.optimizer.rewriting import assert_rewrites

HEAD = '<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : {}]>'
COLUMNS = """g (string[N,2] x) => (float[N,1,2] a, float[N,1,3] b) <int64[1] first = {0}, int64[1] second = {1}> {
    u = Gather<axis=1>(x, first) v = Gather<axis=1>(x, second)
    a = ai.onnx.ml.OneHotEncoder<cats_strings=["s", "t"]>(u)
    b = ai.onnx.ml.OneHotEncoder<cats_strings=["t", "r", "s"]>(v) }"""
NUMBERED = """g (string[N,2] x) => (float[N,1,2] a, float[N,1,3] b) <int64[1] first = {0}, int64[1] second = {1}> {
    n = ai.onnx.ml.LabelEncoder<%s>(x)
    u = Gather<axis=1>(n, first) v = Gather<axis=1>(n, second)
    a = ai.onnx.ml.OneHotEncoder<cats_int64s=[0, 1], zeros=1>(u)
    b = ai.onnx.ml.OneHotEncoder<cats_int64s=[1, 2, 0], zeros=1>(v) }"""
LISTED = 'classes_strings=["s", "t", "r"]'
MAPPED = 'keys_strings=["s", "t", "r"], values_int64s=[0, 1, 2], default_int64=-1'


@pytest.mark.parametrize(("version", "encoder"), [(1, LISTED), (2, MAPPED), (4, MAPPED)])
def test_categories_are_numbered_before_they_are_moved(version: int, encoder: str) -> None:
    head = HEAD.format(version)
    assert_rewrites(number_texts, head + COLUMNS, head + NUMBERED % encoder, compare=False)


@pytest.mark.parametrize(
    "text",
    [
        'g (string[N] x) => (float[N,1] a, string[N] b) { b = Identity(x) a = ai.onnx.ml.OneHotEncoder<cats_strings=["s"]>(b) }',
        'g (string[N] x) => (float[N,1] a, string[N] b) { a = ai.onnx.ml.OneHotEncoder<cats_strings=["s"]>(x) b = StringConcat(x, x) }',
        "g (int64[N] x) => (float[N,1] a) { a = ai.onnx.ml.OneHotEncoder<cats_int64s=[3]>(x) }",
    ],
)
def test_texts_that_somebody_wants_to_see_stay(text: str) -> None:
    assert_rewrites(number_texts, text, None, opset=20, compare=False)


LINEAR = """g (float[N,2] x) => (string[N] label, float[N,3] scores) {
    label, scores = ai.onnx.ml.LinearClassifier<classlabels_strings=["b", "a", "c"], coefficients=[1.0, 2.0, -1.0, 0.5, 0.3, 0.2],
        intercepts=[0.0, 0.1, -0.2]>(x) }"""
ANSWERED = """g (float[N,2] x) => (string[N] label, float[N,3] scores) {
    place, scores = ai.onnx.ml.LinearClassifier<coefficients=[1.0, 2.0, -1.0, 0.5, 0.3, 0.2], intercepts=[0.0, 0.1, -0.2],
        classlabels_ints=[0, 1, 2]>(x)
    label = ai.onnx.ml.LabelEncoder<keys_int64s=[0, 1, 2], values_strings=["b", "a", "c"]>(place) }"""


def test_classifiers_answer_with_numbers() -> None:
    assert_rewrites(number_texts, HEAD.format(3) + LINEAR, HEAD.format(3) + ANSWERED, compare=False)


def test_answers_that_are_not_in_the_list_stay() -> None:
    one_score = LINEAR.replace("intercepts=[0.0, 0.1, -0.2]", "intercepts=[0.1]")
    assert_rewrites(number_texts, HEAD.format(3) + one_score, None, compare=False)


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("text", [COLUMNS, LINEAR])
def test_sessions_compute_the_same(text: str, version: int) -> None:
    model = onnx.parser.parse_model(HEAD.format(version) + text).SerializeToString()
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    texts = np.array([["s", "t"], ["?", "r"], ["t", ""], ["s", "s"]], dtype=object)
    x = texts if text is COLUMNS else np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)
    wanted = sardonyx.InferenceSession(model, options).run(None, {"x": x})
    for got, want in zip(sardonyx.InferenceSession(model).run(None, {"x": x}), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want) if want.dtype == object else np.testing.assert_allclose(got, want, rtol=1e-6)
