"""Symbolic sizes that broadcast together: what must hold for that simplifies them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sardonyx
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.ir import dim
from sardonyx.ops.shapes import as_they_fit, broadcast

PAST, LENGTH = dim.symbol("past"), dim.symbol("length")
ROWS = dim.maximum(dim.minimum(16, PAST + LENGTH) - dim.minimum(16, PAST), 0)
COLUMNS = dim.minimum(16, PAST + LENGTH)


def test_a_part_of_a_table_is_as_large_as_what_it_is_added_to():
    scores = (dim.symbol("batch"), 4, LENGTH, PAST + LENGTH)
    assert broadcast((1, 1, ROWS, COLUMNS), scores) == scores
    assert as_they_fit((ROWS, COLUMNS), scores) == [(1, 1, LENGTH, PAST + LENGTH), scores]


def test_without_an_axis_that_bounds_them_sizes_stay():
    assert as_they_fit((ROWS,), (LENGTH,)) == [(ROWS,), (LENGTH,)]
    other = dim.symbol("n")
    assert as_they_fit((dim.minimum(16, other), COLUMNS), (3, PAST + LENGTH))[0] == (dim.minimum(16, other), PAST + LENGTH)
    assert as_they_fit((dim.minimum(1, LENGTH),), (LENGTH,)) == [(dim.minimum(1, LENGTH),), (LENGTH,)]  # 1 stands for all


@given(st.integers(0, 20), st.integers(0, 20))
def test_the_simpler_sizes_are_right_wherever_the_run_is_possible(past, length):
    sizes = {"past": past, "length": length}
    mask, scores = (ROWS, COLUMNS), (LENGTH, PAST + LENGTH)
    real = [tuple(dim.evaluate(size, sizes) for size in shape) for shape in (mask, scores)]
    try:
        expected = np.broadcast_shapes(*real)
    except ValueError:
        return  # no run
    assert tuple(dim.evaluate(size, sizes) for size in broadcast(mask, scores)) == expected


def test_a_causal_mask_out_of_a_table_gives_what_onnxruntime_gives():
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[b, 2, s, t] scores, float[p, 1] before) => (float[b, 2, s, t2] y)
    <float[8, 8] table, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}> {
        shape = Shape(scores)
        length = Slice(shape, two, three)
        old = Shape<end = 1>(before)
        whole = Add(old, length)
        rows = Slice(table, old, whole, zero)
        part = Slice(rows, zero, whole, one)
        y = Add(scores, part)
    }"""
    model = onnx.parser.parse_model(text)
    table = np.tril(np.ones((8, 8), np.float32))
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    content = model.SerializeToString()
    ours = sardonyx.InferenceSession(content)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for past, length in ((0, 3), (2, 3), (5, 1), (0, 8), (7, 1)):
        feeds = {
            "scores": np.random.default_rng(past).standard_normal((2, 2, length, past + length)).astype(np.float32),
            "before": np.zeros((past, 1), np.float32),
        }
        np.testing.assert_array_equal(ours.run(None, feeds)[0], theirs.run(None, feeds)[0])
    for past, length in ((6, 4), (8, 3), (4, 9)):  # longer than the table
        feeds = {"scores": np.zeros((2, 2, length, past + length), np.float32), "before": np.zeros((past, 1), np.float32)}
        with pytest.raises((Fail, InvalidArgument)):
            ours.run(None, feeds)
