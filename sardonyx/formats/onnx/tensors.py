"""TensorProto and SparseTensorProto -> Tensor and SparseTensor.

How much data there is is compared with the dims before anything is allocated, so a small file cannot ask for much memory.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.formats.files import Part, stored_tensor
from sardonyx.formats.onnx import external
from sardonyx.formats.onnx.texts import metadata, text
from sardonyx.ir import packing
from sardonyx.ir.types import MAX_RANK

logger = logging.getLogger("sardonyx.formats")

MAX_DENSE_BYTES = 2**31
"""A sparse tensor that would be larger as a dense one is refused, for a few bytes of file can ask for any size."""

EXTERNAL = 1
_TYPED_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_FIELD_OF = {
    dtypes.float32: "float_data",
    dtypes.complex64: "float_data",
    dtypes.float64: "double_data",
    dtypes.complex128: "double_data",
    dtypes.int64: "int64_data",
    dtypes.uint32: "uint64_data",
    dtypes.uint64: "uint64_data",
    dtypes.string: "string_data",
}
"""Where elements lie that are not in raw_data; all other types are in int32_data."""


def read_tensor(proto: Any, folder: external.ExternalFolder, owner: str, raw: memoryview | Part | None = None) -> ir.Tensor:
    """A tensor; `raw` is its raw data if that was left in the file, `owner` how errors call it."""
    try:
        dtype = dtypes.from_code(proto.data_type)
    except KeyError:
        raise Fail(
            f"This is an invalid model. Tensor '{text(proto.name)}' does not have valid data type: that of {owner} is {proto.data_type}."
        ) from None
    shape = read_dims(proto.dims, dtype, owner)
    if proto.HasField("segment"):
        raise Fail(f"Data of {owner} is one segment of a larger tensor, which is not supported.")
    if proto.data_location == EXTERNAL:
        tensor = _external_tensor(proto, dtype, shape, folder, owner)
    else:
        tensor = _embedded_tensor(proto, dtype, shape, raw, owner)
    tensor.name, tensor.doc = text(proto.name), text(proto.doc_string)
    tensor.metadata = metadata(proto.metadata_props)
    return tensor


def read_dims(dims: Iterable[int], dtype: ElementType, owner: str) -> tuple[int, ...]:
    """The shape, if an array of that shape can exist."""
    shape = tuple(int(size) for size in dims)
    if len(shape) > MAX_RANK:
        raise Fail(f"Shape of {owner} has {len(shape)} dims, at most {MAX_RANK} are supported.")
    if any(size < 0 for size in shape):
        raise Fail(f"Out of bounds dimensions: the shape of {owner} has a negative size: {list(shape)}.")
    if math.prod(max(size, 1) for size in shape) * dtype.numpy.itemsize >= 2**63:
        raise Fail(f"Shape of {owner} is too large: {list(shape)}.")
    return shape


def _external_tensor(
    proto: Any, dtype: ElementType, shape: tuple[int, ...], folder: external.ExternalFolder, owner: str
) -> ir.Tensor:
    needed = dtype.stored_bytes(math.prod(shape))
    try:
        if dtype is dtypes.string:
            raise Fail("strings cannot be external data")
        location = external.read_location(proto)
        file = folder.find(location.location)
        external.check_bounds(location, file, needed, text(proto.name))
    except Fail as error:
        raise Fail(f"External data path validation failed for {owner}. Error: {error.message}") from error
    fetch = functools.partial(file.fetch, location.offset, needed, dtype, shape, owner)
    tensor = ir.Tensor(dtype, shape, fetch, external=location, is_stored=True)
    if location.prepacked:
        tensor.beside = functools.partial(file.read, owner)
    return tensor


def _embedded_tensor(
    proto: Any, dtype: ElementType, shape: tuple[int, ...], raw: memoryview | Part | None, owner: str
) -> ir.Tensor:
    filled = [name for name in _TYPED_FIELDS if getattr(proto, name)]
    if raw is None and proto.HasField("raw_data") and (proto.raw_data or not filled):
        raw = memoryview(proto.raw_data)
    if raw is not None and filled:
        logger.warning("Data of %s stands in both raw_data and %s; raw_data is used.", owner, filled[0])
    if raw is not None:
        return _raw_tensor(raw, dtype, shape, owner)
    return _typed_tensor(proto, filled, dtype, shape, owner)


def _raw_tensor(raw: memoryview | Part, dtype: ElementType, shape: tuple[int, ...], owner: str) -> ir.Tensor:
    if dtype is dtypes.string:
        raise Fail(f"Data of {owner} is in raw_data, but strings must be in string_data.")
    needed = dtype.stored_bytes(math.prod(shape))
    if len(raw) != needed:
        raise Fail(
            f"Data of {owner} does not fit its dims: raw_data size ({len(raw)} bytes) does not match expected size from shape and "
            f"data type ({needed} bytes), {dtype}{list(shape)}."
        )
    return stored_tensor(raw, dtype, shape)


def _typed_tensor(proto: Any, filled: list[str], dtype: ElementType, shape: tuple[int, ...], owner: str) -> ir.Tensor:
    field = _FIELD_OF.get(dtype, "int32_data")
    if filled and filled != [field]:
        raise Fail(f"Data of {owner} must be in {field} or raw_data as its type is {dtype}, but it is in {', '.join(filled)}.")
    needed = _entries(dtype, math.prod(shape))
    if len(getattr(proto, field)) != needed:
        count = len(getattr(proto, field))
        raise Fail(f"Data of {owner} does not fit its dims: {dtype}{list(shape)} needs {needed} entries, {field} has {count}.")
    array = _typed_array(getattr(proto, field), dtype).reshape(-1)[: math.prod(shape)].reshape(shape)
    return ir.Tensor(dtype, shape, lambda: array)


def _entries(dtype: ElementType, count: int) -> int:
    """How many entries of the typed field hold `count` elements."""
    if dtype in dtypes.COMPLEX:
        return 2 * count
    return dtype.stored_bytes(count) if dtype.bits in (2, 4) else count


def _typed_array(entries: Any, dtype: ElementType) -> np.ndarray:
    if dtype is dtypes.string:
        return string_array(entries)
    if dtype in dtypes.COMPLEX:
        part = np.float32 if dtype is dtypes.complex64 else np.float64
        return np.array(entries, part).view(dtype.numpy)
    if _FIELD_OF.get(dtype, "int32_data") != "int32_data":
        return np.array(entries, dtype.numpy)
    numbers = np.array(entries, np.int32)
    if dtype is dtypes.bool_:
        return packing.as_bool(numbers)
    if dtype.bits in (2, 4):
        return packing.decode(numbers.astype(np.uint8).data, dtype, (len(numbers) * 8 // dtype.bits,))
    return packing.from_bits(numbers.view(np.uint32), dtype)


def string_array(texts: Iterable[bytes]) -> np.ndarray:
    """Strings of a file; bytes that are no UTF-8 survive as surrogates."""
    decoded = [text.decode("utf-8", "surrogateescape") for text in texts]
    array = np.empty(len(decoded), object)
    array[:] = decoded
    return array


def read_sparse_tensor(proto: Any, folder: external.ExternalFolder, owner: str) -> ir.SparseTensor:
    """A sparse tensor whose positions have been checked."""
    values = read_tensor(proto.values, folder, f"values of {owner}")
    shape = read_dims(proto.dims, values.dtype, owner)
    if math.prod(shape) * values.dtype.numpy.itemsize > MAX_DENSE_BYTES:
        raise Fail(
            f"Shape of {owner} is too large: {list(shape)} would take more than {MAX_DENSE_BYTES} bytes as a dense tensor."
        )
    if len(values.shape) != 1:
        raise Fail(f"Values of {owner} must be 1-D, their dims are {list(values.shape)}.")
    indices = _read_indices(proto, values, shape, folder, owner)
    return ir.SparseTensor(values.numpy(), indices, shape, text(proto.values.name))


def _read_indices(
    proto: Any, values: ir.Tensor, shape: tuple[int, ...], folder: external.ExternalFolder, owner: str
) -> np.ndarray:
    count = values.shape[0]
    if not proto.HasField("indices") and not count:
        return np.zeros(0, np.int64)
    indices = read_tensor(proto.indices, folder, f"indices of {owner}")
    if indices.dtype is not dtypes.int64 or indices.shape not in ((count,), (count, len(shape))):
        raise Fail(
            f"Indices of {owner} must be int64[{count}] or int64[{count}, {len(shape)}], not {indices.dtype}{list(indices.shape)}."
        )
    positions = indices.numpy()
    limits = np.array(shape, np.int64) if len(indices.shape) == 2 else np.int64(math.prod(shape))
    if ((positions < 0) | (positions >= limits)).any():
        raise Fail(f"Indices of {owner} lie outside its dims {list(shape)}.")
    return positions
