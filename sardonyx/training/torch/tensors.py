"""Tensors of torch as arrays and back. Nothing is copied, unless a tensor has gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import to_dlpack

from sardonyx import dtypes

_VIEWED = {torch.bfloat16: (torch.int16, dtypes.bfloat16.numpy), torch.bool: (torch.uint8, np.dtype(np.bool_))}
"""Types that cross as others of their size."""


def array_of(tensor: torch.Tensor, order: tuple[int, ...] | None = None) -> np.ndarray:
    """A tensor's elements; `order` is that of its axes in memory.

    `tensor.numpy()` would forbid torch to resize the tensor ever after, which `fully_shard` does with parameters that it gathers.
    """
    tensor = tensor.detach()
    if order is not None:
        tensor = tensor.permute(order)
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if not tensor.data_ptr() and tensor.numel():
        raise RuntimeError("a tensor has no memory: it was given up, as by fully_shard, before the graph that reads it")
    if tensor.dtype in _VIEWED:
        crossing, kind = _VIEWED[tensor.dtype]
        return np.from_dlpack(_Exported(tensor.view(crossing))).view(kind)
    return np.from_dlpack(_Exported(tensor))


class _Exported:
    """A tensor as `numpy.from_dlpack` wants it, in less time than torch's own methods take."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords: Any) -> Any:
        return to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU


def tensor_of(array: Any) -> torch.Tensor:
    """A tensor in an array's memory."""
    if array.__class__ is not np.ndarray:
        array = np.asarray(array)
    if array.dtype == dtypes.bfloat16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
