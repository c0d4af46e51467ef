"""`MatMulNBitsQuantizer`: weights of MatMul and Gather in 2, 4 or 8 bits, by the algorithm that a config names.

`python -m sardonyx.quantization.matmul_nbits_quantizer --input_model … --output_model …` does the same.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from sardonyx.quantization import models
from sardonyx.quantization.onnx_model import ONNXModel, clean_graph, find_initializer
from sardonyx.quantization.progress import progress
from sardonyx.quantization.types import QuantFormat
from sardonyx.quantization.weight_only import hqq, kquant, rounding
from sardonyx.quantization.weight_only.blocks import Blocks, check_shape, round_to_nearest
from sardonyx.quantization.weight_only.configs import (
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    NVAWQWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from sardonyx.quantization.weight_only.gptq import GptqOptions, optimal_rounding
from sardonyx.quantization.weight_only.moments import input_moments
from sardonyx.quantization.weight_only.nodes import dequantize_nodes, gather_node, matmul_node

BLOCKED_OPSET, BLOCKED_IR = 21, 10
"""What types of 4 bits and blocks of DequantizeLinear need."""
LOG = logging.getLogger(__name__)


class MatMulNBitsQuantizer:
    def __init__(
        self,
        model: ModelProto | str | Path,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        nodes_to_exclude: Sequence[str] | None = None,
        nodes_to_include: Sequence[str] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
        channel_wised_quantize: bool = False,
        algo_config: WeightOnlyQuantConfig | None = None,
    ):
        if bits not in (2, 4, 8):
            raise AssertionError(f"weights have 2, 4 or 8 bits, got {bits}")
        if algo_config is None:
            algo_config = DefaultWeightOnlyQuantConfig(
                block_size=block_size,
                is_symmetric=is_symmetric,
                accuracy_level=accuracy_level,
                quant_format=quant_format,
                op_types_to_quantize=op_types_to_quantize,
                quant_axes=quant_axes,
                bits=bits,
                channel_wised_quantize=channel_wised_quantize,
            )
        self.model_path = str(model) if isinstance(model, (str, Path)) else None
        self.model = ONNXModel(models.load(model))
        self.bits, self.block_size, self.is_symmetric = bits, block_size, is_symmetric
        self.accuracy_level = accuracy_level
        self.nodes_to_exclude = set(nodes_to_exclude or ())
        self.nodes_to_include = set(nodes_to_include or ())
        self.node_quantizer: Any = None
        self.algo_config = algo_config
        self._follow(algo_config)

    def _follow(self, config: WeightOnlyQuantConfig) -> None:
        """What a config says of bits and blocks goes before the arguments."""
        if isinstance(config, DefaultWeightOnlyQuantConfig):
            self.bits, self.block_size = config.bits, config.block_size
            self.is_symmetric, self.accuracy_level = config.is_symmetric, config.accuracy_level
        elif isinstance(config, HQQWeightOnlyQuantConfig):
            self.bits, self.block_size = config.bits, config.block_size
        if not getattr(config, "channel_wised_quantize", False):
            check_shape(self.bits, self.block_size)
        if isinstance(config, NVAWQWeightOnlyQuantConfig):
            raise NotImplementedError("NVIDIA's AWQ runs in its own package on a GPU; GPTQ, HQQ and k-quant run here")

    def process(self) -> None:
        """Quantize the weights; `model` holds the result."""
        moments = {}
        if isinstance(self.algo_config, GPTQWeightOnlyQuantConfig):
            moments = self._moments(self.algo_config)
        self._moments_by_input = moments
        self._has_contrib = False
        if self._needs_blocked_types() and models.get_opset_version(self.model.model) < BLOCKED_OPSET:
            self.model.model = models.converted(self.model.model, BLOCKED_OPSET)
            self.model.model.ir_version = max(self.model.ir_version(), BLOCKED_IR)
        self._process_subgraph([self.model.graph()])
        clean_graph(self.model.graph(), self.model.model, set())
        if self._has_contrib and self.algo_config.algorithm in ("DEFAULT", "HQQ"):
            self.model.set_opset_import(models.ms_domain, 1)

    def _needs_blocked_types(self) -> bool:
        """Whether tensors of 4 bits come in, with a DequantizeLinear of blocks or a GatherBlockQuantized."""
        tensors = {tensor.name for tensor in self.model.initializer()}
        wanted = [node for node in self.model.nodes() if self._is_wanted(node)]
        if self.algo_config.quant_format is QuantFormat.QDQ:
            return any(node.op_type == "MatMul" and node.input[1] in tensors for node in wanted)
        is_default = isinstance(self.algo_config, DefaultWeightOnlyQuantConfig)
        return is_default and any(node.op_type == "Gather" and node.input[0] in tensors for node in wanted)

    def _moments(self, config: GPTQWeightOnlyQuantConfig) -> dict[str, np.ndarray]:
        if config.calibration_data_reader is None:
            raise ValueError("GPTQ looks at the inputs of MatMul and needs a calibration_data_reader")
        wanted = [node.input[0] for node in self.model.nodes() if self._is_wanted(node) and node.op_type == "MatMul"]
        return input_moments(self.model.model, wanted, config.calibration_data_reader)

    def _is_wanted(self, node: NodeProto) -> bool:
        if node.name in self.nodes_to_exclude:
            return False
        return node.op_type in self.algo_config.op_types_to_quantize or node.name in self.nodes_to_include

    def _process_subgraph(self, graph_stack: list[Any]) -> Any:
        graph = graph_stack[-1]
        nodes: list[NodeProto] = []
        for node in progress(list(graph.node), len(graph.node), "quantizing weights"):
            for inner in models.inner_graphs(node):
                self._process_subgraph([*graph_stack, inner])
            nodes += self._quantized(node, graph_stack) if self._is_wanted(node) else [node]
        del graph.node[:]
        graph.node.extend(nodes)
        return graph

    def _quantized(self, node: NodeProto, graph_stack: list[Any]) -> list[NodeProto]:
        """What stands in the place of a node: itself where it has no weight of two axes."""
        if node.op_type not in ("MatMul", "Gather"):
            return [node]
        weight, graph = find_initializer(node.input[1 if node.op_type == "MatMul" else 0], graph_stack)
        if weight is None or len(weight.dims) != 2 or 0 in weight.dims or weight.data_type not in FLOATS:
            return [node]
        if node.op_type == "Gather":
            return self._gathered(node, weight, graph)
        return self._multiplied(node, weight, graph)

    def _multiplied(self, node: NodeProto, weight: TensorProto, graph: Any) -> list[NodeProto]:
        blocks = self._blocks(node, weight)
        config = self.algo_config
        if config.quant_format is QuantFormat.QDQ:
            by_channel = getattr(config, "channel_wised_quantize", False)
            nodes, tensors = dequantize_nodes(node, blocks, weight, by_channel)
        else:
            made, tensors = matmul_node(node, blocks, self.accuracy_level, self._names(weight.name, blocks))
            nodes = [made]
            self._has_contrib = True
        _add_new(graph, tensors)
        return nodes

    def _names(self, name: str, blocks: Blocks) -> tuple[str, str, str]:
        """Names of codes, scales and zero points; those of the algorithms that came from elsewhere say the block size."""
        if self.algo_config.algorithm in ("DEFAULT", "HQQ"):
            return f"{name}_Q{blocks.bits}", f"{name}_scales", f"{name}_zero_points"
        return f"{name}_Q{blocks.bits}G{blocks.block_size}", f"{name}_scale", f"{name}_zp"

    def _blocks(self, node: NodeProto, weight: TensorProto) -> Blocks:
        """The weight of a MatMul, one row for each column of it, by the algorithm of the config."""
        array = numpy_helper.to_array(weight)
        if not np.isfinite(array.astype(np.float32)).all():
            raise ValueError(f"MatMul {node.name!r}: its weight {weight.name!r} holds NaN or infinity and cannot be quantized")
        rows = array.T
        config = self.algo_config
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
                moments = self._moments_by_input.get(node.input[0])
                if moments is None or len(moments) != rows.shape[1]:
                    return rounding.rounded(rows, bits, size, self.is_symmetric)
                return optimal_rounding(rows, moments, bits, size, self.is_symmetric, options)
        if getattr(config, "channel_wised_quantize", False):
            size = rows.shape[1]
        return round_to_nearest(rows, bits, size, self.is_symmetric)

    def _gathered(self, node: NodeProto, weight: TensorProto, graph: Any) -> list[NodeProto]:
        config = self.algo_config
        if not isinstance(config, DefaultWeightOnlyQuantConfig) or config.quant_format is QuantFormat.QDQ:
            LOG.warning(
                "Gather %r stays in float: only the default algorithm, written as QOperator, has an op for it", node.name
            )
            return [node]
        axis = config.quant_axes.get("Gather", 1) % 2
        array = numpy_helper.to_array(weight)
        blocks = round_to_nearest(array if axis == 1 else array.T, self.bits, self.block_size, self.is_symmetric)
        made, tensors = gather_node(node, blocks, weight, axis)
        self._has_contrib = True
        _add_new(graph, tensors)
        return [made]


FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


def _add_new(graph: Any, tensors: Sequence[TensorProto]) -> None:
    """Add tensors that are not there yet; two nodes may share a weight."""
    present = {tensor.name for tensor in graph.initializer}
    graph.initializer.extend(tensor for tensor in tensors if tensor.name not in present)


def get_initializer(name: str, graph_path: list[Any]) -> tuple[TensorProto | None, Any]:
    """The tensor of that name in the innermost graph that has it, and the graph."""
    return find_initializer(name, graph_path)


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Quantize the weights of MatMul and Gather to 2, 4 or 8 bits.")
    parser.add_argument("--input_model", required=True, help="path of the float model")
    parser.add_argument("--output_model", required=True, help="path of the quantized model")
    parser.add_argument("--bits", type=int, default=4, choices=(2, 4, 8), help="bits of a weight")
    parser.add_argument("--block_size", type=int, default=32, help="weights that share a scale")
    methods = ("default", "rtn", "k_quant", "hqq")
    parser.add_argument("--quant_method", default="default", choices=methods, help="the algorithm")
    parser.add_argument("--symmetric", default="False", choices=("True", "true", "False", "false"), help="no zero points")
    parser.add_argument("--accuracy_level", type=int, choices=(0, 1, 2, 3, 4), help="least precision of activations; 4 is int8")
    parser.add_argument("--nodes_to_exclude", nargs="+", default=[], help="names of nodes that stay in float")
    parser.add_argument("--nodes_to_include", nargs="+", default=[], help="names of nodes of other ops that are quantized too")
    formats = [member.name for member in QuantFormat]
    parser.add_argument("--quant_format", default="QOperator", choices=formats, help="how the model is written")
    parser.add_argument("--op_types_to_quantize", nargs="+", choices=("MatMul", "Gather"), help="MatMul if left out")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_args(arguments)
    op_types = tuple(options.op_types_to_quantize or ("MatMul",))
    quant_format = QuantFormat[options.quant_format]
    configs: dict[str, Any] = {
        "rtn": lambda: RTNWeightOnlyQuantConfig(op_types_to_quantize=op_types),
        "k_quant": lambda: KQuantWeightOnlyQuantConfig(op_types_to_quantize=op_types),
        "hqq": lambda: HQQWeightOnlyQuantConfig(options.block_size, options.bits, op_types_to_quantize=op_types),
        "default": lambda: None,
    }
    quantizer = MatMulNBitsQuantizer(
        options.input_model,
        bits=options.bits,
        block_size=options.block_size,
        is_symmetric=options.symmetric.lower() == "true",
        accuracy_level=options.accuracy_level,
        nodes_to_exclude=options.nodes_to_exclude,
        nodes_to_include=options.nodes_to_include,
        quant_format=quant_format,
        op_types_to_quantize=op_types,
        algo_config=configs[options.quant_method](),
    )
    quantizer.process()
    quantizer.model.save_model_to_file(options.output_model, True)


if __name__ == "__main__":
    main()
