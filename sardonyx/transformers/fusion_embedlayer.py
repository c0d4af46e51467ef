"""Embeddings that are added and normalized: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionEmbedLayerNoMask(StageFusion):
    """Embeddings that are added and normalized."""

    stages = ("EmbedLayerNormFusion",)


class FusionEmbedLayerNormalization(StageFusion):
    """The same; masks stay with attention."""

    stages = ("EmbedLayerNormFusion",)
