"""Nodes with weights in blocks: MatMulNBits, GatherBlockQuantized, or a DequantizeLinear before the float op."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import arithmetic
from sardonyx.quantization.models import ms_domain
from sardonyx.quantization.weight_only.blocks import Blocks, pack, pack_zero_points


def matmul_node(
    node: NodeProto, blocks: Blocks, accuracy_level: int | None, names: tuple[str, str, str]
) -> tuple[NodeProto, list[TensorProto]]:
    """MatMulNBits in the place of a MatMul, and its tensors under the names of codes, scales and zero points."""
    tensors = [
        numpy_helper.from_array(pack(blocks.codes, blocks.bits), names[0]),
        numpy_helper.from_array(blocks.scales, names[1]),
    ]
    if blocks.zero_points is not None:
        is_float = blocks.zero_points.dtype.kind == "f"
        zero_points = blocks.zero_points if is_float else pack_zero_points(blocks.zero_points, blocks.bits)
        tensors.append(numpy_helper.from_array(zero_points, names[2]))
    attributes: dict[str, Any] = {"K": blocks.columns, "N": blocks.rows, "bits": blocks.bits, "block_size": blocks.block_size}
    if accuracy_level:
        attributes["accuracy_level"] = accuracy_level
    inputs = [node.input[0], *(tensor.name for tensor in tensors)]
    name = f"{node.name}_Q{blocks.bits}" if node.name else ""
    return helper.make_node("MatMulNBits", inputs, list(node.output), name, domain=ms_domain, **attributes), tensors


def gather_node(node: NodeProto, blocks: Blocks, weight: TensorProto, axis: int) -> tuple[NodeProto, list[TensorProto]]:
    """GatherBlockQuantized in the place of a Gather; `axis` is that of the blocks."""
    name = f"{weight.name}_Q{blocks.bits}"
    tensors = _unpacked(blocks, name, f"{weight.name}_scales", f"{weight.name}_zero_points", weight.dims, axis)
    gather_axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    attributes = {"block_size": blocks.block_size, "gather_axis": gather_axis, "quantize_axis": axis}
    inputs = [tensors[0].name, node.input[1], *(tensor.name for tensor in tensors[1:])]
    label = f"{node.name}_Q{blocks.bits}" if node.name else ""
    return helper.make_node("GatherBlockQuantized", inputs, list(node.output), label, domain=ms_domain, **attributes), tensors


def dequantize_nodes(
    node: NodeProto, blocks: Blocks, weight: TensorProto, by_channel: bool
) -> tuple[list[NodeProto], list[TensorProto]]:
    """DequantizeLinear and the MatMul that reads it. By channel the codes stay (N, K) and are transposed after it."""
    suffix = f"Q{blocks.bits}"
    name = f"{weight.name}_DQ_{suffix}"
    dims = (blocks.rows, blocks.columns) if by_channel else (blocks.columns, blocks.rows)
    axis = 1 if by_channel else 0
    tensors = _unpacked(blocks, name, f"{weight.name}_DQ_scales", f"{weight.name}_DQ_zero_points", dims, axis)
    block_size = blocks.columns if by_channel else blocks.block_size
    result = f"{name}_output"
    label = f"{node.name}_DQ_{suffix}" if node.name else ""
    inputs = [tensor.name for tensor in tensors]
    nodes = [helper.make_node("DequantizeLinear", inputs, [result], label, axis=axis, block_size=block_size)]
    if by_channel:
        nodes.append(helper.make_node("Transpose", [result], [f"{result}_transposed"], perm=[1, 0]))
        result = f"{result}_transposed"
    label = f"{node.name}_matmul_{suffix}" if node.name else ""
    nodes.append(helper.make_node("MatMul", [node.input[0], result], list(node.output), label))
    return nodes, tensors


def _unpacked(blocks: Blocks, name: str, scales: str, zero_points: str, dims: Any, axis: int) -> list[TensorProto]:
    """Codes in a type of as many bits, signed and without zero points where these are in the middle."""
    element_type = _element_type(blocks)
    offset = 2 ** (blocks.bits - 1) if blocks.zero_points is None else 0
    codes = _placed(blocks.flat_codes().astype(np.int16) - offset, dims, axis)
    tensors = [_codes(codes, element_type, name), numpy_helper.from_array(_placed(blocks.scales, dims, axis), scales)]
    if blocks.zero_points is not None:
        tensors.append(_codes(_placed(blocks.zero_points, dims, axis), element_type, zero_points))
    return tensors


def _placed(rows: np.ndarray, dims: Any, axis: int) -> np.ndarray:
    """Rows of blocks in the shape of the weight again, the blocks along `axis`."""
    others = [size for index, size in enumerate(dims) if index != axis]
    return np.ascontiguousarray(np.moveaxis(rows.reshape(*others, rows.shape[-1]), -1, axis))


def _codes(array: np.ndarray, element_type: int, name: str) -> TensorProto:
    dtype = np.int8 if element_type in (TensorProto.INT4, TensorProto.INT8, TensorProto.INT2) else np.uint8
    if element_type in (TensorProto.INT2, TensorProto.UINT2):
        return helper.make_tensor(name, element_type, array.shape, array.astype(dtype).ravel())
    return arithmetic.tensor_of_codes(array.astype(dtype), element_type, name)


def _element_type(blocks: Blocks) -> int:
    signed = blocks.zero_points is None
    types = {
        2: (TensorProto.UINT2, TensorProto.INT2),
        4: (TensorProto.UINT4, TensorProto.INT4),
        8: (TensorProto.UINT8, TensorProto.INT8),
    }
    return int(types[blocks.bits][signed])
