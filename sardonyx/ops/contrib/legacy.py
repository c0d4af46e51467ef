"""Ops of com.microsoft that ONNX has taken over since, or that exporters wrote before it had an equal."""

from __future__ import annotations

import numpy as np

from sardonyx.dtypes import (
    COMPLEX,
    FLOATS,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops import constant, conv, image, indexing, layout
from sardonyx.ops import shape as shapes_of
from sardonyx.ops.inference import operand_of_array
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import axis_index, fresh_shape, merge_dims, text
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

INTEGERS = {int8, int16, int32, int64, uint8, uint16, uint32, uint64}
CLASSIC = {*INTEGERS, float16, float32, float64, bool_, string, *COMPLEX}
"""All types that tensors had in the beginning."""

define(
    "com.microsoft",
    "Trilu",
    1,
    "(X: T, k: int64?, *, upper: int = 1) -> (Y: T)",
    T={*INTEGERS, *FLOATS, bool_},
)
define(
    "com.microsoft",
    "Range",
    1,
    "(start: T, limit: T, delta: T?) -> (Y: T)",
    T={float32, float64, int16, int32, int64},
)
define(
    "com.microsoft",
    "Pad",
    1,
    "(data: T, pads: int64, value: T?, *, mode: string = 'constant') -> (output: T)",
    T={float16, float32, float64},
)
define("com.microsoft", "GatherND", 1, "(data: T, indices: Tind) -> (output: T)", T=CLASSIC, Tind={int32, int64})
define("com.microsoft", "Unique", 1, "(x: T) -> (y: T, idx: int64, counts: int64)", T=CLASSIC)
define(
    "com.microsoft",
    "GridSample",
    1,
    "(X: T1, Grid: T1, *, mode: string = 'bilinear', padding_mode: string = 'zeros', align_corners: int = 0) -> (Y: T2)",
    T1=CLASSIC,
    T2={float16, float32, float64},
)
define("com.microsoft", "Inverse", 1, "(X: T) -> (Y: T)", T={float16, float32, float64})
define("com.microsoft", "ExpandDims", 1, "(X: T, axis: int32) -> (Y: T)", T=CLASSIC)
define(
    "com.microsoft",
    "CropAndResize",
    1,
    "(X: T1, rois: T1, batch_indices: T2, crop_size: T2, *, mode: string = 'bilinear', extrapolation_value: float = 0.0)"
    " -> (Y: T1)",
    T1={float16, float32, float64},
    T2={int32},
)
define(
    "com.microsoft",
    "UnfoldTensor",
    1,
    "(input: T, *, dim: int = -1, size: int, step: int = 1) -> (output: T)",
    T={*CLASSIC, bfloat16},
)
define(
    "com.microsoft",
    "ConvTransposeWithDynamicPads",
    1,
    "(X: T, W: T, Pads: int64?, B: T?, *, kernel_shape: ints?, output_padding: ints?, dilations: ints?, strides: ints?,"
    " auto_pad: string = 'NOTSET', group: int = 1) -> (Y: T)",
    T={float16, float32, float64},
)


@contrib("Trilu")
def trilu(X, k):
    return layout.trilu(X, k)


@contrib("Range")
def range_of_numbers(start, limit, delta):
    step = operand_of_array(np.ones((), start.dtype.numpy)) if start.dtype is not None else None
    return (dim.fresh(),) if delta is None and step is None else constant.range_of_numbers(start, limit, delta or step)


@contrib("Pad")
def pad(data, pads):
    return shapes_of.pad(data, pads, None)


@contrib("GatherND")
def gather_nd(data, indices):
    return indexing.gather_nd(data, indices, 0)


@contrib("Unique")
def unique(x):
    shape = x.require_rank(1, name="x") or fresh_shape(1)
    size = dim.fresh()
    return [(size,), shape, (size,)]


@contrib("GridSample")
def grid_sample(X, Grid):
    """Both are images of one type, and so is what comes out."""
    sampled = image.grid_sample(X, Grid)
    return sampled if X.dtype is None or sampled is None else type(X.type)(X.dtype, sampled)


@contrib("Inverse")
def inverse(X):
    if X.shape is not None:
        if len(X.shape) < 2:
            raise InferenceError(f"X must have at least two axes, it is {text(X.shape)}")
        merge_dims(X.shape[-1], X.shape[-2], "the last two sizes")
    return X.shape


@contrib("ExpandDims")
def expand_dims(X, axis):
    axis.require_one("axis")
    if X.shape is None:
        return None
    rank = len(X.shape) + 1
    if axis.item is None:
        return fresh_shape(rank)
    place = axis_index(int(axis.item), rank)
    return (*X.shape[:place], 1, *X.shape[place:])


@contrib("CropAndResize")
def crop_and_resize(X, rois, batch_indices, crop_size):
    images, regions = X.require_rank(4, name="X"), rois.require_sizes(None, 4, name="rois")
    crop_size.require_sizes(2, name="crop_size")
    count = dim.fresh() if regions is None else regions[0]
    batch_indices.require_sizes(count if isinstance(count, int) else None, name="batch_indices")
    channels = dim.fresh() if images is None else images[1]
    return count, channels, *(crop_size.dims or fresh_shape(2))


@contrib("UnfoldTensor")
def unfold_tensor(input, size, step, **attributes):
    if input.shape is None:
        return None
    axis = axis_index(attributes["dim"], len(input.shape), "dim")
    length = input.shape[axis]
    if size < 1 or step < 1 or (isinstance(length, int) and size > length):
        raise InferenceError(f"slices of {size} elements, {step} apart, cannot be taken from {length}")
    return (*input.shape[:axis], dim.floordiv(length - size, step) + 1, *input.shape[axis + 1 :], size)


@contrib("ConvTransposeWithDynamicPads")
def conv_transpose_with_dynamic_pads(X, W, Pads, group, auto_pad, dilations, kernel_shape, output_padding, strides):
    pads = None if Pads is None else Pads.ints
    convolved = conv.conv_transpose(X, W, group, auto_pad, dilations, kernel_shape, output_padding, None, pads, strides)
    if convolved is None or Pads is None or pads is not None:
        return convolved
    return (*convolved[:2], *fresh_shape(len(convolved) - 2))
