"""Convolutions of images whose channels stand last: a rule under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionNhwcConv(StageFusion):
    """Each Conv of images becomes NhwcConv between Transposes."""

    rules = (diffusion_rules.convolve_channels_last,)
