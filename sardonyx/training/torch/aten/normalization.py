"""Batch, layer and group norm, and their gradients. What is saved for backward is the mean and the reciprocal of the deviation."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported


def _refuse_halves(op, value):
    if op.dtype(value) in dtypes.HALVES:
        raise Unsupported("statistics of half precision")


def _channels(op, values, like):
    """A vector of channels beside images."""
    spatial = list(range(1, op.rank(like) - 1))
    return op.Unsqueeze(values, axes=spatial) if spatial else values


def _count(op, value):
    """How many elements a channel has, in the value's type."""
    channels = op.Shape(value, start=1, end=2)
    return op.as_type(op.Squeeze(op.Div(op.Unsqueeze(op.Size(value), axes=[0]), channels), axes=[0]), op.dtype(value))


def _axes(op, value):
    return [0, *range(2, op.rank(value))]


def _affine(op, normalized, weight, bias, like):
    result = normalized if weight is None else op.Mul(normalized, _channels(op, weight, like))
    return result if bias is None else op.Add(result, _channels(op, bias, like))


# --- batch norm


def _by_batch(op, input, weight, bias, running_mean, running_var, momentum, eps):
    _refuse_halves(op, input)
    axes = _axes(op, input)
    mean = op.ReduceMean(input, axes=axes, keepdims=1)
    centred = op.Sub(input, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), axes=axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.number(eps, input))))
    factor = inverse if weight is None else op.Mul(inverse, _channels(op, weight, input))
    output = op.Mul(centred, factor)
    output = output if bias is None else op.Add(output, _channels(op, bias, input))
    mean, variance, inverse = (op.Squeeze(value, axes=axes) for value in (mean, variance, inverse))
    if running_mean is None:
        return output, mean, inverse, None, None
    count = _count(op, input)
    unbiased = op.Mul(variance, op.Div(count, op.Sub(count, op.number(1, input))))
    return output, mean, inverse, _moved(op, running_mean, mean, momentum), _moved(op, running_var, unbiased, momentum)


def _moved(op, old, new, momentum):
    return op.Add(op.scaled(old, 1 - momentum), op.scaled(new, momentum))


def _by_running(op, input, weight, bias, running_mean, running_var, eps):
    _refuse_halves(op, input)
    inverse = op.Reciprocal(op.Sqrt(op.Add(running_var, op.number(eps, input))))
    centred = op.Sub(input, _channels(op, running_mean, input))
    return _affine(op, op.Mul(centred, _channels(op, inverse, input)), weight, bias, input), inverse


def _nothing(op, input):
    return op.constant(np.zeros(0, op.dtype(input).numpy))


@aten("_native_batch_norm_legit_functional.default")
def batch_norm_functional(op, input, weight, bias, running_mean, running_var, training, momentum, eps):
    if training:
        return _by_batch(op, input, weight, bias, running_mean, running_var, momentum, eps)
    output, _ = _by_running(op, input, weight, bias, running_mean, running_var, eps)
    empty = _nothing(op, input)
    return output, empty, empty, running_mean, running_var


@aten("_batch_norm_with_update_functional.default")
def batch_norm_with_update(op, input, weight, bias, running_mean, running_var, momentum, eps):
    output, mean, inverse, moved_mean, moved_var = _by_batch(op, input, weight, bias, running_mean, running_var, momentum, eps)
    return output, mean, inverse, op.constant(np.zeros(0, np.uint8)), moved_mean, moved_var


@aten("_native_batch_norm_legit_no_training.default", "_batch_norm_no_update.default")
def batch_norm_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps):
    output, _ = _by_running(op, input, weight, bias, running_mean, running_var, eps)
    empty = _nothing(op, input)
    reserve = (op.constant(np.zeros(0, np.uint8)),) if len(op.out) == 4 else ()
    return output, empty, empty, *reserve


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(op, input, weight, bias, training, momentum, eps):
    return _by_batch(op, input, weight, bias, None, None, momentum, eps)[:3]


@aten("native_batch_norm.default")
def native_batch_norm(op, input, weight, bias, running_mean, running_var, training, momentum, eps):
    if training and running_mean is not None:
        raise Unsupported("running statistics that are changed in place")
    if training:
        return _by_batch(op, input, weight, bias, None, None, momentum, eps)[:3]
    return batch_norm_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps)


@aten("native_batch_norm_backward.default")
def batch_norm_backward(
    op, grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
):
    _refuse_halves(op, input)
    if not train:
        save_mean = running_mean
        save_invstd = op.Reciprocal(op.Sqrt(op.Add(running_var, op.number(eps, input))))
    axes, inverse = _axes(op, input), _channels(op, save_invstd, input)
    normalized = op.Mul(op.Sub(input, _channels(op, save_mean, input)), inverse)
    by_bias = op.ReduceSum(grad_out, axes=axes, keepdims=0)
    by_weight = op.ReduceSum(op.Mul(grad_out, normalized), axes=axes, keepdims=0)
    factor = inverse if weight is None else op.Mul(inverse, _channels(op, weight, input))
    if train:
        count = _count(op, input)
        shift = _channels(op, op.Div(by_bias, count), input)
        slope = _channels(op, op.Div(by_weight, count), input)
        grad_out = op.Sub(op.Sub(grad_out, shift), op.Mul(normalized, slope))
    return op.Mul(grad_out, factor), by_weight, by_bias


@aten("batch_norm_backward.default")
def batch_norm_backward_with_reserve(
    op, grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask, reserve
):
    return batch_norm_backward(
        op, grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


# --- layer norm


def _scale_of(op, weight, normalized_shape, input):
    if weight is not None:
        return weight
    return op.constant(np.ones([int(size) for size in normalized_shape], op.dtype(input).numpy))


@aten("native_layer_norm.default")
def layer_norm(op, input, normalized_shape, weight, bias, eps):
    _refuse_halves(op, input)
    scale = _scale_of(op, weight, normalized_shape, input)
    axis = op.rank(input) - len(normalized_shape)
    return tuple(op.LayerNormalization(input, scale, bias, axis=axis, epsilon=eps, outputs=3))


@aten("native_layer_norm_backward.default")
def layer_norm_backward(op, grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    _refuse_halves(op, input)
    scale = _scale_of(op, weight, normalized_shape, input)
    axis = op.rank(input) - len(normalized_shape)
    return tuple(op.contrib("LayerNormalizationGrad", grad_out, input, scale, mean, rstd, axis=axis, outputs=3))


# --- group norm


def _grouped(op, value, group):
    """(N, C, …) as (N, groups, what a group has)."""
    return op.Reshape(value, op.Concat(op.Shape(value, start=0, end=1), op.ints(group, -1), axis=0))


@aten("native_group_norm.default")
def group_norm(op, input, weight, bias, N, C, HxW, group, eps):
    _refuse_halves(op, input)
    rows = _grouped(op, input, group)
    mean = op.ReduceMean(rows, axes=[2], keepdims=1)
    centred = op.Sub(rows, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), axes=[2], keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.number(eps, input))))
    output = op.Reshape(op.Mul(centred, inverse), op.Shape(input))
    return _affine(op, output, weight, bias, input), op.Squeeze(mean, axes=[2]), op.Squeeze(inverse, axes=[2])


@aten("native_group_norm_backward.default")
def group_norm_backward(op, grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    _refuse_halves(op, input)
    inverse = op.Unsqueeze(rstd, axes=[2])
    rows = op.Mul(op.Sub(_grouped(op, input, group), op.Unsqueeze(mean, axes=[2])), inverse)
    normalized, axes = op.Reshape(rows, op.Shape(input)), _axes(op, input)
    by_weight = op.ReduceSum(op.Mul(grad_out, normalized), axes=axes, keepdims=0)
    by_bias = op.ReduceSum(grad_out, axes=axes, keepdims=0)
    scaled = grad_out if weight is None else op.Mul(grad_out, _channels(op, weight, input))
    gradient = _grouped(op, scaled, group)
    shift = op.ReduceMean(gradient, axes=[2], keepdims=1)
    slope = op.ReduceMean(op.Mul(gradient, rows), axes=[2], keepdims=1)
    by_input = op.Mul(op.Sub(op.Sub(gradient, shift), op.Mul(rows, slope)), inverse)
    return op.Reshape(by_input, op.Shape(input)), by_weight, by_bias
