"""Attention of diffusion transformers: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionMultiHeadAttentionDiT(FusionAttention):
    """Attention of a diffusion transformer, with normalized queries and keys or without."""
