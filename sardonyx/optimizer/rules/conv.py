"""Convolutions take over what stands before and after them: padding, factors and offsets per channel, batch normalization."""

from __future__ import annotations

import functools
import math

import numpy as np

from sardonyx.formats import mapping
from sardonyx.ir import Node, Tensor, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, given_attributes, operand
from sardonyx.optimizer.rewrite import Answer, rule, skip
from sardonyx.optimizer.values import is_non_negative, rank_of, shape_of, stays_finite

# --- per channel ----------------------------------------------------------------------------------------------------


@rule("Add(conv:Conv|ConvTranspose(X, W, B?), offset)", name="ConvAddFusion")
def add_to_bias(op: Builder, conv: Node, X: Value, W: Value, B: Value | None, offset: Value) -> Answer:
    """A constant per channel is part of the bias."""
    channels = output_channels(conv)
    vector = _per_channel(offset, conv, channels)
    bias = _bias(B, channels)
    if vector is None or bias is None:
        return skip("the operands are not constants per channel")
    return _convolved(op, conv, X, W, bias + vector, W)


@rule("Mul(conv:Conv|ConvTranspose(X, W, B?), factor)", name="ConvMulFusion")
def scale_weights(op: Builder, conv: Node, X: Value, W: Value, B: Value | None, factor: Value) -> Answer:
    """A constant factor per channel is part of the weights."""
    channels = output_channels(conv)
    vector = _per_channel(factor, conv, channels)
    return skip("the factor is not a constant per channel") if vector is None else _scaled(op, conv, X, W, B, vector, None)


@rule("BatchNormalization(conv:Conv|ConvTranspose(X, W, B?), scale, bias, mean, var)", name="ConvBNFusion")
def fold_batch_normalization(
    op: Builder, conv: Node, X: Value, W: Value, B: Value | None, scale: Value, bias: Value, mean: Value, var: Value, root: Node
) -> Answer:
    """Batch normalization with constant statistics is a factor and an offset per channel."""
    if is_training(root):
        return skip("the batch normalization trains")
    folded = batch_factors(root, scale, bias, mean, var)
    return skip("the statistics are not constant") if folded is None else _scaled(op, conv, X, W, B, *folded)


def is_training(node: Node) -> bool:
    """Whether a BatchNormalization takes its statistics from the batch, or those of each activation."""
    if operand(node, "training_mode") or operand(node, "spatial") == 0:
        return True
    return len(node.outputs) > 1 and not operand(node, "is_test")


def batch_factors(node: Node, *parameters: Value) -> tuple[np.ndarray, np.ndarray] | None:
    """Factor and offset per channel of a BatchNormalization, in float64; None if its statistics are not constant."""
    arrays = [constant(value) for value in parameters]
    if any(array is None for array in arrays):
        return None
    scale, bias, mean, var = (np.asarray(array, np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + operand(node, "epsilon"))
        return factor, bias - mean * factor


def output_channels(conv: Node) -> int | None:
    """How many channels a Conv or ConvTranspose makes, if that is a number."""
    weights = conv.inputs[1]
    shape = None if weights is None else shape_of(weights)
    if shape is None:
        return None
    size = shape[0] if conv.op_type == "Conv" else shape[1] * operand(conv, "group")
    return size if isinstance(size, int) else None


def _per_channel(value: Value, conv: Node, channels: int | None) -> np.ndarray | None:
    """A constant that differs along the channels at most, as a vector in float64."""
    array, rank = constant(value), rank_of(conv.outputs[0])
    if array is None or rank is None or channels is None or array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for axis, size in enumerate(shape) if axis != 1) or shape[1] not in (1, channels):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), channels)


def _bias(B: Value | None, channels: int | None) -> np.ndarray | None:
    """The bias of a convolution in float64, zeros if it has none; None if it is not constant."""
    if B is None:
        return None if channels is None else np.zeros(channels)
    array = constant(B)
    return None if array is None else array.astype(np.float64)


def _scaled(
    op: Builder, conv: Node, X: Value, W: Value, B: Value | None, factor: np.ndarray, offset: np.ndarray | None
) -> Answer:
    weights, bias = W.constant, _bias(B, output_channels(conv))
    if weights is None or not W.is_constant or bias is None:
        return skip("the weights are not constant")
    factors = _beside_weights(factor, weights.shape, conv)
    if not _stay_finite(weights.peek(), factors):
        return skip("the weights would not be finite")
    with np.errstate(all="ignore"):
        shifted = bias * factor + (0 if offset is None else offset)
    tensor = Tensor.computed(weights.dtype, weights.shape, functools.partial(_multiplied, weights, factors))
    return _convolved(op, conv, X, op.constant(tensor), None if B is None and offset is None else shifted, W)


def _beside_weights(factor: np.ndarray, shape: tuple[int, ...], conv: Node) -> np.ndarray:
    """Factors per channel in a shape that broadcasts to that of the weights."""
    if conv.op_type == "Conv":
        return factor.reshape(-1, *(1,) * (len(shape) - 1))
    group = operand(conv, "group")
    rows = np.repeat(factor.reshape(group, shape[1]), shape[0] // group, axis=0)
    return rows.reshape(*shape[:2], *(1,) * (len(shape) - 2))


def _multiplied(weights: Tensor, factors: np.ndarray) -> np.ndarray:
    source = weights.peek()
    product = _product(source, factors)
    mapping.give_back(source)  # it need not lie in memory beside the product
    return product


def _product(weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """In float64, rounded once."""
    with np.errstate(all="ignore"):
        if weights.dtype.kind != "f":
            return (weights.astype(np.float64) * factors).astype(weights.dtype)
        return np.multiply(weights, factors, out=np.empty_like(weights), dtype=np.float64, casting="same_kind")


def _stay_finite(weights: np.ndarray, factors: np.ndarray) -> bool:
    """Whether no weight becomes infinite or NaN that was not."""
    if weights.dtype.kind == "f" and weights.size:
        largest = float(np.max(np.abs(factors))) * max(abs(float(weights.min())), abs(float(weights.max())))
        if largest < float(np.finfo(weights.dtype).max) / 2:
            return True
    return stays_finite(_product(weights, factors), weights)


def _convolved(op: Builder, conv: Node, X: Value, W: Value, bias: np.ndarray | None, like: Value) -> Answer:
    """The convolution again with other weights; the bias is rounded to their type."""
    if bias is None:
        return op.node(conv.op_type, X, W, **given_attributes(conv))
    element = like.type.dtype.numpy  # type: ignore[union-attr]
    return op.node(conv.op_type, X, W, op.constant(bias.astype(element)), **given_attributes(conv))


# --- padding --------------------------------------------------------------------------------------------------------


@rule("Conv(cast:Cast?(pad:Pad(x, ...)), W, B?)", name="PadFusion")
def pad_in_convolution(
    op: Builder, pad: Node, x: Value, W: Value, root: Node, B: Value | None = None, cast: Node | None = None
) -> Answer:
    """Convolutions pad with zeros themselves."""
    merged = _merged_pads(pad, x, root)
    if merged is None or _pad_value(pad) != 0:
        return skip("only zeros around the pixels can be taken over, and explicit pads")
    return op.Conv(_recast(op, x, cast), W, B, **{**given_attributes(root), "pads": merged, "auto_pad": "NOTSET"})


@rule("AveragePool(cast:Cast?(pad:Pad(x, ...)))", name="PadFusion")
def pad_in_average(op: Builder, pad: Node, x: Value, root: Node, cast: Node | None = None) -> Answer:
    """A pool that counts its padding averages over the zeros that a Pad would have put there."""
    merged = _merged_pads(pad, x, root)
    if merged is None or _pad_value(pad) != 0 or not _stays_in_windows(merged, root):
        return skip("only zeros around the pixels can be taken over, and explicit pads smaller than the window")
    if operand(root, "count_include_pad") is None or (
        any(operand(root, "pads") or ()) and not operand(root, "count_include_pad")
    ):
        return skip("the pool does not count its own padding")
    extra = {"pads": merged, "auto_pad": "NOTSET", "count_include_pad": 1}
    return op.AveragePool(_recast(op, x, cast), **{**given_attributes(root), **extra})


@rule("MaxPool(pad:Pad(x, ...))", name="PadFusion")
def pad_in_maximum(op: Builder, pad: Node, x: Value, root: Node) -> Answer:
    """A pool's own padding is below all numbers; zeros around the pixels are the same only if no pixel is below zero."""
    merged = _merged_pads(pad, x, root)
    if merged is None or not _stays_in_windows(merged, root) or len(root.outputs) > 1:
        return skip("only constants around the pixels can be taken over, and explicit pads smaller than the window")
    value = _pad_value(pad)
    if value != -math.inf and not (value == 0 and is_non_negative(x)):
        return skip(f"pixels may be below the {value} around them")
    return op.MaxPool(x, **{**given_attributes(root), "pads": merged, "auto_pad": "NOTSET"})


def _recast(op: Builder, x: Value, cast: Node | None) -> Value:
    return x if cast is None else op.Cast(x, **given_attributes(cast))


def _pad_value(pad: Node) -> float | None:
    """The constant that a Pad puts around its input, None if it is not known."""
    for name in ("constant_value", "value"):
        value = operand(pad, name)
        if value is not None:
            return float(np.asarray(value).reshape(-1)[0])
    constant_value = pad.inputs[2] if len(pad.inputs) > 2 else None
    return 0.0 if constant_value is None else None


def _merged_pads(pad: Node, x: Value, root: Node) -> list[int] | None:
    """Pads of a Pad and of the node after it together; None where that is not possible."""
    rank = rank_of(x)
    if rank is None or rank < 3 or operand(pad, "mode") != "constant" or operand(root, "auto_pad") not in ("NOTSET", "VALID"):
        return None
    if operand(root, "ceil_mode"):
        return None
    pads = operand(pad, "pads") or operand(pad, "paddings")
    axes = operand(pad, "axes") if len(pad.inputs) > 3 and pad.inputs[3] is not None else list(range(rank))
    if pads is None or axes is None:
        return None
    added = np.zeros((2, rank), np.int64)
    added[:, [axis % rank for axis in axes]] = np.reshape(pads, (2, -1))
    if (added < 0).any() or added[:, :2].any():
        return None
    own = (operand(root, "pads") if operand(root, "auto_pad") == "NOTSET" else None) or [0] * (2 * (rank - 2))
    return (added[:, 2:].reshape(-1) + np.asarray(own)).tolist()


def _stays_in_windows(pads: list[int], pool: Node) -> bool:
    """Whether each window holds at least one pixel's place that is not padding."""
    kernel = operand(pool, "kernel_shape")
    dilations = operand(pool, "dilations") or [1] * len(kernel)
    reach = [(size - 1) * dilation for size, dilation in zip(kernel, dilations, strict=True)]
    return all(pad <= far for pad, far in zip(pads, reach + reach, strict=True))


# --- four slices that are one op ------------------------------------------------------------------------------------

BLOCK = 2


@rule("Concat<axis=1>(a, b, c, d)", name="SliceConcatToSpaceToDepthFusion")
def space_to_depth(op: Builder, a: Value, b: Value, c: Value, d: Value) -> Answer:
    """Every second pixel of every second row, put together along the channels."""
    traced = [_strided_source(value) for value in (a, b, c, d)]
    sources = {id(trace[0]) for trace in traced if trace is not None}
    if None in traced or len(sources) != 1 or len({trace[1] for trace in traced if trace}) != 4:
        return skip("these are not the four quarters of one image")
    x = traced[0][0]  # type: ignore[index]
    blocks = [BLOCK * row + column for _, (row, column) in traced]  # type: ignore[misc]
    moved = op.SpaceToDepth(x, blocksize=BLOCK)
    channels = shape_of(x)[1]  # type: ignore[index]
    if blocks == sorted(blocks):
        return moved
    if not isinstance(channels, int):
        return skip("the number of channels is not known")
    order = np.concatenate([block * channels + np.arange(channels) for block in blocks])
    return op.Gather(moved, op.constant(order), axis=1)


def _strided_source(value: Value) -> tuple[Value, tuple[int, int]] | None:
    """The image of which a value is every second pixel in both directions, and at which row and column it begins."""
    first: dict[int, int] = {}
    while value.producer is not None and value.producer.op_type == "Slice" and len(first) < 2:
        trace = _every_second(value.producer)
        if trace is None or trace.keys() & first.keys():
            return None
        first.update(trace)
        source = value.producer.inputs[0]
        assert source is not None
        value = source
    return (value, (first[2], first[3])) if set(first) == {2, 3} and rank_of(value) == 4 else None


def _every_second(node: Node) -> dict[int, int] | None:
    """Axes along which a Slice takes every second element, and where it begins."""
    starts, ends, axes, steps = (operand(node, name) for name in ("starts", "ends", "axes", "steps"))
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    if shape is None or len(shape) != 4 or starts is None or ends is None or axes is None or steps is None:
        return None
    start_of = {axis % 4: start for axis, start in zip(axes, starts, strict=True)}
    for axis, end, step in zip(axes, ends, steps, strict=True):
        size = shape[axis]
        reaches = end >= 2**31 - 1 or (isinstance(size, int) and end >= size)
        if step != BLOCK or not reaches or start_of[axis % 4] not in (0, 1):
            return None
    return start_of


@rule("Conv(Gather<axis=1, indices=order>(x), W, B?)", name="SliceConcatToSpaceToDepthFusion")
def reorder_weights(op: Builder, x: Value, order: list[int], W: Value, root: Node, B: Value | None = None) -> Answer:
    """Channels need not change places before a convolution: its weights can."""
    weights, shape = constant(W), shape_of(x)
    if weights is None or shape is None or operand(root, "group") != 1:
        return skip("the weights are not constant, or in groups")
    if not isinstance(order, list) or sorted(order) != list(range(len(order))) or shape[1] != len(order):
        return skip("the channels are not merely reordered")
    moved = np.empty_like(weights)
    moved[:, order] = weights
    return op.Conv(x, op.constant(moved), B, **given_attributes(root))
