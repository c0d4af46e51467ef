"""Autoencoders of diffusion models."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class VaeOnnxModel(BertOnnxModel):
    """Autoencoders of diffusion models."""

    model_type: ClassVar[str] = "vae"
    FUSED_OPS: ClassVar[tuple[str, ...]] = ("Attention", "GroupNorm", "SkipGroupNorm", "NhwcConv")
