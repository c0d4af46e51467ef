"""Halves of a sum of which one gates the other: a rule under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionBiasSplitGelu(StageFusion):
    """One half of a sum times Gelu of the other."""

    stages = ("ConstantFolding",)
    """Where a tensor is cut is computed from its shape."""
    rules = (diffusion_rules.gate_by_gelu,)
