"""Generated code finds the elements of arrays where NumPy says that they are, in tuples and in imitations of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.compiler.arrays import OBJECTS_ARE_OPEN, imitation_of, seen_at
from sardonyx.providers.native.execution import compiled
from tests.providers.native.agreement import assert_agrees


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=4), st.sampled_from([np.int8, np.float64, np.bool_]))
def test_addresses_are_numpys(shapes: list[list[int]], type: type) -> None:
    arrays = tuple(np.zeros(shape, type).T for shape in shapes)
    wanted = [array.ctypes.data for array in arrays]
    imitation = imitation_of(arrays)
    assert seen_at(imitation.ctypes.data, len(arrays)) == wanted
    assert not OBJECTS_ARE_OPEN or seen_at(id(arrays), len(arrays)) == wanted


def test_programs_run_where_objects_cannot_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "OBJECTS_ARE_OPEN", False)
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    assert_agrees("g (float[N,3] a, float[3] b) => (float[N,3] y, float[N] z) { y = Add(a, b) z = ReduceSum<keepdims=0>(y) }",
                  [{"a": a, "b": b}])  # fmt: skip
