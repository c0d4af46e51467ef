"""Models whose transformer blocks are fused by our optimizer, and the counts of what was fused. Each type of model has a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from onnx import ModelProto

from sardonyx import settings
from sardonyx.optimizer.pipeline import Level
from sardonyx.tools.fusing import optimized
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.onnx_model import OnnxModel

MASK_INPUTS = {"Attention": 3, "MultiHeadAttention": 4}
"""Where an op reads its mask."""
BIAS_INPUT = 5
"""Where both read what is added to the scores, into which a mask may have gone."""


class FusedModel(OnnxModel):
    """A model of transformer blocks."""

    FUSED_OPS: ClassVar[tuple[str, ...]] = (
        "EmbedLayerNormalization",
        "Attention",
        "MultiHeadAttention",
        "Gelu",
        "FastGelu",
        "BiasGelu",
        "GemmFastGelu",
        "LayerNormalization",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "RotaryEmbedding",
        "QOrderedAttention",
        "QOrderedGelu",
        "QOrderedLayerNormalization",
        "QOrderedMatMul",
    )
    """Ops that are counted."""
    model_type: ClassVar[str] = "bert"

    def __init__(self, model: ModelProto, num_heads: int = 0, hidden_size: int = 0):
        assert (num_heads == 0 and hidden_size == 0) or (num_heads > 0 and hidden_size % num_heads == 0)
        super().__init__(model)
        self.num_heads, self.hidden_size = num_heads, hidden_size

    def optimize(self, options: FusionOptions | None = None, add_dynamic_axes: bool = False) -> None:
        """Fuse what our optimizer fuses up to the extended level, except for what the options leave out."""
        chosen = options or FusionOptions(self.model_type)
        switches: dict[str, str] = {settings.GELU_APPROXIMATION: "1"} if chosen.enable_gelu_approximation else {}
        self.initialize(optimized(self.model, Level.EXTENDED, chosen.disabled_stages(), switches))
        if chosen.leaves_masks_out:
            self._drop_masks()

    def _drop_masks(self) -> None:
        """Let attention see all keys; inputs of the graph that were masks and nothing else are gone then."""
        for node in self.nodes():
            position = MASK_INPUTS.get(node.op_type)
            if position is None:
                continue
            if position < len(node.input):
                node.input[position] = ""
            if len(node.input) > BIAS_INPUT and self._is_mask(node.input[BIAS_INPUT]):
                node.input[BIAS_INPUT] = ""
        self.prune_graph(allow_remove_graph_inputs=True)

    def _is_mask(self, name: str) -> bool:
        """Whether a value is made of inputs that are called masks, and of nothing else but sizes."""
        makers, inputs = self.output_name_to_node(), set(self.get_graphs_input_names())
        waiting, seen = [name], {name}
        while waiting:
            current = waiting.pop()
            if current in inputs and "mask" not in current.lower():
                return False
            maker = makers.get(current)
            if maker is not None and maker.op_type not in ("Shape", "Size"):
                found = set(maker.input) - seen
                seen |= found
                waiting += found
        return bool(seen & inputs)

    def get_fused_operator_statistics(self) -> dict[str, int]:
        """How many nodes of each fused op there are."""
        counts = self.get_operator_statistics()
        return {op: counts.get(op, 0) for op in self.FUSED_OPS}

    def is_fully_optimized(self, fused_op_count: Mapping[str, int] | None = None) -> bool:
        """Whether attention, normalization and an activation were fused."""
        counts = fused_op_count or self.get_fused_operator_statistics()

        def total(*ops: str) -> int:
            return sum(counts.get(op, 0) for op in ops)

        attention = total("Attention", "MultiHeadAttention", "QOrderedAttention")
        gelu = total("Gelu", "FastGelu", "BiasGelu", "QuickGelu")
        norms = total("LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization")
        simple = total("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
        return attention > 0 and (gelu >= attention or not gelu) and norms + simple >= 2 * attention
