"""Cases of pools over windows, images and regions."""

import itertools

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx import dtypes
from sardonyx.dtypes import FLOATS
from sardonyx.errors import Fail
from sardonyx.providers.cpu import pool as kernels
from tests.ops.cases import case, f32, f64, i8, refuse, u8

FLOAT_TYPES = {"T": FLOATS}
NAN, INF = np.nan, np.inf


def windows(X, kernel, sizes, begin=None, strides=None, dilations=None):
    """Yield each output place with the input pixels of its window, (N, C, pixels), and their flat positions."""
    rank = X.ndim - 2
    begin, strides, dilations = begin or [0] * rank, strides or [1] * rank, dilations or [1] * rank
    for place in np.ndindex(*sizes):
        lines = [
            [p * s - b + t * d for t in range(k) if 0 <= p * s - b + t * d < size]
            for p, s, b, d, k, size in zip(place, strides, begin, dilations, kernel, X.shape[2:])
        ]
        pixels = list(itertools.product(*lines))
        positions = [np.ravel_multi_index(pixel, X.shape[2:]) for pixel in pixels]
        yield place, X.reshape(*X.shape[:2], -1)[:, :, positions], pixels


def pooled(reduce, kernel, sizes, begin=None, strides=None, dilations=None):
    """`expect` of a pool that reduces the last axis."""

    def expect(X):
        Y = np.zeros((*X.shape[:2], *sizes), X.dtype)
        for place, values, _ in windows(X, kernel, sizes, begin, strides, dilations):
            Y[(..., *place)] = reduce(values)
        return Y

    return expect


def mean(values):
    return values.mean(axis=-1)


def largest(values):
    return values.max(axis=-1)


# --- AveragePool -----------------------------------------------------------------------------------------------------

case("AveragePool", X=f32(2, 3, 5, 6), kernel_shape=[3, 2], types=FLOAT_TYPES, expect=pooled(mean, [3, 2], [3, 5]))
case("AveragePool", X=f32(1, 2, 7), kernel_shape=[3], strides=[2], pads=[1, 1], expect=pooled(mean, [3], [4], [1], [2]))
case("AveragePool", X=f32(1, 1, 3, 4, 3), kernel_shape=[2, 2, 2], expect=pooled(mean, [2, 2, 2], [2, 3, 2]))
case(
    "AveragePool",
    X=f32(1, 2, 7, 7),
    kernel_shape=[2, 3],
    dilations=[3, 2],
    expect=pooled(mean, [2, 3], [4, 3], dilations=[3, 2]),
)
case("AveragePool", X=f32(1, 1, 5), kernel_shape=[2], strides=[2], ceil_mode=1, expect=pooled(mean, [2], [3], strides=[2]))
case(
    "AveragePool", X=f32(1, 1, 6), kernel_shape=[3], auto_pad="SAME_UPPER", strides=[2], expect=pooled(mean, [3], [3], [0], [2])
)
case(
    "AveragePool", X=f32(1, 1, 6), kernel_shape=[3], auto_pad="SAME_LOWER", strides=[2], expect=pooled(mean, [3], [3], [1], [2])
)
case("AveragePool", X=f32(1, 1, 6), kernel_shape=[3], auto_pad="VALID", strides=[2], expect=pooled(mean, [3], [2], [0], [2]))
case(
    "AveragePool", X=f32(1, 1, 5), kernel_shape=[2], strides=[2], auto_pad="VALID", ceil_mode=1, since=19,
    expect=pooled(mean, [2], [3], strides=[2]),
)  # fmt: skip
ONES = np.ones((1, 1, 4), np.float32)
case("AveragePool", X=ONES, kernel_shape=[4], pads=[2, 2], count_include_pad=0, expect=np.ones((1, 1, 5)))
case("AveragePool", X=ONES, kernel_shape=[4], pads=[2, 2], count_include_pad=1, expect=np.array([[[0.5, 0.75, 1, 0.75, 0.5]]]))
# the last window reaches one pixel beyond the padding, which counts for nothing
case(
    "AveragePool",
    X=ONES,
    kernel_shape=[3],
    strides=[2],
    pads=[1, 0],
    ceil_mode=1,
    count_include_pad=1,
    since=19,
    expect=np.array([[[2 / 3, 1]]]),
)
case(
    "AveragePool",
    X=np.ones((1, 1, 5), np.float32),
    kernel_shape=[3],
    strides=[2],
    pads=[1, 1],
    ceil_mode=1,
    count_include_pad=1,
    expect=np.array([[[2 / 3, 1, 2 / 3]]]),
)
# a window may not start in the padding on the right, so there are two and not three
case("AveragePool", X=ONES, kernel_shape=[1], strides=[2], pads=[0, 1], ceil_mode=1, expect=np.ones((1, 1, 2)))
case("AveragePool", X=f32(0, 2, 4), kernel_shape=[2], expect=np.zeros((0, 2, 3)))
for op in ("MaxPool", "AveragePool", "LpPool"):
    refuse(op, X=f32(1, 1, 4, 4), kernel_shape=[], match="kernel")
refuse("AveragePool", X=f32(1, 1, 4), kernel_shape=[2, 2], match="kernel")
refuse("AveragePool", X=f32(4), kernel_shape=[2], match="rank")


# --- MaxPool ---------------------------------------------------------------------------------------------------------

case(
    "MaxPool",
    X=f32(2, 3, 5, 6),
    kernel_shape=[3, 2],
    types={"T": FLOATS | {dtypes.int8, dtypes.uint8}},
    expect=pooled(largest, [3, 2], [3, 5]),
)
case("MaxPool", X=f64(1, 2, 8), kernel_shape=[3], strides=[3], pads=[1, 1], expect=pooled(largest, [3], [3], [1], [3]))
case("MaxPool", X=i8(1, 2, 8, low=-128, high=-100), kernel_shape=[3], pads=[1, 1], expect=pooled(largest, [3], [8], [1]))
case("MaxPool", X=u8(1, 1, 3, 3, 3), kernel_shape=[2, 1, 3], expect=pooled(largest, [2, 1, 3], [2, 3, 1]))
case(
    "MaxPool",
    X=f32(1, 2, 7, 7),
    kernel_shape=[2, 3],
    dilations=[3, 2],
    expect=pooled(largest, [2, 3], [4, 3], dilations=[3, 2]),
)
case("MaxPool", X=f32(1, 1, 6), kernel_shape=[3], strides=[2], ceil_mode=1, expect=pooled(largest, [3], [3], strides=[2]))
case(
    "MaxPool", X=f32(1, 1, 6), kernel_shape=[3], strides=[2], auto_pad="VALID", ceil_mode=1,
    expect=pooled(largest, [3], [3], strides=[2]),
)  # fmt: skip
case("MaxPool", X=f32(1, 1, 2, 2), kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1, expect=lambda X: X[:, :, :1, :1])
case("MaxPool", X=f32(1, 1, 3), kernel_shape=[1], strides=[2], pads=[0, 1], ceil_mode=1, expect=lambda X: X[..., ::2])
case(
    "MaxPool", X=f32(1, 1, 6), kernel_shape=[3], auto_pad="SAME_UPPER", strides=[2], expect=pooled(largest, [3], [3], [0], [2])
)
case(
    "MaxPool", X=f32(1, 1, 6), kernel_shape=[3], auto_pad="SAME_LOWER", strides=[2], expect=pooled(largest, [3], [3], [1], [2])
)
case("MaxPool", X=f32(1, 1, 4), kernel_shape=[1], auto_pad="SAME_UPPER", strides=[3], expect=lambda X: X[..., ::3])
case("MaxPool", X=np.array([[[1, NAN, 3, -INF, -INF]]], np.float32), kernel_shape=[2], expect=np.array([[[NAN, NAN, 3, -INF]]]))
case("MaxPool", X=f32(0, 2, 4), kernel_shape=[2], expect=np.zeros((0, 2, 3)))


def with_indices(kernel, sizes, begin=None, strides=None, dilations=None, order="C"):
    """Maxima, and where the first of them in row-major order stands in the flat tensor."""

    def expect(X):
        Y = np.zeros((*X.shape[:2], *sizes), X.dtype)
        I = np.zeros(Y.shape, np.int64)
        images = np.arange(X.shape[0] * X.shape[1]).reshape(X.shape[:2]) * int(np.prod(X.shape[2:]))
        for place, values, pixels in windows(X, kernel, sizes, begin, strides, dilations):
            flat = np.array([np.ravel_multi_index(pixel, X.shape[2:], order=order) for pixel in pixels])
            Y[(..., *place)] = values.max(axis=-1)
            I[(..., *place)] = images + flat[values.argmax(axis=-1)]
        return Y, I

    return expect


TIES = np.floor(f32(2, 2, 5, 6, low=0, high=3))
case(
    "MaxPool",
    X=TIES,
    kernel_shape=[3, 3],
    types={"T": FLOATS | {dtypes.int8, dtypes.uint8}},
    since=8,
    expect=with_indices([3, 3], [3, 4]),
    against_onnxruntime=True,
)
case(
    "MaxPool",
    X=TIES,
    kernel_shape=[3, 3],
    pads=[1, 1, 1, 1],
    storage_order=1,
    since=8,
    expect=with_indices([3, 3], [5, 6], [1, 1], order="F"),
)
case(
    "MaxPool",
    X=TIES,
    kernel_shape=[2, 2],
    strides=[2, 3],
    dilations=[2, 1],
    since=8,
    expect=with_indices([2, 2], [2, 2], None, [2, 3], [2, 1]),
)
case("MaxPool", X=f32(1, 2, 3, 4, 3), kernel_shape=[2, 2, 2], since=8, expect=with_indices([2, 2, 2], [2, 3, 2]))
case(
    "MaxPool",
    X=f32(1, 2, 3, 4, 3),
    kernel_shape=[2, 2, 2],
    storage_order=1,
    since=8,
    expect=with_indices([2, 2, 2], [2, 3, 2], order="F"),
)
case(
    "MaxPool",
    X=np.full((1, 1, 3), -INF, np.float32),
    kernel_shape=[2],
    pads=[1, 0],
    since=8,
    expect=(np.full((1, 1, 3), -INF), np.array([[[0, 0, 1]]])),
)
case(
    "MaxPool",
    X=np.array([[[NAN, 1, NAN]]], np.float32),
    kernel_shape=[3],
    since=8,
    expect=(np.array([[[NAN]]]), np.array([[[0]]])),
)


# --- LpPool, MaxUnpool, whole images ---------------------------------------------------------------------------------


def norm(p):
    return lambda values: (np.abs(values.astype(np.float64)) ** p).sum(axis=-1) ** (1 / p)


case("LpPool", X=f32(2, 3, 5, 6), kernel_shape=[3, 2], types=FLOAT_TYPES, rtol=0.02, expect=pooled(norm(2), [3, 2], [3, 5]))
for p in (1, 2, 3):
    case("LpPool", X=f32(1, 2, 7), p=p, kernel_shape=[3], strides=[2], pads=[1, 1], expect=pooled(norm(p), [3], [4], [1], [2]))
case(
    "LpPool",
    X=f32(1, 2, 7),
    kernel_shape=[2],
    dilations=[3],
    ceil_mode=1,
    strides=[3],
    expect=pooled(norm(2), [2], [2], None, [3], [3]),
)
case("LpPool", X=f32(1, 2, 6), kernel_shape=[3], auto_pad="SAME_LOWER", expect=pooled(norm(2), [3], [6], [1]))
case("LpPool", X=f32(2, 3, 4), opsets=(1,), expect=lambda X: norm(2)(X)[..., None])

X = f32(2, 3, 4, 5)
case("GlobalAveragePool", X=X, types=FLOAT_TYPES, expect=lambda X: X.astype(np.float64).mean(axis=(2, 3), keepdims=True))
case("GlobalAveragePool", X=f32(2, 3, 0), expect=np.full((2, 3, 1), NAN))
case("GlobalMaxPool", X=X, types=FLOAT_TYPES, expect=lambda X: X.max(axis=(2, 3), keepdims=True))
case("GlobalMaxPool", X=f32(2, 3, 4), expect=lambda X: X.max(axis=2, keepdims=True))
case("GlobalLpPool", X=X, types=FLOAT_TYPES, rtol=0.02, expect=lambda X: norm(2)(X.reshape(2, 3, -1)).reshape(2, 3, 1, 1))
case("GlobalLpPool", X=X, p=3, expect=lambda X: norm(3)(X.reshape(2, 3, -1)).reshape(2, 3, 1, 1))
refuse("GlobalAveragePool", X=f32(4), match="rank")


def unpooled(shape):
    def expect(X, I):
        Y = np.zeros(shape, X.dtype)
        for value, index in zip(X.reshape(-1), I.reshape(-1)):
            Y.reshape(-1)[index] = value
        return Y

    return expect


PLACES = np.array([[[[5, 7], [13, 15]]]])
case(
    "MaxUnpool",
    X=f32(1, 1, 2, 2),
    I=PLACES,
    kernel_shape=[2, 2],
    strides=[2, 2],
    types={"T1": FLOATS},
    expect=unpooled((1, 1, 4, 4)),
)
case(
    "MaxUnpool",
    X=f32(1, 1, 2, 2),
    I=PLACES,
    kernel_shape=[2, 2],
    strides=[2, 2],
    output_shape=[1, 1, 5, 6],
    expect=lambda X, I: np.pad(unpooled((1, 1, 4, 4))(X, I), [(0, 0), (0, 0), (0, 1), (0, 2)]),
)
# numbers that only the larger output has are its own
case(
    "MaxUnpool",
    X=f32(1, 1, 2, 2),
    I=np.array([[[[0, 3], [18, 24]]]]),
    kernel_shape=[2, 2],
    strides=[2, 2],
    output_shape=[1, 1, 5, 5],
    expect=unpooled((1, 1, 5, 5)),
)
case(
    "MaxUnpool",
    X=f32(1, 1, 3),
    I=np.array([[[0, 2, 3]]]),
    kernel_shape=[3],
    strides=[2],
    pads=[1, 1],
    expect=unpooled((1, 1, 5)),
)
refuse("MaxUnpool", X=f32(1, 1, 2), I=np.array([[[0, 9]]]), kernel_shape=[2], strides=[2], match="outside")
refuse("MaxUnpool", X=f32(1, 1, 3), I=np.array([0]), kernel_shape=[2], strides=[2], match="X .*I")  # three places would be read


# --- regions ---------------------------------------------------------------------------------------------------------

IMAGE = np.arange(48, dtype=np.float32).reshape(1, 2, 4, 6)
REGIONS = np.array([[0, 1, 1, 4, 2], [0, 0, 0, 5, 3]], np.float32)
case(
    "MaxRoiPool",
    X=IMAGE,
    rois=REGIONS,
    pooled_shape=[2, 2],
    types=FLOAT_TYPES,
    expect=lambda X: np.array([X[0][:, [[1], [2]], [2, 4]], X[0][:, [[1], [3]], [2, 5]]]),
)
case(
    "MaxRoiPool",
    X=IMAGE,
    rois=REGIONS * np.float32([1, 2, 2, 2, 2]),
    pooled_shape=[1, 1],
    spatial_scale=0.5,
    expect=lambda X: X[[0, 0]][:, :, [2, 3], [4, 5]][[0, 1], :, [0, 1]].reshape(2, 2, 1, 1),
)
case("MaxRoiPool", X=IMAGE, rois=np.float32([[0, 9, 9, 12, 12]]), pooled_shape=[2, 3], expect=np.zeros((1, 2, 2, 3)))
refuse("MaxRoiPool", X=IMAGE, rois=np.float32([[1, 0, 0, 1, 1]]), pooled_shape=[1, 1], match="batch index")


def aligned(shift, reduce=np.mean, samples=2):
    """`expect` of RoiAlign for an image whose value is x + 10 y, which interpolation leaves as it is."""

    def expect(rois):
        Y = []
        for x1, y1, x2, y2 in rois.astype(np.float64) - shift:
            ticks = (np.arange(2 * samples) + 0.5) / (2 * samples)
            values = (y1 + (y2 - y1) * ticks)[:, None] * 10 + x1 + (x2 - x1) * ticks
            Y.append(reduce(values.reshape(2, samples, 2, samples), axis=(1, 3)))
        return np.array(Y)[:, None]

    return expect


PLANE = (np.arange(8) + 10 * np.arange(8)[:, None]).astype(np.float32).reshape(1, 1, 8, 8)
CORNERS = np.array([[1, 1, 5, 3], [2.5, 1.25, 6, 6.5]], np.float32)
TWO = {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "batch_indices": [0, 0]}
case("RoiAlign", X=PLANE, rois=CORNERS, **TWO, until=10, expect=aligned(0))
case("RoiAlign", X=PLANE, rois=CORNERS, **TWO, since=16, types={"T1": FLOATS}, rtol=0.02, expect=aligned(0.5))
case("RoiAlign", X=PLANE, rois=CORNERS, **TWO, coordinate_transformation_mode="half_pixel", expect=aligned(0.5))
case("RoiAlign", X=PLANE, rois=CORNERS, **TWO, coordinate_transformation_mode="output_half_pixel", expect=aligned(0))
case(
    "RoiAlign",
    X=PLANE,
    rois=CORNERS * 2,
    **TWO,
    spatial_scale=0.5,
    coordinate_transformation_mode="output_half_pixel",
    expect=lambda rois: aligned(0)(rois / 2),
)
case(
    "RoiAlign",
    X=PLANE,
    rois=np.float32([[1, 1, 5, 5]]),
    batch_indices=[0],
    output_height=2,
    output_width=2,
    coordinate_transformation_mode="output_half_pixel",
    expect=aligned(0),
)
# without the half pixel a region has at least one pixel, with it an empty one has no samples
case(
    "RoiAlign",
    X=PLANE,
    rois=np.float32([[2, 2, 2, 2]]),
    batch_indices=[0],
    coordinate_transformation_mode="output_half_pixel",
    expect=np.full((1, 1, 1, 1), 27.5),
)
case(
    "RoiAlign",
    X=PLANE,
    rois=np.float32([[2, 2, 2, 2]]),
    batch_indices=[0],
    coordinate_transformation_mode="half_pixel",
    expect=np.zeros((1, 1, 1, 1)),
)
case(
    "RoiAlign", X=PLANE, rois=np.float32([[20, 20, 22, 22]]), batch_indices=[0], sampling_ratio=1, expect=np.zeros((1, 1, 1, 1))
)
case("RoiAlign", X=PLANE, rois=np.zeros((0, 4), np.float32), batch_indices=np.zeros(0, np.int64), expect=np.zeros((0, 1, 1, 1)))
# one sample on a pixel: the largest weighted corner is the pixel itself
case(
    "RoiAlign",
    X=PLANE,
    rois=np.float32([[2, 3, 4, 5]]),
    batch_indices=[0],
    mode="max",
    sampling_ratio=1,
    coordinate_transformation_mode="output_half_pixel",
    expect=np.full((1, 1, 1, 1), 43),
)
case(
    "RoiAlign",
    X=f32(2, 3, 8, 9),
    rois=np.concatenate([f32(5, 2, low=0, high=4), f32(5, 2, low=4, high=8)], axis=1),
    batch_indices=[0, 1, 1, 0, 1],
    mode="max",
    output_height=3,
    output_width=2,
    opsets=(10, 16),
    against_onnxruntime=True,
)
case(
    "RoiAlign",
    X=f32(2, 3, 8, 9),
    rois=np.concatenate([f32(5, 2, low=-3, high=4), f32(5, 2, low=4, high=12)], axis=1),
    batch_indices=[0, 1, 1, 0, 1],
    output_height=3,
    output_width=2,
    opsets=(10, 16),
    against_onnxruntime=True,
    atol=1e-5,
)
refuse("RoiAlign", X=PLANE, rois=np.float32([[0, 0, 1, 1]]), batch_indices=[1], match="batch index")


def test_pools_over_no_axes_leave_what_they_are_given():
    X = np.ones((2, 3), np.float32)
    X.flags.writeable = False
    for pool in (kernels.max_pool, kernels.average_pool, kernels.lp_pool):
        np.testing.assert_array_equal(pool(X, []), X)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("size", [2147483647, 2147483648])
def test_a_kernel_without_end_is_refused(op, size):
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 22]>
        g (float[1,1,N,4] x) => (float[1,1,A,B] y) {{ y = {op}<kernel_shape=[{size}, 3], strides=[{size}, 1], ceil_mode=1>(x) }}
    """)
    with pytest.raises(Fail, match="kernel"):
        sardonyx.InferenceSession(model).run(None, {"x": np.ones((1, 1, 4, 4), np.float32)})
