"""Losses and optimizers built of blocks on top of an `onnx.ModelProto`, which `base` makes the current one."""

from sardonyx.training.onnxblock import blocks, loss, optim
from sardonyx.training.onnxblock.blocks import Block
from sardonyx.training.onnxblock.current import base, custom_op_library, empty_base
from sardonyx.training.onnxblock.models import ForwardBlock, TrainingBlock
from sardonyx.training.onnxblock.saving import load_checkpoint_to_model, save_checkpoint

__all__ = [
    "Block",
    "ForwardBlock",
    "TrainingBlock",
    "base",
    "blocks",
    "custom_op_library",
    "empty_base",
    "load_checkpoint_to_model",
    "loss",
    "optim",
    "save_checkpoint",
]
