"""Views against NumPy's own. All arrays here are views of a flat one that counts from 0, so an element says where it lies."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.compiler.types import I64
from sardonyx.ir import dim
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View, collapse

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def counted(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape)


@st.composite
def strided(draw: st.DrawFn) -> np.ndarray:
    """An array transposed, cut and thinned out."""
    array = counted(draw(shapes))
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    window = [slice(draw(st.integers(0, 1)), None, draw(st.sampled_from((1, 1, 1, 2, -1)))) for _ in array.shape]
    return array[(*window, ...)]


def view_of(array: np.ndarray) -> View:
    offset = int(array.flat[0]) if array.size else 0
    return View(Buffer("x", 0), I64, array.shape, tuple(stride // 8 for stride in array.strides), offset)


def places(view: View) -> np.ndarray:
    """Where the elements of a view lie."""
    found = np.full(view.shape, view.offset, np.int64)
    for axis, (size, stride) in enumerate(zip(view.shape, view.strides)):
        found += (np.arange(size) * stride).reshape((-1,) + (1,) * (len(view.shape) - 1 - axis))
    return found


@given(strided(), st.data())
def test_transposing_and_slicing_are_numpys(array: np.ndarray, data: st.DataObject) -> None:
    view = view_of(array)
    perm = data.draw(st.permutations(range(array.ndim)))
    array, view = array.transpose(perm), view.transposed(perm)
    if array.ndim:
        axis = data.draw(st.integers(0, array.ndim - 1))
        step = data.draw(st.sampled_from((1, 2, -1, -2)))
        first = array.shape[axis] - 1 if step < 0 else 0
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
        view = view.sliced(axis, first, array.shape[axis], step)
    assert view.shape == array.shape
    np.testing.assert_array_equal(places(view), array)


@given(strided(), st.data())
def test_a_reshaped_view_shows_what_numpy_shows(array: np.ndarray, data: st.DataObject) -> None:
    halves = tuple(part for size in array.shape for part in ((2, size // 2) if size == 4 else (size,)))
    ones = tuple(part for size in array.shape for part in (size, 1))
    shape = data.draw(st.permutations(array.shape).map(tuple) | st.sampled_from([(array.size,), halves, ones, array.shape]))
    found = view_of(array).reshaped(shape)
    if found is not None and array.size:
        np.testing.assert_array_equal(places(found), array.reshape(shape))
    if shape in (halves, ones, array.shape):
        assert found is not None


@given(strided(), st.lists(st.integers(0, 3), max_size=2), st.data())
def test_broadcasting_is_numpys(array: np.ndarray, more: list[int], data: st.DataObject) -> None:
    wanted = (*more, *(data.draw(st.integers(0, 4)) if size == 1 else size for size in array.shape))
    view = view_of(array).broadcast(wanted)
    assert view.shape == wanted
    np.testing.assert_array_equal(places(view), np.broadcast_to(array, wanted))


@given(strided(), st.data())
def test_collapsed_loops_visit_the_same_places_in_the_same_order(array: np.ndarray, data: st.DataObject) -> None:
    other = counted(array.shape)
    sizes, steps = collapse(array.shape, [view_of(array).strides, view_of(other).strides])
    assert 1 not in sizes or sizes == (1,)
    for one, step in zip((array, other), steps):
        view = view_of(one)
        found = places(View(view.buffer, I64, sizes, step, view.offset))
        np.testing.assert_array_equal(found.reshape(-1), one.reshape(-1))


def test_symbolic_sizes_fall_apart_and_come_together() -> None:
    batch, length = dim.symbol("b"), dim.symbol("s")
    joined = View(Buffer("x", 0), I64, (batch, length, 768), (length * 2304, 2304, 1), 768)
    heads = joined.reshaped((batch, length, 12, 64))
    assert heads is not None and heads.strides == (length * 2304, 2304, 64, 1) and heads.offset == 768
    rows = joined.reshaped((batch * length, 768))
    assert rows is not None and rows.strides == (2304, 1)
    assert joined.reshaped((batch * length * 768,)) is None
    assert heads.transposed((0, 2, 1, 3)).reshaped((batch, 12, length * 64)) is None
