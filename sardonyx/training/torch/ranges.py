"""Ranges that NVIDIA's profiler shows; where there is no such GPU they do nothing. `training.utils` shows them to users."""

from __future__ import annotations

import torch


def torch_nvtx_range_push(message: str) -> None:
    """Begin a range."""
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_push(message)


def torch_nvtx_range_pop() -> None:
    """End the range that was begun last."""
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_pop()
