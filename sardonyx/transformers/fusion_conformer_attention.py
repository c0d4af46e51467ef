"""Attention of Conformers: the attention fusion under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_attention import FusionAttention


class FusionConformerAttention(FusionAttention):
    """Attention with relative positions of a Conformer."""
