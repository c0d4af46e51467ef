"""The direct way gives what the ordinary way gives, keeps nothing that the caller gets, and leaves to that way what it cannot do."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx

OPSETS = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>'

CLASSIFIER = """g (float[N,2] x) => (int64[N] label, seq(map(int64, float)) shares) {
    label, scores = ai.onnx.ml.LinearClassifier<classlabels_ints=[5, 3], coefficients=[1.0, 2.0, -1.0, 0.5], intercepts=[0.0, 0.1],
        post_transform="SOFTMAX">(x)
    shares = ai.onnx.ml.ZipMap<classlabels_int64s=[5, 3]>(scores) }"""
NAMED = CLASSIFIER.replace("int64[N] label", "string[N] label").replace(
    "classlabels_ints=[5, 3]", 'classlabels_strings=["b", "a"]'
)
BRANCHES = """g (float[N,4] x) => (float[M,4] y) {
    zero = Constant<value_float=0.0>()
    doubled = Add(x, x)
    total = ReduceSum<keepdims=0>(doubled)
    positive = Greater(total, zero)
    y = If(positive)<then_branch = a () => (float[P,4] p) { p = Concat<axis=0>(doubled, x) },
                     else_branch = b () => (float[N,4] q) { q = Identity(doubled) }> }"""
CHOICE = """g (bool c, string[N,2] x) => (string[N,2] y) {
    y = If(c)<then_branch = a () => (string[N,2] p) {
                  p = ai.onnx.ml.LabelEncoder<keys_strings=["a", "b"], values_strings=["c", "d"]>(x) },
              else_branch = b () => (string[N,2] q) {
                  q = ai.onnx.ml.LabelEncoder<keys_strings=["a", "b"], values_strings=["e", "f"]>(x) }> }"""
INPUT_BACK = CHOICE.replace('LabelEncoder<keys_strings=["a", "b"], values_strings=["e", "f"]>', "Identity").replace(
    "ai.onnx.ml.Identity", "Identity"
)
ENCODED = """g (string[N,2] x) => (float[N,2,3] y) { y = ai.onnx.ml.OneHotEncoder<cats_strings=["a", "b", "c"]>(x) }"""


WORDS = """g (string[N,2] x) => (string[M] y, string[N,2] z, string[N,2] w, bool[N,2] e) {
    shape = Constant<value_ints=[-1]>()
    twice = StringConcat(x, x)
    y = Reshape(twice, shape)
    z = Identity(x)
    w = Concat<axis=0>(x)
    e = Equal(x, z) }"""
SEVERAL = """g (float[N,2] x) => (seq(float[N,2]) y) { a = Add(x, x) b = Mul(x, x) y = SequenceConstruct(a, b) }"""

PARTS = """g (float[2,4] x, int64[2] l) => (float[2,A] p, float[2,B] q) {
    e = Exp(x)
    a, b = Split<axis=1>(e, l)
    p = Neg(a)
    q = Neg(b) }"""
"""NumPy splits, and its views have gaps."""


def session(text: str, native: str = "1") -> sardonyx.InferenceSession:
    model = onnx.parser.parse_model(OPSETS + text).SerializeToString()
    return sardonyx.InferenceSession(model, providers=[("CPUExecutionProvider", {"native": native})])


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, np.ndarray) and wanted.dtype != object:
        return bool(got.dtype == wanted.dtype and np.allclose(got, wanted, rtol=1e-6))
    if isinstance(wanted, np.ndarray):
        return bool((got == wanted).all())
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(same, got, wanted))
    return got.keys() == wanted.keys() and all(abs(got[key] - wanted[key]) < 1e-6 for key in wanted)


def texts(*items: str) -> np.ndarray:
    return np.array(items, dtype=object).reshape(-1, 2)


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (
            CLASSIFIER,
            [{"x": np.float32([[1, 2], [-3, 1], [0, 0]])}, {"x": np.float32([[4, -2]])}, {"x": np.zeros((0, 2), "f")}],
        ),
        (NAMED, [{"x": np.float32([[1, 2], [-3, 1], [0, 0]])}]),
        (BRANCHES, [{"x": np.ones((2, 4), np.float32)}, {"x": -np.ones((2, 4), np.float32)}]),
        (ENCODED, [{"x": texts("a", "c", "?", "b")}, {"x": texts("b", "b")}]),
        (WORDS, [{"x": texts("a", "c", "?", "b")}, {"x": texts("", "é\0")}]),
        (SEVERAL, [{"x": np.float32([[1, 2], [-3, 1]])}]),
        (PARTS, [{"x": np.arange(8, dtype=np.float32).reshape(2, 4), "l": np.int64([1, 3])}]),
    ],
)
def test_the_direct_way_agrees_with_the_ordinary_one(text: str, feeds: list[Mapping[str, Any]]) -> None:
    quick, plain = session(text), session(text, native="0")
    assert quick._sess.direct is not None
    plain._sess.direct = None
    for _ in range(3):
        for one in feeds:
            assert same(quick.run(None, one), plain.run(None, one))
    assert all(quick._sess.direct(dict(one)) is not None for one in feeds)


def test_choices_go_the_direct_way() -> None:
    quick = session(CHOICE)
    assert quick._sess.direct is not None
    for c, wanted in ((True, texts("c", "_Unused", "_Unused", "d")), (False, texts("e", "_Unused", "_Unused", "f"))):
        feeds = {"c": np.array(c), "x": texts("a", "c", "?", "b")}
        assert same(quick.run(None, feeds)[0], wanted) and same(quick._sess.direct(feeds)[0], wanted)


def test_results_belong_to_the_caller() -> None:
    quick = session(BRANCHES)
    for sign in (1, -1):
        x = sign * np.ones((3, 4), np.float32)
        results = [quick.run(None, {"x": x})[0] for _ in range(3)]
        assert all(one.flags.writeable and one.flags.owndata for one in results)
        assert not any(np.shares_memory(one, other) for one in results for other in (x, *results) if one is not other)


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("g (float[N,2] x) => (float[N,2] y) { y = Identity(x) }", np.ones((3, 2), np.float32)),
        ("g (string[N,2] x) => (string[1,N,2] y) { a = Constant<value_ints=[0]>() y = Unsqueeze(x, a) }", texts("a", "b")),
        ("g (string[N,2] x) => (string[N,1] y, string[N,1] z) { y, z = Split<axis=1, num_outputs=2>(x) }", texts("a", "b")),
        ("g (string[N,2] x) => (string[2] y) { i = Constant<value_int=0>() y = Gather(x, i) }", texts("a", "b", "c", "d")),
        ("g (float[N,2] x) => (seq(float[N,2]) y) { y = SequenceConstruct(x, x) }", np.ones((3, 2), np.float32)),
    ],
)
def test_no_result_is_in_the_memory_of_a_feed(text: str, x: np.ndarray) -> None:
    made = session(text)
    for _ in range(2):
        results = [one for value in made.run(None, {"x": x}) for one in (value if isinstance(value, list) else [value])]
        assert all(one.flags.writeable and one.flags.c_contiguous and not np.shares_memory(one, x) for one in results)
        assert len(results) == 1 or not np.shares_memory(*results)


def test_unpickled_arrays_go_the_direct_way() -> None:
    quick = session(CLASSIFIER)
    x = np.float32([[1, 2]])
    wanted = quick.run(None, {"x": x})
    unpickled = pickle.loads(pickle.dumps(x))
    assert unpickled.dtype is not x.dtype
    found = quick._sess.direct({"x": unpickled})
    assert found is not None and same(found, wanted)


def test_what_would_give_an_input_back_is_copied() -> None:
    ordinary = session(INPUT_BACK)
    assert ordinary._sess.direct is not None
    x = texts("a", "b")
    (y,) = [ordinary.run(None, {"c": np.array(False), "x": x})[0] for _ in range(2)][-1:]
    assert not np.shares_memory(x, y)


@pytest.mark.parametrize(
    "feeds",
    [
        {"x": np.float32([[1, 2, 3]])},
        {"x": np.float32([1, 2])},
        {"x": np.float64([[1, 2]])},
        {"x": np.float32([[1, 2]]), "y": np.float32([1])},
        {},
    ],
)
def test_errors_are_those_of_the_ordinary_way(feeds: Mapping[str, Any]) -> None:
    quick, plain = session(CLASSIFIER), session(CLASSIFIER, native="0")
    for _ in range(2):
        with pytest.raises(Exception) as got:
            quick.run(None, feeds)
        with pytest.raises(type(got.value)) as wanted:
            plain.run(None, feeds)
        assert str(got.value) == str(wanted.value)


def test_arrays_of_any_layout_and_lists_are_taken() -> None:
    quick = session(CLASSIFIER)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::3]
    wanted = quick.run(None, {"x": x.copy()})
    frozen = x.copy()
    frozen.flags.writeable = False
    for given in (x, frozen, x.tolist(), np.asfortranarray(x)):
        assert same(quick.run(None, {"x": given}), wanted)


def test_texts_are_told_from_other_objects() -> None:
    quick = session(ENCODED)
    x = texts("a", "b")
    wanted = quick.run(None, {"x": x})
    quick.run(None, {"x": x})
    assert same(quick.run(None, {"x": np.array([[b"a", b"b"]], dtype=object)}), wanted)


def _of_maps(key: int, value: int) -> bytes:
    """A DictVectorizer for maps of these types."""
    from onnx import TensorProto, helper

    words = {"string_vocabulary": list("bca")} if key == TensorProto.STRING else {"int64_vocabulary": [2, 3, 1]}
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", **words)
    given = onnx.ValueInfoProto(name="x")
    given.type.map_type.key_type = key
    given.type.map_type.value_type.tensor_type.elem_type = value
    graph = helper.make_graph([node], "g", [given], [helper.make_tensor_value_info("y", value, [1, 3])])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


STRING, INT64, FLOAT, DOUBLE = 8, 7, 1, 11
MAPS: list[tuple[int, int, dict[Any, Any], list[Any]]] = [
    (STRING, FLOAT, {"a": 0.1, "c": 2.5}, [0.0, 2.5, np.float32(0.1)]),
    (STRING, FLOAT, {"a": np.float32(0.5), "b": 1}, [1.0, 0.0, 0.5]),
    (STRING, DOUBLE, {"a": 0.1}, [0.0, 0.0, 0.1]),
    (STRING, INT64, {"z": 7}, [0, 0, 0]),
    (INT64, FLOAT, {2: 1.5, 1: 4.0}, [1.5, 0.0, 4.0]),
    (INT64, STRING, {3: "three"}, ["", "three", ""]),
    (INT64, DOUBLE, {}, [0.0, 0.0, 0.0]),
]


@pytest.mark.parametrize(("key", "value", "fed", "wanted"), MAPS)
def test_maps_go_the_direct_way(key: int, value: int, fed: dict[Any, Any], wanted: list[Any]) -> None:
    one = sardonyx.InferenceSession(_of_maps(key, value))
    before = dict(fed)
    (direct,) = one._sess.direct({"x": fed}) or [None]
    (ordinary,) = one.run(["y"], {"x": fed}, sardonyx.RunOptions())
    assert direct is not None and direct.tolist() == ordinary.tolist() == [wanted]
    assert direct.dtype == ordinary.dtype and fed == before


@pytest.mark.parametrize("fed", [{1: 2.0}, {"a": "text"}, {"a": None}, np.zeros(3), [("a", 1.0)]], ids=repr)
def test_maps_that_do_not_fit_are_refused_as_ever(fed: Any) -> None:
    one = sardonyx.InferenceSession(_of_maps(STRING, FLOAT))
    assert one._sess.direct({"x": fed}) is None
    with pytest.raises(Exception, match=r"Unexpected|expected to be of type|Input must be"):
        one.run(None, {"x": fed})


def test_arrays_that_are_not_to_be_written_go_the_direct_way() -> None:
    quick = session(CLASSIFIER)
    x = np.float32([[1, 2]])
    wanted = quick.run(None, {"x": x})
    x.flags.writeable = False
    found = quick._sess.direct({"x": x})
    assert found is not None and same(found, wanted)
