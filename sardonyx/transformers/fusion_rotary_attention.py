"""Heads that are turned by their positions: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionRotaryEmbeddings(StageFusion):
    """Heads that are turned by their positions."""

    stages = ("RotaryEmbeddingFusion",)


class FusionRotaryAttention(StageFusion):
    """The same, and attention."""

    stages = ("RotaryEmbeddingFusion", "AttentionFusion")
