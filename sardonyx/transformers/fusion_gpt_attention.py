"""Attention of GPT-2 with a cache: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionGptAttentionPastBase(FusionAttention):
    """What attention with a cache shares."""


class FusionGptAttention(FusionGptAttentionPastBase):
    """Causal attention of GPT-2 with a cache."""
