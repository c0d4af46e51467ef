"""SparseTensor as users see it: coordinates or compressed rows. Inside, graphs carry `ir.SparseTensor` in coordinate form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.devices import CPU, OrtDevice
from sardonyx.runtime.api.enums import OrtSparseFormat


class SparseCooView:
    """Coordinates of the values: flat positions, or one row per value."""

    def __init__(self, indices: np.ndarray):
        self._indices = indices

    def indices(self) -> np.ndarray:
        """Flat positions, or a row of coordinates for each value."""
        return self._indices


class SparseBlockSparseView(SparseCooView):
    """Coordinates of blocks: a row of the blocks' rows, then one of their columns."""


class SparseCsrView:
    """Columns of the values, and where each row begins."""

    def __init__(self, inner: np.ndarray, outer: np.ndarray):
        self._inner = inner
        self._outer = outer

    def inner(self) -> np.ndarray:
        """The column of each value."""
        return self._inner

    def outer(self) -> np.ndarray:
        """Where each row begins among the values."""
        return self._outer


class SparseTensor:
    """A sparse tensor. Numeric values and indices share the memory of the arrays that they were made from."""

    __slots__ = ("_format", "_shape", "_values", "_indices")
    _format: OrtSparseFormat
    _shape: tuple[int, ...]
    _values: np.ndarray
    _indices: tuple[np.ndarray, ...]

    def __init__(self, sparse_tensor: SparseTensor):
        if not isinstance(sparse_tensor, SparseTensor):
            raise ValueError("`Provided object` needs to be of type `sardonyx.SparseTensor`")
        self._format = sparse_tensor._format
        self._shape = sparse_tensor._shape
        self._values = sparse_tensor._values
        self._indices = sparse_tensor._indices

    @classmethod
    def _make(
        cls, format: OrtSparseFormat, shape: Sequence[int], values: np.ndarray, indices: tuple[np.ndarray, ...]
    ) -> SparseTensor:
        tensor = object.__new__(cls)
        tensor._format = format
        tensor._shape = tuple(int(size) for size in shape)
        tensor._values = values
        tensor._indices = indices
        return tensor

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int] | np.ndarray, values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """Values at coordinates: as many flat positions as values, or two numbers per value."""
        values = _checked_values("sparse_coo_from_numpy", values, ort_device)
        indices = np.ascontiguousarray(coo_indices, dtype=np.int64)
        if indices.size not in (values.size, 2 * values.size):
            raise RuntimeError(f"Index size: {indices.size} must be equal to or twice the values size: {values.size}")
        indices = indices.reshape(-1) if indices.size == values.size else indices.reshape(-1, 2)
        return cls._make(OrtSparseFormat.ORT_SPARSE_COO, dense_shape, values, (indices,))  # type: ignore[arg-type]

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int] | np.ndarray,
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Compressed rows: the column of each value, and where each row begins among the values."""
        values = _checked_values("sparse_csr_from_numpy", values, ort_device)
        inner = np.ascontiguousarray(inner_indices, dtype=np.int64).reshape(-1)
        outer = np.ascontiguousarray(outer_indices, dtype=np.int64).reshape(-1)
        if len(dense_shape) != 2:
            raise RuntimeError(f"dense shape must 2-D. Got: {len(dense_shape)}")
        if inner.size != values.size:
            raise RuntimeError(f"Expecting inner index size: {inner.size} the same as values size: {values.size}")
        rows = int(dense_shape[0])
        if outer.size not in (0, rows + 1):
            raise RuntimeError(f"Outer index count must be rows + 1 or zero. Got: {outer.size} rows: {rows}")
        return cls._make(OrtSparseFormat.ORT_SPARSE_CSRC, dense_shape, values, (inner, outer))  # type: ignore[arg-type]

    @classmethod
    def blocksparse_from_numpy(
        cls, dense_shape: Sequence[int] | np.ndarray, values: np.ndarray, block_indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """Blocks of a matrix: `values` are blocks of one size, `block_indices` a row of block rows and one of block columns."""
        values = _checked_values("blocksparse_from_numpy", values, ort_device)
        indices = np.ascontiguousarray(block_indices, dtype=np.int32)
        if values.ndim != 3:
            raise RuntimeError(f"Expecting values of 3-D shape: blocks, rows, columns. Got: {values.ndim}")
        if indices.shape != (2, len(values)):
            raise RuntimeError(f"Expecting indices of shape [2, {len(values)}]. Got: {list(indices.shape)}")
        counts = [size // block for size, block in zip(dense_shape, values.shape[1:], strict=True) if block]
        if len(counts) != 2 or (indices < 0).any() or (indices >= np.reshape(counts, (2, 1))).any():
            raise RuntimeError(f"Blocks of {values.shape[1:]} at {indices.tolist()} do not lie within {list(dense_shape)}")
        return cls._make(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE, dense_shape, values, (indices,))  # type: ignore[arg-type]

    @classmethod
    def _from_ir(cls, value: ir.SparseTensor) -> SparseTensor:
        """What a run returns."""
        indices = np.ascontiguousarray(value.indices, dtype=np.int64)
        return cls._make(OrtSparseFormat.ORT_SPARSE_COO, value.dense_shape, np.array(value.values), (indices.copy(),))

    def _to_ir(self) -> ir.SparseTensor:
        """What a graph computes with."""
        if self._format == OrtSparseFormat.ORT_SPARSE_COO:
            return ir.SparseTensor(self._values.reshape(-1), self._indices[0], self._shape)
        if self._format == OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE:
            return ir.SparseTensor(self._values.reshape(-1), self._positions_of_blocks(), self._shape)
        inner, outer = self._indices
        rows = np.repeat(np.arange(self._shape[0]), np.diff(outer)) if outer.size else inner
        return ir.SparseTensor(self._values.reshape(-1), rows * self._shape[1] + inner, self._shape)

    def _positions_of_blocks(self) -> np.ndarray:
        """The flat position of each element of the blocks."""
        _, height, width = self._values.shape
        block_rows, block_columns = self._indices[0].astype(np.int64).reshape(2, -1, 1, 1)
        rows = block_rows * height + np.arange(height)[:, None]
        columns = block_columns * width + np.arange(width)
        return (rows * self._shape[1] + columns).reshape(-1)

    def _get_c_tensor(self) -> SparseTensor:
        return self

    @property
    def _tensor(self) -> SparseTensor:
        return self

    def values(self) -> np.ndarray:
        """The values, not to be written."""
        return _read_only(self._values)

    def as_coo_view(self) -> SparseCooView:
        """The coordinates, of a tensor in that format."""
        self._require(OrtSparseFormat.ORT_SPARSE_COO, "COO")
        return SparseCooView(_read_only(self._indices[0]))

    def as_csrc_view(self) -> SparseCsrView:
        """Columns and beginnings of rows, of a tensor in that format."""
        self._require(OrtSparseFormat.ORT_SPARSE_CSRC, "CSR(C)")
        return SparseCsrView(_read_only(self._indices[0]), _read_only(self._indices[1]))

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """The coordinates of blocks, of a tensor in that format."""
        self._require(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE, "BlockSparse")
        return SparseBlockSparseView(_read_only(self._indices[0]))

    get_coo_data = as_coo_view
    get_csrc_data = as_csrc_view
    get_blocksparse_data = as_blocksparse_view

    def _require(self, format: OrtSparseFormat, name: str) -> None:
        if self._format != format:
            raise RuntimeError(f"This sparse tensor does not contain {name} format")

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Always a RuntimeError: there is no CUDA here."""
        raise RuntimeError("Cuda is not available in this build")

    def format(self) -> OrtSparseFormat:
        """How its values are laid out."""
        return self._format

    def dense_shape(self) -> list[int]:
        """The shape with all zeros."""
        return list(self._shape)

    def data_type(self) -> str:
        """Its type as text: "sparse_tensor(float)"."""
        return f"sparse_tensor({dtypes.from_numpy(self._values.dtype)})"

    def device_name(self) -> str:
        """Where it lies: "cpu"."""
        return "cpu"

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseTensor._make, (self._format, self._shape, self._values, self._indices)


def _checked_values(function: str, values: np.ndarray, device: OrtDevice) -> np.ndarray:
    if device._get_c_device().device_type() != CPU:
        raise RuntimeError(f"Unsupported OrtDevice type: {device.device_type()}")
    if not isinstance(values, np.ndarray):
        raise arguments.mismatch(function, "(dense_shape: Sequence[int], values: numpy.ndarray, …)", values)
    if values.dtype.kind in "USO":
        return np.array(values.astype(str), dtype=object)
    try:
        dtypes.from_numpy(values.dtype)
    except KeyError:
        raise RuntimeError(f"Numpy_type {values.dtype.num} can't be converted to MLDataType.") from None
    return np.ascontiguousarray(values)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
