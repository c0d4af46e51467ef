"""Attention of CLIP: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionAttentionClip(FusionAttention):
    """Attention of CLIP's encoders, causal or not."""
