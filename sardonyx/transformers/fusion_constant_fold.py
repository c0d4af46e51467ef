"""What is known before any run: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionConstantFold(StageFusion):
    """Nodes of constants alone become constants."""

    stages = ("ConstantFolding",)
