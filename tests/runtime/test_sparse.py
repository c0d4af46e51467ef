"""SparseTensor as the public API has it, and sparse values through a session."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.runtime.side_by_side import BOTH, assert_same

BOTH_APIS = pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
VALUES = np.array([1, 2, 3], np.float32)


def coo(ort: ModuleType, values: Any = VALUES, indices: Any = (0, 4, 8)) -> Any:
    return ort.SparseTensor.sparse_coo_from_numpy(np.array([3, 3]), values, np.array(indices), ort.OrtDevice.make("cpu", 0))


def csr(ort: ModuleType, shape: Any = (3, 3), inner: Any = (0, 1, 2), outer: Any = (0, 1, 2, 3)) -> Any:
    device = ort.OrtDevice.make("cpu", 0)
    return ort.SparseTensor.sparse_csr_from_numpy(np.array(shape), VALUES, np.array(inner), np.array(outer), device)


def test_coordinates() -> None:
    for question in ("dense_shape", "data_type", "device_name", "values"):
        assert_same(lambda ort, question=question: getattr(coo(ort), question)())
    assert_same(lambda ort: repr(coo(ort).format()))
    assert_same(lambda ort: coo(ort).as_coo_view().indices())
    assert_same(lambda ort: coo(ort, indices=[[0, 0], [1, 1], [2, 2]]).as_coo_view().indices())
    assert_same(lambda ort: coo(ort, indices=[0, 0, 1, 1, 2, 2]).as_coo_view().indices())
    assert_same(lambda ort: coo(ort, values=np.array(["a", "b", "c"])).values())


def test_compressed_rows() -> None:
    assert_same(lambda ort: repr(csr(ort).format()))
    assert_same(lambda ort: [csr(ort).as_csrc_view().inner(), csr(ort).as_csrc_view().outer()])


def test_errors() -> None:
    assert_same(lambda ort: coo(ort, indices=[0, 4]))
    assert_same(lambda ort: coo(ort, values=[1.0]))
    assert_same(lambda ort: csr(ort, outer=[0, 1, 2]))
    assert_same(lambda ort: csr(ort, shape=[3, 3, 3]))
    assert_same(lambda ort: csr(ort, inner=[0, 1]))
    assert_same(lambda ort: coo(ort).as_csrc_view())
    assert_same(lambda ort: coo(ort).as_blocksparse_view())
    assert_same(lambda ort: csr(ort).as_coo_view())
    assert_same(lambda ort: coo(ort).to_cuda(ort.OrtDevice.make("cpu", 0)))


@BOTH_APIS
def test_memory_is_shared_and_views_are_read_only(ort: ModuleType) -> None:
    values = VALUES.copy()
    tensor = coo(ort, values)
    assert np.shares_memory(tensor.values(), values)
    assert not tensor.values().flags.writeable and not tensor.as_coo_view().indices().flags.writeable


@BOTH_APIS
def test_as_ortvalues(ort: ModuleType) -> None:
    value = ort.OrtValue.ort_value_from_sparse_tensor(coo(ort))
    assert value.is_sparse_tensor() and not value.is_tensor() and value.has_value()
    assert (value.shape(), value.data_type(), value.element_type(), value.device_name()) == (
        [3, 3],
        "sparse_tensor(float)",
        1,
        "cpu",
    )
    np.testing.assert_array_equal(value.as_sparse_tensor().values(), VALUES)
    with pytest.raises(RuntimeError, match="does not contain SparseTensor"):
        ort.OrtValue.ortvalue_from_numpy(VALUES).as_sparse_tensor()


def test_both_forms_mean_the_same_inside() -> None:
    dense = np.diag(VALUES)
    np.testing.assert_array_equal(coo(sardonyx)._to_ir().to_dense(), dense)
    np.testing.assert_array_equal(csr(sardonyx)._to_ir().to_dense(), dense)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(csr(sardonyx)))._to_ir().to_dense(), dense)


def test_blocks_are_placed_by_their_rows_and_columns() -> None:
    blocks = np.arange(1, 13, dtype=np.float32).reshape(2, 2, 3)
    device = sardonyx.OrtDevice.make("cpu", 0)
    tensor = sardonyx.SparseTensor.blocksparse_from_numpy([4, 9], blocks, np.array([[0, 1], [2, 0]], np.int32), device)
    wanted = np.zeros((4, 9), np.float32)
    wanted[0:2, 6:9], wanted[2:4, 0:3] = blocks
    np.testing.assert_array_equal(tensor._to_ir().to_dense(), wanted)
    assert tensor.format() == sardonyx.OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE
    assert tensor.as_blocksparse_view().indices().tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize(
    ("shape", "indices", "reason"),
    [((2, 6), [[0, 1], [2, 0]], "3-D"), ((2, 2, 3), [[0, 1]], "shape"), ((2, 2, 3), [[0, 2], [2, 0]], "within")],
)
def test_blocks_that_do_not_fit_are_refused(shape: tuple[int, ...], indices: list[list[int]], reason: str) -> None:
    device = sardonyx.OrtDevice.make("cpu", 0)
    with pytest.raises(RuntimeError, match=reason):
        sardonyx.SparseTensor.blocksparse_from_numpy([4, 9], np.ones(shape, np.float32), np.array(indices, np.int32), device)
