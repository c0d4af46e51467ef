"""What can be fed to a run and what is refused, compared with onnxruntime; and what only we take."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import InvalidArgument
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def fed(model: bytes, **feeds: Any) -> Any:
    return lambda ort: ort.InferenceSession(model).run(None, feeds)


@pytest.mark.parametrize(
    "value",
    [
        X,
        X.T.copy().T,
        X[:, ::-1],
        np.asfortranarray(X),
        X.tolist(),
        [[1, 2, 3]],
        [[None, 1.0, 2.0]],
        np.zeros((0, 3), np.float32),
        np.ma.array(X),
        X.astype(np.float64),
        X.astype(np.int64),
        X.astype(np.longlong),
        X[0],
        X[None],
        np.array(1, np.float32),
        np.ones((2, 4), np.float32),
        tuple(X.tolist()),
        3.0,
        "abc",
        b"abc",
        range(3),
        None,
        [[1, 2], [3]],
        ["a"],
        [],
        [X],
        {},
        {"a": 1.0},
        {1: 1.0},
        np.array([["a", "b", "c"]]),
        np.ones((2, 3), "S3"),
        np.ones((2, 3), "M8[s]"),
        np.ones((2, 3), np.longdouble),
        memoryview(X),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}{getattr(value, 'shape', value)}"[:60],
)
def test_tensor_inputs_take_what_onnxruntime_takes(value: Any) -> None:
    assert_same(fed(models.DOUBLE, x=value), begins=value is None)


def test_every_wrong_dimension_is_listed() -> None:
    model = models.parsed("g (float[2,N,4] x) => (float[2,N,4] y) { y = Relu(x) }")
    assert_same(fed(model, x=np.ones((3, 1, 5), np.float32)))


def test_lists_take_on_the_declared_type() -> None:
    model = models.parsed("g (int64[N] x) => (int64[N] y) { y = Identity(x) }")
    assert_same(fed(model, x=[1.5, 2.5]))


@pytest.mark.parametrize("feed", [{}, {"zz": X}, {"x": X, "zz": X}, {1: X}, {"x": X, 1: X}], ids=str)
def test_names_of_feeds_are_checked(feed: dict[Any, Any]) -> None:
    assert_same(lambda ort: ort.InferenceSession(models.DOUBLE).run(None, feed))


def test_the_feed_must_be_a_mapping() -> None:
    assert_same(lambda ort: ort.InferenceSession(models.DOUBLE).run(None, [X]))
    assert_same(lambda ort: ort.InferenceSession(models.DOUBLE).run(None, None))


@pytest.mark.parametrize(
    "names",
    [
        None,
        [],
        ["y"],
        ("y",),
        {"y"},
        ["y", "y"],
        np.array(["y"]),
        ["nope"],
        ["y", "nope"],
        [""],
        "y",
        3,
        [3],
        iter(["y"]),
        {"y": 1},
    ],
    ids=lambda names: str(names).split(" object at ")[0],
)
def test_output_names(names: Any) -> None:
    assert_same(lambda ort: ort.InferenceSession(models.DOUBLE).run(names, {"x": X}))


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a", "é"]),
        np.array(["a", 1, None], object),
        ["a", "b"],
        [1, 2],
        np.array([b"abc"], dtype="V3"),
        np.array([1, 2], object),
        np.array([], object),
    ],
    ids=repr,
)
def test_string_inputs(value: Any) -> None:
    assert_same(fed(models.STRINGS, s=value))


def test_bytes_of_different_lengths_are_read_rightly() -> None:
    (got,) = sardonyx.InferenceSession(models.STRINGS).run(None, {"s": np.array([b"a", b"bcd"])})
    assert got.tolist() == ["a", "bcd"]  # onnxruntime reads past the end of the shorter one


@pytest.mark.parametrize(
    "value",
    [
        [X[0], X[1]],
        [X],
        (X[0],),
        [X[0].astype(np.float64)],
        [X[0].tolist()],
        [1.0, 2.0],
        X,
        [{1: 2}],
        {1: 2.0},
        "abc",
        3,
        [None],
        [X[0], "x"],
    ],
    ids=lambda value: repr(value)[:40],
)
def test_sequence_inputs(value: Any) -> None:
    assert_same(fed(models.TAKE_FROM_SEQUENCE, s=value, i=np.array(0)), begins=True)


def test_an_empty_list_is_an_empty_sequence() -> None:
    with pytest.raises(sardonyx.errors.InvalidArgument, match="SequenceAt"):
        sardonyx.InferenceSession(models.TAKE_FROM_SEQUENCE).run(None, {"s": [], "i": np.array(0)})


@pytest.mark.parametrize(
    "value",
    [{"a": 1.0}, {"a": 1}, {"b": np.float32(2)}, {"c": 1.0}, {"a": True}, {1: 1.0}, {b"a": 1.0}, X],
    ids=lambda value: repr(value)[:30],
)
def test_map_inputs(value: Any) -> None:
    assert_same(fed(models.dict_vectorizer(), x=value))


def test_a_map_may_be_empty() -> None:
    (got,) = sardonyx.InferenceSession(models.dict_vectorizer()).run(None, {"x": {}})
    assert got.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("value", [None, X[0, :2], [1.0, 2.0], X], ids=lambda value: repr(value)[:30])
def test_optional_inputs(value: Any) -> None:
    assert_same(fed(models.HAS_ELEMENT, x=value))


def test_an_optional_input_may_be_left_out() -> None:
    assert_same(lambda ort: ort.InferenceSession(models.HAS_ELEMENT).run(None, {}))


@pytest.mark.parametrize(
    "model", [models.OVERRIDABLE, models.OLD_DEFAULTS, models.WEIGHT], ids=["overridable", "ir3", "constant"]
)
@pytest.mark.parametrize("weight", [None, X[0, :2], X[0]], ids=["default", "fed", "wrong"])
def test_initializers_may_be_fed_where_the_model_allows_it(model: bytes, weight: np.ndarray | None) -> None:
    feeds = {"x": X[0, :2]} if weight is None else {"x": X[0, :2], "w": weight}
    assert_same(lambda ort: ort.InferenceSession(model).run(None, feeds))
    assert_same(lambda ort: [arg.name for arg in ort.InferenceSession(model).get_overridable_initializers()])


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_ortvalues_are_fed_as_they_are(ort: ModuleType) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    (got,) = ort.InferenceSession(models.DOUBLE).run(None, {"x": value})
    np.testing.assert_array_equal(got, X + X)


def test_numpy_scalars_are_tensors_of_rank_0() -> None:
    model = models.parsed("g (float x) => (float y) { y = Neg(x) }")
    (got,) = sardonyx.InferenceSession(model).run(None, {"x": np.float32(3)})
    assert got == -3 and got.shape == ()


SCALAR = "g (float x, float[2] w) => (float[2] y) { y = Mul(x, w) }"


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_is_a_scalar_whatever_its_rank(ort: ModuleType, shape: tuple[int, ...]) -> None:
    x, w = np.full(shape, 3, np.float32), np.array([1, 2], np.float32)
    session = ort.InferenceSession(models.parsed(SCALAR))
    for value in (np.asarray(x), ort.OrtValue.ortvalue_from_numpy(np.asarray(x))):
        np.testing.assert_array_equal(session.run(None, {"x": value, "w": w})[0].reshape(-1), [3, 6])


@pytest.mark.parametrize("native", ["0", "1"])
def test_a_scalar_that_is_fed_with_an_axis_has_none_in_the_model(native: str) -> None:
    model = models.parsed("g (float x) => (float y, float z) { y = Neg(x) z = Exp(y) }")
    session = sardonyx.InferenceSession(model, providers=[("CPUExecutionProvider", {"native": native})])
    for shape in ((1,), (), (1, 1)):
        y, z = session.run(None, {"x": np.ones(shape, np.float32)})
        assert y.shape == z.shape == () and y == -1


def test_several_elements_are_no_scalar() -> None:
    with pytest.raises(InvalidArgument, match="Invalid rank for input: x Got: 1 Expected: 0"):
        sardonyx.InferenceSession(models.parsed(SCALAR)).run(None, {"x": np.ones(2, np.float32), "w": np.ones(2, np.float32)})


def test_big_endian_arrays_are_converted() -> None:
    (got,) = sardonyx.InferenceSession(models.DOUBLE).run(None, {"x": X.astype(">f4")})
    np.testing.assert_array_equal(got, X + X)


def test_unaligned_arrays_are_taken() -> None:
    buffer = np.zeros(25, np.uint8)
    unaligned = buffer[1:].view(np.float32).reshape(2, 3)
    unaligned[...] = X
    (got,) = sardonyx.InferenceSession(models.DOUBLE).run(None, {"x": unaligned})
    np.testing.assert_array_equal(got, X + X)


def test_ml_dtypes_arrays_go_in_and_come_out() -> None:
    values = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
    (wide,) = sardonyx.InferenceSession(models.FROM_BFLOAT16).run(None, {"x": values})
    assert wide.tolist() == [1.5, -2, 3]
    (narrow,) = sardonyx.InferenceSession(models.TO_BFLOAT16).run(None, {"x": wide})
    assert narrow.dtype == ml_dtypes.bfloat16 and narrow.tolist() == [1.5, -2, 3]


@pytest.mark.parametrize(
    "code", [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.BFLOAT16]
)
def test_arrays_of_all_small_types_pass_through(code: int) -> None:
    x, y = (helper.make_tensor_value_info(name, code, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    array = np.array([1, 2, 3]).astype(helper.tensor_dtype_to_np_dtype(code))
    (got,) = sardonyx.InferenceSession(model).run(None, {"x": array})
    assert got.dtype == array.dtype and got.astype(np.float32).tolist() == [1, 2, 3]


def test_complex_arrays_are_taken_where_the_model_says_so() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.COMPLEX64, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (got,) = sardonyx.InferenceSession(model).run(None, {"x": np.array([1 + 2j, 3], np.complex64)})
    assert got.tolist() == [1 + 2j, 3]


def test_inputs_are_never_written() -> None:
    given = X.copy()
    sardonyx.InferenceSession(models.CHAIN).run(None, {"x": given})
    np.testing.assert_array_equal(given, X)
    assert given.flags.writeable


@pytest.mark.parametrize(
    "items", [["a", "ü"], [np.str_("a"), np.str_("ü")], [np.str_("a"), "ü"], [b"a", "ü"], [np.str_("a"), b"\xc3\xbc"], ["a", 7]]
)
def test_texts_of_all_kinds_are_strings(items):
    """In the first run, and in those that take the short way."""
    session = sardonyx.InferenceSession(models.parsed("g (string[N] s) => (string[N] y) { y = StringNormalizer(s) }"))
    given = np.empty(2, object)
    given[:] = items
    for _ in range(3):
        (found,) = session.run(None, {"s": given})
        assert found.tolist() == ["a", "7" if items[1] == 7 else "ü"]
        assert {type(one) for one in found} == {str}
    assert given.tolist() == items


def test_a_model_of_one_look_up_checks_what_it_is_fed():
    session = sardonyx.InferenceSession(models.parsed("g (string[N] s) => (string[N] y) { y = StringNormalizer(s) }"))
    for _ in range(2):
        assert session.run(None, {"s": np.array(["a"], object)})[0].tolist() == ["a"]
        with pytest.raises(sardonyx.capi.onnxruntime_pybind11_state.InvalidArgument, match="Invalid rank"):
            session.run(None, {"s": np.array([["a"]], object)})
