"""`MatMulBnb4Quantizer`: weights of MatMul in the 4-bit floats FP4 and NF4 of bitsandbytes.

`python -m sardonyx.quantization.matmul_bnb4_quantizer --input_model … --output_model …` does the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.providers.cpu.contrib.quantized_matmul import CODE_BOOKS
from sardonyx.quantization import models
from sardonyx.quantization.onnx_model import ONNXModel, clean_graph, find_initializer

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


class MatMulBnb4Quantizer:
    FP4 = 0
    NF4 = 1

    def __init__(self, model: ModelProto, quant_type: int, block_size: int, nodes_to_exclude: Sequence[str] | None = None):
        _check(block_size, quant_type)
        self.model = ONNXModel(models.load(model))
        self.quant_type, self.block_size = quant_type, block_size
        self.nodes_to_exclude = set(nodes_to_exclude or ())

    def bnb4_block_quant(self, fpweight: Any) -> tuple[np.ndarray, np.ndarray]:
        """(packed codes, largest magnitude of each block) of a weight (K, N), which is read column by column."""
        return bnb4_blocks(np.asarray(fpweight), self.block_size, self.quant_type)

    def process(self) -> None:
        """Quantize the weights; `model` holds the result."""
        self._process_subgraph([self.model.graph()])
        clean_graph(self.model.graph(), self.model.model, set())
        if all(opset.domain != models.ms_domain for opset in self.model.opset_import()):
            self.model.set_opset_import(models.ms_domain, 1)

    def _process_subgraph(self, graph_stack: list[Any]) -> Any:
        graph = graph_stack[-1]
        nodes = []
        for node in list(graph.node):
            for inner in models.inner_graphs(node):
                self._process_subgraph([*graph_stack, inner])
            nodes.append(self._bnb4_matmul_node_weight(node, graph_stack))
        del graph.node[:]
        graph.node.extend(nodes)
        return graph

    def _bnb4_matmul_node_weight(self, node: NodeProto, graph_stack: list[Any]) -> NodeProto:
        """The node with a quantized weight, or itself."""
        if node.op_type != "MatMul" or node.name in self.nodes_to_exclude:
            return node
        weight, graph = find_initializer(node.input[1], graph_stack)
        if weight is None or len(weight.dims) != 2 or weight.data_type not in FLOATS:
            return node
        array = numpy_helper.to_array(weight)
        codes, largest = self.bnb4_block_quant(array)
        names = f"{weight.name}_Bnb4", f"{weight.name}_absmax"
        present = {tensor.name for tensor in graph.initializer}
        if names[0] not in present:
            graph.initializer.extend([numpy_helper.from_array(codes, names[0]), numpy_helper.from_array(largest, names[1])])
        attributes = {"K": array.shape[0], "N": array.shape[1], "block_size": self.block_size, "quant_type": self.quant_type}
        name = f"{node.name}_Bnb4" if node.name else ""
        inputs = [node.input[0], *names]
        return helper.make_node("MatMulBnb4", inputs, list(node.output), name, domain=models.ms_domain, **attributes)


def _check(block_size: int, quant_type: int) -> None:
    if quant_type not in (MatMulBnb4Quantizer.FP4, MatMulBnb4Quantizer.NF4):
        raise ValueError(f"quant_type is 0 for FP4 or 1 for NF4, got {quant_type}")
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"a block holds a power of two of weights, 16 at least, got {block_size}")


def bnb4_blocks(weight: np.ndarray, block_size: int, quant_type: int) -> tuple[np.ndarray, np.ndarray]:
    """(packed codes, largest magnitude of each block) of a weight (K, N), which is read column by column."""
    _check(block_size, quant_type)
    if weight.ndim != 2:
        raise ValueError(f"a weight has two axes, got {weight.ndim}")
    values = weight.T.astype(np.float32).ravel()
    blocks = -(-values.size // block_size)
    padded = np.zeros(blocks * block_size, dtype=np.float32)
    padded[: values.size] = values
    grouped = padded.reshape(blocks, block_size)
    largest = np.abs(grouped).max(axis=1)
    scaled = np.divide(grouped, largest[:, None], out=np.zeros_like(grouped), where=largest[:, None] > 0)
    codes = _codes(scaled.ravel()[: values.size], quant_type)
    if codes.size % 2:
        codes = np.append(codes, np.uint8(0))
    return (codes[0::2] << 4) | codes[1::2], largest.astype(weight.dtype)


def _codes(values: np.ndarray, quant_type: int) -> np.ndarray:
    """Codes of values between -1 and 1. FP4 has a bit for the sign, so that there are two zeros."""
    if quant_type == MatMulBnb4Quantizer.NF4:
        return _nearest(values, CODE_BOOKS[quant_type])
    magnitudes = _nearest(np.abs(values), CODE_BOOKS[quant_type][:8])
    return np.where(values < 0, magnitudes + 8, magnitudes).astype(np.uint8)


def _nearest(values: np.ndarray, book: np.ndarray) -> np.ndarray:
    """The code whose number in the book is nearest to each value."""
    order = np.argsort(book, kind="stable")
    ordered = book[order]
    middles = (ordered[1:] + ordered[:-1]) / 2
    return order[np.searchsorted(middles, values, side="left")].astype(np.uint8)


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Quantize the weights of MatMul to 4-bit floats.")
    parser.add_argument("--input_model", required=True, help="path of the float model")
    parser.add_argument("--output_model", required=True, help="path of the quantized model")
    parser.add_argument("--quant_type", type=int, default=1, choices=(0, 1), help="0: FP4, 1: NF4")
    parser.add_argument("--block_size", type=int, default=64, help="weights that share a scale")
    parser.add_argument("--nodes_to_exclude", nargs="+", default=[], help="names of nodes that stay in float")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_args(arguments)
    quantizer = MatMulBnb4Quantizer(
        models.load(options.input_model), options.quant_type, options.block_size, options.nodes_to_exclude
    )
    quantizer.process()
    quantizer.model.save_model_to_file(options.output_model, True)


if __name__ == "__main__":
    main()
