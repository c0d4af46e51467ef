"""`MatMulNBitsQuantizer`: weights of MatMul and Gather in 2, 4 or 8 bits, by the algorithm that a config names.

`python -m sardonyx.quantization.matmul_nbits_quantizer --input_model … --output_model …` does the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sardonyx.quantization import models
from sardonyx.quantization.onnx_model import ONNXModel, clean_graph, find_initializer
from sardonyx.quantization.progress import progress
from sardonyx.quantization.types import QuantFormat
from sardonyx.quantization.weight_only.blocks import check_shape, pack, packed_columns, packed_rows
from sardonyx.quantization.weight_only.configs import (
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    NVAWQWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from sardonyx.quantization.weight_only.moments import input_moments
from sardonyx.quantization.weight_only.quantizers import WeightOnlyQuantizer

BLOCKED_OPSET, BLOCKED_IR = 21, 10
"""What types of 4 bits and blocks of DequantizeLinear need."""


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
        self.algo_config = algo_config
        self._follow(algo_config)
        self.node_quantizer = WeightOnlyQuantizer(
            algo_config, self.bits, self.block_size, self.is_symmetric, self.accuracy_level
        )

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
        if isinstance(self.algo_config, GPTQWeightOnlyQuantConfig):
            self.node_quantizer.moments = self._moments(self.algo_config)
        if self._needs_blocked_types() and models.get_opset_version(self.model.model) < BLOCKED_OPSET:
            self.model.model = models.converted(self.model.model, BLOCKED_OPSET)
            self.model.model.ir_version = max(self.model.ir_version(), BLOCKED_IR)
        self._process_subgraph([self.model.graph()])
        clean_graph(self.model.graph(), self.model.model, set())
        has_contrib = any(node.domain == models.ms_domain for node in self.model.nodes())
        if has_contrib and self.algo_config.algorithm in ("DEFAULT", "HQQ"):
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
            nodes += self.node_quantizer.quantize(node, graph_stack) if self._is_wanted(node) else [node]
        del graph.node[:]
        graph.node.extend(nodes)
        return graph


class DefaultWeightOnlyQuantizer(WeightOnlyQuantizer):
    """Scales from the extremes of each block, for single nodes and arrays."""

    config: DefaultWeightOnlyQuantConfig

    def __init__(self, config: DefaultWeightOnlyQuantConfig):
        super().__init__(config)

    def qbits_block_quant(self, fp32weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(codes, scales, zero points) of a weight (K, N), packed as MatMulNBits takes them, or as DequantizeLinear for QDQ."""
        if fp32weight.ndim != 2:
            raise ValueError(f"a weight of two axes was expected, it has {fp32weight.ndim}")
        bits, symmetric = self.bits, self.is_symmetric
        if self.config.quant_format is QuantFormat.QOperator:
            return packed_columns(fp32weight, bits, self.block_size, symmetric)
        size = fp32weight.shape[0] if self.config.channel_wised_quantize else self.block_size
        return packed_rows(fp32weight, bits, size, symmetric)

    def quantize_matmul(self, node: NodeProto, graph_stack: Sequence[Any]) -> list[NodeProto]:
        """What stands in the place of a MatMul."""
        return self.quantize(node, graph_stack)

    def quantize_gather(self, node: NodeProto, graph_stack: Sequence[Any]) -> list[NodeProto]:
        """What stands in the place of a Gather."""
        return self.quantize(node, graph_stack)


class HQQWeightOnlyQuantizer(WeightOnlyQuantizer):
    """HQQ, for single nodes."""

    def __init__(self, config: HQQWeightOnlyQuantConfig):
        super().__init__(config)

    def quantize(self, node: NodeProto, graph_stack: Sequence[Any]) -> list[NodeProto]:
        """What stands in the place of a MatMul."""
        if node.op_type == "Gather":
            raise NotImplementedError(f"Gather {node.name!r}: no op looks up rows with the float zero points of HQQ")
        return super().quantize(node, graph_stack)


def get_initializer(name: str, graph_path: list[Any]) -> tuple[TensorProto | None, Any]:
    """The tensor of that name in the innermost graph that has it, and the graph."""
    return find_initializer(name, graph_path)


def is_divisible(val1: int, val2: int) -> bool:
    """Whether blocks of `val2` fill `val1` without a rest."""
    return val1 % val2 == 0


def transpose_packed_int4_matrix(packed: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """The bytes of a matrix of 4-bit codes, of which two are in a byte, as those of its transpose."""
    codes = np.stack([packed.ravel() & 0xF, packed.ravel() >> 4], axis=1).ravel()[: rows * cols]
    return pack(codes.reshape(rows, cols).T.ravel(), 4)


def ort_convert_str_to_bool(value: str) -> bool:
    """ "true" and "1" are true, whatever their case."""
    return value.lower() in ("true", "1")


def parse_key_value_pair(s: str) -> tuple[str, int]:
    """("Gather", 1) of "Gather:1"."""
    key, value = s.split(":")
    return key, int(value)


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
