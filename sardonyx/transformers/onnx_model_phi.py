"""Models of the kind of Phi."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class PhiOnnxModel(BertOnnxModel):
    """Models of the kind of Phi."""

    model_type: ClassVar[str] = "phi"
