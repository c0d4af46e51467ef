"""Gradients of pools."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ops.gradients.reduction import shared_by_equals
from sardonyx.ops.gradients.table import gradient
from sardonyx.ops.reading import given_attributes


@gradient("MaxPool")
def max_pool(op, node, X, Y_grad, storage_order):
    """Indices count in the flat tensor, and windows may overlap: each adds to the pixel that it took."""
    if storage_order:
        raise Fail(f"{node}: there is no gradient of MaxPool with storage_order 1")
    flat = op.constant(np.array([-1], np.int64))
    size = op.Reshape(op.Size(X), op.constant(np.array([1], np.int64)))
    indices, parts = op.Reshape(op.result(node, 1), flat), op.Reshape(Y_grad, flat)
    return op.Reshape(op.contrib("GatherGrad", size, indices, parts, axis=0), op.Shape(X))


@gradient("AveragePool")
def average_pool(op, node, X, Y_grad, ceil_mode, count_include_pad, kernel_shape):
    """A window's share goes to each of its pixels, as in the gradient of a convolution with ones of one channel."""
    if ceil_mode:
        raise Fail(f"{node}: there is no gradient of AveragePool with ceil_mode 1")
    form = {name: value for name, value in given_attributes(node).items() if name not in ("ceil_mode", "count_include_pad")}
    ones = op.constant(np.ones((1, 1, *kernel_shape), op.dtype(X).numpy))
    share = op.scaled(Y_grad, 1 / math.prod(kernel_shape))
    if not count_include_pad:
        image = op.filled(1, op.Slice(X, starts=[0, 0], ends=[1, 1], axes=[0, 1]))
        share = op.Div(Y_grad, op.Conv(image, ones, **form))
    planes, pixels = (_one_channel(op, value) for value in (share, X))
    spread, _, _ = op.contrib("ConvGrad", planes, pixels, ones, outputs=3, **form)
    return op.Reshape(spread, op.Shape(X))


def _one_channel(op, value):
    """Images as a batch of images with one channel each."""
    spatial = op.Slice(op.Shape(value), starts=[2], ends=[op.rank(value)], axes=[0])
    return op.Reshape(value, op.Concat(op.constant(np.array([-1, 1], np.int64)), spatial, axis=0))


@gradient("GlobalAveragePool")
def global_average_pool(op, X, Y, Y_grad):
    share = op.Div(Y_grad, op.Div(op.size(X, X), op.size(Y, X)))
    return op.Expand(share, op.Shape(X))


@gradient("GlobalMaxPool")
def global_max_pool(op, X, Y, Y_grad):
    return shared_by_equals(op, X, Y, Y_grad, list(range(2, op.rank(X))))
