"""Normalization by groups of channels: rules under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.diffusion_rules import group_norm_rules
from sardonyx.transformers.fusion_base import StageFusion
from sardonyx.transformers.onnx_model import OnnxModel


class FusionGroupNorm(StageFusion):
    """Groups of channels that are normalized as instances, with SiLU behind it or without."""

    def __init__(self, model: OnnxModel, channels_last: bool = True):
        super().__init__(model)
        self.rules = group_norm_rules(channels_last)  # type: ignore[misc]
