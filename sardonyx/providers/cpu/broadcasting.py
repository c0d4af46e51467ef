"""Operands of several shapes: the silence and the wording that elementwise kernels share, and the limited broadcasting of opsets 1 to 6.

Kernels of the elementwise families are wrapped in `broadcasts`; those of old opsets are made from the new ones by `limited`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import KernelError


def broadcasts(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let `kernel` overflow and meet NaN in silence, as in C, and say in onnxruntime's words that operands do not fit."""

    @functools.wraps(kernel)
    def quiet(*operands: Any, **named: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return kernel(*operands, **named)
        except ValueError as error:
            mismatch = _mismatch(_arrays([*operands, *named.values()]))
            if mismatch is None:
                raise
            raise mismatch from error

    return quiet


def _arrays(operands: Sequence[Any]) -> list[np.ndarray]:
    flat = [item for operand in operands for item in (operand if isinstance(operand, list) else [operand])]
    return [item for item in flat if isinstance(item, np.ndarray)]


def _mismatch(arrays: Sequence[np.ndarray]) -> KernelError | None:
    rank = max((array.ndim for array in arrays), default=0)
    for axis in range(1, rank + 1):
        sizes = sorted({array.shape[-axis] for array in arrays if array.ndim >= axis} - {1})
        if len(sizes) > 1:
            return KernelError(f"Attempting to broadcast an axis by a dimension other than 1. {sizes[0]} by {sizes[-1]}")
    return None


def limited(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of opsets 1 to 6, made from that of opset 7: B's shape is one element or a run of A's, from `axis` on."""

    def of_old(A: np.ndarray, B: np.ndarray, broadcast: int = 0, axis: int | None = None) -> Any:
        return kernel(A, aligned(A, B, broadcast, axis))

    of_old.__name__ = f"{kernel.__name__}_limited"
    return of_old


def aligned(A: np.ndarray, B: np.ndarray, broadcast: int, axis: int | None) -> np.ndarray:
    """B in a shape that NumPy broadcasts to A's as opsets 1 to 6 meant it."""
    if broadcast and axis is not None and not -A.ndim <= axis <= A.ndim:
        raise KernelError(f"axis {axis} is outside [{-A.ndim}, {A.ndim}]")
    if A.shape == B.shape:
        return B
    if not broadcast:
        raise KernelError(f"shapes differ, A is {list(A.shape)} and B is {list(B.shape)}, and the attribute broadcast is 0")
    if B.size == 1 and B.ndim <= A.ndim:
        return B.reshape(())
    first = A.ndim - B.ndim if axis is None else axis + A.ndim * (axis < 0)
    places = A.shape[first : first + B.ndim] if first >= 0 else ()
    # the text wants equal sizes, exporters of that time also wrote 1
    if len(places) != B.ndim or any(mine not in (1, theirs) for mine, theirs in zip(B.shape, places, strict=True)):
        raise KernelError(f"the shape of B, {list(B.shape)}, is not in that of A, {list(A.shape)}, from axis {first} on")
    return B.reshape(B.shape + (1,) * (A.ndim - first - B.ndim))
