"""U-Nets of diffusion models."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class UnetOnnxModel(BertOnnxModel):
    """U-Nets of diffusion models."""

    model_type: ClassVar[str] = "unet"
    FUSED_OPS: ClassVar[tuple[str, ...]] = (
        "Attention",
        "MultiHeadAttention",
        "LayerNormalization",
        "SkipLayerNormalization",
        "BiasSplitGelu",
        "GroupNorm",
        "SkipGroupNorm",
        "NhwcConv",
        "BiasAdd",
    )
