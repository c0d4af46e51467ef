"""Normalizations of images whose channels lie last in memory agree with NumPy's, without a copy between."""

import numpy as np
import onnx.numpy_helper
import pytest
from onnx import TensorProto, helper

from tests.providers.native.agreement import assert_agrees

CODES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.float16: TensorProto.FLOAT16}


def norm_model(op, channels, count=None, *, dtype=np.float32, opset=21, **attributes):
    """Images with the channels as last axis, transposed and normalized, with an activation behind."""
    rs = np.random.RandomState(1)
    names = ["scale", "B", "mean", "var"] if op == "BatchNormalization" else ["scale", "B"]
    constants = {name: (rs.rand(count or channels) + 0.5).astype(dtype) for name in names}
    nodes = [
        helper.make_node("Transpose", ["X"], ["T"], perm=[0, 3, 1, 2]),
        helper.make_node(op, ["T", *names], ["U"], **attributes),
        helper.make_node("Sigmoid", ["U"], ["V"]),
        helper.make_node("Transpose", ["V"], ["Y"], perm=[0, 2, 3, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("X", CODES[dtype], ["n", "h", "w", channels])],
        [helper.make_tensor_value_info("Y", CODES[dtype], None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def images(*shape, dtype=np.float32, offset=3.0):
    return {"X": (np.random.RandomState(0).standard_normal(shape) * 2 + offset).astype(dtype)}


def sets(channels, dtype=np.float32):
    return [images(*sizes, channels, dtype=dtype) for sizes in [(1, 7, 9), (3, 1, 2), (2, 20, 31)]]


@pytest.mark.parametrize("channels", [1, 5, 33, 64])
def test_batch_normalization(channels):
    assert_agrees(norm_model("BatchNormalization", channels), sets(channels), tolerance=1e-5, steps=2 if channels > 1 else None)


@pytest.mark.parametrize("channels", [5, 33, 64])
@pytest.mark.parametrize("dtype", list(CODES), ids=lambda dtype: dtype.__name__)
def test_instance_normalization(channels, dtype):
    tolerance = {np.float32: 1e-5, np.float64: 1e-12}.get(dtype)
    assert_agrees(norm_model("InstanceNormalization", channels, dtype=dtype), sets(channels, dtype), tolerance=tolerance)


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("channels, groups", [(64, 8), (60, 3), (33, 1), (32, 32)])
def test_group_normalization(channels, groups, opset):
    count = groups if opset < 21 else channels
    model = norm_model("GroupNormalization", channels, count, opset=opset, num_groups=groups)
    assert_agrees(model, sets(channels), tolerance=1e-5)


def test_far_from_zero():
    model = norm_model("GroupNormalization", 16, num_groups=4)
    assert_agrees(model, images(1, 40, 40, 16, offset=1000.0), tolerance=1e-3)
