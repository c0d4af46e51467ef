"""Models of the kind of CLIP."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class ClipOnnxModel(BertOnnxModel):
    """Models of the kind of CLIP."""

    model_type: ClassVar[str] = "clip"
    FUSED_OPS: ClassVar[tuple[str, ...]] = (
        "Attention",
        "FastGelu",
        "Gelu",
        "BiasGelu",
        "LayerNormalization",
        "QuickGelu",
        "SkipLayerNormalization",
    )
