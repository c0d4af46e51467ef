"""Attention of diffusion transformers of two streams: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionMultiHeadAttentionMMDit(FusionAttention):
    """Attention over the joined tokens of text and picture."""
