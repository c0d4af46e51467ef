"""Training with artifacts: a state of parameters, a module that makes gradients, an optimizer that uses them."""

from sardonyx.training.api.checkpoint_state import CheckpointState
from sardonyx.training.api.lr_scheduler import LinearLRScheduler
from sardonyx.training.api.module import Module
from sardonyx.training.api.optimizer import Optimizer

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
