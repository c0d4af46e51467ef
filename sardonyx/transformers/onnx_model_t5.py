"""Encoders and decoders of T5."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class T5OnnxModel(BertOnnxModel):
    """Encoders and decoders of T5."""

    model_type: ClassVar[str] = "t5"
