"""Sizes that are put together again: a rule under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionShape(StageFusion):
    """All sizes of a tensor, taken one by one, are its Shape."""

    rules = (diffusion_rules.whole_shape,)
