"""Bodies of the ops of com.microsoft that gradients are made of, in ONNX's own ops: what a session computes in their place."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ops.gradients import elementwise
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.normalization import through_standardized
from sardonyx.ops.gradients.pool import average_pool
from sardonyx.ops.gradients.table import body
from sardonyx.ops.shapes import axis_index


def contrib(*ops):
    return body(*ops, domain=CONTRIB)


# --- elementwise


@contrib("ReluGrad")
def relu_grad(op, dY, X):
    return elementwise.relu(op, X, dY)


@contrib("SigmoidGrad")
def sigmoid_grad(op, dY, Y):
    return elementwise.sigmoid(op, Y, dY)


@contrib("TanhGrad")
def tanh_grad(op, dY, Y):
    return elementwise.tanh(op, Y, dY)


@contrib("LeakyReluGrad")
def leaky_relu_grad(op, dY, Y, alpha):
    return elementwise.leaky_relu(op, Y, dY, alpha)


@contrib("GeluGrad")
def gelu_grad(op, dY, X):
    return elementwise.exact_gelu(op, X, dY)


@contrib("FastGeluGrad")
def fast_gelu_grad(op, dY, X):
    return elementwise.fast_gelu(op, X, None, dY)


@contrib("QuickGeluGrad")
def quick_gelu_grad(op, dY, X, alpha):
    return elementwise.quick_gelu(op, X, dY, alpha)


@contrib("BiasGeluGrad_dX")
def bias_gelu_grad(op, dY, X, B):
    return elementwise.exact_gelu(op, op.Add(X, B), dY)


@contrib("BiasFastGeluGrad_dX")
def bias_fast_gelu_grad(op, dY, X, B):
    return elementwise.fast_gelu(op, op.Add(X, B), None, dY)


@contrib("DivGrad")
def div_grad(op, dY, A, B):
    by_a = op.Div(dY, B)
    return op.fitted(by_a, A), op.fitted(op.Neg(op.Mul(by_a, op.Div(A, B))), B)


@contrib("Scale")
def scale(op, input, scale, scale_down):
    factor = op.cast(op.Reshape(scale, op.constant(np.array([], np.int64))), input)
    return op.Div(input, factor) if scale_down else op.Mul(input, factor)


# --- softmax, losses, dropout


@contrib("SoftmaxGrad_13")
def softmax_grad(op, dY, Y, axis):
    return op.Mul(Y, op.Sub(dY, op.ReduceSum(op.Mul(dY, Y), axes=[axis], keepdims=1)))


@contrib("LogSoftmaxGrad_13")
def log_softmax_grad(op, dY, X, axis):
    return op.Sub(dY, op.Mul(op.Exp(X), op.ReduceSum(dY, axes=[axis], keepdims=1)))


@contrib("SoftmaxGrad")
def softmax_grad_flattened(op, dY, Y, axis):
    rows = softmax_grad(op, op.Flatten(dY, axis=axis), op.Flatten(Y, axis=axis), 1)
    return op.Reshape(rows, op.Shape(dY))


@contrib("LogSoftmaxGrad")
def log_softmax_grad_flattened(op, dY, X, axis):
    rows = log_softmax_grad(op, op.Flatten(dY, axis=axis), op.Flatten(X, axis=axis), 1)
    return op.Reshape(rows, op.Shape(dY))


@contrib("DropoutGrad")
def dropout_grad(op, dy, mask, ratio, training_mode):
    """Outside of training the mask is all true and nothing was scaled."""
    ratio = op.number(0.5, dy) if ratio is None else op.cast(ratio, dy)
    kept = op.Div(op.number(1, dy), op.Sub(op.number(1, dy), ratio))
    factor = kept if training_mode is None else op.Where(training_mode, kept, op.number(1, dy))
    return op.Mul(op.where(mask, dy), factor)


@contrib("SoftmaxCrossEntropyLossGrad")
def softmax_cross_entropy_loss_grad(op, dY, log_prob, label, weight, bias, reduction, ignore_index):
    """(probability - 1 at the label) · weight of the label · gradient; nothing where the label is ignored."""
    one, zero = op.number(1, log_prob), op.number(0, log_prob)
    ignored = None if ignore_index is None else op.Equal(label, op.number(ignore_index, label))
    label = label if ignored is None else op.Where(ignored, op.number(0, label), label)
    share = op.Gather(weight, label) if weight is not None else op.filled(1, op.cast(label, log_prob))
    share = share if ignored is None else op.Where(ignored, zero, share)
    share = op.Mul(share, _loss_share(op, dY, share, reduction))
    classes = op.Gather(op.Shape(log_prob), op.constant(np.array(1, np.int64)))
    hot = op.OneHot(label, classes, op.Concat(op.Unsqueeze(zero, axes=[0]), op.Unsqueeze(one, axes=[0]), axis=0), axis=1)
    gradient = op.Mul(op.Sub(op.Exp(log_prob), hot), op.Unsqueeze(share, axes=[1]))
    return gradient if bias is None else op.Add(gradient, bias)


def _loss_share(op, dY, share, reduction):
    """What each sample gets of the loss's gradient; a mean is over the weights that count, and over nothing if these are none."""
    if reduction != "mean":
        return dY
    total = op.ReduceSum(share, keepdims=0)
    return op.Div(dY, op.Where(op.Equal(total, op.number(0, total)), op.number(1, total), total))


# --- normalization


@contrib("LayerNormalizationGrad")
def layer_normalization_grad(op, Y_grad, X, scale, mean, inv_std_dev, axis):
    normalized = op.Mul(op.Sub(X, op.cast(mean, X)), op.cast(inv_std_dev, X))
    return _through_layer(op, Y_grad, normalized, scale, op.cast(inv_std_dev, X), axis)


@contrib("InvertibleLayerNormalizationGrad")
def invertible_layer_normalization_grad(op, Y_grad, Y, scale, bias, inv_std_var, axis):
    normalized = op.Div(op.Sub(Y, bias), scale)
    return _through_layer(op, Y_grad, normalized, scale, op.cast(inv_std_var, Y), axis)


def _through_layer(op, Y_grad, normalized, scale, inverse, axis):
    rank = op.rank(normalized)
    inner = list(range(axis_index(axis, rank), rank))
    by_x = through_standardized(op, op.Mul(Y_grad, scale), normalized, inverse, inner)
    return by_x, op.fitted(op.Mul(Y_grad, normalized), scale), op.fitted(Y_grad, scale)


@contrib("SimplifiedLayerNormalizationGrad")
def simplified_layer_normalization_grad(op, Y_grad, X, scale, inv_std_var, axis):
    rank = op.rank(X)
    inner, inverse = list(range(axis_index(axis, rank), rank)), op.cast(inv_std_var, X)
    normalized, gradient = op.Mul(X, inverse), op.Mul(Y_grad, scale)
    share = op.ReduceMean(op.Mul(gradient, normalized), axes=inner, keepdims=1)
    by_x = op.Mul(inverse, op.Sub(gradient, op.Mul(normalized, share)))
    return by_x, op.fitted(op.Mul(Y_grad, normalized), scale)


@contrib("BatchNormInternal")
def batch_norm_internal(op, X, scale, B, input_mean, input_var, epsilon, momentum, training_mode):
    if not training_mode:
        return op.BatchNormalization(X, scale, B, input_mean, input_var, epsilon=epsilon)
    axes = [0, *range(2, op.rank(X))]
    mean = op.ReduceMean(X, axes=axes, keepdims=1)
    centred = op.Sub(X, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), axes=axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.number(epsilon, X))))
    Y = op.Add(op.Mul(centred, op.Mul(inverse, _per_channel(op, scale, X))), _per_channel(op, B, X))
    mean, variance, inverse = (op.Squeeze(value, axes=axes) for value in (mean, variance, inverse))
    return Y, _running(op, input_mean, mean, momentum), _running(op, input_var, variance, momentum), mean, inverse


def _per_channel(op, values, X):
    spatial = list(range(1, op.rank(X) - 1))
    return op.Unsqueeze(values, axes=spatial) if spatial else values


def _running(op, old, new, momentum):
    return op.Add(op.scaled(old, momentum), op.scaled(op.cast(new, old), 1 - momentum))


@contrib("BatchNormalizationGrad")
def batch_normalization_grad(op, dY, X, scale, mean, variance):
    """`variance` is the reciprocal of the deviation."""
    axes = [0, *range(2, op.rank(X))]
    inverse = _per_channel(op, variance, X)
    normalized = op.Mul(op.Sub(X, _per_channel(op, mean, X)), inverse)
    by_x = through_standardized(op, op.Mul(dY, _per_channel(op, scale, X)), normalized, inverse, axes)
    by_scale = op.ReduceSum(op.Mul(dY, normalized), axes=axes, keepdims=0)
    return by_x, by_scale, op.ReduceSum(dY, axes=axes, keepdims=0)


# --- pools


@body("MaxPoolGrad")
def max_pool_grad(op, node, dY, Indices):
    flat, shape = op.constant(np.array([-1], np.int64)), _declared_shape(op, node, dY)
    size = op.ReduceProd(shape, axes=[0], keepdims=1)
    parts = gather_grad(op, size, op.Reshape(Indices, flat), op.Reshape(dY, flat), 0)
    return op.Reshape(parts, shape)


@body("AveragePoolGrad")
def average_pool_grad(op, node, dY, ceil_mode, count_include_pad, kernel_shape):
    image = _zeros(op, _declared_shape(op, node, dY), dY)
    return average_pool(op, node, image, dY, ceil_mode, count_include_pad, kernel_shape)


def _declared_shape(op, node, dY):
    """The shape that the model declares for the node's result, with the batch of the run."""
    sizes = op.shape(node.outputs[0])[1:]
    if not all(isinstance(size, int) for size in sizes):
        raise Fail(f"{node}: the model must declare the sizes of {node.outputs[0].name!r}, it says {sizes}")
    batch = op.Slice(op.Shape(dY), starts=[0], ends=[1], axes=[0])
    return op.Concat(batch, op.constant(np.array(sizes, np.int64)), axis=0)


# --- indexing


@contrib("GatherGrad")
def gather_grad(op, shape, indices, dY, axis):
    """Rows are added where they came from. Another axis than the first goes to the front before, and back behind."""
    rank = op.rank(dY) - op.rank(indices) + 1
    axis, inner = axis_index(axis, rank), op.rank(indices)
    front = [axis, *(other for other in range(rank) if other != axis)]
    if axis:
        shape = op.Gather(shape, op.constant(np.array(front, np.int64)))
        dY = op.Transpose(dY, perm=[*range(axis, axis + inner), *range(axis), *range(axis + inner, op.rank(dY))])
    rows = op.ScatterND(_zeros(op, shape, dY), op.Unsqueeze(op.Cast(indices, to=7), axes=[-1]), dY, reduction="add")
    return op.Transpose(rows, perm=np.argsort(front)) if axis else rows


@contrib("GatherElementsGrad")
def gather_elements_grad(op, dY, shape, indices, axis):
    return op.ScatterElements(_zeros(op, shape, dY), indices, dY, axis=axis, reduction="add")


@contrib("GatherNDGrad")
def gather_nd_grad(op, shape, indices, update, batch_dims):
    if batch_dims:
        return _put_back(op, shape, update, lambda places: op.GatherND(places, indices, batch_dims=batch_dims))
    return op.ScatterND(_zeros(op, shape, update), indices, update, reduction="add")


@contrib("SliceGrad")
def slice_grad(op, dY, shape, starts, ends, axes, steps):
    return _put_back(op, shape, dY, lambda places: op.Slice(places, starts, ends, axes, steps))


def _put_back(op, shape, gradient, pick):
    """Add a gradient to zeros at the places that `pick` takes from a tensor of that shape."""
    flat, size = op.constant(np.array([-1], np.int64)), op.ReduceProd(shape, keepdims=0)
    places = op.Range(op.constant(np.array(0, np.int64)), size, op.constant(np.array(1, np.int64)))
    taken = op.Reshape(pick(op.Reshape(places, shape)), flat)
    zeros = _zeros(op, op.Unsqueeze(size, axes=[0]), gradient)
    return op.Reshape(op.ScatterElements(zeros, taken, op.Reshape(gradient, flat), reduction="add"), shape)


def _zeros(op, shape, like):
    return op.ConstantOfShape(shape, value=np.zeros(1, op.dtype(like).numpy))


@contrib("SplitTraining")
def split_training(op, node, input, split, axis):
    return op.Split(input, split, axis=axis, outputs=len(node.outputs))


@contrib("ConcatTraining")
def concat_training(op, inputs, axis):
    index = op.constant(np.array([axis], np.int64))
    lengths = op.Concat(*(op.Gather(op.Shape(value), index) for value in inputs), axis=0)
    return op.Concat(*inputs, axis=axis), lengths


@contrib("PassThrough")
def pass_through(op, inputs):
    return [op.Identity(value) for value in inputs]
