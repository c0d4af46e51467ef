"""Gelu of a sum with a bias: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionBiasGelu(StageFusion):
    """Gelu of a sum with a bias."""

    stages = ("BiasGeluFusion",)
