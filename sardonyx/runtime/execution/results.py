"""What comes out of a run: arrays that belong to the caller alone, whatever the kernels returned."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from sardonyx import ir
from sardonyx.errors import RuntimeException
from sardonyx.runtime.api.sparse import SparseTensor

_PLAIN = frozenset({int, float, str, bool})


def release(values: list[Any], bound: Iterable[np.ndarray] = ()) -> list[Any]:
    """Values of a finished run as users get them: C-contiguous, writeable, sharing memory with nothing else.

    Feeds and constants are read-only, so every array that shares memory with one of them is too. Arrays in `bound` are the user's.
    """
    owners: dict[int, np.ndarray] = {}
    theirs = {id(array) for array in bound}
    return [value if id(value) in theirs else _released(value, owners) for value in values]


def _released(value: Any, owners: dict[int, np.ndarray]) -> Any:
    """`owners` are the arrays whose memory was given away already, by their id."""
    if isinstance(value, np.ndarray):
        return _fresh(value, owners)
    if isinstance(value, list):
        return [_released(item, owners) for item in value]
    if isinstance(value, dict):
        if _PLAIN.issuperset(map(type, value.values())) and _PLAIN.issuperset(map(type, value)):
            return dict(value)
        return {_plain(key): _plain(item) for key, item in value.items()}
    return SparseTensor._from_ir(value) if isinstance(value, ir.SparseTensor) else value


def _fresh(array: np.ndarray, owners: dict[int, np.ndarray]) -> np.ndarray:
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    owned = owner.base is None or isinstance(owner.base, ctypes.Array)  # the latter is memory that comes back to a provider
    whole = owned and owner.nbytes <= 2 * array.nbytes  # else a view would keep much alive that nobody sees
    if whole and array.flags.writeable and array.flags.c_contiguous and id(owner) not in owners:
        owners[id(owner)] = owner
        return array
    try:
        return np.array(array, order="C", copy=True, subok=False)
    except MemoryError as error:  # a view of few elements may stand for more than there is memory for
        raise RuntimeException(f"a result cannot be copied: MemoryError: {error}") from error


def _plain(value: Any) -> Any:
    """Keys and scalars of maps as Python's own types."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.item() if not value.ndim else np.array(value)
    return value
