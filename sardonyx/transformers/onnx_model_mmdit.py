"""Diffusion transformers of several modes."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class MmditOnnxModel(BertOnnxModel):
    """Diffusion transformers of several modes."""

    model_type: ClassVar[str] = "mmdit"
    FUSED_OPS: ClassVar[tuple[str, ...]] = (
        "FastGelu",
        "MultiHeadAttention",
        "LayerNormalization",
        "SimplifiedLayerNormalization",
    )
