"""Products with Gelu behind them: a rule under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionGemmFastGelu(StageFusion):
    """Gelu by tanh behind a product."""

    rules = (diffusion_rules.multiply_then_gelu,)
