"""Optimizers for modules of PyTorch, under the names of `onnxruntime.training.optim`. Needs PyTorch: the extra `train`."""

from __future__ import annotations

from sardonyx.training.torch.optimizers import AdamWMode, FP16_Optimizer, FusedAdam, clip_grad_norm_

__all__ = ["AdamWMode", "FP16_Optimizer", "FusedAdam", "clip_grad_norm_"]
