"""LpNormalization that is written with ReduceL2: a rule of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.quantization.execution_providers.qnn.rules import lp_normalization
from sardonyx.quantization.fusions.fusion import StageFusion


class FusionLpNormalization(StageFusion):
    """x over its norm along the last axis."""

    rules = (lp_normalization,)
