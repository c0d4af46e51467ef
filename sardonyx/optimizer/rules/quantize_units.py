"""Node units: an op between DequantizeLinear and QuantizeLinear becomes one op on whole numbers (QDQSelectorActionTransformer).

Products and sums are exact inside; the result may differ from that of floats by one step where a real number lies between two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Node, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, given_attributes, operand
from sardonyx.optimizer.rewrite import Answer, Skip, rule, skip
from sardonyx.optimizer.rules.elimination import unless_output
from sardonyx.optimizer.rules.quantize import VIEWS
from sardonyx.optimizer.rules.quantize_parameters import (
    BYTES,
    CONTRIB,
    DQ,
    Parameters,
    Q,
    byte_of,
    is_quantize,
    limits,
    over,
    parameters,
    product_bias,
    real,
    same,
    steps_of,
    takes,
    with_parameters,
)
from sardonyx.optimizer.values import has_one_output, rank_of, scalar

NAME = "QDQSelectorActionTransformer"
NOT_BYTES = skip("not all are 8-bit numbers with one constant scale")


def _bytes(*nodes: Node) -> list[Parameters] | None:
    """The parameters of nodes that all have 8-bit numbers and one scale."""
    quantized = [parameters(node) for node in nodes]
    single = [entry for entry in quantized if entry is not None and entry.is_byte]
    return single if len(single) == len(nodes) else None


def _bytes_of_one_type(*nodes: Node) -> list[Parameters] | None:
    quantized = _bytes(*nodes)
    return quantized if quantized is not None and len({entry.dtype for entry in quantized}) == 1 else None


# --- ops that only move ---------------------------------------------------------------------------------------------

MOVERS = f"{VIEWS}|DepthToSpace|Expand|Gather|GatherElements|MaxPool|ReduceMax|ReduceMin|Resize|Slice|Tile"
ONLY_BYTES = frozenset({"DepthToSpace", "MaxPool", "ReduceMax", "ReduceMin", "Resize"})


@rule(f"d = dq:{DQ}(x, ...); q:{Q}(f:{MOVERS}(d, ...), ...)", keep=("d",), name=NAME)
def move_whole_numbers(op: Builder, x: Value, dq: Node, f: Node, q: Node) -> Answer:
    """What moves or compares numbers does so with whole ones in the same order."""
    moved = _moved(dq, f, q)
    if isinstance(moved, Skip):
        return moved
    if f.op_type in ONLY_BYTES and moved.dtype not in BYTES:
        return skip(f"{f.op_type} does not do this with {moved.dtype}")
    if f.op_type == "Resize" and (operand(f, "mode") not in ("nearest", None) or _extrapolates(f)):
        return skip("numbers between two are computed")
    return over(op, f, x)


def _moved(dq: Node, f: Node, q: Node) -> Parameters | Skip:
    """The parameters of numbers before and behind an op that keeps them, and that takes whole ones too."""
    before, after = parameters(dq), parameters(q)
    if before is None or after is None or before.axis is not None or not before.is_reversible or not same(before, after):
        return skip("not the same constant scale above zero before and after")
    if not takes(f, before.dtype) or not has_one_output(f):
        return skip(f"{f.op_type} does not do this with {before.dtype}")
    return before


@rule(f"d = dq:{DQ}(x, ...); q:{Q}(f:Pad(d, ...), ...)", keep=("d",), name=NAME)
def pad_whole_numbers(op: Builder, x: Value, dq: Node, f: Node, q: Node) -> Answer:
    """Padding is what its number is rounded to."""
    moved = _moved(dq, f, q)
    if isinstance(moved, Skip):
        return moved
    pads, value, axes = (*f.inputs[1:], None, None)[:3]
    number = 0.0 if value is None else scalar(value)
    if number is None:
        return skip("what is padded with is not constant")
    low, high = limits(moved.dtype)
    steps = steps_of(number, moved)
    code = op.constant(np.array(low if np.isnan(steps) else np.clip(steps, low, high)).astype(moved.dtype.numpy))
    return op.node("Pad", x, pads, code, axes, **given_attributes(f))


def _extrapolates(resize: Node) -> bool:
    return operand(resize, "coordinate_transformation_mode") == "tf_crop_and_resize"


@rule(f"d = dq:{DQ}(x, ...); f:ArgMax|ArgMin(d)", keep=("d",), name=NAME)
def compare_whole_numbers(op: Builder, x: Value, dq: Node, f: Node) -> Answer:
    """The greatest is where the greatest whole number is."""
    quantized = parameters(dq)
    if quantized is None or not quantized.is_single or not takes(f, quantized.dtype):
        return skip("not one constant scale above zero")
    return over(op, f, x)


@rule(f"d = dq:{DQ}(x, ...); f:Split(d, ...)", keep=("d",), name=NAME)
def split_whole_numbers(op: Builder, x: Value, dq: Node, f: Node) -> Answer:
    """Parts that are all quantized again in the same way are parts of the whole numbers."""
    quantized = parameters(dq)
    if quantized is None or not quantized.is_single or not takes(f, quantized.dtype):
        return skip("not one constant scale above zero")
    users = [user for output in f.outputs for user in output.users]
    after = [parameters(user) for user in users if is_quantize(user)]
    if len(after) < len(users) or any(other is None or not same(other, quantized) for other in after):
        return skip("not all parts are quantized again in the same way")
    if any(output.is_graph_output for output in f.outputs):
        return skip("a part is an output")
    parts = over(op, f, x)
    return [with_parameters(op, quantized, part) for part in (parts if isinstance(parts, list) else [parts])]


@rule(f"d = dq:{DQ}(x, ...); q:{Q}(d, ...)", keep=("d",), name=NAME)
def keep_whole_number(x: Value, dq: Node, q: Node, root: Node) -> Answer:
    """A part of what was split, quantized again."""
    before, after = parameters(dq), parameters(q)
    if x.producer is None or x.producer.op_type != "Split" or before is None or after is None or not same(before, after):
        return skip("it is no part of whole numbers")
    if not before.is_reversible:
        return skip("real numbers may overflow or lose the last bits")
    return unless_output(x, root)


# --- arithmetic -----------------------------------------------------------------------------------------------------


@rule(f"d = dq:{DQ}(x, ...); q:{Q}(f:LeakyRelu|Sigmoid(d), ...)", keep=("d",), name=NAME)
def quantized_activation(op: Builder, x: Value, dq: Node, f: Node, q: Node) -> Answer:
    """A function of one 8-bit number has 256 values."""
    quantized = _bytes_of_one_type(dq, q)
    if quantized is None:
        return NOT_BYTES
    return _q_linear(op, f, [x], quantized)


def _q_linear(op: Builder, node: Node, tensors: list[Value], quantized: list[Parameters], **extra: Any) -> Value:
    """An op of the QLinear family: tensors with their scales and zero points, those of the result, attributes of the op."""
    operands: list[Value] = []
    for tensor, entry in zip([*tensors, None], quantized, strict=True):
        operands.extend(([] if tensor is None else [tensor]) + list(entry.operands(op)))
    attributes = {**given_attributes(node), **extra}
    result: Value = op.node(f"QLinear{node.op_type}", *operands, domain=CONTRIB, **attributes)
    return result


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(y, ...); q:{Q}(f:Add|Mul(a, b), ...)", keep=("a", "b"), name=NAME)
def quantized_arithmetic(op: Builder, x: Value, y: Value, da: Node, db: Node, f: Node, q: Node) -> Answer:
    """Sums and products of 8-bit numbers."""
    quantized = _bytes_of_one_type(da, db, q)
    if quantized is None:
        return NOT_BYTES
    return _q_linear(op, f, [x, y], quantized)


@rule(f"d = dq:{DQ}(x, ...); q:{Q}(f:Softmax(d), ...)", keep=("d",), name=NAME)
def quantized_softmax(op: Builder, x: Value, dq: Node, f: Node, q: Node) -> Answer:
    """Exponentials of 8-bit numbers are looked up."""
    quantized = _bytes_of_one_type(dq, q)
    if quantized is None:
        return NOT_BYTES
    return _q_linear(op, f, [x], quantized, axis=operand(f, "axis"), opset=f.version)


@rule(f"d = dq:{DQ}(x, ...); q:{Q}(f:AveragePool|GlobalAveragePool(d), ...)", keep=("d",), name=NAME)
def quantized_average(op: Builder, x: Value, dq: Node, f: Node, q: Node) -> Answer:
    """Averages are sums of whole numbers."""
    quantized = _bytes_of_one_type(dq, q)
    if quantized is None:
        return NOT_BYTES
    if any(step != 1 for step in operand(f, "dilations") or ()):
        return skip("there is no such op with dilations")
    attributes = {name: value for name, value in given_attributes(f).items() if name != "dilations"}
    operands = [x, *quantized[0].operands(op), *quantized[1].operands(op)]
    return op.node(f"QLinear{f.op_type}", *operands, domain=CONTRIB, **attributes)


@rule(f"q:{Q}(f:Concat(...), ...)", name=NAME)
def quantized_concat(op: Builder, f: Node, q: Node) -> Answer:
    """8-bit tensors are joined as they are, or each brought to the scale of the result."""
    quantized = [byte_of(value) for value in f.inputs]
    result = parameters(q)
    entries = [entry for entry in quantized if entry is not None]
    if (
        len(entries) < len(quantized)
        or result is None
        or not result.is_byte
        or any(entry.dtype is not result.dtype for entry in entries)
    ):
        return NOT_BYTES
    if all(same(entry, result) or _ends_sums(entry) for entry in entries):
        return op.Concat(*(_in_scale_of(op, entry, result) for entry in entries), **given_attributes(f))
    operands: list[Value | None] = [*result.operands(op)]
    for entry in entries:
        operands += [entry.node.inputs[0], *entry.operands(op)]
    return op.node("QLinearConcat", *operands, domain=CONTRIB, axis=operand(f, "axis"))


def _ends_sums(entry: Parameters) -> bool:
    """Whether a DequantizeLinear alone reads the result of a convolution, which another scale can then follow at no cost."""
    x = entry.node.inputs[0]
    return x is not None and x.producer is not None and x.producer.op_type == "QLinearConv" and len(x.users) == 1


def _in_scale_of(op: Builder, entry: Parameters, result: Parameters) -> Value:
    """What a DequantizeLinear reads, in the scale of a result."""
    x = entry.node.inputs[0]
    assert x is not None
    return x if same(entry, result) else with_parameters(op, result, with_parameters(op, entry, x))


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(y, ...); q:{Q}(Where(c, a, b), ...)", keep=("a", "b"), name=NAME)
def quantized_where(op: Builder, c: Value, x: Value, y: Value, da: Node, db: Node, q: Node) -> Answer:
    """8-bit numbers are chosen and brought to the scale of the result."""
    quantized = _bytes_of_one_type(da, db, q)
    if quantized is None:
        return NOT_BYTES
    first, second, result = (entry.operands(op) for entry in quantized)
    return op.node("QLinearWhere", c, x, *first, y, *second, *result, domain=CONTRIB)


# --- products -------------------------------------------------------------------------------------------------------

FEW_BITS = {dtypes.int2: dtypes.int8, dtypes.uint2: dtypes.uint8, dtypes.int4: dtypes.int8, dtypes.uint4: dtypes.uint8}


@rule(f"b = db:{DQ}(w, ...); f:Conv|Gemm|MatMul(a, b, ...)", keep=("a", "b"), name=NAME)
def weights_in_bytes(op: Builder, a: Value, w: Value, db: Node, f: Node) -> Answer:
    """Weights of fewer bits, with one scale or one for each channel, are multiplied by 8-bit numbers as such."""
    weights, numbers = parameters(db), constant(w)
    if weights is None or weights.dtype not in FEW_BITS or numbers is None or weights.block_size or byte_of(a) is None:
        return skip("not constants of few bits by 8-bit numbers")
    dtype = FEW_BITS[weights.dtype].numpy
    wide = [op.constant(array.astype(dtype)) for array in (numbers, weights.zero_point)]
    dequantized = op.node(db.op_type, wide[0], db.inputs[1], wide[1], domain=db.domain, **given_attributes(db))
    return op.node(f.op_type, a, dequantized, *f.inputs[2:], **given_attributes(f))


def factors_of(da: Node, db: Node, axis: int) -> tuple[Parameters, Parameters] | Skip:
    """The parameters of an 8-bit tensor with one scale, and of another with one or one along `axis`."""
    first, second = parameters(da), parameters(db)
    if first is None or second is None or not first.is_byte or second.dtype not in BYTES:
        return NOT_BYTES
    if second.axis not in (None, axis) or second.block_size or not np.all(second.scale > 0):
        return skip(f"the second factor's scales are not one, or one along axis {axis}")
    return first, second


def product_scale(first: Parameters, second: Parameters) -> np.ndarray:
    """One number, or one for each channel."""
    scale: np.ndarray = first.scale.astype(np.float64).reshape(()) * second.scale.astype(np.float64)
    return scale.reshape(()) if second.axis is None else scale


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(w, ...); q:{Q}(f:Conv(a, b, bias?), ...)", keep=("a", "b"), name=NAME)
def quantized_convolution(op: Builder, x: Value, w: Value, bias: Value | None, da: Node, db: Node, f: Node, q: Node) -> Answer:
    """A convolution of whole numbers."""
    factors, result = factors_of(da, db, axis=0), parameters(q)
    if isinstance(factors, Skip) or result is None or not result.is_byte:
        return factors if isinstance(factors, Skip) else NOT_BYTES
    added = product_bias(op, bias, product_scale(*factors))
    if isinstance(added, Skip):
        return added
    first, second = (factor.operands(op) for factor in factors)
    return op.QLinearConv(x, *first, w, *second, *result.operands(op), added, **given_attributes(f))


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(w, ...); f:Conv(a, b, bias?)", keep=("a", "b"), name=NAME)
def real_convolution(op: Builder, x: Value, w: Value, bias: Value | None, da: Node, db: Node, f: Node) -> Answer:
    """A convolution of whole numbers whose result stays real, or is quantized behind an activation or a sum."""
    if _is_quantized(f):
        return skip("its result is quantized")
    factors, rank = factors_of(da, db, axis=0), rank_of(x)
    if isinstance(factors, Skip) or rank is None:
        return factors if isinstance(factors, Skip) else skip("the rank is not known")
    added = _real_bias(bias)
    if isinstance(added, Skip):
        return added
    (_, x_zero), (_, w_zero) = (factor.operands(op) for factor in factors)
    sums = op.Cast(op.ConvInteger(x, w, x_zero, w_zero, **given_attributes(f)), to=dtypes.float32.code)
    scale = product_scale(*factors).astype(np.float32)
    result: Value = op.Mul(sums, op.constant(_by_channel(scale, rank)))
    return result if added is None else op.Add(result, op.constant(_by_channel(added, rank)))


def _real_bias(bias: Value | None) -> np.ndarray | Skip | None:
    """A constant bias, dequantized or not."""
    if bias is None:
        return None
    dequantized = parameters(bias.producer)
    array = constant(bias) if dequantized is None else real(dequantized)
    return skip("the bias is not constant") if array is None else array.astype(np.float32)


def _by_channel(numbers: np.ndarray, rank: int) -> np.ndarray:
    """One number, or one for each channel of an image."""
    return numbers.reshape(-1, *(1,) * (rank - 2)) if numbers.ndim else numbers


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(w, ...); q:{Q}(f:MatMul(a, b), ...)", keep=("a", "b"), name=NAME)
def quantized_product(op: Builder, x: Value, w: Value, da: Node, db: Node, q: Node) -> Answer:
    """A product of whole numbers, quantized."""
    factors, result = _columns(da, db, w), parameters(q)
    if isinstance(factors, Skip) or result is None or not result.is_byte:
        return factors if isinstance(factors, Skip) else NOT_BYTES
    first, second = (factor.operands(op) for factor in factors)
    return op.QLinearMatMul(x, *first, w, *second, *result.operands(op))


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(w, ...); f:MatMul(a, b)", keep=("a", "b"), name=NAME)
def real_product(op: Builder, x: Value, w: Value, da: Node, db: Node, f: Node) -> Answer:
    """A product of whole numbers whose result stays real."""
    if _is_quantized(f):
        return skip("its result is quantized")
    factors = _columns(da, db, w)
    if isinstance(factors, Skip):
        return factors
    (a_scale, a_zero), (b_scale, b_zero) = (factor.operands(op) for factor in factors)
    return op.node("MatMulIntegerToFloat", x, w, a_scale, b_scale, a_zero, b_zero, domain=CONTRIB)


def _columns(da: Node, db: Node, w: Value) -> tuple[Parameters, Parameters] | Skip:
    rank = rank_of(w)
    factors = factors_of(da, db, axis=-1 if rank is None else rank - 1)
    if not isinstance(factors, Skip) and factors[1].axis is not None and rank != 2:
        return skip("there are scales per column, but the second factor is no matrix")
    return factors


def _is_quantized(node: Node) -> bool:
    """Whether nobody but a QuantizeLinear to 8 bits uses a result, so that another rule takes it."""
    users = node.outputs[0].users
    quantized = parameters(users[0]) if len(users) == 1 and not node.outputs[0].is_graph_output else None
    return quantized is not None and is_quantize(quantized.node) and quantized.is_byte


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(w, ...); q:{Q}(f:Gemm(a, b, c?), ...)", keep=("a", "b"), name=NAME)
def quantized_gemm(op: Builder, x: Value, w: Value, c: Value | None, da: Node, db: Node, f: Node, q: Node) -> Answer:
    """A product and a sum of whole numbers, quantized."""
    result = parameters(q)
    if result is None or not result.is_byte:
        return NOT_BYTES
    return _q_gemm(op, x, w, c, da, db, f, result)


@rule(f"a = da:{DQ}(x, ...); b = db:{DQ}(w, ...); f:Gemm(a, b, c?)", keep=("a", "b"), name=NAME)
def real_gemm(op: Builder, x: Value, w: Value, c: Value | None, da: Node, db: Node, f: Node) -> Answer:
    """A product and a sum of whole numbers whose result stays real."""
    return skip("its result is quantized") if _is_quantized(f) else _q_gemm(op, x, w, c, da, db, f, None)


def _q_gemm(op: Builder, x: Value, w: Value, c: Value | None, da: Node, db: Node, f: Node, result: Parameters | None) -> Answer:
    factors = factors_of(da, db, axis=0 if operand(f, "transB") else 1)
    if isinstance(factors, Skip):
        return factors
    if c is not None and (operand(f, "alpha") != 1 or operand(f, "beta") != 1):
        return skip("the sum is weighted")
    added = product_bias(op, c, product_scale(*factors))
    if isinstance(added, Skip):
        return added
    first, second = (factor.operands(op) for factor in factors)
    ends = () if result is None else result.operands(op)
    attributes = {name: value for name, value in given_attributes(f).items() if name != "beta"}
    return op.node("QGemm", x, *first, w, *second, added, *ends, domain=CONTRIB, **attributes)


UNITS = [
    move_whole_numbers,
    pad_whole_numbers,
    compare_whole_numbers,
    split_whole_numbers,
    keep_whole_number,
    quantized_activation,
    quantized_arithmetic,
    quantized_softmax,
    quantized_average,
    quantized_concat,
    quantized_where,
    weights_in_bytes,
    quantized_convolution,
    real_convolution,
    quantized_product,
    real_product,
    quantized_gemm,
    real_gemm,
]
