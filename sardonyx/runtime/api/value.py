"""OrtValue: a value that is not copied on its way into and out of runs; OrtValueVector: a list of them.

The original has a raw class and a wrapper of the same name. Here one class serves as both, so `_ortvalue` is the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.dtypes import ElementType
from sardonyx.ir import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.runtime.api import arguments, dlpack
from sardonyx.runtime.api.devices import CPU, OrtDevice, OrtDeviceVendorId, OrtMemoryInfo
from sardonyx.runtime.api.sparse import SparseTensor

NOT_NUMERIC = "Creation of OrtValues is currently only supported from non-string numpy arrays"


class OrtValue:
    """A tensor, sparse tensor, sequence, map or empty optional in memory. Tensors share the memory of the array they are made from."""

    __slots__ = ("_value", "_type", "_numpy_obj", "_session", "__weakref__")

    def __init__(self, ortvalue: OrtValue, numpy_obj: np.ndarray | None = None, session: Any = None):
        if not isinstance(ortvalue, OrtValue):
            raise ValueError("`Provided ortvalue` needs to be of type `sardonyx.OrtValue`")
        self._value: Any = ortvalue._value
        self._type: Type | None = ortvalue._type
        self._numpy_obj = numpy_obj
        self._session = session

    @classmethod
    def _of(cls, value: Any, type: Type | None = None) -> OrtValue:
        """Around a value as graphs carry it; `type` is needed where the value does not tell it."""
        wrapped = object.__new__(cls)
        wrapped._value = value
        wrapped._type = type_of(value) or type
        wrapped._numpy_obj = value if isinstance(value, np.ndarray) else None
        wrapped._session = None
        return wrapped

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    # --- making them

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: Any = "cpu", device_id: int = 0, vendor_id: int | OrtDeviceVendorId = -1
    ) -> OrtValue:
        """Around an array, without a copy if it is C-contiguous. Arrays of ml_dtypes and of strings are welcome too."""
        _require_cpu(device_type, device_id, vendor_id)
        if not isinstance(numpy_obj, np.ndarray):
            raise RuntimeError(NOT_NUMERIC)
        value = cls._of(_plain_array(numpy_obj))
        value._numpy_obj = numpy_obj
        return value

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """The bits of an array as another element type of the same size, given by its ONNX number."""
        function = "ortvalue_from_numpy_with_onnx_type"
        if not isinstance(data, np.ndarray):
            raise arguments.mismatch(function, "(data: numpy.ndarray, onnx_element_type: int)", data, onnx_element_type)
        code = arguments.integer(onnx_element_type, function)
        try:
            element = dtypes.from_code(code)
        except KeyError:
            raise RuntimeError(f"Not a valid ONNX Tensor data type: {code}") from None
        size = element.numpy.itemsize
        if element is dtypes.string or data.itemsize != size:
            raise RuntimeError(f"Items size in the incoming array: {data.itemsize} specified by onnxtype: {size}")
        return cls._of(np.ascontiguousarray(data).view(element.numpy).reshape(data.shape))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: Any = "cpu",
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A tensor with memory of its own that holds nothing in particular."""
        if memory_info is None:
            _require_cpu(device_type, device_id, vendor_id)
        elif memory_info.name != "Cpu":
            raise RuntimeError(f"No shared allocator found for: {memory_info!r}")
        element = element_of(element_type)
        if element is dtypes.string:
            raise RuntimeError(NOT_NUMERIC)
        sizes = [arguments.integer(size, "ortvalue_from_shape_and_type", bits=64) for size in shape]
        if any(size < 0 for size in sizes):
            raise RuntimeError(f"Tensor shape.Size() must be >= 0, not that of {sizes}")
        try:
            return cls._of(np.empty(sizes, element.numpy))
        except ValueError as error:
            raise RuntimeError(f"A tensor of shape {sizes} is too large: {error}") from error

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type

    @classmethod
    def ortvalue_from_shape_and_type_for_memory_info(
        cls, shape: Sequence[int], element_type: Any, memory_info: OrtMemoryInfo
    ) -> OrtValue:
        """The same in memory that `memory_info` describes."""
        return cls.ortvalue_from_shape_and_type(shape, element_type, memory_info=memory_info)

    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type_for_memory_info

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """Around a sparse tensor."""
        return cls._of(sparse_tensor._get_c_tensor())

    @classmethod
    def from_dlpack(cls, data: Any, /, is_bool_tensor: bool = False) -> OrtValue:
        """Around the memory of another library's tensor: an object with `__dlpack__`, or a capsule."""
        is_bool = is_bool_tensor or str(getattr(data, "dtype", "")).endswith("bool")
        return cls._of(dlpack.from_producer(data, is_bool))

    # --- what they are

    def data_type(self) -> str:
        """Its type as text: "tensor(float)"."""
        return str(self._type)

    def element_type(self) -> int:
        """The ONNX number of the elements' type, also of the tensors of a sequence."""
        type = self._type
        while isinstance(type, (SequenceType, OptionalType)):
            type = type.element
        if isinstance(type, (TensorType, SparseTensorType)) and type.dtype is not None:
            return type.dtype.code
        raise RuntimeError("Only OrtValues that are Tensors/SpareTensors are currently supported")

    def shape(self) -> list[int]:
        """The sizes of a tensor."""
        if isinstance(self._value, SparseTensor):
            return self._value.dense_shape()
        return list(self._tensor("Only OrtValues that are Tensors/SpareTensors are currently supported").shape)

    def device_name(self) -> str:
        """Where it lies: "cpu"."""
        if not isinstance(self._value, (np.ndarray, SparseTensor)):
            raise RuntimeError("Only OrtValues that are Tensors/SparseTensors are currently supported")
        return "cpu"

    def has_value(self) -> bool:
        """Whether it is something else than an empty optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return isinstance(self._type, TensorType)

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return isinstance(self._type, SparseTensorType)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self._type, SequenceType) and isinstance(self._type.element, TensorType)

    def data_ptr(self) -> int:
        """The address of the first element, 0 if there is none."""
        array = self._tensor()
        return array.ctypes.data if array.size else 0

    def tensor_size_in_bytes(self) -> int:
        """How many bytes the elements of a tensor take."""
        return self._tensor().nbytes

    def _tensor(self, otherwise: str = "Only OrtValues that are Tensors are currently supported") -> np.ndarray:
        if not isinstance(self._value, np.ndarray):
            raise RuntimeError(otherwise)
        return self._value

    # --- getting at the content

    def numpy(self) -> np.ndarray:
        """An array over the same memory; bfloat16 and its like come as ml_dtypes arrays."""
        return self._tensor("Only OrtValues that are Tensors are convertible to Numpy objects").view()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor that it holds."""
        if not isinstance(self._value, SparseTensor):
            raise RuntimeError("This OrtValue does not contain SparseTensor. Check data_type() value.")
        return self._value

    def __dlpack__(self, *, stream: Any = None, **keywords: Any) -> Any:
        return dlpack.to_capsule(self._tensor("Only tensor type OrtValues are supported"), **keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU_DEVICE

    def to_dlpack(self) -> Any:
        """A DLPack capsule over the same memory."""
        return self.__dlpack__()

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        """Write new content of the same size into this tensor's memory."""
        if isinstance(data, OrtValue):
            source = data._tensor()
            failure = "The source and destination OrtValues must have the same size"
        elif isinstance(data, np.ndarray):
            source = data
            failure = "The input size of numpy arrays does not match the size of the OrtValue."
        else:
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        target = self._tensor()
        if target.dtype == object or source.dtype.kind in "OUS":
            raise RuntimeError("Inplace update of OrtValues is currently only supported from non-string numpy arrays")
        if source.size != target.size or source.itemsize != target.itemsize:
            raise RuntimeError(failure)
        source = source.astype(source.dtype.newbyteorder("="), copy=False)
        target.reshape(-1).view(np.uint8)[...] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)

    def __reduce__(self) -> tuple[Any, ...]:
        return OrtValue._of, (self._value, self._type)


class OrtValueVector:
    """A growing list of OrtValues."""

    def __init__(self) -> None:
        self._items: list[OrtValue] = []

    @classmethod
    def _of(cls, items: Sequence[OrtValue]) -> OrtValueVector:
        vector = cls()
        vector._items.extend(items)
        return vector

    def push_back(self, value: Any, is_bool_tensor: bool = False) -> None:
        """Append an OrtValue, or a DLPack capsule as one."""
        self._items.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value, is_bool_tensor))

    def push_back_batch(
        self,
        torch_tensors: Sequence[Any],
        data_ptrs: Sequence[int],
        element_types: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[OrtDevice],
    ) -> None:
        """Append tensors over memory at given addresses; `torch_tensors` are kept alive."""
        for owner, address, element, shape, device in zip(
            torch_tensors, data_ptrs, element_types, shapes, devices, strict=True
        ):
            value = from_address(address, element, shape, device)
            value._numpy_obj = owner
            self._items.append(value)

    def reserve(self, size: int) -> None:
        """Nothing to do: Python's lists grow by themselves."""

    def shrink_to_fit(self) -> None:
        """Nothing to do."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[OrtValue]:
        return iter(self._items)

    def __getitem__(self, index: int) -> OrtValue:
        return self._items[index]

    def __bool__(self) -> bool:
        return bool(self._items)

    def bool_tensor_indices(self) -> list[int]:
        """Which of the values are tensors of bool, which DLPack does not tell."""
        return [
            index for index, item in enumerate(self._items) if item.is_tensor() and item.element_type() == dtypes.bool_.code
        ]

    def element_type_at(self, index: int) -> int:
        """The ONNX number of a value's element type."""
        return self._items[index].element_type()

    def dlpack_at(self, index: int) -> Any:
        """A DLPack capsule over a value's memory."""
        return self._items[index].to_dlpack()

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None) -> list[Any]:
        """Capsules of all tensors, each given to `to_tensor` if there is one."""
        capsules = [item.to_dlpack() for item in self._items]
        return capsules if to_tensor is None else [to_tensor(capsule) for capsule in capsules]


def from_address(address: int, element_type: Any, shape: Sequence[int], device: OrtDevice) -> OrtValue:
    """A tensor over memory that the caller owns and keeps alive."""
    element = element_of(element_type)
    if element is dtypes.string:
        raise RuntimeError("Only binding non-string Tensors is currently supported")
    _require_cpu(device, 0, -1)
    sizes = tuple(arguments.integer(size, bits=64) for size in shape)
    return OrtValue._of(dlpack.at_address(address, element.numpy, sizes))


def element_of(code: Any) -> ElementType:
    """The element type that an ONNX number or anything that NumPy takes for a dtype stands for."""
    if isinstance(code, int) and not isinstance(code, bool):
        try:
            return dtypes.from_code(code)
        except KeyError:
            raise RuntimeError(f"tensor type {code} is not supported") from None
    try:
        dtype = np.dtype(code)
    except TypeError as error:
        raise RuntimeError(f"Not a valid numpy type: {code!r}") from error
    try:
        return dtypes.from_numpy(dtype)
    except KeyError:
        raise RuntimeError(f"Numpy_type {dtype.num} can't be converted to MLDataType.") from None


def type_of(value: Any) -> Type | None:
    """The type of a value by itself, without shapes; None where it does not tell, as an empty list or nothing."""
    match value:
        case np.ndarray():
            return TensorType(dtypes.from_numpy(value.dtype))
        case SparseTensor():
            return SparseTensorType(dtypes.from_numpy(value._values.dtype))
        case ir.SparseTensor():
            return SparseTensorType(dtypes.from_numpy(value.values.dtype))
        case list() if value:
            element = type_of(value[0])
            return None if element is None else SequenceType(element)
        case dict() if value:
            return _map_type(value)
    return None


def _map_type(value: dict[Any, Any]) -> Type:
    key, content = next(iter(value.items()))
    element = dtypes.float32
    if isinstance(content, str):
        element = dtypes.string
    elif isinstance(content, int):
        element = dtypes.int64
    return MapType(dtypes.string if isinstance(key, str) else dtypes.int64, TensorType(element))


def _plain_array(array: np.ndarray) -> np.ndarray:
    """The array in the form that graphs carry: C-contiguous, of the machine's byte order, strings as objects."""
    try:
        element = dtypes.from_numpy(array.dtype)
    except KeyError:
        raise RuntimeError(f"Numpy_type {array.dtype.num} can't be converted to MLDataType.") from None
    array = np.asarray(array)
    if element is dtypes.string:
        return as_strings(array)
    if not array.flags.aligned or array.dtype != element.numpy:
        array = array.astype(element.numpy)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _require_cpu(device: Any, device_id: int, vendor_id: int) -> None:
    if not isinstance(device, OrtDevice):
        if device == "cpu":
            return
        device = OrtDevice.make(device, device_id, vendor_id)
    if device.device_type() != CPU:
        raise RuntimeError(
            "Can't allocate memory on the device using this package of OnnxRuntime. "
            "Please use the appropriate package of OnnxRuntime for your hardware to use this feature."
        )


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy the content of tensors into others of the same size, pairwise."""
    if not src or len(src) != len(dst):
        raise RuntimeError("Invalid arguments provided to CopyTensors.")
    for source, target in zip(src, dst, strict=True):
        target._ortvalue.update_inplace(source._ortvalue)


# --- text

_TEXT = frozenset({str})
_STRINGS = frozenset({str, np.str_})


def as_strings(array: np.ndarray) -> np.ndarray:
    """Text of any kind as an object array of str. Bytes are taken as UTF-8, other objects by their str()."""
    strings = of_strings(array) if array.dtype == object else None
    return _texts(map(_text, array.ravel().tolist()), array) if strings is None else strings


def of_strings(array: np.ndarray) -> np.ndarray | None:
    """An array of objects that are str or NumPy's kind of it, as one of str alone; None if there are others."""
    items = array.ravel().tolist()
    kinds = {*map(type, items)}
    if kinds <= _TEXT:
        return array
    # str() of NumPy's kind takes three times as long
    return _texts(map(str.__str__, items), array) if kinds <= _STRINGS else None


def _texts(items: Iterable[str], like: np.ndarray) -> np.ndarray:
    texts = np.empty(like.size, dtype=object)
    texts[:] = list(items)
    return texts.reshape(like.shape)


def _text(item: Any) -> str:
    if isinstance(item, np.void):
        item = item.tobytes()
    return item.decode() if isinstance(item, bytes) else str(item)
