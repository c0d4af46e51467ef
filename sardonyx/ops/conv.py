"""Inference of convolutions and Col2Im."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.facts import by_entry
from sardonyx.ops.quantize import broadcasts, check_counts, check_scales
from sardonyx.ops.shapes import fresh_shape, text
from sardonyx.ops.table import infer
from sardonyx.ops.window import (
    NOT_SET,
    SAME,
    check_numbers,
    output_sizes,
    per_axis,
    span_of,
    split_pads,
    transposed_size,
)


@infer("Conv", has_layout=True, rows=by_entry)
def conv(X, W, B, group, auto_pad, dilations, kernel_shape, pads, strides):
    return convolved_shape(X, W, group, kernel_shape, strides, dilations, pads, auto_pad)


@infer("ConvInteger", has_layout=True)
def conv_integer(x, w, x_zero_point, w_zero_point, group, auto_pad, dilations, kernel_shape, pads, strides):
    check_counts(x_zero_point=x_zero_point)
    check_filters(w, w_zero_point=w_zero_point)
    return convolved_shape(x, w, group, kernel_shape, strides, dilations, pads, auto_pad)


@infer("QLinearConv", has_layout=True)
def q_linear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B,
    group,
    auto_pad,
    dilations,
    kernel_shape,
    pads,
    strides,
):
    check_scales({"y_scale": y_scale}, x_scale=x_scale, w_scale=w_scale)
    check_counts(x_scale=x_scale, x_zero_point=x_zero_point, y_scale=y_scale, y_zero_point=y_zero_point)
    check_filters(w, B, w_scale=w_scale, w_zero_point=w_zero_point)
    return convolved_shape(x, w, group, kernel_shape, strides, dilations, pads, auto_pad)


def check_filters(w, bias=None, **parameters):
    """Refuse scales and zero points that are neither one number nor one for each filter, and a bias that is not one for each."""
    if not w.shape:
        return
    check_counts(w.shape[0], **parameters)
    if bias is not None and bias.shape is not None and (len(bias.shape) != 1 or not broadcasts(w.shape[:1], bias.shape)):
        raise InferenceError(f"B is {text(bias.shape)}, it should have a number for each of {w.shape[0]} filters")


@infer("DeformConv")
def deform_conv(X, W, offset, group, dilations, kernel_shape, pads, strides):
    return convolved_shape(X, W, group, kernel_shape, strides, dilations, pads, "NOTSET")


def convolved_shape(X, W, group, kernel_shape, strides, dilations, pads, auto_pad):
    """Shape of a convolution of X by filters W, (M, C/group, ...)."""
    check_numbers([group], "group")
    rank = _checked_rank(X, W)
    if rank is None:
        return None
    filters = W.shape or fresh_shape(rank)
    if X.shape is None:
        return dim.fresh(), filters[0], *fresh_shape(rank - 2)
    channels, depth = X.shape[1], filters[1]
    if isinstance(channels, int) and isinstance(depth, int) and channels != depth * group:
        raise InferenceError(f"X has {channels} channels, W takes {group} groups of {depth}")
    kernel = _kernel(kernel_shape, filters)
    return X.shape[0], filters[0], *output_sizes(X.shape[2:], kernel, strides, dilations, pads, auto_pad)


def _checked_rank(X, W):
    """The rank that X and W share, None if neither is known."""
    if X.rank is not None and W.rank is not None and X.rank != W.rank:
        raise InferenceError(f"X {text(X.shape)} and W {text(W.shape)} have different ranks")
    rank = X.rank if W.rank is None else W.rank
    if rank is not None and rank < 2:
        raise InferenceError(f"X must have a batch and a channel axis, its rank is {rank}")
    return rank


def _kernel(kernel_shape, filters):
    sizes = filters[2:]
    if not kernel_shape:
        return sizes
    if len(kernel_shape) != len(sizes) or any(isinstance(d, int) and d != k for d, k in zip(sizes, kernel_shape)):
        raise InferenceError(f"kernel_shape {kernel_shape} is not that of W, {text(filters)}")
    return kernel_shape


@infer("ConvTranspose", has_layout=True, rows=by_entry)
def conv_transpose(X, W, group, auto_pad, dilations, kernel_shape, output_padding, output_shape, pads, strides):
    check_numbers([group], "group")
    rank = _checked_rank(X, W)
    if rank is None:
        return None
    filters = W.shape or fresh_shape(rank)
    if X.shape is None:
        return dim.fresh(), filters[1] * group, *fresh_shape(rank - 2)
    channels = X.shape[1]
    if isinstance(channels, int) and isinstance(filters[0], int) and channels != filters[0]:
        raise InferenceError(f"X has {channels} channels, W takes {filters[0]}")
    sizes = _transposed_sizes(X.shape[2:], _kernel(kernel_shape, filters), strides, dilations, pads, auto_pad, output_padding)
    if output_shape:
        check_numbers(output_shape, "output_shape")
        if len(output_shape) not in (rank - 2, rank):
            raise InferenceError(f"output_shape {text(output_shape)} does not fit {rank - 2} spatial axes")
        sizes = output_shape[2 - rank :]  # some old models give batch and channels too
    return X.shape[0], filters[1] * group, *sizes


def _transposed_sizes(input, kernel, strides, dilations, pads, auto_pad, output_padding):
    rank = len(input)
    strides, dilations = per_axis(strides, rank, "strides"), per_axis(dilations, rank, "dilations")
    extra = per_axis(output_padding, rank, "output_padding", default=0)
    if auto_pad in SAME:
        return [size * stride for size, stride in zip(input, strides)]
    begin, end = split_pads(pads if auto_pad in NOT_SET else None, rank)
    spans = map(span_of, kernel, dilations)
    return [transposed_size(i, s, t, e) - b - f for i, s, t, e, b, f in zip(input, spans, strides, extra, begin, end)]


@infer("Col2Im")
def col2im(input, image_shape, block_shape):
    input.require_rank(3)
    batch, depth, _ = input.shape or fresh_shape(3)
    image, block = image_shape.dims, block_shape.dims
    if image is None:
        lengths = [o.shape[0] for o in (image_shape, block_shape) if o.shape and isinstance(o.shape[0], int)]
        if not lengths and block is None:
            return None
        image = fresh_shape(lengths[0] if lengths else len(block))
    channels = dim.fresh() if block is None else dim.floordiv(depth, dim.product(block))
    return batch, channels, *image


@infer("CausalConvWithState")
def causal_conv_with_state(input, weight, past_state):
    input.require_rank(3)
    batch, channels, _ = input.shape or fresh_shape(3)
    if weight.shape is not None:
        weight.require_rank(3, name="weight")
        return [input.shape, (batch, channels, weight.shape[2] - 1)]
    state = past_state.shape if past_state is not None else None
    return [input.shape, state or (batch, channels, dim.fresh())]
