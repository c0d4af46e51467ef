"""What exporters write for Gelu: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.quantization.fusions.fusion import StageFusion


class FusionGelu(StageFusion):
    """Gelu that is written with Erf."""

    stages = ("GeluFusion",)
