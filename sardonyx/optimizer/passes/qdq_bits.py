"""Products with weights of two, four or eight bits, dequantized on the way, become MatMulNBits of com.microsoft.

Where onnxruntime asks for `accuracy_level` 4 by default, that is for rounding the other factor to 8 bits too, we ask for 0, exact
arithmetic, unless the session says otherwise.
"""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes, settings
from sardonyx.errors import InvalidArgument
from sardonyx.ir import Graph, Node, Value, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, operand
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.rules.quantize_parameters import CONTRIB, Parameters, byte_of, is_dequantize, parameters
from sardonyx.optimizer.values import dtype_of, rank_of, shape_of
from sardonyx.startup.records import dataclass

DEFAULT_BLOCK_SIZE = 32
BLOCK_SIZES = (16, 32, 64, 128, 256)
NAME = "QDQSelectorActionTransformer"
WEIGHTS = {dtypes.int2, dtypes.uint2, dtypes.int4, dtypes.uint4, dtypes.int8, dtypes.uint8}


@dataclass(frozen=True)
class Weights:
    """A matrix (N, K) of whole numbers, none below zero, with scales and zero points (N, blocks)."""

    numbers: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    bits: int
    block_size: int


def multiply_few_bits(graph: Graph, rewriting: Rewriting) -> bool:
    """Let MatMul and Gemm read their weights as they are stored."""
    changed = False
    for node in list(graph.nodes):
        if multiply_node(graph, node, rewriting):
            rewriting.journal.add(NAME, node)
            changed = True
    return changed


def multiply_node(graph: Graph, node: Node, rewriting: Rewriting) -> bool:
    """The same for one node; False if its weights, or what it does with them, are not of that kind."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain or not _is_plain(node):
        return False
    weights = _weights(node, rewriting)
    if weights is None:
        return False
    op = Builder(graph, node, rewriting.model.opsets, node.name or node.outputs[0].name)
    result = _product(op, node, weights, int(settings.MATMULNBITS_ACCURACY_LEVEL.of(rewriting.options)))
    for new in op.made:
        rewriting.driver.node(new)
    edit.replace_all_uses(node.outputs[0], result)
    graph.remove(node)
    return True


def dequantized_blocks(node: Node, rewriting: Rewriting) -> Node | None:
    """The DequantizeLinear of the weights that a MatMul takes straight from it, if they have scales for blocks of their rows."""
    if node.op_type != "MatMul" or node.domain or not _is_plain(node) or _weights(node, rewriting) is None:
        return None
    assert node.inputs[1] is not None
    quantized = parameters(node.inputs[1].producer)
    return quantized.node if quantized is not None and quantized.block_size and quantized.axis == 0 else None


def _is_plain(node: Node) -> bool:
    """Whether a node multiplies, and adds at most a vector."""
    a = node.inputs[0]
    if a is None or rank_of(a) in (None, 0) or dtype_of(a) not in (dtypes.float32, dtypes.float16):
        return False
    if node.op_type == "MatMul":
        return True
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    weighted = operand(node, "alpha") != 1 or (bias is not None and operand(node, "beta") != 1)
    return not weighted and not operand(node, "transA") and (bias is None or _is_row(bias, node))


def _is_row(bias: Value, node: Node) -> bool:
    shape, result = shape_of(bias), shape_of(node.outputs[0])
    return shape is not None and result is not None and shape == result[-1:]


def _product(op: Builder, node: Node, weights: Weights, accuracy_level: int) -> Value:
    count, depth = weights.numbers.shape
    blocks = -(-depth // weights.block_size)
    padded = np.zeros((count, blocks * weights.block_size), np.uint8)
    padded[:, :depth] = weights.numbers
    packed = pack(padded, weights.bits).reshape(count, blocks, -1)
    middle = np.all(weights.zero_point == 1 << (weights.bits - 1))
    result: Value = op.node(
        "MatMulNBits",
        node.inputs[0],
        op.constant(packed),
        op.constant(weights.scale),
        None if middle else op.constant(pack(weights.zero_point.astype(np.uint8), weights.bits)),
        None,
        node.inputs[2] if len(node.inputs) > 2 else None,
        domain=CONTRIB,
        K=depth,
        N=count,
        bits=weights.bits,
        block_size=weights.block_size,
        accuracy_level=accuracy_level,
    )
    return result


def pack(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits along the last axis as bytes, the lowest bits first."""
    share = 8 // bits
    missing = -numbers.shape[-1] % share
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, missing)])
    parts = padded.reshape(*padded.shape[:-1], -1, share)
    packed = np.zeros(parts.shape[:-1], np.uint8)
    for place in range(share):
        packed |= parts[..., place] << np.uint8(place * bits)
    return packed


# --- reading weights ------------------------------------------------------------------------------------------------


def _weights(node: Node, rewriting: Rewriting) -> Weights | None:
    """The second factor of a node, if it is a constant of few bits that is dequantized."""
    value = node.inputs[1]
    transposed = node.op_type == "Gemm" and bool(operand(node, "transB"))
    steps: list[Node] = []
    while value is not None and value.producer is not None and value.producer.op_type in ("Reshape", "Transpose"):
        steps.append(value.producer)
        value = value.producer.inputs[0]
    quantized = None if value is None else parameters(value.producer)
    if (
        quantized is None
        or not is_dequantize(quantized.node)
        or quantized.dtype not in WEIGHTS
        or quantized.real is not dtype_of_first(node)
    ):
        return None
    if quantized.dtype.bits == 8 and byte_of(node.inputs[0]) is not None:
        return None  # both factors are bytes: another unit
    data = quantized.node.inputs[0]
    array = None if data is None else constant(data)
    if array is None:
        return None
    shift = 0 if quantized.dtype in dtypes.UNSIGNED else 1 << (quantized.dtype.bits - 1)
    numbers = array.astype(np.int16) + shift
    zero_point = quantized.zero_point.astype(np.int16) + shift
    return _arranged(numbers, quantized, zero_point, steps, transposed, rewriting)


def dtype_of_first(node: Node) -> dtypes.ElementType | None:
    """The type of a node's first operand."""
    return None if node.inputs[0] is None else dtype_of(node.inputs[0])


def _arranged(
    numbers: np.ndarray,
    quantized: Parameters,
    zero_point: np.ndarray,
    steps: list[Node],
    transposed: bool,
    rewriting: Rewriting,
) -> Weights | None:
    """Weights as rows for each column of the result, in blocks."""
    if numbers.ndim == 3:
        return _arranged_blocks(numbers, quantized, zero_point, steps, transposed)
    if steps or numbers.ndim != 2:
        return None
    depth_axis = 1 if transposed else 0
    rows = numbers if transposed else numbers.T
    count, depth = rows.shape
    if quantized.axis == depth_axis and quantized.block_size in BLOCK_SIZES:
        turn = (lambda array: array) if transposed else np.transpose
        return Weights(rows, _contiguous(turn(quantized.scale)), turn(zero_point), quantized.dtype.bits, quantized.block_size)
    if quantized.block_size or quantized.axis == depth_axis:
        return None
    block_size = wanted_block_size(rewriting, depth)
    blocks = -(-depth // block_size)
    scale, zero = (np.broadcast_to(part.reshape(-1, 1), (count, blocks)) for part in (quantized.scale, zero_point))
    return Weights(rows, _contiguous(scale), zero, quantized.dtype.bits, block_size)


def _arranged_blocks(
    numbers: np.ndarray, quantized: Parameters, zero_point: np.ndarray, steps: list[Node], transposed: bool
) -> Weights | None:
    """Weights stored as (N, blocks, block) or (blocks, block, N), reshaped to a matrix and perhaps transposed."""
    ops = [step.op_type for step in steps]
    last = shape_of(steps[-1].outputs[0]) if steps else None
    by_rows = quantized.axis == 2 and (ops == ["Transpose", "Reshape"] or (ops == ["Reshape"] and transposed))
    by_columns = quantized.axis == 1 and ops == ["Reshape"] and not transposed
    if not by_rows and not by_columns:
        return None
    if by_columns:
        numbers, scale, zero_point = (np.moveaxis(part, 2, 0) for part in (numbers, quantized.scale, zero_point))
    else:
        scale = quantized.scale
    count, blocks, block_size = numbers.shape
    expected = (blocks * block_size, count) if by_columns else (count, blocks * block_size)
    if last != expected or scale.shape != (count, blocks, 1) or block_size not in BLOCK_SIZES:
        return None
    rows = numbers.reshape(count, -1)
    return Weights(rows, _contiguous(scale[..., 0]), zero_point[..., 0], quantized.dtype.bits, block_size)


def _contiguous(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array)


def wanted_block_size(rewriting: Rewriting, depth: int) -> int:
    """How long blocks are made where a model has one scale for a whole column: as the session says, -1 for what fits best."""
    block_size = int(settings.MATMULNBITS_BLOCK_SIZE.of(rewriting.options))
    if block_size == -1:
        return max(size for size in BLOCK_SIZES if size <= max(depth, BLOCK_SIZES[0]))
    if block_size and block_size not in BLOCK_SIZES:
        raise InvalidArgument(
            f"{settings.MATMULNBITS_BLOCK_SIZE} is {block_size}, but must be a power of two from {BLOCK_SIZES[0]} to {BLOCK_SIZES[-1]}, "
            "0 or -1"
        )
    return block_size or DEFAULT_BLOCK_SIZE
