"""Optimizers of other packages, under the name of `onnxruntime.training.optim.fp16_optimizer`."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["FP16_Optimizer"]


def FP16_Optimizer(optimizer: Any, **keywords: Any) -> Any:  # noqa: N802 - the original's name
    """The original gives optimizers of Apex, DeepSpeed and Megatron quicker methods for GPUs; here all come back as they are."""
    warnings.warn(f"{type(optimizer).__name__} is not supported by FP16_Optimizer, it stays as it is", stacklevel=2)
    return optimizer
