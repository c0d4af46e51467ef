"""Fusions over the quantizers' `ONNXModel`: the base of people's own, and doors to stages and rules of our optimizer."""

from sardonyx.quantization.fusions.fusion import Fusion
from sardonyx.quantization.fusions.fusion_gelu import FusionGelu
from sardonyx.quantization.fusions.fusion_layernorm import FusionLayerNormalization
from sardonyx.quantization.fusions.replace_upsample_with_resize import ReplaceUpsampleWithResize

__all__ = ["Fusion", "FusionGelu", "FusionLayerNormalization", "ReplaceUpsampleWithResize"]
