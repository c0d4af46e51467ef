"""A tensor over its root mean square: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionSimplifiedLayerNormalization(StageFusion):
    """A tensor over its root mean square."""

    stages = ("SimplifiedLayerNormFusion",)


class FusionSkipSimplifiedLayerNormalization(StageFusion):
    """The same of a sum."""

    stages = ("SkipLayerNormFusion",)
