"""Lowerings of normalizations with parameters for each channel: batch, instance and group. The table of lowerings holds them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops import checking
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv.form import last_order
from sardonyx.providers.native.kernels.normalization.channel_norm_kernels import normalize_pixels
from sardonyx.providers.native.kernels.normalization.channels_kernel import (
    AffineArguments,
    BatchFactorsArguments,
    GroupNorm,
    GroupNormArguments,
    affine_kernel,
    batch_factors_kernel,
    group_norm_kernel,
)
from sardonyx.providers.native.kernels.reduction.domain import (
    PIECE_ELEMENTS,
    cheap_source,
    epsilon_of,
    is_float,
    row_grain,
    wanted,
)
from sardonyx.providers.native.program.chain import Chain, Load, pattern, stride_arguments
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import computed, dims, required
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.providers.prepacking import PackedFormat

FACTORS = PackedFormat("factors")


def _claims_batch(node: Node) -> bool:
    """Inference alone: outputs for running statistics, or the attribute that asks for them, mean training."""
    shape = dims(required(node.inputs[0]))
    if len(shape) < 2 or not is_float(node) or operand(node, "spatial") == 0 or operand(node, "training_mode"):
        return False
    return all(wanted(node, output) is None for output in range(1, len(node.outputs)))


@lower("BatchNormalization", claims=_claims_batch)
def batch_normalization(lowerer: Lowerer, node: Node) -> None:
    X, *parameters = (required(value) for value in node.inputs)
    shape, type = dims(X), computed(X)
    groups: tuple[int, ...] = (1, 1, len(shape) - 2)
    strides: Dims = (0, 1, 0)
    order: tuple[int, ...] | None = None
    if dim.product(shape[2:]) == 1:
        groups, strides = (1, len(shape) - 1), (0, 1)
    elif len(shape) > 3 and has_channels_last(lowerer.view(X)):
        groups, strides, order = (1, len(shape) - 2, 1), (0, 0, 1), last_order(len(shape))
    _require_channels(lowerer, parameters, shape[1])
    factor, shift = _batch_factors(lowerer, node, parameters, type, shape[1])
    source = lowerer.source(X, groups, order)
    sink = lowerer.sink(node, groups, order=order)
    chain = Chain(len(groups), (Load(type, pattern(strides)),), ())
    *outer, columns = sink.shape
    lowerer.call(
        affine_kernel(lowerer.target, type, source.chain, chain, chain, sink.chain),
        AffineArguments(
            columns=columns,
            source=source.arguments,
            sink=sink.arguments,
            outer=outer[1:],
            factor=stride_arguments(factor, strides),
            shift=stride_arguments(shift, strides),
        ),
        dim.product(outer),
        row_grain(columns),
        flops=dim.product(shape) * 2,
        traffic=dim.product(shape) * type.bytes * 2,
    )


def _require_channels(lowerer: Lowerer, parameters: Sequence[Value], count: Dim) -> None:
    """Kernels read a number for each channel, or for each group."""
    for parameter in parameters:
        lowerer.require(dim.product(dims(parameter)), count)


def has_channels_last(view: View) -> bool:
    """Whether the channels of a pixel lie in a row in memory, and pixels do not."""
    return view.strides[1] == 1 and view.strides[-1] != 1


def _batch_factors(lowerer: Lowerer, node: Node, parameters: Sequence[Value], type: Type, channels: Dim) -> tuple[View, View]:
    """What each channel is multiplied with and what is added to it: known now if the parameters are constant."""
    epsilon = operand(node, "epsilon")
    scale = parameters[0].constant
    if lowerer.can_pack(*parameters) and scale is not None:
        wide = np.dtype(np.float64 if type.bits == 64 else np.float32)
        pack = functools.partial(_factors, wide, float(epsilon))
        packed = lowerer.packed(parameters, FACTORS, (wide.str, float(epsilon)), [scale.size * wide.itemsize] * 2, pack)
        first, second = (View(buffer, type, (scale.size,), (1,)) for buffer in packed)
        return first, second
    scales, B, mean, variance = views = [lowerer.contiguous(parameter) for parameter in parameters]
    factors, shifts = (View(lowerer.scratch(channels * type.bytes), type, (channels,), (1,)) for _ in range(2))
    arguments = BatchFactorsArguments(
        epsilon=float(epsilon),
        scale=scales.place,
        B=B.place,
        mean=mean.place,
        variance=variance.place,
        factors=factors.place,
        shifts=shifts.place,
    )
    kernel = batch_factors_kernel(lowerer.target, type, tuple(view.type for view in views))
    lowerer.call(kernel, arguments, channels, PIECE_ELEMENTS)
    return factors, shifts


def _factors(wide: np.dtype, epsilon: float, *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale, B, mean, var = (array.astype(wide) for array in arrays)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + wide.type(epsilon))
        return factor, B - mean * factor


def _claims_channels(node: Node) -> bool:
    return is_float(node) and len(dims(required(node.inputs[0]))) > 2


@lower("InstanceNormalization", claims=_claims_channels)
def instance_normalization(lowerer: Lowerer, node: Node) -> None:
    group_step(lowerer, node, dims(required(node.inputs[0]))[1])


@lower("GroupNormalization", claims=_claims_channels)
def group_normalization(lowerer: Lowerer, node: Node) -> None:
    """Before opset 21 scale and bias belonged to the groups, not to the channels."""
    by_group = checking.signature_of(node).since_version < 21
    group_step(lowerer, node, int(operand(node, "num_groups")), by_group)


def group_step(lowerer: Lowerer, node: Node, count: Dim, by_group: bool = False) -> None:
    """Add the step that normalizes groups of channels."""
    X, scale, bias = (required(value) for value in node.inputs)
    shape, type = dims(X), computed(X)
    channels = dim.floordiv(shape[1], count)
    lowerer.require(channels * count, shape[1])
    groups = (1, 1, len(shape) - 2)
    _require_channels(lowerer, (scale, bias), count if by_group else shape[1])
    parameters = [lowerer.contiguous(parameter) for parameter in (scale, bias)]
    if len(shape) > 3 and has_channels_last(lowerer.view(X)):
        normalize_pixels(lowerer, node, count, by_group, parameters, type)
        return
    source = cheap_source(lowerer, X, groups)
    sink = lowerer.sink(node, groups)
    samples, _, columns = sink.shape
    norm = GroupNorm(type, source.chain, sink.chain, (parameters[0].type, parameters[1].type), by_group)
    lowerer.call(
        group_norm_kernel(lowerer.target, norm),
        GroupNormArguments(
            groups=count,
            channels=channels,
            columns=columns,
            epsilon=epsilon_of(node, type),
            scales=parameters[0].place,
            biases=parameters[1].place,
            source=source.arguments,
            sink=sink.arguments,
        ),
        samples * count,
        row_grain(channels * columns),
        flops=dim.product(shape) * 7,
        traffic=dim.product(shape) * type.bytes * 2,
    )
