"""Layer normalization that is written with ReduceMean: a stage of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.transformers import diffusion_rules
from sardonyx.transformers.fusion_base import StageFusion


class FusionLayerNormalization(StageFusion):
    """Layer normalization that is written with ReduceMean."""

    stages = ("LayerNormFusion",)


class FusionLayerNormalizationTF(StageFusion):
    """The same as TensorFlow's exporter writes it."""

    stages = ("LayerNormFusion",)


class FusionLayerNormalizationNCHW(StageFusion):
    """Layer normalization over the channels of images, between Transposes."""

    rules = (diffusion_rules.normalize_channels,)
