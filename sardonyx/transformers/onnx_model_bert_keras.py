"""BERT as keras2onnx writes it."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class BertOnnxModelKeras(BertOnnxModel):
    """BERT as keras2onnx writes it."""

    model_type: ClassVar[str] = "bert_keras"
