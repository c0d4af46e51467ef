"""LAMB for modules of PyTorch. The original has it in graphs alone. Needs PyTorch: the extra `train`."""

from sardonyx.training.torch.optimizers import FusedLamb

__all__ = ["FusedLamb"]
