"""Trees of tensors and types -> Tensor, SparseTensor, Type. The graph reader calls these.

Data is not copied: a tensor is a view of the file, fetched when somebody needs it. How much of it there is is compared with the dims
first, so a small file cannot ask for much memory.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.formats.files import stored_tensor
from sardonyx.formats.ort.decoding import Tree
from sardonyx.formats.ort.tables import DimensionValueType, TypeInfoValue
from sardonyx.ir.types import MAX_RANK

MAX_DENSE_BYTES = 2**31
"""A sparse tensor that would be larger as a dense one is refused, for a few bytes of file can ask for any size."""
INDEX_TYPES = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)


def invalid(reason: str) -> Fail:
    """What readers raise for a tree that is no model, in the words that onnxruntime's users know."""
    return Fail(f"{reason}. Invalid ORT format model.")


# --- tensors


def read_tensor(tree: Tree, owner: str) -> ir.Tensor:
    """A tensor; `owner` is how errors call it."""
    dtype = element_type(tree["data_type"], owner)
    if "dims" not in tree:
        raise invalid(f"Missing dimensions for {owner}")
    shape = read_dims(tree["dims"], dtype, owner)
    if tree["external_data_offset"] >= 0:
        raise Fail(f"Tensor has external data but a data reader was not provided. It is {owner}.")
    name, doc = tree.get("name", ""), tree.get("doc_string", "")
    if dtype is dtypes.string:
        return ir.Tensor(dtype, shape, functools.partial(_strings, _string_data(tree, shape, owner), shape), name=name, doc=doc)
    if "raw_data" not in tree:
        raise invalid(f"Missing raw data for {owner}")
    raw, needed = tree["raw_data"], dtype.stored_bytes(math.prod(shape))
    if len(raw) != needed:
        raise invalid(f"Initializer raw data size mismatch for {owner}. Expected {needed} bytes but found {len(raw)}")
    tensor = stored_tensor(raw, dtype, shape)
    tensor.name, tensor.doc = name, doc
    return tensor


def element_type(code: int, owner: str) -> ElementType:
    """The element type of a number, which must not be UNDEFINED."""
    try:
        return dtypes.from_code(code)
    except KeyError:
        raise invalid(f"Invalid tensor data type {code} of {owner}") from None


def read_dims(dims: list[int], dtype: ElementType, owner: str) -> tuple[int, ...]:
    """The shape, if an array of that shape can exist."""
    if len(dims) > MAX_RANK:
        raise invalid(f"Shape of {owner} has {len(dims)} dims, at most {MAX_RANK} are supported")
    if any(size < 0 for size in dims):
        raise invalid(f"Shape of {owner} has a negative size: {dims}")
    if math.prod(max(size, 1) for size in dims) * dtype.numpy.itemsize >= 2**63:
        raise invalid(f"Shape of {owner} is too large: {dims}")
    return tuple(dims)


def _string_data(tree: Tree, shape: tuple[int, ...], owner: str) -> list[str]:
    if "string_data" not in tree:
        raise invalid(f"Missing string data for {owner}")
    texts: list[str] = tree["string_data"]
    if len(texts) != math.prod(shape):
        raise invalid(f"String data size mismatch for {owner}. Expected {math.prod(shape)} strings but found {len(texts)}")
    return texts


def _strings(texts: list[str], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def read_sparse_tensor(tree: Tree) -> ir.SparseTensor:
    """A sparse tensor whose positions have been checked; its values' name is its own."""
    for part in ("values", "indices"):
        if part not in tree:
            raise invalid(f"Missing {part} of a sparse initializer")
    name = tree["values"].get("name", "")
    if not name:
        raise invalid("Missing name of the values of a sparse initializer")
    owner = f"sparse initializer '{name}'"
    values = read_tensor(tree["values"], f"values of {owner}")
    if "dims" not in tree:
        raise invalid(f"Missing dimensions for {owner}")
    shape = read_dims(tree["dims"], values.dtype, owner)
    if math.prod(shape) * values.dtype.numpy.itemsize > MAX_DENSE_BYTES:
        raise invalid(f"Shape of {owner} is too large: {list(shape)} would take more than {MAX_DENSE_BYTES} bytes when dense")
    if len(values.shape) != 1:
        raise invalid(f"Values of {owner} must be 1-D, their dims are {list(values.shape)}")
    return ir.SparseTensor(values.numpy(), _read_indices(tree["indices"], values.shape[0], shape, owner), shape, name)


def _read_indices(tree: Tree, count: int, shape: tuple[int, ...], owner: str) -> np.ndarray:
    indices = read_tensor(tree, f"indices of {owner}")
    if indices.dtype not in INDEX_TYPES or indices.shape not in ((count,), (count, len(shape))):
        raise invalid(
            f"Indices of {owner} must be int8, int16, int32 or int64 and [{count}] or [{count}, {len(shape)}], "
            f"not {indices.dtype}{list(indices.shape)}"
        )
    positions = indices.numpy().astype(np.int64)
    limits = np.array(shape, np.int64) if positions.ndim == 2 else np.int64(math.prod(shape))
    if ((positions < 0) | (positions >= limits)).any():
        raise invalid(f"Indices of {owner} lie outside its dims {list(shape)}")
    return positions


# --- types


def read_type(tree: Tree, owner: str) -> ir.Type:
    """The type of a value; `owner` is named in errors."""
    value: Tree = tree.get("value", {})
    if not value:
        raise invalid(f"Null type info for {owner}")
    match tree["value_type"]:
        case TypeInfoValue.TENSOR_TYPE:
            return ir.TensorType(element_type(value["elem_type"], owner), _read_shape(value.get("shape")))
        case TypeInfoValue.SEQUENCE_TYPE:
            return ir.SequenceType(_inner(value.get("elem_type"), owner))
        case _:
            key = element_type(value["key_type"], owner)
            if key is not dtypes.string and key not in dtypes.INTS:
                raise invalid(f"{key} cannot be the key type of the map {owner}")
            return ir.MapType(key, _inner(value.get("value_type"), owner))


def read_denotation(tree: Tree) -> ir.Denotation | None:
    """What a type and its sizes stand for, None if it does not say."""
    shape = tree["value"].get("shape", {}) if tree.get("value_type") == TypeInfoValue.TENSOR_TYPE else {}
    word, sizes = tree.get("denotation", ""), tuple(size.get("denotation", "") for size in shape.get("dim", ()))
    return (word, sizes) if word or any(sizes) else None


def _inner(tree: Tree | None, owner: str) -> ir.Type:
    if tree is None:
        raise invalid(f"Null type info inside the type of {owner}")
    return read_type(tree, owner)


def _read_shape(tree: Tree | None) -> ir.Shape | None:
    return None if tree is None else tuple(_read_dim(dim.get("value")) for dim in tree.get("dim", ()))


def _read_dim(tree: Tree | None) -> ir.Dim:
    """A negative size is an unknown one, as in ONNX files."""
    if tree is not None and tree["dim_type"] == DimensionValueType.VALUE and tree["dim_value"] >= 0:
        return int(tree["dim_value"])
    if tree is not None and tree["dim_type"] == DimensionValueType.PARAM and tree.get("dim_param"):
        return ir.dim.named(tree["dim_param"])
    return ir.dim.fresh()
