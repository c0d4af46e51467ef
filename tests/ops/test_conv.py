"""Cases of convolutions and Col2Im."""

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.dtypes import FLOATS
from sardonyx.providers.cpu import conv as kernels
from sardonyx.providers.cpu.window import boxes, make_window
from tests.ops.cases import booleans, case, f32, f64, i8, i32, i64, refuse, strings, u8

FLOAT_TYPES = {"T": FLOATS}


def correlate(X, W, begin, end, strides, dilations, group=1):
    """The definition of a convolution, one output pixel at a time."""
    rank = X.ndim - 2
    X = np.pad(X, [(0, 0), (0, 0), *zip(begin, end)])
    spans = [(k - 1) * d + 1 for k, d in zip(W.shape[2:], dilations)]
    sizes = [(size - span) // s + 1 for size, span, s in zip(X.shape[2:], spans, strides)]
    Y = np.zeros((len(X), len(W), *sizes), np.result_type(X.dtype, np.float64))
    depth, filters = W.shape[1], len(W) // group
    for channel in range(len(W)):
        first = channel // filters * depth
        for place in np.ndindex(*sizes):
            window = tuple(slice(p * s, p * s + span, d) for p, s, span, d in zip(place, strides, spans, dilations))
            patch = X[(slice(None), slice(first, first + depth), *window)]
            Y[(slice(None), channel, *place)] = np.tensordot(patch, W[channel], rank + 1)
    return Y


def plain(group=1, begin=None, end=None, strides=None, dilations=None):
    """`expect` of a convolution with these pads."""

    def expect(X, W, B=None):
        rank = X.ndim - 2
        Y = correlate(X, W, begin or [0] * rank, end or [0] * rank, strides or [1] * rank, dilations or [1] * rank, group)
        return Y if B is None else Y + B.reshape(-1, *[1] * rank)

    return expect


# --- Conv ------------------------------------------------------------------------------------------------------------

case("Conv", X=f32(2, 3, 5, 6), W=f32(4, 3, 3, 2), B=f32(4), types=FLOAT_TYPES, atol=0.05, expect=plain())
case("Conv", X=f32(1, 3, 8), W=f32(2, 3, 3), strides=[2], pads=[1, 2], expect=plain(begin=[1], end=[2], strides=[2]))
case("Conv", X=f64(1, 2, 4, 5, 4), W=f64(3, 2, 2, 3, 1), dilations=[2, 1, 1], expect=plain(dilations=[2, 1, 1]))
case("Conv", X=f32(1, 1, 3, 3, 3, 3), W=f32(2, 1, 2, 2, 2, 2), expect=plain(), atol=1e-5)
case(
    "Conv", X=f32(2, 4, 5, 5), W=f32(6, 2, 3, 3), B=f32(6), group=2, expect=plain(group=2), against_onnxruntime=True, atol=1e-5
)
case("Conv", X=f32(2, 3, 6, 6), W=f32(3, 1, 3, 3), group=3, pads=[1, 1, 1, 1], expect=plain(3, [1, 1], [1, 1]), atol=1e-5)
case("Conv", X=f32(2, 3, 6, 6), W=f32(6, 1, 3, 2), group=3, strides=[2, 1], expect=plain(3, strides=[2, 1]), atol=1e-5)
case("Conv", X=f32(2, 3, 4, 4), W=f32(5, 3, 1, 1), B=f32(5), expect=plain())
case("Conv", X=f32(2, 3, 5, 5), W=f32(5, 3, 1, 1), strides=[2, 3], expect=plain(strides=[2, 3]))
case("Conv", X=f32(2, 4, 3, 3), W=f32(6, 2, 1, 1), group=2, pads=[1, 0, 0, 1], expect=plain(2, [1, 0], [0, 1]))
case("Conv", X=f32(1, 2, 5, 5), W=f32(2, 2, 3, 3), kernel_shape=[3, 3], auto_pad="VALID", expect=plain(), atol=1e-5)
for auto_pad, begin, end in (("SAME_UPPER", [0, 1], [1, 1]), ("SAME_LOWER", [1, 1], [0, 1])):
    case(
        "Conv",
        X=f32(1, 2, 6, 7),
        W=f32(3, 2, 3, 3),
        strides=[2, 2],
        auto_pad=auto_pad,
        expect=plain(begin=begin, end=end, strides=[2, 2]),
        against_onnxruntime=True,
        atol=1e-5,
    )
case(
    "Conv",
    X=f32(1, 2, 6, 6),
    W=f32(1, 2, 3, 3),
    auto_pad="SAME_UPPER",
    dilations=[2, 2],
    atol=1e-5,
    expect=plain(1, [2, 2], [2, 2], dilations=[2, 2]),
)
case("Conv", X=f32(0, 3, 5, 5), W=f32(4, 3, 3, 3), expect=np.zeros((0, 4, 3, 3)))
case("Conv", X=f32(0, 3, 5, 5), W=f32(3, 1, 3, 3), group=3, expect=np.zeros((0, 3, 3, 3)))
case("Conv", X=f32(1, 3, 0, 5), W=f32(4, 3, 1, 1), expect=np.zeros((1, 4, 0, 5)))
case("Conv", X=f32(1, 0, 4, 4), W=f32(2, 0, 3, 3), expect=np.zeros((1, 2, 2, 2)))
case("Conv", X=f32(2, 3, 5, 6), W=f32(0, 3, 3, 2), expect=np.zeros((2, 0, 3, 5)))
case("Conv", X=f32(2, 3, 5, 6), W=f32(0, 1, 3, 2), group=3, expect=np.zeros((2, 0, 3, 5)))
case("ConvInteger", x=u8(2, 3, 5, 6), w=u8(0, 3, 3, 2), expect=np.zeros((2, 0, 3, 5)))
refuse("Conv", X=f32(1, 3, 5, 5), W=f32(4, 2, 3, 3), match="channels")
refuse("Conv", X=f32(1, 3, 5, 5), W=f32(4, 3, 3), match="rank")
refuse("Conv", X=f32(1, 3, 5, 5), W=f32(4, 3, 3, 3), kernel_shape=[2, 2], match="kernel_shape")
refuse("Conv", X=f32(1, 3, 5, 5), W=f32(4, 3, 3, 3), strides=[1], match="strides")
refuse("Conv", X=f32(1, 3, 5, 5), W=f32(4, 3, 3, 3), strides=[0, 1], match="strides")
refuse("Conv", X=f32(1, 3, 5, 5), W=f32(4, 3, 3, 3), pads=[1, 1], match="pads")
refuse("Conv", X=f32(1, 3, 5, 5), W=f32(4, 3, 3, 3), auto_pad="nonsense", match="auto_pad is 'nonsense'")
refuse("ConvTranspose", X=f32(1, 3, 5, 5), W=f32(3, 4, 3, 3), auto_pad="nonsense", match="auto_pad is 'nonsense'")
for auto_pad in ("NOTSET", "SAME_UPPER"):
    refuse(
        "ConvTranspose", X=f32(1, 3, 5, 5), W=f32(3, 4, 3, 3), output_padding=[1] * 5, auto_pad=auto_pad, match="output_padding"
    )
refuse("Conv", X=f32(1, 3, 1, 5), W=f32(4, 3, 9, 3), match="negative")


def test_columns_in_several_boxes_are_those_of_one(monkeypatch):
    X, W = f32(2, 3, 7, 9), f32(4, 3, 3, 3)
    whole = kernels.conv(X, W)
    monkeypatch.setattr(kernels, "COLUMN_BYTES", 700)
    np.testing.assert_allclose(kernels.conv(X, W), whole, rtol=1e-6, atol=1e-6)
    monkeypatch.setattr(kernels, "CACHE_BYTES", 100)
    depthwise = kernels.conv(X, W[:3, :1], group=3)
    np.testing.assert_allclose(depthwise, correlate(X, W[:3, :1], [0, 0], [0, 0], [1, 1], [1, 1], 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("budget", [1, 5, 12, 1000])
def test_boxes_cover_each_cell_once(budget):
    seen = np.zeros((3, 4, 5), int)
    for box in boxes(seen.shape, budget):
        seen[box] += 1
        assert seen[box].size <= budget
    assert (seen == 1).all()


def test_negative_pads_crop():
    X, W = f32(1, 1, 5, 5), f32(1, 1, 2, 2)
    cropped = kernels.conv(X, W, pads=[-1, 0, 0, -2])
    np.testing.assert_allclose(cropped, kernels.conv(X[:, :, 1:, :3], W), rtol=1e-6)
    assert make_window((5, 5), (2, 2), pads=[-1, 0, 0, -2]).output == (3, 2)


# --- ConvTranspose ---------------------------------------------------------------------------------------------------


def spread(begin, sizes, strides=None, dilations=None, group=1):
    """`expect` of a transposed convolution: each input pixel adds its filter to the output, of which `sizes` from `begin` stay."""

    def expect(X, W, B=None):
        rank = X.ndim - 2
        steps, gaps = strides or [1] * rank, dilations or [1] * rank
        spans = [(k - 1) * d + 1 for k, d in zip(W.shape[2:], gaps)]
        full = [max((i - 1) * s + span, b + o) for i, s, span, b, o in zip(X.shape[2:], steps, spans, begin, sizes)]
        filters, depth = W.shape[1], len(W) // group
        Y = np.zeros((len(X), filters * group, *full), np.float64)
        for place in np.ndindex(*X.shape[2:]):
            window = tuple(slice(p * s, p * s + span, d) for p, s, span, d in zip(place, steps, spans, gaps))
            for g in range(group):
                pixel = X[(slice(None), slice(g * depth, (g + 1) * depth), *place)]
                part = np.tensordot(pixel, W[g * depth : (g + 1) * depth], 1)
                Y[(slice(None), slice(g * filters, (g + 1) * filters), *window)] += part
        Y = Y[(..., *(slice(b, b + o) for b, o in zip(begin, sizes)))]
        return Y if B is None else Y + B.reshape(-1, *[1] * rank)

    return expect


case(
    "ConvTranspose", X=f32(2, 3, 3, 4), W=f32(3, 2, 3, 2), B=f32(2), types=FLOAT_TYPES, atol=0.05, expect=spread([0, 0], [5, 5])
)
case("ConvTranspose", X=f32(1, 2, 4), W=f32(2, 3, 3), strides=[2], pads=[1, 0], expect=spread([1], [8], [2]), atol=1e-5)
case(
    "ConvTranspose",
    X=f32(1, 2, 2, 3, 2),
    W=f32(2, 1, 2, 2, 3),
    dilations=[1, 2, 1],
    expect=spread([0] * 3, [3, 5, 4], None, [1, 2, 1]),
    atol=1e-5,
)
case(
    "ConvTranspose",
    X=f32(1, 4, 3, 3),
    W=f32(4, 2, 3, 3),
    group=2,
    strides=[2, 3],
    output_padding=[1, 2],
    expect=spread([0, 0], [8, 11], [2, 3], group=2),
    against_onnxruntime=True,
    atol=1e-5,
)
case(
    "ConvTranspose",
    X=f32(2, 3, 3, 3),
    W=f32(3, 1, 2, 2),
    group=3,
    strides=[2, 2],
    expect=spread([0, 0], [6, 6], [2, 2], group=3),
    atol=1e-5,
)
case(
    "ConvTranspose",
    X=f32(1, 1, 3, 3),
    W=f32(1, 2, 3, 3),
    strides=[3, 2],
    output_shape=[10, 8],
    expect=spread([0, 0], [10, 8], [3, 2]),
    atol=1e-5,
)
case(
    "ConvTranspose",
    X=f32(1, 1, 3, 3),
    W=f32(1, 1, 4, 4),
    strides=[2, 2],
    output_shape=[7, 7],
    expect=spread([1, 1], [7, 7], [2, 2]),
    against_onnxruntime=True,
    atol=1e-5,
)
case(
    "ConvTranspose",
    X=f32(1, 1, 3, 3),
    W=f32(1, 1, 4, 4),
    strides=[2, 2],
    output_shape=[7, 7],
    auto_pad="SAME_UPPER",
    expect=spread([0, 0], [7, 7], [2, 2]),
    against_onnxruntime=True,
    atol=1e-5,
)
case(
    "ConvTranspose",
    X=f32(1, 1, 3, 3),
    W=f32(1, 1, 3, 3),
    strides=[2, 2],
    auto_pad="SAME_UPPER",
    expect=spread([0, 0], [6, 6], [2, 2]),
    against_onnxruntime=True,
    atol=1e-5,
)
case(
    "ConvTranspose",
    X=f32(1, 1, 3, 3),
    W=f32(1, 1, 3, 3),
    strides=[2, 2],
    auto_pad="SAME_LOWER",
    expect=spread([1, 1], [6, 6], [2, 2]),
    against_onnxruntime=True,
    atol=1e-5,
)
case("ConvTranspose", X=f32(1, 1, 3, 3), W=f32(1, 1, 3, 3), auto_pad="VALID", expect=spread([0, 0], [5, 5]), atol=1e-5)
case(
    "ConvTranspose",
    X=f32(1, 1, 2, 2),
    W=f32(1, 1, 1, 1),
    strides=[3, 3],
    auto_pad="SAME_UPPER",
    expect=spread([0, 0], [6, 6], [3, 3]),
)
case("ConvTranspose", X=f32(0, 3, 5, 5), W=f32(3, 4, 3, 3), expect=np.zeros((0, 4, 7, 7)))
case("ConvTranspose", X=f32(2, 0, 5, 5), W=f32(0, 4, 3, 3), expect=np.zeros((2, 4, 7, 7)))
case("DeformConv", X=f32(2, 4, 5, 6), W=f32(0, 4, 3, 3), offset=f32(2, 18, 3, 4), expect=np.zeros((2, 0, 3, 4)))
case("DeformConv", X=f32(2, 0, 5, 6), W=f32(4, 0, 3, 3), offset=f32(2, 18, 3, 4), expect=np.zeros((2, 4, 3, 4)))
no_word = {"auto_pad": "", "pads": [1, 0, 1, 2]}
case("Conv", X=f32(1, 1, 5, 5), W=f32(1, 1, 3, 3), **no_word, against_onnxruntime=True)
case("ConvTranspose", X=f32(1, 1, 5, 5), W=f32(1, 1, 3, 3), **no_word, expect=spread([1, 0], [5, 5]), atol=1e-5)
refuse("ConvTranspose", X=f32(1, 3, 5, 5), W=f32(4, 2, 3, 3), match="channels")
refuse("ConvTranspose", X=f32(1, 3, 5, 5), W=f32(3, 2, 3, 3), dilations=[1], match="dilations")
refuse("ConvTranspose", X=f32(1, 3, 5, 5), W=f32(3, 2, 3, 3), kernel_shape=[3, 2**31 - 1], match="kernel_shape")


# --- integers --------------------------------------------------------------------------------------------------------


def exact(x, w, x_zero_point=None, w_zero_point=None, **place):
    zero = 0 if w_zero_point is None else w_zero_point.astype(np.int64).reshape(-1, *[1] * (w.ndim - 1))
    x = x.astype(np.int64) - (0 if x_zero_point is None else int(x_zero_point.item()))
    defaults = {"begin": [0, 0], "end": [0, 0], "strides": [1, 1], "dilations": [1, 1]}
    return correlate(x, w.astype(np.int64) - zero, **(defaults | place)).astype(np.int64)


BYTES = {"T1": {dtypes.int8, dtypes.uint8}, "T2": {dtypes.int8, dtypes.uint8}}
case("ConvInteger", x=u8(2, 3, 4, 5), w=u8(2, 3, 2, 2), types=BYTES, expect=lambda x, w: exact(x, w))
case(
    "ConvInteger",
    x=u8(1, 2, 4, 4),
    w=i8(3, 2, 3, 3),
    x_zero_point=np.uint8(5),
    pads=[1, 1, 1, 1],
    expect=lambda x, w, x_zero_point: exact(x, w, x_zero_point, begin=[1, 1], end=[1, 1]),
)
case(
    "ConvInteger",
    x=i8(1, 2, 4, 4),
    w=i8(3, 2, 3, 3),
    w_zero_point=i8(3),
    strides=[2, 1],
    expect=lambda x, w, w_zero_point: exact(x, w, None, w_zero_point, strides=[2, 1]),
)
case(
    "ConvInteger",
    x=u8(1, 4, 3, 3),
    w=u8(2, 2, 2, 2),
    x_zero_point=np.uint8(255),
    w_zero_point=np.uint8([3]),
    group=2,
    expect=lambda x, w, x_zero_point, w_zero_point: exact(x, w, x_zero_point, w_zero_point, group=2),
)
# sums beyond 2**24 still have their last digit
case(
    "ConvInteger", x=u8(1, 600, 3, 3, low=200, high=256), w=u8(1, 600, 3, 3, low=201, high=256), expect=lambda x, w: exact(x, w)
)
refuse("ConvInteger", x=u8(1, 4, 3, 3), w=u8(2, 3, 2, 2), match="channels")


def quantized(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None):
    sums = exact(x, w, x_zero_point, w_zero_point) + (0 if B is None else B.reshape(-1, 1, 1).astype(np.int64))
    real = sums * (x_scale.astype(np.float64) * w_scale.reshape(-1, 1, 1)) / y_scale
    limits = np.iinfo(y_zero_point.dtype)
    return np.clip(np.rint(real) + int(y_zero_point), limits.min, limits.max)


QUANTIZED = {"x_scale": np.float32(0.5), "y_scale": np.float32(0.25), "y_zero_point": np.uint8(100)}
case(
    "QLinearConv",
    **QUANTIZED,
    x=u8(2, 3, 4, 4),
    x_zero_point=np.uint8(3),
    w=u8(2, 3, 2, 2),
    w_scale=np.float32(0.125),
    w_zero_point=np.uint8(4),
    expect=quantized,
)
case(
    "QLinearConv",
    **QUANTIZED,
    x=i8(1, 3, 4, 4),
    x_zero_point=np.int8(-3),
    w=i8(2, 3, 2, 2),
    w_scale=np.float32([0.25, 0.5]),
    w_zero_point=np.int8([1, -2]),
    B=i32(2),
    expect=quantized,
)
# full-range products, which 16 bits do not hold
case(
    "QLinearConv",
    x=u8(1, 16, 4, 4, high=256),
    x_scale=np.float32(0.5),
    x_zero_point=np.uint8(0),
    w=i8(4, 16, 3, 3, low=-128, high=128),
    w_scale=np.float32(0.5),
    w_zero_point=np.int8(0),
    y_scale=np.float32(64),
    y_zero_point=np.int8(0),
    expect=quantized,
)


# --- DeformConv ------------------------------------------------------------------------------------------------------

X, W = f32(2, 4, 5, 6), f32(4, 4, 3, 3)
case(
    "DeformConv",
    X=X,
    W=W,
    B=f32(4),
    offset=np.zeros((2, 18, 3, 4), np.float32),
    types=FLOAT_TYPES,
    atol=0.06,
    expect=lambda X, W, B: plain()(X, W, B),
)
case(
    "DeformConv",
    X=X,
    W=W,
    offset=np.full((2, 18, 3, 4), 1, np.float32),
    atol=1e-5,
    expect=lambda X, W: plain(end=[1, 1])(X, W)[..., 1:, 1:],
)
# half a pixel down: the mean of two rows
case(
    "DeformConv",
    X=X,
    W=W,
    offset=np.tile(np.float32([0.5, 0]).reshape(2, 1, 1), (2, 9, 3, 4)),
    atol=1e-5,
    expect=lambda X, W: plain()((X + np.pad(X[:, :, 1:], [(0, 0), (0, 0), (0, 1), (0, 0)])) / 2, W),
)
case("DeformConv", X=X, W=W, offset=np.full((2, 18, 3, 4), -100, np.float32), expect=np.zeros((2, 4, 3, 4)))
case(
    "DeformConv",
    X=X,
    W=W,
    offset=np.zeros((2, 18, 3, 4), np.float32),
    mask=np.full((2, 9, 3, 4), 0.5, np.float32),
    atol=1e-5,
    expect=lambda X, W: plain()(X, W) / 2,
)
case(
    "DeformConv",
    X=X,
    W=f32(4, 2, 3, 3),
    offset=f32(2, 36, 4, 3),
    mask=f32(2, 18, 4, 3),
    group=2,
    offset_group=2,
    strides=[1, 2],
    pads=[1, 0, 0, 1],
    dilations=[1, 1],
    opsets=(19,),
    against_onnxruntime=True,
    atol=1e-4,
)
case(
    "DeformConv",
    X=f32(1, 2, 3, 3, 3),
    W=f32(1, 2, 2, 2, 2),
    offset=np.zeros((1, 24, 2, 2, 2), np.float32),
    atol=1e-5,
    expect=lambda X, W: plain()(X, W),
)


# --- Col2Im, CausalConvWithState -------------------------------------------------------------------------------------

case(
    "Col2Im",
    input=f32(1, 8, 4),
    image_shape=[4, 4],
    block_shape=[2, 2],
    strides=[2, 2],
    expect=lambda input: input.reshape(2, 2, 2, 2, 2).transpose(0, 3, 1, 4, 2).reshape(1, 2, 4, 4),
)
ALL = {"T": dtypes.NUMERIC - dtypes.SUB_BYTE_INTS | dtypes.COMPLEX}
case(
    "Col2Im",
    input=i64(1, 2, 3, low=0, high=5),
    image_shape=[1, 4],
    block_shape=[1, 2],
    types=ALL,
    expect=lambda input: np.array(
        [[[[input[0, 0, 0], input[0, 0, 1] + input[0, 1, 0], input[0, 0, 2] + input[0, 1, 1], input[0, 1, 2]]]]]
    ),
)
case("Col2Im", input=booleans(1, 1, 6), image_shape=[2, 3], block_shape=[1, 1], expect=lambda input: input.reshape(1, 1, 2, 3))
case("Col2Im", input=strings(1, 1, 6), image_shape=[2, 3], block_shape=[1, 1], expect=lambda input: input.reshape(1, 1, 2, 3))
case(
    "Col2Im",
    input=np.ones((1, 9, 9), np.float32),
    image_shape=[3, 3],
    block_shape=[3, 3],
    pads=[1, 1, 1, 1],
    expect=np.outer([2, 3, 2], [2, 3, 2])[None, None],
)
case(
    "Col2Im",
    input=np.ones((2, 4, 4), np.float32),
    image_shape=[4, 4],
    block_shape=[2, 2],
    dilations=[2, 2],
    expect=np.ones((2, 1, 4, 4)),
)
case(
    "Col2Im",
    input=f32(1, 8, 1),
    image_shape=[2, 2, 2],
    block_shape=[2, 2, 2],
    expect=lambda input: input.reshape(1, 1, 2, 2, 2),
)
refuse("Col2Im", input=f32(1, 4, 5), image_shape=[3, 3], block_shape=[2, 2], match="4 blocks")


def causal(input, weight, bias=None, past_state=None, activation="none"):
    taps = weight.shape[2]
    past = np.zeros((*input.shape[:2], taps - 1)) if past_state is None else past_state
    sequence = np.concatenate([past, input], axis=2)
    output = correlate(sequence, weight, [0], [0], [1], [1], input.shape[1]) + (0 if bias is None else bias[:, None])
    return output if activation == "none" else output / (1 + np.exp(-output)), sequence[:, :, input.shape[2] :]


case(
    "CausalConvWithState",
    input=f32(2, 3, 6),
    weight=f32(3, 1, 4),
    types={"T": FLOATS - {dtypes.float64}},
    atol=0.05,
    expect=causal,
)
case(
    "CausalConvWithState",
    input=f32(2, 3, 6),
    weight=f32(3, 1, 4),
    bias=f32(3),
    past_state=f32(2, 3, 3),
    activation="silu",
    expect=causal,
)
case("CausalConvWithState", input=f32(2, 3, 1), weight=f32(3, 1, 4), past_state=f32(2, 3, 3), activation="swish", expect=causal)
case("CausalConvWithState", input=f32(2, 3, 5), weight=f32(3, 1, 1), expect=causal)
refuse("CausalConvWithState", input=f32(2, 3, 5), weight=f32(3, 1, 2), activation="relu", match="activation")
