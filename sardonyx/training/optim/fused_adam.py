"""Adam for modules of PyTorch, under the names of `onnxruntime.training.optim.fused_adam`. Needs PyTorch: the extra `train`."""

from sardonyx.training.torch.optimizers import AdamWMode, FusedAdam, clip_grad_norm_

__all__ = ["AdamWMode", "FusedAdam", "clip_grad_norm_"]
