"""OrtValue and OrtValueVector: sharing of memory, types, DLPack both ways."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx import OrtValue
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same

X = np.arange(6, dtype=np.float32).reshape(2, 3)
BOTH_APIS = pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)


def made(ort: ModuleType, array: np.ndarray = X) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array)


@pytest.mark.parametrize(
    "array",
    [X, np.array(3, np.float32), np.zeros((0, 2), np.float32), np.array([True]), np.ones(2, np.float16), np.ones(2, np.uint64)],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_values_tell_what_they_are(array: np.ndarray) -> None:
    for question in (
        "shape",
        "data_type",
        "element_type",
        "device_name",
        "has_value",
        "is_tensor",
        "is_sparse_tensor",
        "is_tensor_sequence",
        "tensor_size_in_bytes",
        "numpy",
    ):
        assert_same(lambda ort, question=question: getattr(made(ort, array), question)())


@BOTH_APIS
def test_values_share_the_memory_of_their_array(ort: ModuleType) -> None:
    array = X.copy()
    value = made(ort, array)
    assert value.data_ptr() == array.ctypes.data
    assert value._numpy_obj is array
    array[0, 0] = 42
    assert value.numpy()[0, 0] == 42
    assert np.shares_memory(value.numpy(), array) and np.shares_memory(np.asarray(value), array)
    value.numpy()[0, 1] = 43
    assert array[0, 1] == 43


@BOTH_APIS
def test_arrays_that_are_not_contiguous_are_copied(ort: ModuleType) -> None:
    array = X.copy()
    value = made(ort, array.T)
    assert value.shape() == [3, 2] and value.numpy().flags.c_contiguous
    array[...] = 0
    np.testing.assert_array_equal(value.numpy(), X.T)


@pytest.mark.parametrize("given", [[1.0], 3, np.float32(3), np.ones(2, np.longdouble)], ids=repr)
def test_what_is_no_array_is_refused(given: Any) -> None:
    assert_same(lambda ort: ort.OrtValue.ortvalue_from_numpy(given) and None)


@pytest.mark.parametrize("device", ["cuda", "dml", "gpu", "foo", "CPU"])
def test_memory_of_other_devices_is_refused(device: str) -> None:
    assert_same(lambda ort: ort.OrtValue.ortvalue_from_numpy(X, device, 0))


def test_ml_dtypes_and_strings_are_welcome() -> None:
    array = np.array([1.5, 2], ml_dtypes.bfloat16)
    value = OrtValue.ortvalue_from_numpy(array)
    assert value.data_type() == "tensor(bfloat16)" and value.element_type() == TensorProto.BFLOAT16
    assert np.shares_memory(value.numpy(), array) and value.numpy().dtype == ml_dtypes.bfloat16
    text = OrtValue.ortvalue_from_numpy(np.array(["a", "b"]))
    assert text.data_type() == "tensor(string)" and text.numpy().tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("dtype", "code"),
    [
        (np.uint16, TensorProto.BFLOAT16),
        (np.uint8, TensorProto.FLOAT8E4M3FN),
        (np.float32, TensorProto.INT32),
        (np.uint8, TensorProto.BFLOAT16),
        (np.uint8, 99),
    ],
)
def test_bits_can_be_taken_for_another_type(dtype: type, code: int) -> None:
    assert_same(lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones((2, 2), dtype), code).data_type())
    assert_same(lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones((2, 2), dtype), code).shape())


def test_bits_of_bfloat16_are_read_rightly() -> None:
    bits = np.array([0x3FC0, 0xC000], np.uint16)
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    assert value.numpy().astype(np.float32).tolist() == [1.5, -2.0]
    (wide,) = sardonyx.InferenceSession(models.FROM_BFLOAT16).run(None, {"x": value})
    assert wide.tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    "element",
    [np.float32, "float32", np.dtype("f4"), float, int, bool, TensorProto.BFLOAT16, TensorProto.FLOAT, 99, np.str_, object],
    ids=str,
)
def test_empty_values_by_type(element: Any) -> None:
    assert_same(lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2, 3], element).data_type())
    assert_same(lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2, 3], element).shape())


def test_negative_sizes_are_refused() -> None:
    for ort in BOTH:
        with pytest.raises(RuntimeError, match="must be >= 0"):
            ort.OrtValue.ortvalue_from_shape_and_type([-1], np.float32)


@BOTH_APIS
def test_values_can_be_updated_in_place(ort: ModuleType) -> None:
    array = X.copy()
    value = made(ort, array)
    value.update_inplace(np.full((3, 2), 7, np.float32))
    assert (array == 7).all()
    value.update_inplace(np.full((2, 3), 1, np.float32).T)
    assert (array == 1).all()
    value.update_inplace(made(ort, np.full((2, 3), 5, np.float32)))
    assert (array == 5).all()
    value.update_inplace(np.ones((2, 3), np.int32))  # the bits are taken as they are
    assert array.view(np.int32).tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("data", [np.zeros(7, np.float32), [1], np.array(["a"])], ids=repr)
def test_updates_must_fit(data: Any) -> None:
    assert_same(lambda ort: made(ort).update_inplace(data))
    assert_same(lambda ort: made(ort).update_inplace(made(ort, np.zeros(7, np.float32))))


@BOTH_APIS
def test_values_that_are_no_tensors(ort: ModuleType) -> None:
    (sequence,) = ort.InferenceSession(models.MAKE_SEQUENCE).run_with_ort_values(None, {"x": made(ort)})
    assert sequence.is_tensor_sequence() and not sequence.is_tensor() and sequence.has_value()
    assert sequence.data_type() == "seq(tensor(float))" and sequence.element_type() == 1
    for method, words in (
        ("shape", "Tensors/SpareTensors"),
        ("numpy", "convertible to Numpy"),
        ("data_ptr", "that are Tensors"),
    ):
        with pytest.raises(RuntimeError, match=words):
            getattr(sequence, method)()
    (maps,) = ort.InferenceSession(models.zip_map()).run_with_ort_values(None, {"x": made(ort)})
    assert maps.data_type() == "seq(map(int64,tensor(float)))" and not maps.is_tensor_sequence()


def test_an_empty_optional_is_a_value_without_value() -> None:
    (empty,) = sardonyx.InferenceSession(models.EMPTY_OPTIONAL).run_with_ort_values(None, {"x": made(sardonyx, X[0])})
    assert not empty.has_value() and empty.data_type() == "optional(tensor(float))"


@BOTH_APIS
def test_runs_on_ortvalues(ort: ModuleType) -> None:
    session = ort.InferenceSession(models.TWO_OUTPUTS)
    outputs = session.run_with_ort_values(["b", "a"], {"x": made(ort, X[0])})
    np.testing.assert_array_equal(outputs[0].numpy(), np.abs(X[0]))
    np.testing.assert_array_equal(outputs[1].numpy(), -X[0])
    with pytest.raises(AttributeError):
        session.run_with_ort_values(None, {"x": X[0]})
    with pytest.raises(ValueError, match="Required inputs"):
        session.run_with_ort_values(None, {"q": made(ort)})


def test_one_class_is_raw_value_and_wrapper() -> None:
    from sardonyx.capi import _pybind_state as C

    value = made(sardonyx)
    assert C.OrtValue is OrtValue and isinstance(value._ortvalue, C.OrtValue)
    assert OrtValue(value._ortvalue).numpy().tolist() == X.tolist()
    raw = C.OrtValue.ortvalue_from_numpy(X, C.OrtDevice(C.OrtDevice.cpu(), C.OrtDevice.default_memory(), 0))
    assert raw.data_ptr() == X.ctypes.data
    with pytest.raises(ValueError, match="needs to be of type"):
        OrtValue(3)  # type: ignore[arg-type]


def test_values_can_be_copied_and_pickled() -> None:
    value = made(sardonyx)
    assert copy.copy(value).shape() == [2, 3]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(value)).numpy(), X)


# --- DLPack


@BOTH_APIS
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8, np.uint8, np.int64])
def test_tensors_travel_by_dlpack_without_a_copy(ort: ModuleType, dtype: type) -> None:
    array = X.astype(dtype)
    value = made(ort, array)
    assert value.__dlpack_device__() == (1, 0)
    assert np.shares_memory(np.from_dlpack(value), array)
    back = ort.OrtValue.from_dlpack(array)
    assert back.data_ptr() == array.ctypes.data and back.data_type() == value.data_type()
    assert ort.OrtValue.from_dlpack(array.__dlpack__()).shape() == [2, 3]
    assert ort.OrtValue.from_dlpack(value).numpy().tolist() == array.tolist()


@BOTH_APIS
def test_raw_capsules(ort: ModuleType) -> None:
    raw = ort.capi.onnxruntime_pybind11_state
    capsule = np.array([0, 1], np.uint8).__dlpack__()
    assert raw.is_dlpack_uint8_tensor(capsule)
    assert raw.OrtValue.from_dlpack(capsule, True).data_type() == "tensor(bool)"
    assert not raw.is_dlpack_uint8_tensor(X.__dlpack__())
    with pytest.raises(TypeError, match="expected a valid DLPack capsule"):
        raw.OrtValue.from_dlpack(3, False)
    with pytest.raises(RuntimeError, match="ORT only supports contiguous tensor for now."):
        ort.OrtValue.from_dlpack(X.T)


def test_memory_that_came_by_dlpack_can_be_written_and_lives_on() -> None:
    array = X.copy()
    value = OrtValue.from_dlpack(array.__dlpack__())
    value.update_inplace(np.zeros((2, 3), np.float32))
    assert (array == 0).all()
    value = OrtValue.from_dlpack(X.copy())
    np.testing.assert_array_equal(value.numpy(), X)


def test_truth_values_and_read_only_arrays_travel_too() -> None:
    assert OrtValue.from_dlpack(np.array([True, False])).data_type() == "tensor(bool)"
    fixed = X.copy()
    fixed.flags.writeable = False
    assert OrtValue.from_dlpack(fixed).numpy().tolist() == X.tolist()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_types_beyond_numpy_travel_by_dlpack(dtype: Any) -> None:
    array = np.array([1.5, -2], dtype)
    back = OrtValue.from_dlpack(OrtValue.ortvalue_from_numpy(array))
    assert back.numpy().dtype == dtype and back.data_ptr() == array.ctypes.data
    assert back.numpy().astype(np.float32).tolist() == [1.5, -2]


# --- vectors


@BOTH_APIS
def test_vectors_of_values(ort: ModuleType) -> None:
    raw = ort.capi.onnxruntime_pybind11_state
    vector = raw.OrtValueVector()
    vector.reserve(2)
    vector.push_back(made(ort)._ortvalue)
    vector.push_back(np.array([1, 0], np.uint8).__dlpack__(), True)
    vector.shrink_to_fit()
    assert len(vector) == 2 and bool(vector)
    assert [item.shape() for item in vector] == [[2, 3], [2]]
    assert vector[0].data_type() == "tensor(float)" and vector.element_type_at(1) == TensorProto.BOOL
    assert vector.bool_tensor_indices() == [1]
    assert vector.to_dlpacks(lambda capsule: 7) == [7, 7]
    with pytest.raises(IndexError):
        vector[2]


@BOTH_APIS
def test_vectors_over_memory_that_others_own(ort: ModuleType) -> None:
    raw = ort.capi.onnxruntime_pybind11_state
    vector = raw.OrtValueVector()
    vector.push_back_batch([X], [X.ctypes.data], [np.float32], [[2, 3]], [raw.OrtDevice(0, 0, 0)])
    np.testing.assert_array_equal(vector[0].numpy(), X)


@BOTH_APIS
def test_runs_on_vectors(ort: ModuleType) -> None:
    raw = ort.capi.onnxruntime_pybind11_state
    feeds, fetches = raw.OrtValueVector(), raw.OrtValueVector()
    feeds.push_back(made(ort)._ortvalue)
    session = ort.InferenceSession(models.DOUBLE)
    session.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["y"], fetches, [raw.OrtDevice(0, 0, 0)])
    np.testing.assert_array_equal(next(iter(fetches)).numpy(), X + X)


def test_tensors_can_be_copied_pairwise() -> None:
    target = made(sardonyx, np.zeros((2, 3), np.float32))
    sardonyx.copy_tensors([made(sardonyx)], [target])
    np.testing.assert_array_equal(target.numpy(), X)
    with pytest.raises(RuntimeError, match="Invalid arguments provided to CopyTensors"):
        sardonyx.copy_tensors([target], [])
