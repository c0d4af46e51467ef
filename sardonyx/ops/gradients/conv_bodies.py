"""The body of ConvGrad: all three gradients of a convolution are convolutions, so whatever computes those computes these.

By X: the gradient slid over by filters that are turned round; with strides the transposed convolution, or zeros between the gradient's
pixels where sizes are open. By W: images slid over by the gradient, channels being the batch and the batch channels. By B: a sum.
"""

from __future__ import annotations

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ir import TensorType
from sardonyx.ops.conv import convolved_shape
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import body
from sardonyx.ops.operand import Operand
from sardonyx.ops.reading import given_attributes
from sardonyx.ops.window import NOT_SET, SAME, span_of, split_pads


@body("ConvGrad", domain=CONTRIB)
def conv_grad(op, node, dY, X, W, auto_pad, dilations, group, kernel_shape, pads, strides):
    spatial = op.rank(X) - 2
    W = _checked_filters(op, W, kernel_shape)
    strides, dilations = list(strides or [1] * spatial), list(dilations or [1] * spatial)
    begin, end = _pads(op, X, W, auto_pad, pads, strides, dilations)
    dY = _checked(op, dY, X, W, strides, dilations, (begin, end))
    wanted = [bool(output.uses) or output.is_graph_output for output in node.outputs] + [False] * 3
    return (
        op.shaped(_by_image(op, dY, X, W, group, strides, dilations, (begin, end)), X) if wanted[0] else None,
        op.shaped(_by_filters(op, dY, X, W, group, strides, dilations, (begin, end)), W) if wanted[1] else None,
        op.ReduceSum(dY, axes=[0, *range(2, spatial + 2)], keepdims=0) if wanted[2] else None,
    )


@body("ConvTransposeGrad", domain=CONTRIB)
def conv_transpose_grad(op, node, dY, X, W, auto_pad):
    """A transposed convolution is what goes back through a convolution from its result to its operand."""
    refuse_computed_pads(node)
    form = {name: value for name, value in given_attributes(node).items() if name in PLAIN}
    if auto_pad == "VALID":
        form.pop("pads", None)
    wanted = [bool(output.uses) or output.is_graph_output for output in node.outputs] + [False] * 3
    return (
        op.shaped(op.Conv(dY, W, **form), X) if wanted[0] else None,
        op.contrib("ConvGrad", X, dY, W, outputs=3, **form)[1] if wanted[1] else None,
        op.ReduceSum(dY, axes=[0, *range(2, op.rank(dY))], keepdims=0) if wanted[2] else None,
    )


PLAIN = ("dilations", "group", "kernel_shape", "pads", "strides")
"""What says of a transposed convolution which convolution it belongs to."""


def refuse_computed_pads(node):
    form = given_attributes(node)
    if form.get("output_shape") is not None or form.get("auto_pad") in SAME:
        raise Fail(f"{node}: there is no gradient of ConvTranspose with output_shape or auto_pad, give it pads instead")


# --- sizes: lists of numbers where the model tells them, tensors that a run computes elsewhere


def _sizes(op, value, first=2):
    """Sizes of the axes from `first` on."""
    sizes = op.shape(value)[first:]
    if all(isinstance(size, int) for size in sizes):
        return list(sizes)
    return op.Slice(op.Shape(value), starts=[first], ends=[op.rank(value)])


def _tensor(op, sizes):
    return op.constant(np.array(sizes, np.int64)) if isinstance(sizes, list) else sizes


def _joined(op, *parts):
    """One list of sizes out of several."""
    if all(isinstance(part, list) for part in parts):
        return [size for part in parts for size in part]
    return op.Concat(*(_tensor(op, part) for part in parts), axis=0)


def _combined(op, operator, *operands):
    """Sizes computed of others, one by one."""
    if all(isinstance(operand, list) for operand in operands):
        return [int(size) for size in operator(*(np.array(operand, np.int64) for operand in operands))]
    return operator(*(_Sizes(op, _tensor(op, operand)) for operand in operands)).value


class _Sizes:
    """A tensor of sizes with the operators of numbers. Both operands are tensors of one shape."""

    def __init__(self, op, value):
        self.op = op
        self.value = value

    def _with(self, op_type, other):
        if not isinstance(other, _Sizes):
            other = _Sizes(self.op, self.op.constant(np.array([other], np.int64)))
        return _Sizes(self.op, self.op.node(op_type, self.value, other.value))

    def __add__(self, other):
        return self._with("Add", other)

    def __sub__(self, other):
        return self._with("Sub", other)

    def __mul__(self, other):
        return self._with("Mul", other)

    def __floordiv__(self, other):
        return self._with("Div", other)

    def clip(self, least):
        return self._with("Max", least)


def _pads(op, X, W, auto_pad, pads, strides, dilations):
    """What was added before and after each spatial axis."""
    if auto_pad not in SAME:
        return tuple(map(list, split_pads(pads if auto_pad in NOT_SET else None, len(strides))))
    totals = _combined(op, _same_total, _sizes(op, X), _sizes(op, W), strides, dilations)
    smaller = _combined(op, lambda total: total // 2, totals)
    larger = _combined(op, lambda total, half: total - half, totals, smaller)
    return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)


def _same_total(size, kernel, stride, dilation):
    windows = (size + stride - 1) // stride
    return ((windows - 1) * stride + span_of(kernel, dilation) - size).clip(0)


def _windows(size, kernel, before, after, stride, dilation):
    return (size + before + after - span_of(kernel, dilation)) // stride + 1


def _checked(op, dY, X, W, strides, dilations, pads):
    """The gradient; where the model does not tell that its shape is that of the convolution's result, a run refuses another one."""
    form = {"group": 1, "kernel_shape": None, "strides": strides, "dilations": dilations, "auto_pad": "NOTSET"}
    given = all(isinstance(part, list) for part in pads)
    filters = Operand(TensorType(op.dtype(W), (op.shape(W)[0], op.shape(X)[1], *op.shape(W)[2:])))
    if given and convolved_shape(Operand(X.type), filters, pads=[*pads[0], *pads[1]], **form) == op.shape(dY):
        return dY
    windows = _combined(op, _windows, _sizes(op, X), _sizes(op, W), *pads, strides, dilations)
    batch, channels = (op.Slice(op.Shape(value), starts=[0], ends=[1]) for value in (X, W))
    return op.of_shape(dY, op.Concat(batch, channels, _tensor(op, windows), axis=0))


def _checked_filters(op, W, kernel_shape):
    """The same for filters: they are as large as `kernel_shape` says."""
    if not kernel_shape or list(op.shape(W)[2:]) == list(kernel_shape):
        return W
    counts = op.Slice(op.Shape(W), starts=[0], ends=[2])
    return op.of_shape(W, op.Concat(counts, op.constant(np.array(kernel_shape, np.int64)), axis=0))


# --- by images


def _by_image(op, dY, X, W, group, strides, dilations, pads):
    begin, end = pads
    if any(stride > 1 for stride in strides):
        left = _left_over(op, dY, X, W, strides, dilations, pads)
        if left is not None:
            form = {"group": group, "strides": strides, "dilations": dilations, "output_padding": left}
            return op.ConvTranspose(dY, W, pads=[*begin, *end], **form)
        dY = _spaced(op, dY, strides)
    filters = _turned(op, W, group)
    reach = _combined(op, lambda size, dilation: dilation * (size - 1), _sizes(op, W), dilations)
    before = _combined(op, lambda far, pad: far - pad, reach, begin)
    after = _combined(
        op, lambda size, far, length, pad: size + far - length - pad, _sizes(op, X), reach, _sizes(op, dY), before
    )
    if isinstance(after, list) and isinstance(before, list) and min(*before, *after) >= 0:
        return op.Conv(dY, filters, group=group, dilations=dilations, pads=[*before, *after])
    padded = op.Pad(dY, pads=_tensor(op, _joined(op, [0, 0], before, [0, 0], after)))
    return op.Conv(padded, filters, group=group, dilations=dilations)


def _left_over(op, dY, X, W, strides, dilations, pads):
    """How many pixels of each axis no window reaches, if that is known and a transposed convolution can add as many."""
    surplus = _surplus(op, dY, X, W, strides, dilations, pads)
    is_possible = surplus is not None and all(0 <= more < stride for more, stride in zip(surplus, strides))
    return surplus if is_possible else None


def _surplus(op, dY, X, W, strides, dilations, pads):
    """How much longer the axes of padded images are than what all windows cover, if that is known."""
    sizes = [_sizes(op, X), _sizes(op, W), _sizes(op, dY), *pads]
    if not all(isinstance(part, list) for part in sizes):
        return None
    axes = zip(*sizes, strides, dilations)
    return [
        size + before + after - (windows - 1) * stride - span_of(kernel, dilation)
        for size, kernel, windows, before, after, stride, dilation in axes
    ]


def _turned(op, W, group):
    """Filters with their channels exchanged within groups, and each spatial axis reversed."""
    axes, kernel = list(range(2, op.rank(W))), _sizes(op, W)
    sizes = _joined(op, [group, -1], _sizes(op, W, 1))
    if kernel != [1] * len(axes):
        last = [-1] * len(axes)
        W = op.Slice(W, starts=last, ends=[-(2**31)] * len(axes), axes=axes, steps=last)
    if group == 1:
        return op.Transpose(W, perm=[1, 0, *axes])
    turned = op.Transpose(op.Reshape(W, _tensor(op, sizes)), perm=[0, 2, 1, *(axis + 1 for axis in axes)])
    channels = sizes[2:3] if isinstance(sizes, list) else op.Slice(sizes, starts=[2], ends=[3])
    channels = _combined(op, lambda size: size * group, channels)
    return op.Reshape(turned, _tensor(op, _joined(op, channels, [-1], kernel)))


def _spaced(op, dY, strides):
    """Zeros behind each pixel, as many as a stride skips."""
    rank = op.rank(dY)
    spaced = op.Unsqueeze(dY, axes=[3 + 2 * axis for axis in range(len(strides))])
    extra = [0] * (2 * rank - 2)
    for axis, stride in enumerate(strides):
        extra[3 + 2 * axis] = stride - 1
    spaced = op.Pad(spaced, pads=[0] * len(extra) + extra)
    factors = op.constant(np.array([1, 1, *strides], np.int64))
    return op.in_shape(spaced, op.Mul(op.Shape(dY), factors))


# --- by filters


def _by_filters(op, dY, X, W, group, strides, dilations, pads):
    axes = list(range(2, len(strides) + 2))
    X, pads, is_whole = _reached(op, dY, X, W, strides, dilations, pads)
    images = _batch_as_channels(op, X, group)
    gradients = op.Transpose(dY, perm=[1, 0, *axes])
    if all(isinstance(part, list) for part in pads):
        pads = _joined(op, *pads)
    else:
        begin, end = pads
        images = op.Pad(images, pads=_tensor(op, _joined(op, [0, 0], begin, [0, 0], end)))
        pads = [0] * (2 * len(axes))
    sums = op.Conv(images, gradients, group=group, strides=dilations, dilations=strides, pads=pads)
    if not is_whole:
        sums = op.Slice(sums, starts=[0] * len(axes), ends=_tensor(op, _sizes(op, W)), axes=axes)
    return op.Transpose(sums, perm=[1, 0, *axes])


def _reached(op, dY, X, W, strides, dilations, pads):
    """Images and pads without the pixels behind the last window, and whether it is known that there are no more such pixels."""
    surplus = _surplus(op, dY, X, W, strides, dilations, pads)
    if surplus is None:
        return X, pads, False
    image, (begin, end) = _sizes(op, X), pads
    if min(surplus) < 0 or any(size + after < more for size, after, more in zip(image, end, surplus)):
        return X, pads, False
    kept = [size + min(0, after - more) for size, after, more in zip(image, end, surplus)]
    if kept != image:
        axes = list(range(2, len(kept) + 2))
        X = op.Slice(X, starts=[0] * len(axes), ends=kept, axes=axes)
    return X, (begin, [max(0, after - more) for after, more in zip(end, surplus)]), True


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
