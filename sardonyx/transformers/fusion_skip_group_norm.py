"""Sums that are normalized by groups of channels: a rule under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionSkipGroupNorm(StageFusion):
    """An image, or a number for each channel, is added before GroupNorm."""

    rules = (diffusion_rules.add_then_normalize_groups,)
