"""Convolutions and pools, and their gradients."""

from __future__ import annotations

import numpy as np

from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported


def _per_axis(sizes, count):
    """torch lets one number stand for all axes."""
    if any(type(size) is not int for size in sizes):
        raise Unsupported("a window of open size")
    return list(sizes) * count if len(sizes) == 1 else list(sizes)


def _windows(op, value, stride, padding, dilation):
    count = op.rank(value) - 2
    pads = _per_axis(padding, count)
    return {"strides": _per_axis(stride, count), "dilations": _per_axis(dilation, count), "pads": [*pads, *pads]}


@aten("convolution.default")
def convolution(op, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    form = _windows(op, input, stride, padding, dilation)
    if transposed:
        extra = _per_axis(output_padding, op.rank(input) - 2)
        return op.ConvTranspose(input, weight, bias, group=groups, output_padding=extra, **form)
    return op.Conv(input, weight, bias, group=groups, **form)


@aten("convolution_backward.default")
def convolution_backward(
    op,
    grad_output,
    input,
    weight,
    bias_sizes,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    output_mask,
):
    form = _windows(op, input, stride, padding, dilation) | {"group": groups}
    axes = [0, *range(2, op.rank(input))]
    by_bias = op.ReduceSum(grad_output, axes=axes, keepdims=0) if output_mask[2] else None
    if transposed:  # the gradient of a transposed convolution is the convolution, with input and gradient exchanged
        by_input = op.Conv(grad_output, weight, **form) if output_mask[0] else None
        by_weight = op.contrib("ConvGrad", input, grad_output, weight, outputs=2, **form)[1] if output_mask[1] else None
        return by_input, by_weight, by_bias
    parts = op.contrib("ConvGrad", grad_output, input, weight, outputs=2, **form)
    return parts[0] if output_mask[0] else None, parts[1] if output_mask[1] else None, by_bias


# --- pools


def _pool(op, value, kernel_size, stride, padding, dilation, ceil_mode):
    count = op.rank(value) - 2
    kernel = _per_axis(kernel_size, count)
    pads = _per_axis(padding, count)
    return {
        "kernel_shape": kernel,
        "strides": _per_axis(stride, count) if stride else kernel,
        "pads": [*pads, *pads],
        "dilations": _per_axis(dilation, count),
        "ceil_mode": int(ceil_mode),
    }


def _batched(op, value, spatial):
    """torch's images may come without a batch."""
    return value if op.rank(value) == spatial + 2 else op.Unsqueeze(value, axes=[0])


def _plane(op, value):
    """How many pixels a plane has, as a vector of one number."""
    return op.ReduceProd(op.Shape(value, start=2), axes=[0], keepdims=1)


@aten("max_pool2d_with_indices.default")
def max_pool2d(op, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    images = _batched(op, self, 2)
    form = _pool(op, images, kernel_size, stride, _listed(padding), _listed(dilation), ceil_mode)
    output, indices = op.MaxPool(images, outputs=2, **form)
    indices = op.Mod(indices, _plane(op, images))  # torch counts in a plane
    if images is not self:
        return op.Squeeze(output, axes=[0]), op.Squeeze(indices, axes=[0])
    return output, indices


def _listed(size):
    return [size] if isinstance(size, int) else size


@aten("max_pool2d_with_indices_backward.default")
def max_pool2d_backward(op, grad_output, self, indices, **arguments):
    lead = op.rank(self) - 2
    planes = op.Concat(op.Shape(self, start=0, end=lead), op.ints(-1), axis=0)
    whole = op.Concat(
        op.Shape(self, start=0, end=lead), op.ReduceProd(op.Shape(self, start=lead), axes=[0], keepdims=1), axis=0
    )
    zeros = op.ConstantOfShape(whole, value=np.zeros(1, op.dtype(grad_output).numpy))
    places, updates = op.Reshape(indices, planes), op.Reshape(grad_output, planes)
    return op.Reshape(op.ScatterElements(zeros, places, updates, axis=lead, reduction="add"), op.Shape(self))


@aten("avg_pool2d.default")
def avg_pool2d(op, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    images = _batched(op, self, 2)
    form = _pool(op, images, kernel_size, stride, _listed(padding), [1], ceil_mode)
    if divisor_override:
        raise Unsupported("divisor_override")
    output = op.AveragePool(images, count_include_pad=int(count_include_pad), **form)
    return output if images is self else op.Squeeze(output, axes=[0])


@aten("avg_pool2d_backward.default")
def avg_pool2d_backward(op, grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """A window's share goes to each of its pixels, as in the gradient of a convolution with ones of one channel."""
    if ceil_mode or divisor_override or op.rank(self) != 4:
        raise Unsupported("the gradient of an average pool with ceil_mode or a divisor, or without a batch")
    form = _pool(op, self, kernel_size, stride, _listed(padding), [1], False)
    form.pop("ceil_mode")
    kernel = form.pop("kernel_shape")
    ones = op.constant(np.ones((1, 1, *kernel), op.dtype(self).numpy))
    if count_include_pad:
        share = op.scaled(grad_output, 1 / float(np.prod(kernel)))
    else:
        image = op.filled(1, op.Slice(self, starts=[0, 0], ends=[1, 1], axes=[0, 1]))
        share = op.Div(grad_output, op.Conv(image, ones, **form))
    planes, pixels = (op.Reshape(value, op.Concat(op.ints(-1, 1), op.Shape(value, start=2), axis=0)) for value in (share, self))
    spread, _ = op.contrib("ConvGrad", planes, pixels, ones, outputs=2, **form)
    return op.Reshape(spread, op.Shape(self))


@aten("_adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(op, self, output_size):
    images = _batched(op, self, 2)
    window = _equal_windows(op, images, output_size)
    output = op.AveragePool(images, kernel_shape=window, strides=window)
    return output if images is self else op.Squeeze(output, axes=[0])


@aten("_adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool2d_backward(op, grad_output, self):
    """Each window's share goes to all of its pixels; windows do not meet."""
    height, width = _equal_windows(op, self, op.shape(grad_output)[-2:])
    share = op.Unsqueeze(op.scaled(grad_output, 1 / (height * width)), axes=[-1, -3])
    spread = op.Expand(share, op.ints(height, 1, width))
    return op.Reshape(spread, op.Shape(self))


def _equal_windows(op, self, output_size):
    sizes = [*zip(op.shape(self)[-2:], output_size)]
    if not all(isinstance(size, int) and isinstance(count, int) and count and size % count == 0 for size, count in sizes):
        raise Unsupported("an adaptive pool whose windows differ in size")
    return [size // count for size, count in sizes]
