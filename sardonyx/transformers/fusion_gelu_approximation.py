"""Gelu by its approximation with Tanh: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from typing import ClassVar

from sardonyx import settings
from sardonyx.transformers.fusion_base import StageFusion


class FusionGeluApproximation(StageFusion):
    """Gelu by its approximation with Tanh."""

    stages = ("GeluApproximation",)
    switches: ClassVar[dict[str, str]] = {settings.GELU_APPROXIMATION: "1"}
