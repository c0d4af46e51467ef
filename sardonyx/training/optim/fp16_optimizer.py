"""Optimizers of half precision, under the name of `onnxruntime.training.optim.fp16_optimizer`. Needs PyTorch: the extra `train`."""

from sardonyx.training.torch.half_precision import FP16_Optimizer

__all__ = ["FP16_Optimizer"]
