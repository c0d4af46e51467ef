"""Attention of BART and Whisper: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionBartAttention(FusionAttention):
    """Self and cross attention of encoders and decoders, with a cache or without."""
