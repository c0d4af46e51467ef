"""x · sigmoid(1.702 · x): a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionQuickGelu(StageFusion):
    """x · sigmoid(1.702 · x)."""

    stages = ("QuickGeluFusion",)
