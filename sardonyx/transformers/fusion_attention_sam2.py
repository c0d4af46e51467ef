"""Attention of SAM 2: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionMultiHeadAttentionSam2(FusionAttention):
    """Attention of SAM 2's encoder and decoder."""
