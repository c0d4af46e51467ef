"""Encoders and decoders of T5."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.fusion_attention import FusionAttention
from sardonyx.transformers.fusion_relative_position import FusionRelativePositionBiasBlock
from sardonyx.transformers.onnx_model_bert import BertOnnxModel

__all__ = ["FusionRelativePositionBiasBlock", "FusionT5Attention", "T5OnnxModel"]


class T5OnnxModel(BertOnnxModel):
    """Encoders and decoders of T5."""

    model_type: ClassVar[str] = "t5"


class FusionT5Attention(FusionAttention):
    """Attention of T5, whose bias tells relative positions."""
