"""Models of the kind of Phi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sardonyx.transformers.fusion_options import AttentionOpType, FusionOptions
from sardonyx.transformers.onnx_model_bert import BertOnnxModel
from sardonyx.transformers.phi_fission import (
    Fission,
    FissionTransformerBlockPhi,
    FissionTransformerCausalLMHeadPhi,
    FissionTransformerEmbeddingPhi,
    FissionTransformerLayerNormPhi,
    Phi2PreProcessor,
    ProcessBiasKFunc,
    ProcessBiasQFunc,
    ProcessBiasVFunc,
    ProcessGemmWFunc,
    ProcessMatMulKFunc,
    ProcessMatMulQFunc,
    ProcessMatMulVFunc,
    ProcessRotCacheFunc,
    is_dynamo_phi,
    split_layers,
)

__all__ = [
    "Fission",
    "FissionTransformerBlockPhi",
    "FissionTransformerCausalLMHeadPhi",
    "FissionTransformerEmbeddingPhi",
    "FissionTransformerLayerNormPhi",
    "Phi2PreProcessor",
    "PhiOnnxModel",
    "ProcessBiasKFunc",
    "ProcessBiasQFunc",
    "ProcessBiasVFunc",
    "ProcessGemmWFunc",
    "ProcessMatMulKFunc",
    "ProcessMatMulQFunc",
    "ProcessMatMulVFunc",
    "ProcessRotCacheFunc",
]


class PhiOnnxModel(BertOnnxModel):
    """Models of the kind of Phi."""

    FUSED_OPS = (*BertOnnxModel.FUSED_OPS, "GroupQueryAttention", "PagedAttention")
    model_type: ClassVar[str] = "phi"

    def optimize(self, options: FusionOptions | None = None, add_dynamic_axes: bool = False) -> None:
        """Fuse; what the dynamo exporter wrote as functions becomes ops before."""
        if is_dynamo_phi(self.model):
            chosen = options.attention_op_type if options is not None else None
            kind = chosen or AttentionOpType.MultiHeadAttention
            split_layers(self, self.num_heads, self.hidden_size, kind)
        super().optimize(options, add_dynamic_axes)

    def is_fully_optimized(self, fused_op_count: Mapping[str, int] | None = None) -> bool:
        """Whether each layer has attention, an activation and a normalization; one is enough in Phi."""
        counts = fused_op_count or self.get_fused_operator_statistics()

        def total(*ops: str) -> int:
            return sum(counts.get(op, 0) for op in ops)

        attention = total("Attention", "MultiHeadAttention", "GroupQueryAttention", "PagedAttention")
        norms = total("LayerNormalization", "SkipLayerNormalization")
        return 0 < attention == total("Gelu", "BiasGelu", "FastGelu", "GemmFastGelu") and norms >= attention
