"""Tensors of every element type, in every place where a TensorProto can hold its data."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper

from sardonyx import dtypes, ir
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.formats.onnx.external import ExternalFolder
from sardonyx.formats.onnx.tensors import read_sparse_tensor, read_tensor
from sardonyx.formats.onnx.writer import write_tensor
from sardonyx.ir import packing
from tests.ir.comparing import same_arrays

ALL = sorted(dtypes.ALL, key=lambda dtype: dtype.code)
NUMBERS = [dtype for dtype in ALL if dtype is not dtypes.string]
NOWHERE = ExternalFolder(None)


def read(proto: onnx.TensorProto, raw: memoryview | None = None) -> ir.Tensor:
    return read_tensor(proto, NOWHERE, "initializer: w", raw)


def sample(dtype: ElementType, count: int = 5) -> np.ndarray:
    """Elements from random bits, so that all patterns come up."""
    rng = np.random.default_rng(dtype.code)
    if dtype is dtypes.string:
        return np.array(["", "a", 'q"\\', "ü€😀", "line\n"] * count, object)[:count]
    if dtype is dtypes.bool_:
        return rng.integers(0, 2, count).astype(bool)
    if dtype in dtypes.SUB_BYTE_INTS:
        return packing.from_bits(rng.integers(0, 256, count).astype(np.uint8), dtype)
    data = rng.integers(0, 256, count * dtype.numpy.itemsize).astype(np.uint8)
    return packing.from_bits(data, dtype) if dtype.bits < 8 else data.view(dtype.numpy)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 17])
def test_what_is_written_is_read(dtype: ElementType, count: int) -> None:
    array = sample(dtype, count)
    proto = TensorProto()
    write_tensor(ir.Tensor.of(array, "w"), proto)
    tensor = read(onnx.TensorProto.FromString(proto.SerializeToString()))
    assert tensor.dtype is dtype and tensor.name == "w"
    assert same_arrays(tensor.numpy(), array)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_raw_data_is_what_the_onnx_package_writes(dtype: ElementType) -> None:
    array = sample(dtype, 7)
    proto = numpy_helper.from_array(array, "w")
    assert bytes(packing.encode(array, dtype)) == proto.raw_data
    assert same_arrays(read(proto).numpy(), array)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_typed_fields_are_read(dtype: ElementType, count: int) -> None:
    array = sample(dtype, count)
    proto = TensorProto(name="w", data_type=dtype.code, dims=[count])
    if dtype is dtypes.string:
        proto.string_data.extend(text.encode() for text in array)
    elif dtype in dtypes.COMPLEX:
        field = proto.float_data if dtype is dtypes.complex64 else proto.double_data
        field.extend(array.view(np.float32 if dtype is dtypes.complex64 else np.float64).tolist())
    elif dtype in (dtypes.float32, dtypes.float64):
        (proto.float_data if dtype is dtypes.float32 else proto.double_data).extend(array.tolist())
    elif dtype is dtypes.int64:
        proto.int64_data.extend(array.tolist())
    elif dtype in (dtypes.uint32, dtypes.uint64):
        proto.uint64_data.extend(array.tolist())
    elif dtype.bits in (2, 4):
        proto.int32_data.extend(packing.encode(array, dtype).tolist())
    elif dtype in dtypes.INTS or dtype is dtypes.bool_:
        proto.int32_data.extend(int(one) for one in array)
    else:
        proto.int32_data.extend(packing.to_bits(array, dtype).tolist())
    tensor = read(proto)
    assert tensor.dtype is dtype
    # a signalling NaN becomes a quiet one on its way through Python's floats
    if dtype in (dtypes.float32, dtypes.float64, *dtypes.COMPLEX):
        np.testing.assert_array_equal(tensor.numpy(), array)
    else:
        assert same_arrays(tensor.numpy(), array)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_a_big_endian_host_swaps_bytes(dtype: ElementType, monkeypatch) -> None:
    array = sample(dtype, 6)
    data = bytes(packing.encode(array, dtype))
    monkeypatch.setattr(packing, "LITTLE_ENDIAN_HOST", False)
    swapped = bytes(packing.encode(array, dtype))
    width = dtype.numpy.itemsize // (2 if dtype in dtypes.COMPLEX else 1)
    expected = np.frombuffer(data, np.uint8)
    if width > 1:
        expected = expected.reshape(-1, width)[:, ::-1]
    assert swapped == expected.tobytes()
    assert same_arrays(packing.decode(swapped, dtype, (6,)), array)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NUMBERS), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5), st.integers(0, 2**32))
def test_any_shape_survives(dtype: ElementType, shape: tuple[int, ...], seed: int) -> None:
    count = int(np.prod(shape))
    data = np.random.default_rng(seed).integers(0, 256, dtype.stored_bytes(count)).astype(np.uint8)
    array = packing.decode(data.data, dtype, shape)
    assert array.shape == shape and array.dtype == dtype.numpy
    assert same_arrays(packing.decode(packing.encode(array, dtype), dtype, shape), array)


def test_any_byte_but_zero_is_true():
    proto = TensorProto(name="w", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\0\1\x80")
    assert read(proto).numpy().tolist() == [False, True, True]
    assert read(proto).numpy().view(np.uint8).tolist() == [0, 1, 1]


def test_strings_that_are_no_utf8_survive():
    proto = TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], string_data=[b"\xff\xfe", b"ok"])
    tensor = read(proto)
    written = TensorProto()
    write_tensor(tensor, written)
    assert list(written.string_data) == [b"\xff\xfe", b"ok"]


def test_raw_data_may_lie_outside_the_message():
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    assert read(proto, memoryview(np.array([1, 2], np.float32).tobytes())).numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"dims": [2**40]}, Fail, "initializer: w does not fit its dims: float.1099511627776. needs 1099511627776 entries"),
        (
            {"dims": [2**40], "raw_data": b"1234"},
            Fail,
            r"raw_data size \(4 bytes\) does not match expected .* \(4398046511104 bytes\)",
        ),
        ({"dims": [2**40] * 3, "raw_data": b"1234"}, Fail, "Shape of initializer: w is too large"),
        ({"dims": [2**40, 2**40, 0]}, Fail, "Shape of initializer: w is too large"),
        ({"dims": [1] * 65, "float_data": [1]}, Fail, "65 dims"),
        (
            {"dims": [-1], "raw_data": b"1234"},
            Fail,
            "Out of bounds dimensions: the shape of initializer: w has a negative size",
        ),
        ({"dims": [2], "raw_data": b"123456789"}, Fail, r"raw_data size \(9 bytes\) does not match expected .* \(8 bytes\)"),
        ({"dims": [2], "float_data": [1, 2, 3]}, Fail, "needs 2 entries, float_data has 3"),
        ({"dims": [2], "int32_data": [1, 2]}, Fail, "must be in float_data or raw_data"),
        ({"dims": [2], "float_data": [1, 2], "raw_data": b"1234567"}, Fail, r"raw_data size \(7 bytes\) does not match"),
        (
            {"dims": [1], "data_type": 0, "raw_data": b"1234"},
            Fail,
            "'w' does not have valid data type: that of initializer: w is 0",
        ),
        ({"dims": [1], "data_type": 99, "raw_data": b"1234"}, Fail, "does not have valid data type"),
        ({"dims": [1], "data_type": TensorProto.STRING, "raw_data": b"1234"}, Fail, "strings must be in string_data"),
        ({"dims": [3], "data_type": TensorProto.INT4, "raw_data": b"1"}, Fail, r"size .* \(2 bytes\)"),
        ({"dims": [5], "data_type": TensorProto.FLOAT6E2M3, "raw_data": b"123"}, Fail, r"size .* \(4 bytes\)"),
        ({"dims": [2], "segment": TensorProto.Segment(begin=0, end=1), "raw_data": b"12345678"}, Fail, "segment"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_what_cannot_be_a_tensor_is_refused_without_allocating(fields, error, text) -> None:
    with pytest.raises(error, match=text):
        read(TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, **fields}))


def sparse(values, indices, dims) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.asarray(values, np.float32), "s"),
        numpy_helper.from_array(np.asarray(indices, np.int64)),
        dims,
    )


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (sparse([1], [0], [2**20, 2**20]), "more than 2147483648 bytes as a dense tensor"),
        (sparse([1], [5], [5]), "outside its dims"),
        (sparse([1], [-1], [5]), "outside its dims"),
        (sparse([1], [[0, 3]], [2, 3]), "outside its dims"),
        (sparse([1, 2], [0], [5]), r"must be int64\[2\]"),
        (sparse([[1]], [0], [5]), "must be 1-D"),
    ],
    ids=range(6),
)
def test_sparse_tensors_are_checked(proto: onnx.SparseTensorProto, text: str) -> None:
    with pytest.raises(Fail, match=text):
        read_sparse_tensor(proto, NOWHERE, "sparse initializer: s")


def test_a_sparse_tensor_may_be_empty():
    proto = sparse(np.zeros(0), np.zeros(0), [2, 2])
    proto.ClearField("indices")
    assert read_sparse_tensor(proto, NOWHERE, "sparse initializer: s").to_dense().tolist() == [[0, 0], [0, 0]]
