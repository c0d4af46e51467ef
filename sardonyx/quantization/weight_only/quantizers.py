"""One node's weight by the algorithm of a config: what `MatMulNBitsQuantizer` asks for each node, and people for single ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from sardonyx.quantization.onnx_model import find_initializer
from sardonyx.quantization.types import QuantFormat
from sardonyx.quantization.weight_only import hqq, kquant, rounding
from sardonyx.quantization.weight_only.blocks import Blocks, round_to_nearest
from sardonyx.quantization.weight_only.configs import (
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from sardonyx.quantization.weight_only.gptq import GptqOptions, optimal_rounding
from sardonyx.quantization.weight_only.nodes import dequantize_nodes, gather_node, matmul_node

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
LOG = logging.getLogger(__name__)


class WeightOnlyQuantizer:
    """Nodes with quantized weights in the place of MatMul and Gather. What a config does not say, the other arguments do."""

    def __init__(
        self,
        config: WeightOnlyQuantConfig,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
    ):
        self.config = config
        self.bits, self.block_size = getattr(config, "bits", bits), getattr(config, "block_size", block_size)
        if isinstance(config, GPTQWeightOnlyQuantConfig):
            self.block_size = block_size  # its own is that of the columns that are rounded together
        self.is_symmetric = getattr(config, "is_symmetric", is_symmetric)
        self.accuracy_level = getattr(config, "accuracy_level", accuracy_level)
        self.moments: Mapping[str, np.ndarray] = {}
        """By the input of a MatMul, what calibration has seen of it."""

    def quantize(self, node: NodeProto, graph_stack: Sequence[Any]) -> list[NodeProto]:
        """What stands in the place of a node: itself where it has no weight of two axes. New tensors go where the weight was."""
        if node.op_type not in ("MatMul", "Gather"):
            return [node]
        weight, graph = find_initializer(node.input[1 if node.op_type == "MatMul" else 0], list(graph_stack))
        if weight is None or len(weight.dims) != 2 or 0 in weight.dims or weight.data_type not in FLOATS:
            return [node]
        if node.op_type == "Gather":
            return self._gathered(node, weight, graph)
        return self._multiplied(node, weight, graph)

    def _multiplied(self, node: NodeProto, weight: TensorProto, graph: Any) -> list[NodeProto]:
        blocks = self._blocks(node, weight)
        if self.config.quant_format is QuantFormat.QDQ:
            by_channel = getattr(self.config, "channel_wised_quantize", False)
            nodes, tensors = dequantize_nodes(node, blocks, weight, by_channel)
        else:
            made, tensors = matmul_node(node, blocks, self.accuracy_level, self._names(weight.name, blocks))
            nodes = [made]
        add_new(graph, tensors)
        return nodes

    def _names(self, name: str, blocks: Blocks) -> tuple[str, str, str]:
        """Names of codes, scales and zero points; those of the algorithms that came from elsewhere say the block size."""
        if self.config.algorithm in ("DEFAULT", "HQQ"):
            return f"{name}_Q{blocks.bits}", f"{name}_scales", f"{name}_zero_points"
        return f"{name}_Q{blocks.bits}G{blocks.block_size}", f"{name}_scale", f"{name}_zp"

    def _blocks(self, node: NodeProto, weight: TensorProto) -> Blocks:
        """The weight of a MatMul, one row for each column of it, by the algorithm of the config."""
        array = numpy_helper.to_array(weight)
        if not np.isfinite(array.astype(np.float32)).all():
            raise ValueError(f"MatMul {node.name!r}: its weight {weight.name!r} holds NaN or infinity and cannot be quantized")
        rows = array.T
        config = self.config
        custom = (config.customized_weight_config or {}).get(node.name, {})
        bits, size = custom.get("bits", self.bits), custom.get("group_size", self.block_size)
        match config:
            case RTNWeightOnlyQuantConfig():
                return rounding.rounded(rows, bits, size, self.is_symmetric, config.ratios.get(weight.name, 1.0))
            case KQuantWeightOnlyQuantConfig():
                return kquant.k_quant(rows, bits, size)
            case HQQWeightOnlyQuantConfig():
                return hqq.half_quadratic(rows, bits, size)
            case GPTQWeightOnlyQuantConfig():
                options = GptqOptions(config.percdamp, config.actorder, config.mse)
                moments = self.moments.get(node.input[0])
                if moments is None or len(moments) != rows.shape[1]:
                    return rounding.rounded(rows, bits, size, self.is_symmetric)
                return optimal_rounding(rows, moments, bits, size, self.is_symmetric, options)
        if getattr(config, "channel_wised_quantize", False):
            size = rows.shape[1]
        return round_to_nearest(rows, bits, size, self.is_symmetric)

    def _gathered(self, node: NodeProto, weight: TensorProto, graph: Any) -> list[NodeProto]:
        config = self.config
        if not isinstance(config, DefaultWeightOnlyQuantConfig) or config.quant_format is QuantFormat.QDQ:
            LOG.warning(
                "Gather %r stays in float: only the default algorithm, written as QOperator, has an op for it", node.name
            )
            return [node]
        axis = config.quant_axes.get("Gather", 1) % 2
        array = numpy_helper.to_array(weight)
        blocks = round_to_nearest(array if axis == 1 else array.T, self.bits, self.block_size, self.is_symmetric)
        made, tensors = gather_node(node, blocks, weight, axis)
        add_new(graph, tensors)
        return [made]


def add_new(graph: Any, tensors: Sequence[TensorProto]) -> None:
    """Add tensors that are not there yet; two nodes may share a weight."""
    present = {tensor.name for tensor in graph.initializer}
    graph.initializer.extend(tensor for tensor in tensors if tensor.name not in present)
