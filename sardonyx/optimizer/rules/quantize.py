"""Pairs of QuantizeLinear and DequantizeLinear: moved, merged, removed; and dynamically quantized products recognized.

Not done: onnxruntime's QDQS8ToU8Transformer and Avx2WeightS8ToU8Transformer, which turn int8 into uint8 because its integer products
are slow or saturate otherwise on some processors. Ours are exact for all four combinations of types.
"""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Node, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, operand
from sardonyx.optimizer.rewrite import Answer, rule, skip
from sardonyx.optimizer.rules.elimination import unless_output
from sardonyx.optimizer.rules.quantize_parameters import (
    CONTRIB,
    DQ,
    Parameters,
    Q,
    byte_of,
    is_dequantize,
    limits,
    over,
    parameters,
    same,
    steps_of,
    takes,
    with_parameters,
)
from sardonyx.optimizer.values import dtype_of, has_one_output, rank_of, scalar, shape_of

VIEWS = "Flatten|Reshape|Squeeze|Transpose|Unsqueeze"
"""Ops that keep all elements and only put them elsewhere."""
UNITS = frozenset({"Add", "AveragePool", "Concat", "Conv", "Gemm", "MatMul", "Mul", "Relu", "Clip"})
"""Ops that QuantizeLinear right behind them makes one with, or removes."""


# --- moving ---------------------------------------------------------------------------------------------------------


@rule(f"d = dq:{DQ}(x, ...); f:{VIEWS}|Gather|MaxPool|Slice(d, ...)", keep=("d",), name="QDQPropagationTransformer")
def move_then_dequantize(op: Builder, x: Value, dq: Node, f: Node) -> Answer:
    """Small numbers are moved rather than floats, and fewer of them dequantized."""
    quantized = parameters(dq)
    if quantized is None or not quantized.is_single:
        return skip("not one constant scale above zero")
    if not takes(f, quantized.dtype) or not has_one_output(f):
        return skip(f"{f.op_type} does not do this with {quantized.dtype}")
    if f.op_type == "Gather" and not (x.is_constant or rank_of_operand(f, 1) == 0):
        return skip("more may be gathered than there is")
    return with_parameters(op, quantized, over(op, f, x))


def rank_of_operand(node: Node, position: int) -> int | None:
    value = node.inputs[position]
    return None if value is None else rank_of(value)


@rule(f"q:{Q}(f:{VIEWS}|MaxPool|Slice(x, ...), ...)", name="QDQPropagationTransformer")
def quantize_then_move(op: Builder, x: Value, f: Node, q: Node) -> Answer:
    """Quantizing comes right after what computed the numbers, which may become one with it."""
    quantized = parameters(q)
    if quantized is None or not quantized.is_single:
        return skip("not one constant scale above zero")
    if not takes(f, quantized.dtype) or not has_one_output(f):
        return skip(f"{f.op_type} does not do this with {quantized.dtype}")
    if is_dequantize(x.producer):
        return skip("it is a unit already")
    if f.op_type in ("MaxPool", "Slice") and (x.producer is None or x.producer.op_type not in UNITS):
        return skip("more would be quantized, for nothing")
    return over(op, f, with_parameters(op, quantized, x))


# --- merging --------------------------------------------------------------------------------------------------------


@rule(f"d2:{DQ}(q2:{Q}(d1:{DQ}(q1:{Q}(x, ...), ...), ...), ...)", name="DoubleQDQPairsRemover")
def quantize_once(op: Builder, x: Value, q1: Node, d1: Node, q2: Node, d2: Node) -> Answer:
    """Two roundings are one, with the scale that covers what both let through."""
    first, second = _pair(q1, d1), _pair(q2, d2)
    if first is None or second is None or first.dtype is not second.dtype:
        return skip("the pairs have not one type and one constant scale each")
    low = max(first.range()[0], second.range()[0])
    high = min(first.range()[1], second.range()[1])
    if high <= low:
        return skip("nothing passes both")
    inner = next((pair for pair in (second, first) if pair.range() == (low, high)), None)
    scale, zero_point = inner.operands(op) if inner is not None else _covering(op, low, high, first.dtype)
    quantized = op.node(q1.op_type, x, scale, zero_point, domain=q1.domain)
    return op.node(d2.op_type, quantized, scale, zero_point, domain=d2.domain)


def _pair(quantize: Node, dequantize: Node) -> Parameters | None:
    ours, theirs = parameters(quantize), parameters(dequantize)
    if ours is None or theirs is None or not ours.is_single or not same(ours, theirs):
        return None
    return ours


def _covering(op: Builder, low: float, high: float, dtype: dtypes.ElementType) -> tuple[Value, Value]:
    least, greatest = limits(dtype)
    scale = (high - low) / (greatest - least)
    zero_point = np.clip(np.rint(least - low / scale), least, greatest)
    return op.constant(np.float32(scale)), op.constant(np.array(zero_point).astype(dtype.numpy))


@rule(f"d = dq:{DQ}(x, ...); q:{Q}(d, ...)", keep=("d",), name="QDQFinalCleanupTransformer")
def cancel_dequantize(x: Value, dq: Node, q: Node, root: Node) -> Answer:
    """A whole number that becomes real and whole again in the same way is itself."""
    before, after = parameters(dq), parameters(q)
    if before is None or after is None or not same(before, after):
        return skip("the parameters differ")
    if not before.is_reversible:
        return skip("real numbers may overflow or lose the last bits")
    return unless_output(x, root)


@rule(f"dq:{DQ}(q:{Q}(x, ...), ...)", name="QDQFinalCleanupTransformer")
def cancel_quantize(x: Value, dq: Node, q: Node, root: Node) -> Answer:
    """A real number is taken for what it would be rounded to. Only where the user wants that."""
    before, after = parameters(q), parameters(dq)
    if before is None or after is None or not same(before, after):
        return skip("the parameters differ")
    return unless_output(x, root)


# --- what quantizing does anyway ------------------------------------------------------------------------------------


@rule(f"q:{Q}(Relu(x), ...)", name="ReluQuantFusion")
def drop_relu(op: Builder, x: Value, q: Node) -> Answer:
    """Numbers below zero become the least number in any case."""
    quantized = parameters(q)
    if (
        quantized is None
        or not np.all(quantized.zero_point.astype(np.int64) == limits(quantized.dtype)[0])
        or not np.all(quantized.scale > 0)
    ):
        return skip("zero is not the least number")
    return over(op, q, x)


@rule(f"q:{Q}(clip:Clip(x, low?, high?), ...)", name="ClipQuantFusion")
def drop_clip(op: Builder, x: Value, low: Value | None, high: Value | None, clip: Node, q: Node) -> Answer:
    """Numbers outside of the type's range are clipped to it in any case."""
    quantized = parameters(q)
    if quantized is None or not quantized.is_single:
        return skip("not one constant scale above zero")
    if (low is not None and scalar(low) is None) or (high is not None and scalar(high) is None):
        return skip("the bounds are not constant")
    least, greatest = limits(quantized.dtype)
    if (
        _quantized(operand(clip, "min"), quantized, -np.inf) > least
        or _quantized(operand(clip, "max"), quantized, np.inf) < greatest
    ):
        return skip("the clip is narrower than the type's range")
    return over(op, q, x)


def _quantized(bound: object, quantized: Parameters, default: float) -> float:
    """What a bound becomes; all beyond it becomes that or what lies further out."""
    return steps_of(default if bound is None else float(np.asarray(bound).reshape(())), quantized)


@rule(f"q:{Q}(Where(c, x, y), ...)", name="WhereDummyDq")
def quantize_scalar_branch(op: Builder, c: Value, x: Value, y: Value, q: Node) -> Answer:
    """Where between a dequantized tensor and a number is between two dequantized ones, for QLinearWhere."""
    tensor, other = (x, y) if byte_of(x) else (y, x)
    dequantized, number = byte_of(tensor), scalar(other)
    if (
        dequantized is None
        or number is None
        or is_dequantize(other.producer)
        or dtype_of(other) is not dtypes.float32
        or np.isnan(number)
    ):
        return skip("not one quantized tensor and one constant number")
    quantized = _stored_exactly(op, number, dequantized, rank_of(other) or 0)
    return over(op, q, op.Where(c, *((x, quantized) if tensor is x else (quantized, y))))


def _stored_exactly(op: Builder, number: float, like: Parameters, rank: int) -> Value:
    """A number as its own scale, one step above zero or below."""
    step = (1, 0) if number > 0 else (0, 1) if number < 0 else (0, 0)
    data, zero_point = (np.array(part, like.dtype.numpy) for part in step)
    scale = np.float32(abs(number) or 1.0)
    operands = (op.constant(part) for part in (data.reshape((1,) * rank), scale, zero_point))
    result: Value = op.node(like.node.op_type, *operands, domain=like.node.domain)
    return result


# --- dynamically quantized products ---------------------------------------------------------------------------------


@rule("Mul(Cast<to=1>(product:MatMulInteger(a, b, a_zero?, b_zero?)), Mul(s, t))", name="MatMulIntegerToFloatFusion")
def scale_integer_product(
    op: Builder, product: Node, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None, s: Value, t: Value, root: Node
) -> Answer:
    """A product of whole numbers and the scale of its factors are one op."""
    a_scale, b_scale = (s, t) if _is_one(s) else (t, s)
    if dtype_of(s) is not dtypes.float32 or not _is_one(a_scale) or not _fits_columns(b_scale, product):
        return skip("the scales are not one number, and one or one per column")
    if (a_zero is not None and not _is_one(a_zero)) or (b_zero is not None and not _fits_columns(b_zero, product)):
        return skip("the zero points are not one number, and one or one per column")
    if not rank_of(product.outputs[0]):
        return skip("the scales may have more axes than the product")
    return op.node("MatMulIntegerToFloat", a, b, a_scale, b_scale, a_zero, b_zero, domain=CONTRIB)


def _is_one(value: Value) -> bool:
    return shape_of(value) in ((), (1,))


def _fits_columns(value: Value, product: Node) -> bool:
    """Whether an operand is one number, or one for each column of a product."""
    shape, result = shape_of(value), shape_of(product.outputs[0])
    return shape in ((), (1,)) or (bool(shape) and result is not None and shape == result[-1:])


@rule(f"Add({CONTRIB}.MatMulIntegerToFloat(a, b, s, t, a_zero?, b_zero?), bias)", name="MatMulIntegerToFloatFusion")
def bias_of_integer_product(
    op: Builder,
    a: Value,
    b: Value,
    s: Value,
    t: Value,
    a_zero: Value | None,
    b_zero: Value | None,
    bias: Value,
    root: Node,
) -> Answer:
    """What is added to each row is an operand of the product."""
    shape, result = shape_of(bias), shape_of(root.outputs[0])
    columns = shape_of(b)
    if shape is None or not result or not columns or len(columns) < 2 or shape != columns[-1:] or shape != result[-1:]:
        return skip("what is added is not one number for each column")
    return op.node("MatMulIntegerToFloat", a, b, s, t, a_zero, b_zero, bias, domain=CONTRIB)


@rule(
    f"q, s, z = DynamicQuantizeLinear(x); {CONTRIB}.MatMulIntegerToFloat(q, b, s, t, z, b_zero?, bias?)",
    name="DynamicQuantizeMatMulFusion",
)
def dynamic_product(op: Builder, x: Value, b: Value, t: Value, b_zero: Value | None, bias: Value | None) -> Answer:
    """A tensor that is quantized for one product only is quantized by it."""
    if constant(b) is None:
        return skip("the second factor is not constant")
    return op.node("DynamicQuantizeMatMul", x, b, t, b_zero, bias, domain=CONTRIB)
