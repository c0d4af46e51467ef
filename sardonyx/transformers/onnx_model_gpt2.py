"""Decoders of the kind of GPT-2, and their descendants."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class Gpt2OnnxModel(BertOnnxModel):
    """Decoders of the kind of GPT-2, and their descendants."""

    model_type: ClassVar[str] = "gpt2"
