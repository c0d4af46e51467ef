"""Segmentation as SAM 2 does it."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class Sam2OnnxModel(BertOnnxModel):
    """Segmentation as SAM 2 does it."""

    model_type: ClassVar[str] = "sam2"
    FUSED_OPS: ClassVar[tuple[str, ...]] = ("LayerNormalization", "MultiHeadAttention", "SkipLayerNormalization")
