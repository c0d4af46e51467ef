"""CDist in generated code agrees with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.native.agreement import assert_agrees

METRICS = ("sqeuclidean", "euclidean", "cityblock")


def points(count: int, features: int, type: str = "float32") -> np.ndarray:
    return np.random.default_rng(count * 100 + features).standard_normal((count, features)).astype(type)


def text(metric: str, type: str = "float") -> str:
    return f'g ({type}[M,K] a, {type}[N,K] b) => ({type}[M,N] c) {{ c = com.microsoft.CDist<metric="{metric}">(a, b) }}'


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=15, deadline=None)
@given(m=st.integers(0, 9), n=st.integers(0, 40), k=st.integers(0, 20))
def test_sets_of_any_size(metric: str, m: int, n: int, k: int) -> None:
    assert_agrees(text(metric), {"a": points(m, k), "b": points(n, k)}, tolerance=1e-5)


@pytest.mark.parametrize("metric", ["chebyshev", "cosine"])
@pytest.mark.parametrize("type", ["float", "double"])
@settings(max_examples=8, deadline=None)
@given(m=st.integers(0, 9), n=st.integers(0, 40), k=st.integers(1, 20))
def test_metrics_that_are_no_sums(metric: str, type: str, m: int, n: int, k: int) -> None:
    name = {"float": "float32", "double": "float64"}[type]
    tolerance = {"float": 1e-6, "double": 1e-12}[type]
    assert_agrees(text(metric, type), {"a": points(m, k, name), "b": points(n, k, name)}, tolerance=tolerance)


def test_doubles_and_many_points() -> None:
    assert_agrees(text("euclidean", "double"), {"a": points(3, 5, "float64"), "b": points(2500, 5, "float64")}, tolerance=1e-12)


def test_points_that_are_known_and_what_follows() -> None:
    source = """g (float[M,3] a) => (float[M,2] c) <float[2,3] b = {1.0, 2.0, 3.0, -1.0, 0.5, 0.25}> {
        d = com.microsoft.CDist<metric="sqeuclidean">(a, b) e = Sqrt(d) c = Add(e, e) }"""
    assert_agrees(source, [{"a": points(7, 3)}, {"a": points(1, 3)}], steps=1, tolerance=1e-5)


def test_sizes_that_do_not_fit_are_left_to_numpy() -> None:
    with pytest.raises(Exception, match="CDist"):
        assert_agrees(text("euclidean"), {"a": points(2, 3), "b": points(2, 4)})
