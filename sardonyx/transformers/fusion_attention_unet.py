"""Attention of U-Nets that draw pictures: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionAttentionUnet(FusionAttention):
    """Self and cross attention of a U-Net."""
