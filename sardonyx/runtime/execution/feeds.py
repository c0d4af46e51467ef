"""What goes into a run: values that users feed, checked against what the model declares and brought into the form that graphs carry.

Nothing is cast: an array must have the declared element type. Python lists take it on. Arrays are passed on as read-only views, so no
kernel can change what the caller owns and everything that shares memory with it is recognized by that mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.ir import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type, Value
from sardonyx.runtime.api.sparse import SparseTensor
from sardonyx.runtime.api.value import OrtValue, as_strings, type_of


def convert(declared: Value, fed: Any) -> Any:
    """One fed value as the graph takes it, or the error that says why it does not fit."""
    type = declared.type
    # the common case first: a run's overhead is felt on small models
    if fed.__class__ is np.ndarray and isinstance(type, TensorType):
        return _checked_tensor(declared.name, type, _array(fed))
    if isinstance(fed, OrtValue):
        return _from_ortvalue(declared.name, type, fed)
    if fed is None:
        if isinstance(type, OptionalType) or not declared.uses:
            return None
        raise _missing(declared)
    return _value(declared.name, type, fed)


def _value(name: str, type: Type | None, fed: Any) -> Any:
    match type:
        case TensorType():
            return _checked_tensor(name, type, _tensor(name, type, fed))
        case SequenceType(element):
            return _sequence(name, type, element, fed)
        case MapType():
            return _map(name, type, fed)
        case OptionalType(element):
            return None if fed is None else _value(name, element, fed)
        case SparseTensorType():
            return _sparse(name, type, fed)
    return fed


# --- tensors


def _array(array: np.ndarray) -> np.ndarray:
    """An array of any memory layout as a read-only one of a dtype that we know."""
    element = _element_of(array)
    if element is dtypes.string:
        view = as_strings(array).view()
    elif array.dtype == element.numpy and array.flags.aligned:
        view = array.view()
    else:
        view = array.astype(element.numpy)
    view.flags.writeable = False
    return view


def _element_of(array: np.ndarray) -> ElementType:
    try:
        return dtypes.from_numpy(array.dtype)
    except KeyError:
        raise RuntimeError(f"Numpy_type {array.dtype.num} can't be converted to MLDataType.") from None


def _tensor(name: str, type: TensorType, fed: Any) -> np.ndarray:
    """Whatever may stand for a tensor, as an array."""
    if isinstance(fed, (np.ndarray, np.generic)):
        return _array(np.asarray(fed))
    if isinstance(fed, list):
        return _from_list(type, fed)
    if isinstance(fed, Mapping):
        raise _unexpected(_type_of_map(name, fed), type, wrapped=True)
    if isinstance(fed, (SparseTensor, ir.SparseTensor)):
        raise _unexpected(type_of(fed), type)
    if hasattr(fed, "__array__") and not isinstance(fed, (str, bytes)):
        return _array(np.asarray(fed))
    raise _not_a_tensor(name, fed)


def _from_list(type: TensorType, items: list[Any]) -> np.ndarray:
    """Nested lists take on the declared element type."""
    try:
        if type.dtype is dtypes.string:
            return as_strings(np.array(items, dtype=object))
        return np.array(items, dtype=type.dtype.numpy if type.dtype else None)
    except (ValueError, TypeError, OverflowError):
        raise RuntimeError("Could not create tensor from given input list") from None


def _not_a_tensor(name: str, fed: Any) -> RuntimeError:
    if not isinstance(fed, Iterable) or isinstance(fed, memoryview):
        return RuntimeError(f"Unable to handle object of type {type(fed)}")
    first = next(iter(fed), None)
    if isinstance(first, np.ndarray):
        return RuntimeError(f"Iterable of {type(first)} should be given as array for input '{name}'.")
    return RuntimeError(f"Input must be a list of dictionaries or a single numpy array for input '{name}'.")


def _checked_tensor(name: str, type: TensorType, array: np.ndarray) -> np.ndarray:
    if type.dtype is not None and array.dtype is not type.dtype.numpy and array.dtype != type.dtype.numpy:
        raise _unexpected(TensorType(dtypes.from_numpy(array.dtype)), type)
    if type.shape == () and array.size == 1:
        return array.reshape(())  # programs feed [1] to scalars, for onnxruntime does not compare a declared rank of 0
    if type.shape is not None:
        check_shape(name, type.shape, array.shape)
    return array


def check_shape(name: str, declared: ir.Shape, shape: tuple[int, ...], place: str = "input") -> None:
    """Refuse another rank or another size than a declared number; symbols take any size."""
    if len(shape) != len(declared):
        raise InvalidArgument(
            f"Invalid rank for {place}: {name} Got: {len(shape)} Expected: {len(declared)} "
            "Please fix either the inputs/outputs or the model."
        )
    wrong = [
        (i, size, wanted) for i, (size, wanted) in enumerate(zip(shape, declared)) if wanted.__class__ is int and size != wanted
    ]
    if wrong:
        lines = "".join(f" index: {index} Got: {size} Expected: {wanted}\n" for index, size, wanted in wrong)
        raise InvalidArgument(
            f"Got invalid dimensions for {place}: {name} for the following indices\n{lines}"
            " Please fix either the inputs/outputs or the model."
        )


def fits(declared: Value, shape: tuple[int, ...]) -> bool:
    """Whether `check_shape` has nothing against a tensor's shape."""
    wanted = getattr(declared.type, "shape", None)
    return wanted is None or (
        len(wanted) == len(shape) and all(size.__class__ is not int or size == actual for size, actual in zip(wanted, shape))
    )


def _unexpected(actual: Type | None, expected: Type | None, wrapped: bool = False) -> InvalidArgument:
    pair = (f"({actual})", f"({expected})") if wrapped else (str(actual), str(expected))
    return InvalidArgument(f"Unexpected input data type. Actual: ({pair[0]}) , expected: ({pair[1]})")


def _missing(declared: Value) -> Fail:
    node = declared.users[0]
    return Fail(
        f"Non-zero status code returned while running {node.op_type} node. Name:'{node.name}' "
        f"Status Message: Missing Input: {declared.name}"
    )


# --- sequences, maps, sparse tensors


def _sequence(name: str, type: SequenceType, element: Type, fed: Any) -> list[Any]:
    if isinstance(fed, np.ndarray):
        raise InvalidArgument(f"input with name: '{name}' expected to be of type: 3 but received a tensor")
    if isinstance(fed, Mapping):
        raise _unexpected(_type_of_map(name, fed), type, wrapped=True)
    if not isinstance(fed, list):
        raise _not_a_tensor(name, fed)
    return [_element(name, element, item) for item in fed]


def _element(name: str, type: Type, fed: Any) -> Any:
    if not isinstance(type, TensorType):
        return _value(name, type, fed)
    if not isinstance(fed, (np.ndarray, np.generic)):
        raise RuntimeError("CreateSequenceOfTensors: Input is not a tensor")
    array = _array(np.asarray(fed))
    if type.dtype is not None and array.dtype != type.dtype.numpy:
        raise RuntimeError("TensorSeq: tensor to be added has a different data type.")
    return array


def _map(name: str, type: MapType, fed: Any) -> dict[Any, Any]:
    if isinstance(fed, np.ndarray):
        raise InvalidArgument(f"input with name: '{name}' expected to be of type: 1 but received a tensor")
    if not isinstance(fed, Mapping):
        raise _not_a_tensor(name, fed)
    if fed and _key_type(name, next(iter(fed))) is not _key_kind(type.key):
        raise _unexpected(_type_of_map(name, fed), type, wrapped=True)
    key_class, value_class = kinds_in(type)
    if holds_only(fed, key_class, value_class):
        return dict(fed)
    return {key_class(key): _map_value(name, type, value) for key, value in fed.items()}


def kinds_in(type: Any) -> tuple[Any, Any]:
    """The classes of Python of which a map's keys and its plain values are."""
    dtype = getattr(type.value, "dtype", None)
    return str if type.key is dtypes.string else int, str if dtype is dtypes.string else int if dtype in dtypes.INTS else float


def holds_only(fed: Mapping[Any, Any], key: Any, value: Any) -> bool:
    """Whether a map has keys and values of these very classes alone, so that nothing is to be converted."""
    return {*map(type, fed)} == {key} and {*map(type, fed.values())} == {value}


def _key_kind(key: ElementType) -> ElementType:
    return dtypes.string if key is dtypes.string else dtypes.int64


def _key_type(name: str, key: Any) -> ElementType:
    if isinstance(key, str):
        return dtypes.string
    if isinstance(key, (int, np.integer)):
        return dtypes.int64
    raise RuntimeError(f"Key type must be int or string (not {type(key)}) for input '{name}'.")


def _map_value(name: str, type: MapType, value: Any) -> Any:
    """A map's value: a plain number or text for scalars, an array for tensors of rank."""
    dtype = getattr(type.value, "dtype", None)
    if isinstance(value, (np.ndarray, list)) and np.ndim(value):
        return _value(name, type.value, value)
    try:
        if dtype is dtypes.string:
            if isinstance(value, str):
                return value
        elif not isinstance(value, (str, bytes)):
            return kinds_in(type)[1](value)
    except (TypeError, ValueError):
        pass
    raise RuntimeError(f"Unexpected value type  {value.__class__}, it cannot be linked to {dtype} for input '{name}'.")


def _type_of_map(name: str, fed: Mapping[Any, Any]) -> Type:
    if not fed:
        raise RuntimeError("Size of dictionary is empty, unable to run the prediction.")
    return MapType(_key_type(name, next(iter(fed))), TensorType(dtypes.float32))


def _sparse(name: str, type: SparseTensorType, fed: Any) -> ir.SparseTensor:
    value = fed._to_ir() if isinstance(fed, SparseTensor) else fed
    if not isinstance(value, ir.SparseTensor):
        if isinstance(fed, np.ndarray):
            raise _unexpected(type_of(fed), type)
        raise RuntimeError(f"Unable to handle object of type {fed.__class__}")
    if type.dtype is not None and dtypes.from_numpy(value.values.dtype) is not type.dtype:
        raise _unexpected(value.type, type)
    if type.shape is not None:
        check_shape(name, type.shape, value.dense_shape)
    return value


# --- OrtValues


def _from_ortvalue(name: str, type: Type | None, fed: OrtValue) -> Any:
    """An OrtValue's content; its type must be the declared one."""
    wanted = type.element if isinstance(type, OptionalType) else type
    if fed._value is None:
        return None
    if isinstance(fed._value, np.ndarray) and isinstance(wanted, TensorType):
        return _checked_tensor(name, wanted, _array(fed._value))
    if fed._type is not None and type is not None and str(fed._type) != str(wanted):
        raise _unexpected(fed._type, type)
    return _value(name, type, fed._value)
