"""Bodies of the ops of com.microsoft that gradients are made of, in ONNX's own ops: what a session computes in their place."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
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
    return op.in_shape(rows, op.Shape(dY))


@contrib("LogSoftmaxGrad")
def log_softmax_grad_flattened(op, dY, X, axis):
    rows = log_softmax_grad(op, op.Flatten(dY, axis=axis), op.Flatten(X, axis=axis), 1)
    return op.in_shape(rows, op.Shape(dY))


@contrib("DropoutGrad")
def dropout_grad(op, dy, mask, ratio, training_mode):
    """Outside of training the mask is all true and nothing was scaled."""
    ratio = op.number(0.5, dy) if ratio is None else op.cast(ratio, dy)
    kept = op.Div(op.number(1, dy), op.Sub(op.number(1, dy), ratio))
    factor = kept if training_mode is None else op.Where(training_mode, kept, op.number(1, dy))
    return op.Mul(op.where(mask, dy), factor)


@contrib("SoftmaxCrossEntropyLossGrad")
def softmax_cross_entropy_loss_grad(op, dY, log_prob, label, weight, bias, reduction, ignore_index):
    ignored = None if ignore_index is None else op.Equal(label, op.number(ignore_index, label))
    return _cross_entropy_grad(op, dY, log_prob, label, weight, bias, reduction, ignored)


@contrib("SoftmaxCrossEntropyLossInternalGrad")
def softmax_cross_entropy_loss_internal_grad(op, dY, log_prob, label, weight, ignore_index, bias, reduction):
    return _cross_entropy_grad(op, dY, log_prob, label, weight, bias, reduction, _is_ignored(op, label, ignore_index))


def _is_ignored(op, label, ignore_index):
    return None if ignore_index is None else op.Equal(label, op.cast(ignore_index, label))


def _cross_entropy_grad(op, dY, log_prob, label, weight, bias, reduction, ignored):
    """(probability - 1 at the label) · weight of the label · gradient; nothing where the label is ignored."""
    one, zero = op.number(1, log_prob), op.number(0, log_prob)
    label, share = _shares(op, log_prob, label, weight, ignored)
    share = op.Mul(share, _loss_share(op, dY, share, reduction))
    classes = op.Gather(op.Shape(log_prob), op.constant(np.array(1, np.int64)))
    hot = op.OneHot(label, classes, op.Concat(op.Unsqueeze(zero, axes=[0]), op.Unsqueeze(one, axes=[0]), axis=0), axis=1)
    gradient = op.Mul(op.Sub(op.Exp(log_prob), hot), op.Unsqueeze(share, axes=[1]))
    return gradient if bias is None else op.Add(gradient, bias)


def _shares(op, log_prob, label, weight, ignored):
    """Labels that can be looked up, and how much each sample counts."""
    label = label if ignored is None else op.Where(ignored, op.number(0, label), label)
    share = op.Gather(weight, label) if weight is not None else op.filled(1, op.cast(label, log_prob))
    return label, share if ignored is None else op.Where(ignored, op.number(0, log_prob), share)


def _loss_share(op, dY, share, reduction):
    """What each sample gets of the loss's gradient; a mean is over the weights that count, and over nothing if these are none."""
    if reduction != "mean":
        return dY
    total = op.ReduceSum(share, keepdims=0)
    return op.Div(dY, op.Where(op.Equal(total, op.number(0, total)), op.number(1, total), total))


@contrib("SoftmaxCrossEntropyLossInternal")
def softmax_cross_entropy_loss_internal(op, scores, labels, weights, ignore_index, reduction):
    log_prob = op.LogSoftmax(scores, axis=1)
    return _likelihood_loss(op, log_prob, labels, weights, ignore_index, reduction), log_prob


@contrib("NegativeLogLikelihoodLossInternal", "NegativeLogLikelihoodLossInternal2")
def negative_log_likelihood_loss_internal(op, input, target, weight, ignore_index, reduction):
    return _likelihood_loss(op, input, target, weight, ignore_index, reduction)


def _likelihood_loss(op, log_prob, label, weight, ignore_index, reduction):
    label, share = _shares(op, log_prob, label, weight, _is_ignored(op, label, ignore_index))
    picked = op.Squeeze(op.GatherElements(log_prob, op.Unsqueeze(label, axes=[1]), axis=1), axes=[1])
    losses = op.Neg(op.Mul(picked, share))
    return losses if reduction == "none" else _loss_share(op, op.ReduceSum(losses, keepdims=0), share, reduction)


@contrib("SoftmaxCrossEntropy")
def softmax_cross_entropy(op, logits, label, reduction):
    """Labels are probabilities, and a mean is over the rows of the flattened logits."""
    log_prob = op.LogSoftmax(logits, axis=-1)
    total = op.Neg(op.ReduceSum(op.Mul(log_prob, label), keepdims=0))
    return (op.Div(total, _row_count(op, logits)) if reduction == "mean" else total), log_prob


@contrib("SoftmaxCrossEntropyGrad")
def softmax_cross_entropy_grad(op, dY, log_prob, label, reduction):
    share = op.Div(dY, _row_count(op, log_prob)) if reduction == "mean" else dY
    return op.Mul(op.Sub(op.Exp(log_prob), label), share)


@body("SparseSoftmaxCrossEntropy")
def sparse_softmax_cross_entropy(op, logits, label, weight, reduction):
    """Classes are the last axis, and weights are those of samples."""
    label, weight = _of_samples(op, logits, label, weight)
    log_prob = op.LogSoftmax(logits, axis=-1)
    places = op.Unsqueeze(label, axes=[op.rank(label)])
    losses = op.Neg(op.Squeeze(op.GatherElements(log_prob, places, axis=-1), axes=[op.rank(label)]))
    losses = losses if weight is None else op.Mul(losses, weight)
    if reduction == "none":
        return losses, log_prob
    return _loss_share(op, op.ReduceSum(losses, keepdims=0), _sample_shares(op, log_prob, label, weight), reduction), log_prob


@body("SparseSoftmaxCrossEntropyGrad")
def sparse_softmax_cross_entropy_grad(op, dY, log_prob, label, weight, reduction):
    label, weight = _of_samples(op, log_prob, label, weight)
    shares = _sample_shares(op, log_prob, label, weight)
    share = op.Mul(shares, _loss_share(op, dY, shares, reduction))
    one, zero = op.number([1], log_prob), op.number([0], log_prob)
    classes = op.Gather(op.Shape(log_prob), op.constant(np.array(op.rank(log_prob) - 1, np.int64)))
    hot = op.OneHot(label, classes, op.Concat(zero, one, axis=0), axis=-1)
    return op.Mul(op.Sub(op.Exp(log_prob), hot), op.Unsqueeze(share, axes=[op.rank(label)]))


def _of_samples(op, scores, *operands):
    """Labels and weights, one for each sample; where the model does not tell how many there are, a run refuses other numbers."""
    samples = op.shape(scores)[:-1]
    counts = op.Slice(op.Shape(scores), starts=[0], ends=[-1])
    are_known = all(isinstance(size, int) for size in samples)
    return [
        part if part is None or (are_known and op.shape(part) == samples) else op.of_shape(part, counts) for part in operands
    ]


def _sample_shares(op, log_prob, label, weight):
    return op.filled(1, op.cast(label, log_prob)) if weight is None else weight


def _row_count(op, value):
    shape = op.Shape(value)
    return op.cast(op.ReduceProd(op.Slice(shape, starts=[0], ends=[op.rank(value) - 1]), keepdims=0), value)


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
    return op.in_shape(parts, shape)


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
    taken = op.Reshape(pick(op.in_shape(places, shape)), flat)
    zeros = _zeros(op, op.Unsqueeze(size, axes=[0]), gradient)
    return op.in_shape(op.ScatterElements(zeros, taken, op.Reshape(gradient, flat), reduction="add"), shape)


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


@contrib("ReduceSumTraining")
def reduce_sum_training(op, data, axes, keepdims, noop_with_empty_axes):
    return op.ReduceSum(data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)


@contrib("InPlaceAccumulator")
def in_place_accumulator(op, old_sum, value, update_signal):
    total = op.Add(old_sum, op.cast(value, old_sum))
    return total if update_signal is None else op.Where(update_signal, total, old_sum)


@contrib("ZeroGradient")
def zero_gradient(op, old_gradient):
    return op.zeros(old_gradient)


@contrib("Group")
def group(op):
    return op.Identity(op.constant(np.array([True])))


@contrib("ScaledSum")
def scaled_sum(op, input_0, input_1, input_2, scale_0, scale_1, scale_2):
    pairs = ((input_0, scale_0), (input_1, scale_1), (input_2, scale_2))
    return op.Sum(*(op.scaled(value, factor) for value, factor in pairs if value is not None))


@contrib("FakeQuant")
def fake_quant(op, input_tensor, scale, zero_point, quant_min, quant_max):
    """Numbers between two bounds, as integers count them; the mask says which were not beyond."""
    least, most = (op.number(bound, input_tensor) for bound in (quant_min, quant_max))
    counted = op.Add(op.Round(op.Div(input_tensor, scale)), zero_point)
    mask = op.Not(op.Or(op.Less(counted, least), op.Greater(counted, most)))
    return op.Mul(op.Sub(op.Min(op.Max(counted, least), most), zero_point), scale), mask


@contrib("FakeQuantGrad")
def fake_quant_grad(op, dY, gradient_mask):
    return op.where(gradient_mask, dY)


@contrib("PassThrough")
def pass_through(op, inputs):
    return [op.Identity(value) for value in inputs]


@contrib("IsFinite")
def is_finite(op, X):
    return _is_zero(op, op.Sub(X, X))


def _is_zero(op, value):
    return op.Equal(value, op.number(0, value))


@contrib("IsAllFinite")
def is_all_finite(op, node, input, isinf_only, isnan_only):
    """Of infinities and of what is not a number, one may be let pass."""
    if isinf_only and isnan_only:
        raise Fail(f"{node}: isinf_only and isnan_only exclude each other")
    fine = [_without_faults(op, value, isinf_only, isnan_only) for value in input]
    return op.Greater(op.Min(*fine), op.number(0, fine[0]))


def _without_faults(op, value, isinf_only, isnan_only):
    """1 where all of a tensor's elements are as they must be, else 0."""
    flat = op.Reshape(value, op.constant(np.array([-1], np.int64)))
    fine = op.Not(op.IsInf(flat)) if isinf_only else op.Not(op.IsNaN(flat)) if isnan_only else is_finite(op, flat)
    # what is added is the 1 of an empty tensor
    marks = op.Concat(op.Cast(fine, to=dtypes.float32.code), op.constant(np.ones(1, np.float32)), axis=0)
    return op.ReduceMin(marks, keepdims=0)


@contrib("All")
def all_true(op, X):
    marks = op.Reshape(op.Cast(X, to=dtypes.float32.code), op.constant(np.array([-1], np.int64)))
    least = op.ReduceMin(op.Concat(marks, op.constant(np.ones(1, np.float32)), axis=0), keepdims=0)
    return op.Greater(least, op.number(0, least))


@contrib("MixedPrecisionScale")
def mixed_precision_scale(op, S, X, to, fuse_outputs):
    """Scaled in the wider of the types, so that what is too large for the narrow one may be scaled down."""
    wide = dtypes.float64 if dtypes.float64 in map(op.dtype, (S, *X)) else dtypes.float32
    factor = op.Reshape(op.Cast(S, to=wide.code), op.constant(np.array([], np.int64)))
    scaled = [op.Cast(op.Mul(op.Cast(value, to=wide.code), factor), to=to) for value in X]
    if not fuse_outputs:
        return scaled
    flat = op.constant(np.array([-1], np.int64))
    return [op.Concat(*(op.Reshape(value, flat) for value in scaled), axis=0)]


@contrib("BatchScale")
def batch_scale(op, input, scale_0, scale_1, scale_2):
    return [op.scaled(input, factor) for factor in (scale_0, scale_1, scale_2) if factor is not None]


@contrib("View")
def view(op, input, shapes):
    """One piece of memory as several tensors, one behind another."""
    flat = op.constant(np.array([-1], np.int64))
    sizes = op.Concat(*(op.ReduceProd(shape, axes=[0], keepdims=1) for shape in shapes), axis=0)
    pieces = op.Split(op.Reshape(input, flat), sizes, axis=0, outputs=len(shapes))
    pieces = [pieces] if len(shapes) == 1 else pieces
    return [op.Reshape(piece, shape, allowzero=1) for piece, shape in zip(pieces, shapes, strict=True)]


@contrib("PadAndUnflatten")
def pad_and_unflatten(op, input, indices, unflatten_dims):
    """Rows to the places of the first two axes that they are counted at, zeros elsewhere."""
    rest = op.Slice(op.Shape(input), starts=[1], ends=[op.rank(input)])
    count = op.ReduceProd(unflatten_dims, axes=[0], keepdims=1)
    rows = _zeros(op, op.Concat(count, rest, axis=0), input)
    filled = op.ScatterND(rows, op.Unsqueeze(op.Cast(indices, to=dtypes.int64.code), axes=[1]), input)
    return op.Reshape(filled, op.Concat(unflatten_dims, rest, axis=0), allowzero=1)


@contrib("FlattenAndUnpad")
def flatten_and_unpad(op, input, indices):
    shape = op.Shape(input)
    lead, rest = op.Slice(shape, starts=[0], ends=[2]), op.Slice(shape, starts=[2], ends=[op.rank(input)])
    rows = op.Reshape(input, op.Concat(op.ReduceProd(lead, axes=[0], keepdims=1), rest, axis=0), allowzero=1)
    return op.Gather(rows, indices, axis=0), op.Identity(lead)
