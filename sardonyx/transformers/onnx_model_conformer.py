"""Conformers."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class ConformerOnnxModel(BertOnnxModel):
    """Conformers."""

    model_type: ClassVar[str] = "conformer"
