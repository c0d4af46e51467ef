"""SpaceToDepth that is written with Reshape and Transpose: a rule of our optimizer under onnxruntime's name."""

from __future__ import annotations

from sardonyx.quantization.execution_providers.qnn.rules import space_to_depth
from sardonyx.quantization.fusions.fusion import StageFusion


class FusionSpaceToDepth(StageFusion):
    """Blocks of pixels as channels."""

    rules = (space_to_depth,)
