"""Gelu that is written with Erf: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionGelu(StageFusion):
    """Gelu that is written with Erf."""

    stages = ("GeluFusion",)
