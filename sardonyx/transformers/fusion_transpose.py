"""Transposes that meet: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionTranspose(StageFusion):
    """Transposes that meet become one, or none."""

    stages = ("TransposeOptimizer",)
