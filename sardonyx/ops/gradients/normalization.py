"""Gradients of normalizations, softmax and dropout."""

from __future__ import annotations

import numpy as np

from sardonyx.ir import Attribute
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import gradient

LARGEST = 2**62
"""An end behind every axis."""


@gradient("Softmax", since=13)
def softmax(op, output, output_grad, axis):
    return op.contrib("SoftmaxGrad_13", output_grad, output, axis=axis)


@gradient("Softmax", until=12)
def softmax_flattened(op, output, output_grad, axis):
    return op.contrib("SoftmaxGrad", output_grad, output, axis=axis)


@gradient("LogSoftmax", since=13)
def log_softmax(op, output, output_grad, axis):
    return op.contrib("LogSoftmaxGrad_13", output_grad, output, axis=axis)


@gradient("LogSoftmax", until=12)
def log_softmax_flattened(op, output, output_grad, axis):
    return op.contrib("LogSoftmaxGrad", output_grad, output, axis=axis)


@gradient("Dropout", since=12)
def dropout(op, node, ratio, training_mode, output_grad):
    if training_mode is None:
        return output_grad
    if ratio is None:
        ratio = op.constant(np.array(0.5, np.float32))
    return op.contrib("DropoutGrad", output_grad, op.result(node, 1), ratio, training_mode)


@gradient("Dropout", until=11)
def dropout_of_inference(op, output_grad):
    return output_grad


@gradient("LayerNormalization")
def layer_normalization(op, node, X, Scale, B, Y_grad, axis, wanted):
    mean, inverse = op.result(node, 1), op.result(node, 2)
    parts = op.contrib("LayerNormalizationGrad", Y_grad, X, Scale, mean, inverse, axis=axis, outputs=3)
    affine = {name: op.shaped(part, like) for name, part, like in (("Scale", parts[1], Scale), ("B", parts[2], B)) if like}
    return {"X": parts[0], **affine}


@gradient("SimplifiedLayerNormalization")
def simplified_layer_normalization(op, node, X, scale, Y_grad, axis):
    inverse = op.result(node, 1)
    by_x, by_scale = op.contrib("SimplifiedLayerNormalizationGrad", Y_grad, X, scale, inverse, axis=axis, outputs=2)
    return {"X": by_x, "scale": op.shaped(by_scale, scale)}


@gradient("BatchNormalization", since=14)
def batch_normalization(op, node, X, scale, B, input_mean, input_var, Y_grad, epsilon, training_mode):
    if not training_mode:
        return _with_fixed_statistics(op, X, scale, input_mean, input_var, Y_grad, epsilon)
    _keep_statistics(node, epsilon)
    return batch_norm_internal(op, node, X, scale, Y_grad, epsilon)


def _keep_statistics(node, epsilon):
    """Let the node of the forward graph be the op that also returns the mean and deviation of the batch."""
    node.op_type, node.domain, node.version = "BatchNormInternal", CONTRIB, 1
    node.attributes.setdefault("epsilon", Attribute.of(epsilon))


@gradient("BatchNormInternal", domain=CONTRIB)
def batch_norm_internal(op, node, X, scale, Y_grad, epsilon):
    mean, inverse = op.result(node, 3), op.result(node, 4)
    parts = op.contrib("BatchNormalizationGrad", Y_grad, X, scale, mean, inverse, epsilon=epsilon, outputs=3)
    return dict(zip(("X", "scale", "B"), parts, strict=True))


@gradient("BatchNormalization", until=13)
def batch_normalization_of_inference(op, X, scale, B, input_mean, input_var, Y_grad, epsilon):
    return _with_fixed_statistics(op, X, scale, input_mean, input_var, Y_grad, epsilon)


def _with_fixed_statistics(op, X, scale, mean, var, Y_grad, epsilon):
    axes = [0, *range(2, op.rank(X))]
    mean, scale, var = (op.Unsqueeze(value, axes=axes) for value in (mean, scale, var)) if axes[1:] else (mean, scale, var)
    inverse = op.Reciprocal(op.Sqrt(op.Add(var, op.number(epsilon, var))))
    normalized = op.Mul(op.Sub(X, mean), inverse)
    return {
        "X": op.Mul(Y_grad, op.Mul(scale, inverse)),
        "scale": op.ReduceSum(op.Mul(Y_grad, normalized), axes=axes, keepdims=0),
        "B": op.ReduceSum(Y_grad, axes=axes, keepdims=0),
    }


@gradient("InstanceNormalization")
def instance_normalization(op, input, scale, output_grad, epsilon):
    spatial = list(range(2, op.rank(input)))
    normalized, inverse = standardized(op, input, spatial, epsilon)
    per_channel = op.Unsqueeze(scale, axes=[0, *spatial])
    return {
        "input": through_standardized(op, op.Mul(output_grad, per_channel), normalized, inverse, spatial),
        "scale": op.ReduceSum(op.Mul(output_grad, normalized), axes=[0, *spatial], keepdims=0),
        "B": op.ReduceSum(output_grad, axes=[0, *spatial], keepdims=0),
    }


@gradient("MeanVarianceNormalization")
def mean_variance_normalization(op, X, Y, Y_grad, axes):
    centred = op.Sub(X, op.ReduceMean(X, axes=axes, keepdims=1))
    deviation = op.Sqrt(op.ReduceMean(op.Mul(centred, centred), axes=axes, keepdims=1))
    inverse = op.Reciprocal(op.Add(deviation, op.number(1e-9, X)))  # the epsilon of the op's body
    return through_standardized(op, Y_grad, Y, inverse, axes)


def standardized(op, x, axes, epsilon):
    """x with mean 0 and variance 1 over axes, and the reciprocal of its deviation."""
    centred = op.Sub(x, op.ReduceMean(x, axes=axes, keepdims=1))
    variance = op.ReduceMean(op.Mul(centred, centred), axes=axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.number(epsilon, x))))
    return op.Mul(centred, inverse), inverse


def through_standardized(op, gradient, normalized, inverse, axes):
    """The gradient of what was standardized: neither its mean nor its scale changes the result."""
    mean = op.ReduceMean(gradient, axes=axes, keepdims=1)
    share = op.ReduceMean(op.Mul(gradient, normalized), axes=axes, keepdims=1)
    return op.Mul(inverse, op.Sub(op.Sub(gradient, mean), op.Mul(normalized, share)))


@gradient("LpNormalization")
def lp_normalization(op, input, output, output_grad, axis, p):
    """(g - y' Σ g·y) / norm, where y' is the slope of the norm; a row of zeros has a norm of 1 that nothing changes."""
    norm = op.ReduceL1(input, axes=[axis], keepdims=1) if p == 1 else op.ReduceL2(input, axes=[axis], keepdims=1)
    share = op.ReduceSum(op.Mul(output_grad, output), axes=[axis], keepdims=1)
    slope = op.Sign(input) if p == 1 else output
    whole = op.Sub(output_grad, op.Mul(slope, share))
    return op.Div(whole, op.Where(op.Equal(norm, op.number(0, norm)), op.number(1, norm), norm))


@gradient("LRN")
def lrn(op, X, alpha, beta, bias, size, through):
    """Squares of neighbouring channels are summed by as many slices as the window is long."""
    before, edges = (size - 1) // 2, [0] * (op.rank(X) - 2)
    padded = op.Pad(op.Mul(X, X), pads=[0, before, *edges, 0, size - 1 - before, *edges])
    last = [first - size + 1 or LARGEST for first in range(size)]
    windows = [op.Slice(padded, starts=[first], ends=[last[first]], axes=[1]) for first in range(size)]
    sums = op.Add(op.scaled(op.Sum(*windows), alpha / size), op.number(bias, X))
    return through(op.Div(X, op.Pow(sums, op.number(beta, X))))


@gradient("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=CONTRIB)
def skip_layer_normalization(op, node, input, skip, gamma, beta, bias, epsilon, through):
    total = op.Add(input, skip)
    total = total if bias is None else op.Add(total, bias)
    if "Simplified" not in node.op_type:
        return through(op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon), None, None, total)
    squares = op.ReduceMean(op.Mul(total, total), axes=[-1], keepdims=1)
    deviation = op.Sqrt(op.Add(squares, op.number(epsilon, total)))
    return through(op.Mul(op.Div(total, deviation), gamma), None, None, total)
