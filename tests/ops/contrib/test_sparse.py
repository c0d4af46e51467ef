"""SparseToDenseMatMul beside onnxruntime: sparse matrices of both formats, transposed or not."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import Fail, InvalidArgument

TYPES = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.UINT32: np.uint32,
    TensorProto.UINT64: np.uint64,
}
DENSE = np.array([[1, 0, 0, 0], [0, 2, 0, 3], [0, 0, 0, 4]])


def model(type: int, **attributes: float) -> bytes:
    node = helper.make_node("SparseToDenseMatMul", ["A", "B"], ["Y"], domain="com.microsoft", **attributes)
    inputs = [
        helper.make_sparse_tensor_value_info("A", type, ["m", "k"]),
        helper.make_tensor_value_info("B", type, ["x", "n"]),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("Y", type, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def coordinates(ort, dtype, indices=((0, 0), (1, 1), (1, 3), (2, 3))):
    device = ort.OrtDevice.make("cpu", 0)
    return ort.SparseTensor.sparse_coo_from_numpy([3, 4], np.array([1, 2, 3, 4], dtype), np.array(indices), device)


def compressed_rows(ort, dtype):
    device = ort.OrtDevice.make("cpu", 0)
    values, columns, starts = np.array([1, 2, 3, 4], dtype), np.array([0, 1, 3, 3]), np.array([0, 1, 3, 4])
    return ort.SparseTensor.sparse_csr_from_numpy(np.array([3, 4]), values, columns, starts, device)


def product(ort, content: bytes, A, B) -> np.ndarray:
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    feeds = {"A": ort.OrtValue.ort_value_from_sparse_tensor(A), "B": ort.OrtValue.ortvalue_from_numpy(B)}
    return session.run_with_ort_values(None, feeds)[0].numpy()


@pytest.mark.parametrize("type", TYPES)
def test_products_are_those_of_onnxruntime(type):
    dtype = TYPES[type]
    for make, transA, transB, alpha in itertools.product((coordinates, compressed_rows), (0, 1), (0, 1), (1.0, 2.5)):
        B = np.arange(9 if transA else 12).astype(dtype).reshape(-1, 3)
        B = np.ascontiguousarray(B.T) if transB else B
        content = model(type, transA=transA, transB=transB, alpha=alpha)
        mine, theirs = (product(ort, content, make(ort, dtype), B) for ort in (sardonyx, onnxruntime))
        exact = (DENSE.T if transA else DENSE).astype(dtype) @ (B.T if transB else B)
        np.testing.assert_array_equal(mine, exact * dtype(alpha if exact.dtype.kind == "f" else 1))
        if dtype is not np.float64 or alpha == 1:  # of which onnxruntime ignores alpha
            np.testing.assert_array_equal(mine, theirs)


def test_blocks_and_flat_positions_do_as_well():
    B = np.arange(8, dtype=np.float32).reshape(4, 2)
    flat = coordinates(sardonyx, np.float32, (0, 5, 7, 11))
    np.testing.assert_array_equal(product(sardonyx, model(TensorProto.FLOAT), flat, B), DENSE.astype(np.float32) @ B)


def test_sizes_that_do_not_fit_and_places_outside_are_refused():
    content = model(TensorProto.FLOAT)
    with pytest.raises((Fail, InvalidArgument), match="inner sizes differ"):
        product(sardonyx, content, coordinates(sardonyx, np.float32), np.ones((3, 2), np.float32))
    for outside in ((0, 4), (3, 0), (-1, 0)):
        with pytest.raises((Fail, InvalidArgument), match="outside"):
            wrong = coordinates(sardonyx, np.float32, (outside, (1, 1), (1, 3), (2, 3)))
            product(sardonyx, content, wrong, np.ones((4, 2), np.float32))
