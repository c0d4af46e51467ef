"""What exporters write for softmax(scale · Q Kᵀ + bias) V: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionAttention(StageFusion):
    """What exporters write for softmax(scale · Q Kᵀ + bias) V."""

    stages = ("AttentionFusion",)
