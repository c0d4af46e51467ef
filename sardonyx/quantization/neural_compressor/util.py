"""Small pieces that scripts around weight-only quantization import."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

MAXIMUM_PROTOBUF = 2147483648
BAR = 20


def simple_progress_bar(total: int, i: int) -> None:
    """Print how much is done, over what was printed before."""
    done = i / total
    sys.stdout.write(f"\rProgress: [{'#' * int(BAR * done):<{BAR}}] {done:.2%}")


def find_by_name(name: str, item_list: Iterable[Any]) -> Any:
    """The first item of that name, None if there is none."""
    return next((item for item in item_list if item.name == name), None)


def to_numpy(data: Any) -> np.ndarray:
    """Arrays, lists, and tensors of PyTorch, which is not imported for it."""
    if isinstance(data, np.ndarray) or not hasattr(data, "detach"):
        return np.asarray(data)
    tensor = data.detach().cpu()
    wide = {"torch.bfloat16": "float", "torch.complex32": "cfloat"}.get(str(tensor.dtype))
    return np.asarray((getattr(tensor, wide)() if wide else tensor).numpy())
