"""Tensors of torch as arrays and back. Nothing is copied, unless a tensor has gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sardonyx import dtypes


def array_of(tensor: torch.Tensor, order: tuple[int, ...] | None = None) -> np.ndarray:
    """A tensor's elements; `order` is that of its axes in memory."""
    tensor = tensor.detach()
    if order is not None:
        tensor = tensor.permute(order)
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtypes.bfloat16.numpy)
    return tensor.numpy()


def tensor_of(array: Any) -> torch.Tensor:
    """A tensor in an array's memory."""
    if array.__class__ is not np.ndarray:
        array = np.asarray(array)
    if array.dtype == dtypes.bfloat16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
