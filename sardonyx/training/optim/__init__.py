"""Optimizers, their settings and learning rates, under the names of `onnxruntime.training.optim`.

`FusedAdam`, `FusedLamb`, `FP16_Optimizer` and `clip_grad_norm_` are for modules of PyTorch, and imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from sardonyx.training.optim.config import AdamConfig, LambConfig, SGDConfig
from sardonyx.training.optim.lr_scheduler import (
    ConstantWarmupLRScheduler,
    CosineWarmupLRScheduler,
    LinearWarmupLRScheduler,
    PolyWarmupLRScheduler,
)

_ON_TORCH = {
    "AdamWMode": "fused_adam",
    "FusedAdam": "fused_adam",
    "FusedLamb": "fused_lamb",
    "clip_grad_norm_": "fused_adam",
    "FP16_Optimizer": "fp16_optimizer",
}

__all__ = [
    "AdamConfig",
    "AdamWMode",
    "ConstantWarmupLRScheduler",
    "CosineWarmupLRScheduler",
    "FP16_Optimizer",
    "FusedAdam",
    "FusedLamb",
    "LambConfig",
    "LinearWarmupLRScheduler",
    "PolyWarmupLRScheduler",
    "SGDConfig",
    "clip_grad_norm_",
]


def __getattr__(name: str) -> Any:
    if name in _ON_TORCH:
        return getattr(importlib.import_module(f"{__name__}.{_ON_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
