"""Reshapes whose target can be told: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers.fusion_base import StageFusion


class FusionReshape(StageFusion):
    """Computed targets of Reshape become constants where they can."""

    stages = ("ReshapeFusion",)
