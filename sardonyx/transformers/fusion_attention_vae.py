"""Attention of variational autoencoders: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionAttentionVae(FusionAttention):
    """Attention over the pixels of an autoencoder."""
