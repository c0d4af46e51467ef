"""Gelu that is written with Tanh: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionFastGelu(StageFusion):
    """Gelu that is written with Tanh."""

    stages = ("FastGeluFusion",)
