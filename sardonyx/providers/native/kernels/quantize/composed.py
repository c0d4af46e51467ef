"""Ops of com.microsoft on 8-bit numbers, composed of others: pools, joins, softmax, attention, and forms with the channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import Dim, Node, TensorType, Value, dim
from sardonyx.ops.reading import inputs_named, operand
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile, element_type
from sardonyx.startup.records import dataclass

CONTRIB = "com.microsoft"
EXACT_TAPS = 2**24 // 255
"""Numbers of 8 bits less their zero point of which float32 holds every sum."""
EXACT_TERMS = 2**31 // 255
"""The same of int32."""
LARGEST_SCALE = 1e33
"""With larger ones what a number stands for may be infinite."""


def _single(op: Composer, parameter: Value | None) -> Value | None:
    """A scale or zero point, which is one number, without axes."""
    if parameter is None or not dims(parameter):
        return parameter
    if dims(parameter) != (1,):
        raise CannotCompile(f"{parameter.name} is not one number", quiet=True)
    return op.reshape(parameter)


def _dtype(value: Value) -> ElementType:
    assert isinstance(value.type, TensorType) and value.type.dtype is not None
    return value.type.dtype


def _zero(op: Composer, zero_point: Value | None, dtype: ElementType) -> Value:
    found = _single(op, zero_point)
    return op.constant(np.zeros((), dtype.numpy)) if found is None else found


def _real(op: Composer, X: Value, scale: Value | float, zero_point: Value | None) -> Value:
    """What 8-bit numbers stand for."""
    factor = op.constant(np.float32(scale)) if isinstance(scale, float) else _single(op, scale)
    made: Value = op.DequantizeLinear(X, factor, _single(op, zero_point))
    return made


def _quantized(op: Composer, values: Value, scale: Value, zero_point: Value | None, dtype: ElementType) -> Value:
    made: Value = op.QuantizeLinear(values, _single(op, scale), _zero(op, zero_point, dtype))
    return made


# --- softmax, joins


@compose("QLinearSoftmax", domain=CONTRIB)
def q_linear_softmax(
    op: Composer,
    X: Value,
    X_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None,
    axis: int,
    opset: int,
) -> Value:
    values = _real(op, X, X_scale, x_zero_point)
    if opset >= 13:
        chances = op.Softmax(values, axis=axis)
    else:  # the axes from `axis` on were one flat row
        chances = op.reshape(op.Softmax(op.Flatten(values, axis=axis), axis=1), *dims(X))
    return _quantized(op, chances, y_scale, y_zero_point, _dtype(X))


@compose("QLinearConcat", domain=CONTRIB)
def q_linear_concat(op: Composer, Y_scale: Value, Y_zero_point: Value, inputs: Sequence[Value], axis: int) -> Value:
    parts = []
    for X, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3]):
        if _is_same(scale, Y_scale) and _is_same(zero_point, Y_zero_point):
            parts.append(X)
        else:
            parts.append(_quantized(op, _real(op, X, scale, zero_point), Y_scale, Y_zero_point, _dtype(Y_zero_point)))
    made: Value = op.Concat(*parts, axis=axis)
    return made


def _is_same(parameter: Value, other: Value) -> bool:
    """Whether two scales or zero points are one constant, of which numbers stay what they are."""
    if parameter.constant is None or other.constant is None or _dtype(parameter) is not _dtype(other):
        return False
    one, two = parameter.constant.numpy().reshape(-1), other.constant.numpy().reshape(-1)
    return np.array_equal(one, two) and (_dtype(other) in dtypes.INTS or bool(np.all((two > 0) & (two < LARGEST_SCALE))))


# --- averages


@compose("QLinearAveragePool", domain=CONTRIB)
def q_linear_average_pool(
    op: Composer,
    X: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None,
    kernel_shape: Sequence[int],
    channels_last: int,
    node: Node,
) -> Value:
    """Sums are exact. Means are rounded together with the zero point."""
    if math.prod(kernel_shape) > EXACT_TAPS:
        raise CannotCompile("float32 does not hold all sums of a window", quiet=True)
    image = _channels_first(op, X) if channels_last else X
    means = op.AveragePool(_real(op, image, 1.0, x_zero_point), **_pool_attributes(node))
    values = op.Div(op.Mul(means, _single(op, x_scale)), _single(op, y_scale))
    if y_zero_point is not None:
        values = op.Add(values, op.cast(_zero(op, y_zero_point, _dtype(X)), values))
    Y = _quantized(op, values, op.constant(np.float32(1)), None, _dtype(X))
    return _channels_last(op, Y) if channels_last else Y


def _pool_attributes(node: Node) -> dict[str, Any]:
    names = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")
    found = {name: operand(node, name) for name in names if name in node.attributes}
    return {name: value for name, value in found.items() if value is not None}


@compose("QLinearGlobalAveragePool", domain=CONTRIB)
def q_linear_global_average_pool(
    op: Composer,
    X: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None,
    channels_last: int,
) -> Value:
    axes = list(range(1, rank_of(X) - 1) if channels_last else range(2, rank_of(X)))
    return _mean(op, X, Scales(x_scale, x_zero_point, y_scale, y_zero_point), axes, 1)


@compose("QLinearReduceMean", domain=CONTRIB)
def q_linear_reduce_mean(
    op: Composer,
    data: Value,
    data_scale: Value,
    data_zero_point: Value | None,
    reduced_scale: Value,
    reduced_zero_point: Value | None,
    axes: Sequence[int],
    keepdims: int,
) -> Value:
    scales = Scales(data_scale, data_zero_point, reduced_scale, reduced_zero_point)
    reduced = [axis % rank_of(data) for axis in axes] if axes else list(range(rank_of(data)))
    if len(set(reduced)) < len(reduced):
        raise CannotCompile("an axis is named twice", quiet=True)
    return _mean(op, data, scales, reduced, keepdims)


@dataclass(frozen=True)
class Scales:
    """The parameters of an operand and of a result."""

    scale: Value
    zero_point: Value | None
    result_scale: Value
    result_zero_point: Value | None


def _mean(op: Composer, X: Value, scales: Scales, axes: Sequence[int], keepdims: int) -> Value:
    """Sums of 32 bits, or 64 where there may be many terms, times the scale of one term."""
    count = dim.product(dims(X)[axis] for axis in axes)
    op.require(dim.maximum(count, 1), count)
    wide = dtypes.int32 if isinstance(count, int) and count <= EXACT_TERMS else dtypes.int64
    numbers = op.cast_to(X, wide)
    if scales.zero_point is not None:
        numbers = op.Sub(numbers, op.cast_to(_zero(op, scales.zero_point, _dtype(X)), wide))
    total = op.cast_to(op.ReduceSum(numbers, axes=axes, keepdims=keepdims) if axes else numbers, dtypes.float32)
    factor = op.Div(_single(op, scales.scale), _as_float(op, count))
    return _quantized(op, op.Mul(total, factor), scales.result_scale, scales.result_zero_point, _dtype(X))


def _as_float(op: Composer, count: Dim) -> Value:
    if isinstance(count, int):
        return op.constant(np.float32(count))
    return op.cast_to(op.reshape(op.sizes(count)), dtypes.float32)


# --- channels last


def _channels_first(op: Composer, X: Value) -> Value:
    made: Value = op.Transpose(X, perm=[0, rank_of(X) - 1, *range(1, rank_of(X) - 1)])
    return made


def _channels_last(op: Composer, X: Value) -> Value:
    made: Value = op.Transpose(X, perm=[0, *range(2, rank_of(X)), 1])
    return made


@compose("NhwcMaxPool", domain=CONTRIB)
def nhwc_max_pool(op: Composer, x: Value, node: Node) -> Value:
    return _channels_last(op, op.MaxPool(_channels_first(op, x), **_pool_attributes(node)))


@compose("QLinearConv", domain=CONTRIB, claims=lambda node: bool(operand(node, "channels_last")))
def q_linear_conv(op: Composer, x: Value, node: Node) -> Value:
    attributes = {name: operand(node, name) for name in node.attributes if name != "channels_last"}
    return _channels_last(op, op.QLinearConv(_channels_first(op, x), *node.inputs[1:], **attributes))


# --- attention


def _is_single_float(node: Node) -> bool:
    return element_type(node.outputs[0]) is dtypes.float32 and not operand(node, "do_rotary")


@compose("QAttention", domain=CONTRIB, claims=_is_single_float)
def q_attention(
    op: Composer,
    input: Value,
    weight: Value,
    bias: Value,
    input_scale: Value,
    weight_scale: Value,
    mask_index: Value | None,
    input_zero_point: Value | None,
    weight_zero_point: Value | None,
    past: Value | None,
    num_heads: int,
    unidirectional: int,
    past_present_share_buffer: int,
    mask_filter_value: float,
    scale: float | None,
) -> Sequence[Value]:
    """The projections are one product of whole numbers."""
    if past_present_share_buffer:
        raise CannotCompile("past and present are one memory", quiet=True)
    operands = (input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias)
    projected = op.node("MatMulIntegerToFloat", *operands, domain=CONTRIB)
    parts = op.Split(projected, outputs=3, axis=2, num_outputs=3)
    before = [None, None] if past is None else _halves(op, past)
    output, key, value = op.node(
        "MultiHeadAttention",
        *(*parts, None, mask_index, None, *before),
        outputs=3,
        domain=CONTRIB,
        num_heads=num_heads,
        unidirectional=unidirectional,
        mask_filter_value=mask_filter_value,
        scale=scale,
    )
    return output, op.Concat(*(op.Unsqueeze(part, axes=[0]) for part in (key, value)), axis=0)


def _halves(op: Composer, past: Value) -> list[Value]:
    """Keys and values, which stand in one tensor."""
    return [op.Squeeze(part, axes=[0]) for part in op.Split(past, outputs=2, axis=0, num_outputs=2)]


# --- embeddings


@compose("QEmbedLayerNormalization", domain=CONTRIB)
def q_embed_layer_normalization(
    op: Composer, input_ids: Value, segment_ids: Value | None, mask: Value | None, epsilon: float, node: Node
) -> Sequence[Value]:
    """Rows of tables are dequantized while they are looked up."""
    tables = [None if segment_ids is None and name == "segment_embedding" else _table(op, node, name) for name in TABLES]
    made: Sequence[Value] = op.node(
        "EmbedLayerNormalization",
        *(input_ids, segment_ids if tables[2] is not None else None, *tables, mask),
        outputs=2,
        domain=CONTRIB,
        epsilon=epsilon,
    )
    return made


TABLES = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")


def _table(op: Composer, node: Node, name: str) -> Value | None:
    """A table, or a vector, of which 8-bit numbers, a scale and a zero point are given."""
    suffix = "" if name == "segment_embedding" else "_quant"
    codes, scale, zero_point = inputs_named(node, name + suffix, f"{name}_scale", f"{name}_zero_point")
    return None if codes is None or scale is None else _real(op, codes, scale, zero_point)
