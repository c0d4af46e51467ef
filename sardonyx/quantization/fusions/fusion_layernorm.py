"""Layer normalization that is written with ReduceMean: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.quantization.fusions.fusion import StageFusion


class FusionLayerNormalization(StageFusion):
    """Layer normalization that is written with ReduceMean."""

    stages = ("LayerNormFusion",)
