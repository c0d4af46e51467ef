"""Models of the kind of BART and Whisper."""

from __future__ import annotations

from typing import ClassVar

from sardonyx.transformers.fusion_reshape import FusionReshape
from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class BartOnnxModel(BertOnnxModel):
    """Models of the kind of BART and Whisper."""

    model_type: ClassVar[str] = "bart"


class FusionBartReshape(FusionReshape):
    """Reshapes of BART whose target can be told."""
