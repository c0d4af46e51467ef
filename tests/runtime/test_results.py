"""What comes out of a run: kinds of values, and arrays that belong to the caller alone."""

from __future__ import annotations

import gc
from types import ModuleType

import numpy as np
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.runtime.execution.results import release
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_kinds_of_outputs() -> None:
    assert_same(lambda ort: ort.InferenceSession(models.MAKE_SEQUENCE).run(None, {"x": X}))
    assert_same(lambda ort: ort.InferenceSession(models.EMPTY_OPTIONAL).run(None, {"x": X[0]}))
    assert_same(lambda ort: ort.InferenceSession(models.zip_map()).run(None, {"x": X}))


def test_maps_hold_plain_python_numbers() -> None:
    ((first, _),) = sardonyx.InferenceSession(models.zip_map()).run(None, {"x": X})
    assert {type(key) for key in first} == {int} and {type(value) for value in first.values()} == {float}


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_outputs_share_no_memory_with_inputs(ort: ModuleType) -> None:
    given = np.arange(3, dtype=np.float32)
    (got,) = ort.InferenceSession(models.PASS_THROUGH).run(None, {"x": given})
    assert not np.shares_memory(got, given)
    assert got.flags.c_contiguous and got.flags.writeable


def test_string_outputs_share_no_memory_with_inputs() -> None:
    given = np.array(["a", "b"], object)
    (got,) = sardonyx.InferenceSession(models.STRINGS).run(None, {"s": given})
    assert not np.shares_memory(got, given)


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[2,3] x) => (float[3,2] y) { y = Transpose(x) }",
        "g (float[2,3] x) => (float[6] y) <int64[1] s = {6}> { y = Reshape(x, s) }",
        "g (float[2,3] x) => (float[2,3] x) { }",
        "g (float[2,3] x) => (float[2,3] w) <float[2,3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> { }",
        "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Relu(x) z = Identity(y) }",
        "g (float[2,3] x) => (float[1,3] y, float[1,3] z) { t = Relu(x) y, z = Split<axis=0>(t) }",
        "g (float[2,3] x) => (float[2,3] y) { y = Constant<value = float[2,3] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>() }",
    ],
)
def test_outputs_are_fresh_whatever_the_kernels_return(graph: str) -> None:
    session = sardonyx.InferenceSession(models.parsed(graph, opset=13))
    outputs = session.run(None, {"x": X})
    for index, output in enumerate(outputs):
        assert output.flags.c_contiguous and output.flags.writeable and type(output) is np.ndarray
        assert not np.shares_memory(output, X)
        assert not any(np.shares_memory(output, other) for other in outputs[index + 1 :])
    before = [output.copy() for output in outputs]
    for output in outputs:
        output[...] = -1
    for again, expected in zip(session.run(None, {"x": X}), before, strict=True):
        np.testing.assert_array_equal(again, expected)


def test_the_same_name_may_be_fetched_twice() -> None:
    first, second = sardonyx.InferenceSession(models.DOUBLE).run(["y", "y"], {"x": X})
    np.testing.assert_array_equal(first, second)
    assert not np.shares_memory(first, second)


def test_a_small_slice_does_not_keep_a_large_array_alive() -> None:
    model = models.parsed(
        "g (float[1000] x) => (float[1] y) <int64[1] a = {0}, int64[1] b = {1}> { t = Relu(x) y = Slice(t, a, b) }"
    )
    (got,) = sardonyx.InferenceSession(model).run(None, {"x": np.ones(1000, np.float32)})
    assert got.base is None


def test_a_view_that_is_larger_than_memory_is_refused() -> None:
    view = np.broadcast_to(np.float32(1), (2**50,))
    with pytest.raises(errors.RuntimeException, match="a result cannot be copied: MemoryError"):
        release([view])


def test_rank_0_outputs_are_arrays() -> None:
    model = models.parsed("g (float[N] x) => (float y) { y = ReduceSum<keepdims=0>(x) }")
    (got,) = sardonyx.InferenceSession(model).run(None, {"x": X[0]})
    assert isinstance(got, np.ndarray) and got.shape == ()


def test_any_inner_value_can_be_fetched() -> None:
    session = sardonyx.InferenceSession(models.CHAIN)
    t, y, x = session.run(["t", "y", "x"], {"x": X})
    np.testing.assert_array_equal(t, X * [1, 2, 3])
    np.testing.assert_array_equal(y, t + X)
    np.testing.assert_array_equal(x, X)
    assert not np.shares_memory(x, X)


def test_outputs_outlive_their_session() -> None:
    session = sardonyx.InferenceSession(models.DOUBLE)
    (got,) = session.run(None, {"x": X})
    del session
    gc.collect()
    np.testing.assert_array_equal(got, X + X)


def test_run_returns_the_only_output_or_a_dict() -> None:
    np.testing.assert_array_equal(sardonyx.run(models.DOUBLE, x=X), X + X)
    np.testing.assert_array_equal(sardonyx.run(models.DOUBLE, {"x": X}), X + X)
    both = sardonyx.run(models.TWO_OUTPUTS, x=X[0])
    assert list(both) == ["a", "b"]
    np.testing.assert_array_equal(both["a"], -X[0])
