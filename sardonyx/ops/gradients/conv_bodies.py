"""The body of ConvGrad: all three gradients of a convolution are convolutions, so whatever computes those computes these.

By X: the gradient with zeros between its pixels, slid over by filters that are turned round. By W: images slid over by the gradient,
channels being the batch and the batch channels. By B: a sum.
"""

from __future__ import annotations

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import body
from sardonyx.ops.window import NOT_SET, SAME, output_size, span_of, split_pads


@body("ConvGrad", domain=CONTRIB)
def conv_grad(op, node, dY, X, W, auto_pad, dilations, group, pads, strides):
    spatial = op.rank(X) - 2
    strides, dilations = list(strides or [1] * spatial), list(dilations or [1] * spatial)
    begin, end = _pads(op, node, X, W, auto_pad, pads, strides, dilations)
    wanted = [bool(output.uses) or output.is_graph_output for output in node.outputs] + [False] * 3
    return (
        _by_image(op, dY, X, W, group, strides, dilations, begin) if wanted[0] else None,
        _by_filters(op, dY, X, W, group, strides, dilations, (begin, end)) if wanted[1] else None,
        op.ReduceSum(dY, axes=[0, *range(2, spatial + 2)], keepdims=0) if wanted[2] else None,
    )


def _pads(op, node, X, W, auto_pad, pads, strides, dilations):
    """What was added before and after each spatial axis."""
    if auto_pad in SAME:
        images, kernels = op.shape(X)[2:], op.shape(W)[2:]
        if not all(isinstance(size, int) for size in (*images, *kernels)):
            raise Fail(f"{node}: the gradient of a convolution with auto_pad {auto_pad} needs the sizes of its images")
        totals = [_same_total(*sizes) for sizes in zip(images, kernels, strides, dilations, strict=True)]
        begin = [total // 2 if auto_pad == "SAME_UPPER" else total - total // 2 for total in totals]
        return begin, [total - first for total, first in zip(totals, begin, strict=True)]
    return split_pads(pads if auto_pad in NOT_SET else None, len(strides))


def _same_total(size, kernel, stride, dilation):
    return max(0, (output_size(size, 1, stride, auto_pad="SAME_UPPER") - 1) * stride + span_of(kernel, dilation) - size)


def _by_image(op, dY, X, W, group, strides, dilations, begin):
    spatial = len(strides)
    filters = _turned(op, W, group)
    if any(stride > 1 for stride in strides):
        dY = _spaced(op, dY, strides)
    reach = [dilation * (size - 1) for dilation, size in zip(dilations, _kernel(op, W), strict=True)]
    before = [far - pad for far, pad in zip(reach, begin, strict=True)]
    sizes = [*op.shape(X)[2:], *op.shape(dY)[2:]]
    if all(isinstance(size, int) for size in sizes):
        lengths = zip(sizes[:spatial], reach, sizes[spatial:], before, strict=True)
        after = [image + far - length - pad for image, far, length, pad in lengths]
        if min(*before, *after) >= 0:
            return op.Conv(dY, filters, group=group, dilations=dilations, pads=[*before, *after])
        pads = op.constant(np.array([0, 0, *before, 0, 0, *after], np.int64))
    else:
        pads = _pads_of_run(op, dY, X, reach, before)
    return op.Conv(op.Pad(dY, pads=pads), filters, group=group, dilations=dilations)


def _kernel(op, W):
    sizes = op.shape(W)[1:]
    if not all(isinstance(size, int) for size in sizes):
        raise Fail(f"the gradient of a convolution needs the sizes of its filters {W.name!r}, which are {sizes}")
    return sizes[1:]


def _pads_of_run(op, dY, X, reach, before):
    """So many zeros behind that the result is as large as X was."""
    first = op.constant(np.array([0, 0, *before], np.int64))
    whole = op.Add(op.Shape(X), op.constant(np.array([0, 0, *reach], np.int64)))
    last = op.Sub(op.Sub(whole, op.Shape(dY)), first)
    images = op.constant(np.array([0, 0, *[1] * len(reach)], np.int64))
    return op.Concat(first, op.Mul(last, images), axis=0)


def _turned(op, W, group):
    """Filters with their channels exchanged within groups, and each spatial axis reversed."""
    rank = op.rank(W)
    axes = list(range(2, rank))
    if any(size != 1 for size in _kernel(op, W)):
        last = [-1] * len(axes)
        W = op.Slice(W, starts=last, ends=[-(2**31)] * len(axes), axes=axes, steps=last)
    if group == 1:
        return op.Transpose(W, perm=[1, 0, *axes])
    groups = op.Reshape(W, op.constant(np.array([group, -1, *op.shape(W)[1:]], np.int64)))
    turned = op.Transpose(groups, perm=[0, 2, 1, *(axis + 1 for axis in axes)])
    channels = op.shape(W)[1]
    return op.Reshape(turned, op.constant(np.array([group * channels, -1, *_kernel(op, W)], np.int64)))


def _spaced(op, dY, strides):
    """Zeros behind each pixel, as many as a stride skips."""
    rank = op.rank(dY)
    spaced = op.Unsqueeze(dY, axes=[3 + 2 * axis for axis in range(len(strides))])
    extra = [0] * (2 * rank - 2)
    for axis, stride in enumerate(strides):
        extra[3 + 2 * axis] = stride - 1
    spaced = op.Pad(spaced, pads=[0] * len(extra) + extra)
    factors = op.constant(np.array([1, 1, *strides], np.int64))
    return op.Reshape(spaced, op.Mul(op.Shape(dY), factors))


def _by_filters(op, dY, X, W, group, strides, dilations, pads):
    axes = list(range(2, len(strides) + 2))
    images = _batch_as_channels(op, X, group)
    gradients = op.Transpose(dY, perm=[1, 0, *axes])
    sums = op.Conv(images, gradients, group=group, strides=dilations, dilations=strides, pads=[*pads[0], *pads[1]])
    sums = op.Slice(sums, starts=[0] * len(axes), ends=list(_kernel(op, W)), axes=axes)  # pixels that no window reached
    return op.Transpose(sums, perm=[1, 0, *axes])


def _batch_as_channels(op, X, group):
    """(N, C, …) as (C, N, …), and with groups as (C of a group, groups · N, …)."""
    axes = list(range(2, op.rank(X)))
    if group == 1:
        return op.Transpose(X, perm=[1, 0, *axes])
    shape = op.Shape(X)
    batch, spatial = op.Slice(shape, starts=[0], ends=[1]), op.Slice(shape, starts=[2], ends=[op.rank(X)])
    parts = op.Reshape(X, op.Concat(batch, op.constant(np.array([group, -1], np.int64)), spatial, axis=0))
    turned = op.Transpose(parts, perm=[2, 1, 0, *(axis + 1 for axis in axes)])
    channels = op.Div(op.Slice(shape, starts=[1], ends=[2]), op.constant(np.array([group], np.int64)))
    return op.Reshape(turned, op.Concat(channels, op.Mul(batch, op.constant(np.array([group], np.int64))), spatial, axis=0))
