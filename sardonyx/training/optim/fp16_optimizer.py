"""Optimizers of half precision, under the name of `onnxruntime.training.optim.fp16_optimizer`. Needs PyTorch: the extra `train`."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from sardonyx.training.torch.half_precision import MasterWeights, has_halves

__all__ = ["FP16_Optimizer"]


def FP16_Optimizer(optimizer: Any, **keywords: Any) -> Any:  # noqa: N802 - the original's name
    """An optimizer of parameters in float16 or bfloat16 gets masters in float32 and a scale of the loss.

    Optimizers of Megatron, DeepSpeed and Apex have both: their methods are exchanged for quicker ones, in place. Others stay as
    they are, with a warning.
    """
    if isinstance(optimizer, torch.optim.Optimizer) and has_halves(optimizer):
        return MasterWeights(optimizer, **keywords)
    warnings.warn(f"{type(optimizer).__name__} is not supported by FP16_Optimizer, it stays as it is", stacklevel=2)
    return optimizer
