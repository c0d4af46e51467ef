"""Transposes that meet: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionTranspose(StageFusion):
    """Transposes that meet become one, or none."""

    stages = ("TransposeOptimizer",)


class FusionInsertTranspose(StageFusion):
    """What is added before GroupNorm comes from a Transpose, which meets the one behind the sum."""

    rules = (diffusion_rules.raise_with_channels_last,)
