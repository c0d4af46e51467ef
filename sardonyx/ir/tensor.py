"""Constant tensors: element type and shape are known at once, data is fetched when somebody asks for it.

Formats make them from bytes without copying, or read them from files; `numpy()` hands out a read-only array.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir.types import SparseTensorType, TensorType
from sardonyx.startup.locks import Lock
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class PackedLocation:
    """A tensor in the order in which some kernel reads it, stored in the same file: what it is, and where each of its buffers lies."""

    key: str
    buffers: tuple[tuple[int, int, str], ...]
    """Offset, length and checksum."""


@dataclass(frozen=True)
class ExternalLocation:
    """Where a tensor's bytes lie outside the model's file."""

    location: str
    offset: int = 0
    length: int | None = None
    checksum: str | None = None
    prepacked: tuple[PackedLocation, ...] = ()


class Tensor:
    """A constant. Made from an array, or from a function that fetches the array when it is first needed."""

    __slots__ = ("name", "dtype", "shape", "doc", "external", "beside", "metadata", "is_stored", "_array", "_fetch", "_lock")

    def __init__(
        self,
        dtype: ElementType,
        shape: tuple[int, ...],
        fetch: Callable[[], np.ndarray],
        *,
        name: str = "",
        doc: str = "",
        external: ExternalLocation | None = None,
        is_stored: bool = False,
    ):
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.doc = doc
        self.external = external
        self.beside: Callable[[int, int], memoryview] | None = None
        """Reads other bytes of the file that holds the tensor's, given offset and length: its packed forms."""
        self.metadata: dict[str, str] = {}
        self.is_stored = is_stored
        """Whether `fetch` reads a file, and can do so again."""
        self._array: np.ndarray | None = None
        self._fetch: Callable[[], np.ndarray] | None = fetch
        self._lock = Lock()

    @staticmethod
    def of(array: Any, name: str = "") -> Tensor:
        """A tensor over an array that stays as it is from now on."""
        array = np.asarray(array)
        if array.dtype.kind in "US":
            array = array.astype(object)
        tensor = Tensor(dtypes.from_numpy(array.dtype), array.shape, lambda: array, name=name)
        tensor.numpy()
        return tensor

    @staticmethod
    def computed(dtype: ElementType, shape: tuple[int, ...], compute: Callable[[], np.ndarray]) -> Tensor:
        """A tensor that is computed when somebody looks at it, and once more when nobody has the result any longer.

        For weights that are made of others and will be packed: they need not be in memory, neither before nor after.
        """
        last: weakref.ref[np.ndarray] | None = None

        def fetch() -> np.ndarray:
            nonlocal last
            array = None if last is None else last()
            if array is None:
                array = compute()
                last = weakref.ref(array)
            return array

        return Tensor(dtype, shape, fetch)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in a file; strings count as if they were empty."""
        return 0 if self.dtype is dtypes.string else self.dtype.stored_bytes(self.size)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    @property
    def is_loaded(self) -> bool:
        return self._array is not None

    def numpy(self) -> np.ndarray:
        """The data as a read-only, aligned array; the same one each time."""
        array = self._array
        if array is not None:
            return array
        with self._lock:
            if self._array is None:
                assert self._fetch is not None
                array = self._fetch()
                if not array.flags.aligned:
                    array = array.copy()
                array = array.view()
                array.flags.writeable = False
                self._array, self._fetch = array, self._fetch if self.is_stored else None
            return self._array

    def peek(self) -> np.ndarray:
        """The data for one look, maybe not aligned: nothing is kept of it, so a weight that is packed elsewhere stays in its file."""
        with self._lock:
            if self._array is not None:
                return self._array
            assert self._fetch is not None
            return self._fetch()

    def forget(self) -> None:
        """Let go of data that a file has; should somebody ask for it after all, it is read again."""
        with self._lock:
            if self.is_stored:
                self._array = None

    def release(self, fetch: Callable[[], np.ndarray]) -> None:
        """Let go of the data; should somebody ask for it after all, `fetch` brings it back."""
        with self._lock:
            self._array, self._fetch = None, fetch

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype}{list(self.shape)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (np.array(self.numpy()), self.name)


def _restored(array: np.ndarray, name: str) -> Tensor:
    return Tensor.of(array, name)


class SparseTensor:
    """A sparse value in coordinate form: `values` at `indices` (flat positions, or one row of coordinates per value)."""

    __slots__ = ("name", "values", "indices", "dense_shape")

    def __init__(self, values: np.ndarray, indices: np.ndarray, dense_shape: tuple[int, ...], name: str = ""):
        self.name = name
        self.values = values
        self.indices = indices
        self.dense_shape = tuple(dense_shape)

    @property
    def type(self) -> SparseTensorType:
        return SparseTensorType(dtypes.from_numpy(self.values.dtype), self.dense_shape)

    def to_dense(self) -> np.ndarray:
        """The same as a dense array, zero (or empty text) elsewhere."""
        if self.values.dtype == object:
            dense = np.full(self.dense_shape, "", dtype=object)
        else:
            dense = np.zeros(self.dense_shape, dtype=self.values.dtype)
        flat = self.indices
        if flat.ndim == 2:
            flat = np.ravel_multi_index(tuple(flat.T), self.dense_shape) if len(flat) else flat[:, 0]
        dense.reshape(-1)[flat] = self.values
        return dense

    def __repr__(self) -> str:
        return f"SparseTensor({self.name!r}, {len(self.values)} of {list(self.dense_shape)})"
