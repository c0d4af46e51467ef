"""Models of the kind of TNLR."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.fusion_attention import FusionAttention
from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class TnlrOnnxModel(BertOnnxModel):
    """Models of the kind of TNLR."""

    model_type: ClassVar[str] = "tnlr"


class FusionTnlrAttention(FusionAttention):
    """Attention of TNLR."""
