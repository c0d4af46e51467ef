"""Sums with a bias and a residual: a rule under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionBiasAdd(StageFusion):
    """A bias and a residual are added at once."""

    rules = (diffusion_rules.add_bias_and_residual,)
