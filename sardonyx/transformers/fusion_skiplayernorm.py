"""Layer normalization of a sum: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionSkipLayerNormalization(StageFusion):
    """Layer normalization of a sum."""

    stages = ("SkipLayerNormFusion",)


class FusionBiasSkipLayerNormalization(StageFusion):
    """The same with a bias."""

    stages = ("BiasSkipLayerNormFusion",)
