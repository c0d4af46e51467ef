"""Scales and zero points as the rules of quantized graphs read them, and what these rules build alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import Node, Value
from sardonyx.ops import schemas
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, given_attributes, operand
from sardonyx.optimizer.rewrite import Skip, skip
from sardonyx.optimizer.values import dtype_of, rank_of
from sardonyx.startup.records import dataclass

CONTRIB = "com.microsoft"
Q = f"QuantizeLinear|{CONTRIB}.QuantizeLinear"
DQ = f"DequantizeLinear|{CONTRIB}.DequantizeLinear"
"""Both domains have them, for patterns."""
BYTES = frozenset({dtypes.uint8, dtypes.int8})
DOMAINS = ("", CONTRIB)
LARGEST_SCALE = 1e33
"""With larger ones 16-bit numbers stand for more than float32 holds."""


@dataclass(frozen=True)
class Parameters:
    """What a QuantizeLinear or DequantizeLinear with constant parameters does: one scale, one along `axis`, or one per block."""

    node: Node
    dtype: ElementType
    real: ElementType
    """The type of the real numbers."""
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None
    block_size: int

    @property
    def is_single(self) -> bool:
        """One finite scale above zero for the whole tensor."""
        return self.axis is None and bool(np.all((self.scale > 0) & np.isfinite(self.scale)))

    @property
    def is_byte(self) -> bool:
        """One scale for a tensor of 8-bit numbers that stand for float32."""
        return self.is_single and self.dtype in BYTES and self.is_reversible

    @property
    def is_reversible(self) -> bool:
        """Whether whole numbers that become real and whole again are what they were: float32 is exact enough, and does not overflow."""
        exact = self.real is dtypes.float32 and self.scale.dtype == np.float32 and self.dtype.bits <= 16
        return exact and bool(np.all((self.scale > 0) & (self.scale < LARGEST_SCALE)))

    def operands(self, op: Builder) -> tuple[Value, Value]:
        """Scale and zero point as operands; a zero point that is left out is written."""
        scale = self.node.inputs[1]
        zero_point = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        assert scale is not None
        return scale, op.constant(self.zero_point) if zero_point is None else zero_point

    def range(self) -> tuple[float, float]:
        """The least and the greatest real number that the type stands for."""
        low, high = limits(self.dtype)
        zero, scale = float(self.zero_point.reshape(-1)[0]), float(self.scale.reshape(-1)[0])
        return (low - zero) * scale, (high - zero) * scale


def limits(dtype: ElementType) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    half = 1 << (dtype.bits - 1)
    return (0, 2 * half - 1) if dtype in dtypes.UNSIGNED else (-half, half - 1)


def steps_of(number: float, quantized: Parameters) -> float:
    """What one real number becomes with the one scale of a node, before it is kept within the type's range."""
    quotient = np.float32(number) / quantized.scale.astype(np.float32).reshape(())
    return float(np.rint(quotient)) + float(quantized.zero_point.reshape(()))


def is_quantize(node: Node | None) -> bool:
    return node is not None and node.op_type == "QuantizeLinear" and node.domain in DOMAINS


def is_dequantize(node: Node | None) -> bool:
    return node is not None and node.op_type == "DequantizeLinear" and node.domain in DOMAINS


def parameters(node: Node | None) -> Parameters | None:
    """The parameters of a node between real and whole numbers; None if they are not constant."""
    if node is None or not (is_quantize(node) or is_dequantize(node)) or node.inputs[0] is None or node.inputs[1] is None:
        return None
    whole, real = (node.outputs[0], node.inputs[0]) if is_quantize(node) else (node.inputs[0], node.outputs[0])
    dtype, kind, scale = dtype_of(whole), dtype_of(real), constant(node.inputs[1])
    if scale is None or dtype not in dtypes.INTS or kind not in dtypes.FLOATS:
        return None
    zero_point = _zero_point(node, dtype, scale)
    if zero_point is None or zero_point.shape != scale.shape:
        return None
    if scale.size == 1 and scale.ndim <= 1:
        return Parameters(node, dtype, kind, scale, zero_point, None, 0)
    rank = rank_of(whole)
    axis = operand(node, "axis")
    if rank is None or axis is None:
        return None
    return Parameters(node, dtype, kind, scale, zero_point, int(axis) % rank, int(operand(node, "block_size") or 0))


def _zero_point(node: Node, dtype: ElementType, scale: np.ndarray) -> np.ndarray | None:
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    if zero_point is None:
        return np.zeros(scale.shape, dtype.numpy)
    content = constant(zero_point)
    return content.reshape(scale.shape) if content is not None and content.size == scale.size == 1 else content


def byte_of(value: Value | None) -> Parameters | None:
    """The parameters of the DequantizeLinear of 8-bit numbers that makes a value, if it has one scale."""
    quantized = None if value is None else parameters(value.producer)
    return quantized if quantized is not None and is_dequantize(quantized.node) and quantized.is_byte else None


def same(a: Parameters, b: Parameters) -> bool:
    """Whether the same real numbers stand behind the same whole ones."""
    return (
        (a.dtype, a.real, a.axis, a.block_size) == (b.dtype, b.real, b.axis, b.block_size)
        and np.array_equal(a.scale.reshape(-1), b.scale.reshape(-1))
        and np.array_equal(a.zero_point.reshape(-1).astype(np.int64), b.zero_point.reshape(-1).astype(np.int64))
    )


def takes(node: Node, dtype: ElementType) -> bool:
    """Whether an op, in the version of a node, takes tensors of a type as its first operand."""
    signature = schemas.find(node.domain, node.op_type, node.version)
    return signature is not None and f"tensor({dtype})" in signature.inputs[0].types


def over(op: Builder, node: Node, x: Value) -> Any:
    """The same node over another first operand."""
    return op.node(node.op_type, x, *node.inputs[1:], outputs=len(node.outputs), domain=node.domain, **given_attributes(node))


def with_parameters(op: Builder, quantized: Parameters, x: Value) -> Value:
    """A node with the one scale of another, over another tensor, whose axes do not matter to it."""
    extra = {name: value for name, value in given_attributes(quantized.node).items() if name != "axis"}
    result: Value = op.node(quantized.node.op_type, x, *quantized.node.inputs[1:], domain=quantized.node.domain, **extra)
    return result


def real(quantized: Parameters) -> np.ndarray | None:
    """The real numbers behind the constant that a DequantizeLinear with one scale, or one along its last axis, reads."""
    data = quantized.node.inputs[0]
    array = None if data is None else constant(data)
    if array is None or (quantized.axis is not None and (quantized.block_size or quantized.axis != array.ndim - 1)):
        return None
    scale, zero = (
        part.reshape(-1) if quantized.axis is not None else part.reshape(()) for part in (quantized.scale, quantized.zero_point)
    )
    return (array.astype(np.float64) - zero.astype(np.float64)) * scale


def product_bias(op: Builder, bias: Value | None, scale: np.ndarray) -> Value | Skip | None:
    """A bias as int32 in the scale of a product, so that it can be added before the product is scaled."""
    if bias is None:
        return None
    dequantized = parameters(bias.producer)
    if dequantized is not None and dequantized.dtype is dtypes.int32 and not np.any(dequantized.zero_point):
        wanted = np.broadcast_to(scale, np.broadcast_shapes(scale.shape, dequantized.scale.shape))
        if np.allclose(dequantized.scale, wanted, rtol=1e-5, atol=0):
            return dequantized.node.inputs[0]
    array = constant(bias) if dequantized is None else real(dequantized)
    if array is None:
        return skip("the bias is neither constant nor in the scale of the product")
    with np.errstate(all="ignore"):
        quantized = np.rint(array.astype(np.float64) / scale)
    if not np.all(np.abs(quantized) < 2**31):
        return skip("the bias does not fit into 32 bits")
    return op.constant(quantized.astype(np.int32))
