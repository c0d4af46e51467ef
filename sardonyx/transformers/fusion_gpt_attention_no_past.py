"""Attention of GPT-2 without a cache: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionGptAttentionNoPast(FusionAttention):
    """Causal attention of GPT-2 without a cache."""
