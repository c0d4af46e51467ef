"""torch's element types beside ours, and the exception for what has no counterpart."""

from __future__ import annotations

import torch

from sardonyx import dtypes
from sardonyx.dtypes import ElementType

ELEMENT_TYPES: dict[torch.dtype, ElementType] = {
    torch.float32: dtypes.float32,
    torch.float64: dtypes.float64,
    torch.float16: dtypes.float16,
    torch.bfloat16: dtypes.bfloat16,
    torch.bool: dtypes.bool_,
    torch.uint8: dtypes.uint8,
    torch.int8: dtypes.int8,
    torch.int16: dtypes.int16,
    torch.int32: dtypes.int32,
    torch.int64: dtypes.int64,
}
TORCH_TYPES = {ours: theirs for theirs, ours in ELEMENT_TYPES.items()}


class Unsupported(Exception):
    """An ATen op, or one use of it, that is left to torch."""


def element_type(dtype: torch.dtype) -> ElementType:
    if dtype not in ELEMENT_TYPES:
        raise Unsupported(f"tensors of {dtype} are left to torch")
    return ELEMENT_TYPES[dtype]
