"""Cases of com.microsoft's quantized activations, joins, pools and convolutions."""

import itertools

import numpy as np

from sardonyx.dtypes import int8, uint8
from tests.ops.cases import array, booleans, case, f32, i8, i32, refuse, u8

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}


def rounded(values, scale, zero_point, dtype):
    limits = np.iinfo(dtype)
    whole = np.rint(np.asarray(values, np.float64) / np.float64(scale)) + int(zero_point)
    return np.clip(whole, limits.min, limits.max).astype(dtype)


def real(values, scale, zero_point=0):
    return (values.astype(np.float64) - int(zero_point)) * np.float64(scale)


def numbers(dtype, *shape):
    return array(dtype, *shape, low=np.iinfo(dtype).min, high=np.iinfo(dtype).max + 1)


def point(dtype, value):
    return np.array(value, dtype)


# --- functions of one number


def sigmoid(X, X_scale, Y_scale, X_zero_point=0, Y_zero_point=0):
    return rounded(1 / (1 + np.exp(-real(X, X_scale, X_zero_point))), Y_scale, Y_zero_point, X.dtype)


def leaky_relu(X, X_scale, Y_scale, X_zero_point=0, Y_zero_point=0, alpha=0.01):
    x = real(X, X_scale, X_zero_point)
    return rounded(np.where(x < 0, alpha * x, x), Y_scale, Y_zero_point, X.dtype)


for dtype in (np.uint8, np.int8):
    everything = np.arange(256, dtype=np.uint8).view(dtype)
    for X in (everything.reshape(2, 8, 16), numbers(dtype, 1), numbers(dtype)):
        points = {"X_zero_point": point(dtype, 13), "Y_zero_point": point(dtype, 3)}
        case("QLinearSigmoid", X=X, X_scale=0.0625, Y_scale=1 / 256, **points, **BOTH, expect=sigmoid)
        # without zero points onnxruntime aborts the process
        case("QLinearSigmoid", X=X, X_scale=0.03125, Y_scale=1 / 128, domain=CONTRIB, expect=sigmoid)
        case("QLinearLeakyRelu", X=X, X_scale=0.0625, Y_scale=0.125, **points, alpha=0.3, **BOTH, expect=leaky_relu)
        case("QLinearLeakyRelu", X=X, X_scale=0.0625, Y_scale=0.03125, domain=CONTRIB, expect=leaky_relu)
    case("QLinearSigmoid", X=numbers(dtype, 0, 3), X_scale=1.0, Y_scale=1.0, domain=CONTRIB, expect=np.zeros((0, 3), dtype))
case("QLinearLeakyRelu", X=u8(0, 3), X_scale=1.0, Y_scale=1.0, domain=CONTRIB, expect=np.zeros((0, 3), np.uint8))

# --- QLinearSoftmax


def softmax(X, X_scale, y_scale, y_zero_point, axis, opset, x_zero_point=0):
    values = real(X, X_scale, x_zero_point)
    axes = tuple(range(axis % X.ndim, X.ndim)) if opset < 13 else (axis,)
    weights = np.exp(values - values.max(axis=axes, keepdims=True))
    return rounded(weights / weights.sum(axis=axes, keepdims=True), y_scale, y_zero_point, X.dtype)


for dtype, opset, axis in itertools.product((np.uint8, np.int8), (12, 13), (-1, 0, 1)):
    lowest = np.iinfo(dtype).min
    settings = {"X_scale": 0.125, "x_zero_point": point(dtype, 3), "y_scale": 1 / 256, "y_zero_point": point(dtype, lowest)}
    case("QLinearSoftmax", X=numbers(dtype, 2, 5, 7), **settings, axis=axis, opset=opset, **BOTH, expect=softmax)
    # a chance of 1 is 256 steps, which onnxruntime wraps to 0
    case("QLinearSoftmax", X=numbers(dtype, 2, 1), **settings, axis=axis, opset=opset, domain=CONTRIB, expect=softmax)
ONE = {"X_scale": 1.0, "y_scale": 1.0, "y_zero_point": point(np.uint8, 0), "domain": CONTRIB}
case("QLinearSoftmax", X=u8(0, 3), **ONE, opset=13, expect=np.zeros((0, 3), np.uint8))
refuse("QLinearSoftmax", X=u8(2, 3), **ONE, opset=13, axis=2, match="axis 2 is outside")

# --- QLinearConcat and QLinearWhere


def concat(Y_scale, Y_zero_point, inputs, axis):
    parts = [real(*inputs[start : start + 3]) for start in range(0, len(inputs), 3)]
    return rounded(np.concatenate(parts, axis=axis), Y_scale, Y_zero_point, Y_zero_point.dtype)


def triple(dtype, scale, zero_point, *shape):
    return [numbers(dtype, *shape), np.array(scale, np.float32), point(dtype, zero_point)]


for dtype in (np.uint8, np.int8):
    inputs = triple(dtype, 0.25, 3, 2, 3, 4) + triple(dtype, 0.125, 7, 2, 2, 4) + triple(dtype, 0.5, 1, 2, 1, 4)
    result = {"Y_scale": 0.5, "Y_zero_point": point(dtype, 5)}
    case("QLinearConcat", inputs=inputs, **result, axis=1, **BOTH, expect=concat)
    case("QLinearConcat", inputs=inputs, **result, axis=-2, **BOTH, expect=concat)
    case("QLinearConcat", inputs=triple(dtype, 0.5, 5, 3) + triple(dtype, 0.5, 5, 2), **result, axis=0, **BOTH, expect=concat)
    case("QLinearConcat", inputs=triple(dtype, 0.25, 5, 3), **result, axis=0, **BOTH, expect=concat)
    case(
        "QLinearConcat",
        inputs=triple(dtype, 0.25, 5, 0, 2) + triple(dtype, 0.5, 3, 3, 2),
        **result,
        axis=0,
        domain=CONTRIB,
        expect=concat,
    )
refuse(
    "QLinearConcat",
    inputs=triple(np.uint8, 1.0, 0, 3)[:2],
    Y_scale=1.0,
    Y_zero_point=point(np.uint8, 0),
    axis=0,
    domain=CONTRIB,
    match="triples",
)


def where(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    values = np.where(condition, real(X, x_scale, x_zero_point), real(Y, y_scale, y_zero_point))
    return rounded(values, z_scale, z_zero_point, X.dtype)


for dtype in (np.uint8, np.int8):
    points = {"x_zero_point": point(dtype, 3), "y_zero_point": point(dtype, 7), "z_zero_point": point(dtype, 1)}
    SCALES = {"x_scale": 0.25, "y_scale": 0.125, "z_scale": 0.5, **points, "expect": where}
    for shapes in (((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), (1, 3)), ((2, 1, 1), (1,), (4, 1)), ((1,), (1,), (1,))):
        condition, X, Y = booleans(*shapes[0]), numbers(dtype, *shapes[1]), numbers(dtype, *shapes[2])
        case("QLinearWhere", condition=condition, X=X, Y=Y, **SCALES, **BOTH)
    case("QLinearWhere", condition=booleans(0, 3), X=numbers(dtype, 3), Y=numbers(dtype, 1), **SCALES, domain=CONTRIB)
BAD = {name: value for name, value in SCALES.items() if name != "expect"}
refuse("QLinearWhere", condition=booleans(2), X=i8(3), Y=i8(3), **BAD, domain=CONTRIB, match="broadcast")

# --- pools


def average(X, x_scale, y_scale, x_zero_point=0, y_zero_point=0, kernel_shape=None, strides=(1, 1), channels_last=0):
    values = real(X, x_scale, x_zero_point)
    values = np.moveaxis(values, -1, 1) if channels_last else values
    views = np.lib.stride_tricks.sliding_window_view(values, tuple(kernel_shape), axis=(2, 3))
    means = views[:, :, :: strides[0], :: strides[1]].mean(axis=(-1, -2))
    limits = np.iinfo(X.dtype)
    whole = np.clip(np.rint(means / y_scale + int(y_zero_point)), limits.min, limits.max)
    return (np.moveaxis(whole, 1, -1) if channels_last else whole).astype(X.dtype)


for dtype, channels_last in itertools.product((np.uint8, np.int8), (0, 1)):
    scales = {"x_scale": 0.25, "y_scale": 0.5, "channels_last": channels_last, **BOTH}
    points = {"x_zero_point": point(dtype, 12), "y_zero_point": point(dtype, 7)}
    X = numbers(dtype, 2, 6, 5, 3) if channels_last else numbers(dtype, 2, 3, 6, 5)
    pool = {"kernel_shape": [2, 2], "strides": [2, 1]}
    case("QLinearAveragePool", X=X, **scales, **points, **pool, expect=average)
    alone = {**scales, "against_onnxruntime": False, "expect": average}
    case("QLinearAveragePool", X=X, **alone, **pool)
    case("QLinearAveragePool", X=X, **scales, **points, kernel_shape=[2, 2], pads=[0, 1, 1, 0])
    case("QLinearAveragePool", X=X, **scales, **points, kernel_shape=[2, 2], pads=[0, 1, 1, 0], count_include_pad=1)
    case("QLinearAveragePool", X=X, **scales, **points, kernel_shape=[4, 2], strides=[3, 2], ceil_mode=1)
    case("QLinearAveragePool", X=X, **scales, **points, kernel_shape=[4, 2], auto_pad="SAME_UPPER")
    empty = numbers(dtype, 0, 6, 5, 3) if channels_last else numbers(dtype, 0, 3, 6, 5)
    case("QLinearAveragePool", X=empty, **alone, **pool)
    for shape in ((2, 3, 4, 4), (1, 1, 1, 1), (2, 4, 2, 4)):

        def mean(X, x_scale, x_zero_point, y_scale, y_zero_point, channels_last):
            values = real(X, x_scale, x_zero_point).mean(axis=(1, 2) if channels_last else (2, 3), keepdims=True)
            return rounded(values, y_scale, y_zero_point, X.dtype)

        # windows of sixteen and eight numbers: no mean lies beside the middle of two steps by rounding errors
        case("QLinearGlobalAveragePool", X=numbers(dtype, *shape), **scales, **points, expect=mean)
refuse(
    "QLinearGlobalAveragePool",
    X=u8(2, 3, 0, 4),
    x_scale=1.0,
    x_zero_point=point(np.uint8, 0),
    y_scale=1.0,
    y_zero_point=point(np.uint8, 0),
    domain=CONTRIB,
    match="nothing to average",
)
for axes, keepdims in itertools.product(([0], [1, -1], []), (0, 1)):
    case(
        "QLinearReduceMean",
        data=numbers(np.uint8, 2, 3, 4),
        data_scale=0.5,
        data_zero_point=point(np.uint8, 9),
        reduced_scale=0.25,
        reduced_zero_point=point(np.uint8, 3),
        axes=axes,
        keepdims=keepdims,
        types={"T": {uint8, int8}},
        domain=CONTRIB,
        expect=lambda data, data_zero_point, axes, keepdims: rounded(
            real(data, 0.5, data_zero_point).mean(axis=tuple(axes) or None, keepdims=bool(keepdims)), 0.25, 3, data.dtype
        ),
    )

for dtype in (np.uint8, np.int8):
    x = numbers(dtype, 2, 6, 5, 3)
    case("NhwcMaxPool", x=x, kernel_shape=[2, 3], **BOTH)
    case("NhwcMaxPool", x=x, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 0, 1], **BOTH)
    case("NhwcMaxPool", x=x, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1, **BOTH)
    case("NhwcMaxPool", x=x, kernel_shape=[2, 2], dilations=[2, 1], **BOTH)
    case("NhwcMaxPool", x=x, kernel_shape=[2, 2], auto_pad="SAME_LOWER", **BOTH)
    case("NhwcMaxPool", x=numbers(dtype, 1, 1, 1, 1), kernel_shape=[1, 1], **BOTH, expect=lambda x: x)
    case("NhwcMaxPool", x=numbers(dtype, 2, 7, 3), kernel_shape=[3], strides=[2], **BOTH)
    everything = {"kernel_shape": [6, 5], "expect": lambda x: x.max(axis=(1, 2), keepdims=True)}
    case("NhwcMaxPool", x=x, **everything, **BOTH)
    case("NhwcMaxPool", x=numbers(dtype, 0, 6, 5, 3), **everything, domain=CONTRIB)

# --- QLinearConv


def convolved(x, x_zero_point, w, w_zero_point, w_scale, y_zero_point, x_scale, y_scale, B=None, channels_last=0):
    """A window as large as the image: one product."""
    image = x.astype(np.int64) - int(x_zero_point)
    image = np.moveaxis(image, -1, 1) if channels_last else image
    filters = w.astype(np.int64) - np.asarray(w_zero_point, np.int64).reshape(-1, 1, 1, 1)
    sums = np.einsum("nchw,mchw->nm", image, filters) + (0 if B is None else B)
    values = rounded(sums * np.float64(x_scale) * w_scale, y_scale, y_zero_point, y_zero_point.dtype)
    return values[:, None, None] if channels_last else values[:, :, None, None]


for (tx, tw), channels_last in itertools.product(((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)), (0, 1)):
    image = array(tx, 2, 6, 5, 3) if channels_last else array(tx, 2, 3, 6, 5)
    scales = {"x_scale": 0.5, "x_zero_point": point(tx, 3), "y_scale": 2.0, "y_zero_point": point(tx, 9)}
    common = {"x": image, **scales, "channels_last": channels_last, **BOTH}
    filters = {"w": array(tw, 4, 3, 2, 3), "w_scale": 0.25, "w_zero_point": point(tw, 2)}
    case("QLinearConv", **common, **filters)
    case("QLinearConv", **common, **filters, B=i32(4), pads=[1, 0, 1, 2], strides=[2, 1])
    case("QLinearConv", **common, **filters, dilations=[2, 1], auto_pad="NOTSET", kernel_shape=[2, 3])
    columns = {"w_scale": np.array([0.5, 0.25, 0.125, 1.0], np.float32), "w_zero_point": np.zeros(4, tw)}
    case("QLinearConv", **common, **{**filters, **columns})
    case("QLinearConv", **common, w=array(tw, 6, 1, 2, 2), w_scale=0.25, w_zero_point=point(tw, 2), group=3)
    whole = {"w": array(tw, 4, 3, 6, 5), "w_scale": 0.25, "w_zero_point": point(tw, 2), "B": i32(4)}
    case("QLinearConv", **common, **whole, expect=convolved)
nothing = {"x": u8(0, 3, 6, 5), **scales, "x_zero_point": point(np.uint8, 0), "y_zero_point": point(np.uint8, 0)}
filters = {"w": u8(4, 3, 6, 5), "w_scale": 1.0, "w_zero_point": point(np.uint8, 0)}
case("QLinearConv", **nothing, **filters, domain=CONTRIB, expect=np.zeros((0, 4, 1, 1), np.uint8))
refuse("QLinearConv", **nothing, **filters, channels_last=1, domain=CONTRIB, match="channels")
refuse("QLinearConv", **{**nothing, "x": f32(1, 3, 6, 5)}, **filters, domain=CONTRIB, match="type|Type")
