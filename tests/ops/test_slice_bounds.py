"""Slices with bounds at the limits of integers, against onnxruntime: exporters write these for "as far as it goes"."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx

INT32, INT64 = 2**31 - 1, 2**63 - 1
BOUNDS = (0, 1, 4, 5, 6, -1, -5, -6, -7, INT32, -INT32, -INT32 - 1, INT32 + 1, INT64, -INT64, -INT64 - 1)
SIZES = (0, 1, 5)


def model(steps: int, dtype=np.int64, bounds: tuple[int, int] | None = None, size: int | str = "N") -> bytes:
    """A slice of a vector; its bounds are inputs if they are not given."""
    type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])]
    constants = {"axes": 0, "steps": steps}
    if bounds is None:
        inputs += [helper.make_tensor_value_info(name, type, [1]) for name in ("starts", "ends")]
    else:
        constants |= dict(zip(("starts", "ends"), bounds))
    nodes = [helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["s"]), helper.make_node("Neg", ["s"], ["y"])]
    tensors = [helper.make_tensor(name, type, [1], [value]) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def session(source: bytes, native: str = "0") -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(source, providers=[("CPUExecutionProvider", {"native": native})])


def vector(size: int) -> np.ndarray:
    return np.arange(1, size + 1, dtype=np.float32)


def results_of_onnxruntime(steps: int, dtype=np.int64) -> dict[tuple[int, int, int], np.ndarray]:
    """What it takes of vectors, by their sizes and the bounds."""
    import onnxruntime

    peer = onnxruntime.InferenceSession(model(steps, dtype), providers=["CPUExecutionProvider"])
    limits = np.iinfo(dtype)
    return {
        (size, start, end): peer.run(
            None, {"x": vector(size), "starts": np.array([start], dtype), "ends": np.array([end], dtype)}
        )[0]
        for size, start, end in itertools.product(SIZES, BOUNDS, BOUNDS)
        if limits.min <= min(start, end) and max(start, end) <= limits.max
    }


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("steps", [1, 2, -1, -2, INT32, -INT32 - 1])
def test_bounds_that_are_data_mean_what_they_do_in_onnxruntime(steps, dtype):
    ours = session(model(steps, dtype))
    for (size, start, end), wanted in results_of_onnxruntime(steps, dtype).items():
        feeds = {"x": vector(size), "starts": np.array([start], dtype), "ends": np.array([end], dtype)}
        np.testing.assert_array_equal(ours.run(None, feeds)[0], wanted, err_msg=f"{size}, {start}:{end}:{steps}", strict=True)


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("steps", [1, -1, -2])
def test_constant_bounds_mean_what_they_do_in_onnxruntime(steps, native):
    results = results_of_onnxruntime(steps)
    for start, end in itertools.product(BOUNDS[::2], (1, -1, -6, INT32, -INT32, INT32 + 1, INT64, -INT64 - 1)):
        ours = session(model(steps, bounds=(start, end)), native)
        for size in SIZES:
            wanted, declared = results[size, start, end], session(model(steps, bounds=(start, end), size=size), native)
            for one in (ours, declared):
                got = one.run(None, {"x": vector(size)})[0]
                np.testing.assert_array_equal(got, wanted, err_msg=f"{size}, {start}:{end}:{steps}", strict=True)


def taken_from_the_back() -> bytes:
    """As many of the last elements as a vector has: all of them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("Neg", ["size"], ["starts"]),
        helper.make_node("Slice", ["x", "starts", "ends"], ["s"]),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])]
    tensors = [helper.make_tensor("ends", TensorProto.INT64, [1], [INT64])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("native", ["0", "1"])
def test_a_slice_that_begins_its_whole_length_before_the_end_has_the_size_of_the_axis(native):
    ours = session(taken_from_the_back(), native)
    assert ours.get_outputs()[0].shape == ["N"]
    for size in SIZES:
        np.testing.assert_array_equal(ours.run(None, {"x": vector(size)})[0], -vector(size))
