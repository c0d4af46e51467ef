"""Cases of the softmax family and of normalizations."""

import math

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import FLOATS
from tests.ops.cases import case, f32, f64, refuse

FLOAT_TYPES = {"T": FLOATS}
NAN, INF = np.nan, np.inf
EPSILON = float(np.float32(1e-5))


def exponentials(input, axis):
    wide = input.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=axis, keepdims=True, initial=-INF))
    return weights / weights.sum(axis=axis, keepdims=True)


def log_exponentials(input, axis):
    return np.log(exponentials(input, axis))


def first_largest(input, axis):
    return np.apply_along_axis(lambda row: np.eye(len(row))[np.argmax(row)], axis, input)


def flattened(function, axis):
    return lambda input: function(input.reshape(math.prod(input.shape[:axis]), -1), 1).reshape(input.shape)


INPUT = f32(2, 3, 4)
for op, formula in (("Softmax", exponentials), ("LogSoftmax", log_exponentials), ("Hardmax", first_largest)):
    case(op, input=INPUT, since=13, types=FLOAT_TYPES, atol=0.02, expect=lambda input, formula=formula: formula(input, -1))
    for axis in (0, 1, 2, -1, -3):
        case(op, input=INPUT, axis=axis, since=13, expect=lambda input, axis, formula=formula: formula(input, axis))
    for axis in (0, 1, 2):
        case(op, input=INPUT, axis=axis, until=12, types=FLOAT_TYPES, atol=0.02, expect=flattened(formula, axis))
    case(op, input=INPUT, axis=-2, opsets=(11,), expect=flattened(formula, 1))
    case(op, input=f32(0, 3), since=13, expect=np.zeros((0, 3)))
    case(op, input=f32(3, 0), expect=np.zeros((3, 0)))
    case(op, input=f32(2, 1), axis=1, expect=np.full((2, 1), 0.0 if op == "LogSoftmax" else 1.0))
    refuse(op, input=INPUT, axis=5, match="axis")
case("Softmax", input=f64(2, 700, low=-900, high=900), axis=1, expect=lambda input: exponentials(input, 1))
case("Softmax", input=np.float32([[-INF, 0], [-INF, -INF], [INF, 0]]), expect=np.array([[0, 1], [NAN, NAN], [NAN, NAN]]))
case("LogSoftmax", input=np.float32([[-INF, 0], [-INF, -INF]]), expect=np.array([[-INF, 0], [NAN, NAN]]))
case("LogSoftmax", input=np.float32([[0, -1000]]), expect=np.array([[0, -1000]]))
case("Hardmax", input=np.float32([[1, 3, 3], [2, 2, 2]]), axis=1, expect=np.array([[0, 1, 0], [1, 0, 0]]))


# --- BatchNormalization ----------------------------------------------------------------------------------------------


def column(vector, rank):
    return vector.reshape(-1, *[1] * (rank - 2))


def normalized(X, scale, B, input_mean, input_var, epsilon=EPSILON):
    parts = (column(v.astype(np.float64), X.ndim) for v in (scale, B, input_mean, input_var))
    scale, bias, mean, var = parts
    return (X - mean) / np.sqrt(var + epsilon) * scale + bias


def statistics(X):
    axes = tuple(axis for axis in range(X.ndim) if axis != 1)
    return X.mean(axis=axes, dtype=np.float64), X.var(axis=axes, dtype=np.float64)


def trained(momentum):
    def expect(X, scale, B, input_mean, input_var):
        mean, var = statistics(X)
        keep = momentum
        running = input_mean * keep + mean * (1 - keep), input_var * keep + var * (1 - keep)
        return normalized(X, scale, B, mean, var), *running

    return expect


def trained_and_saved(X, scale, B, input_mean, input_var):
    return *trained(float(np.float32(0.9)))(X, scale, B, input_mean, input_var), *statistics(X)


def channels(count):
    return {"scale": f32(count), "B": f32(count), "input_mean": f32(count), "input_var": f32(count, low=0.1, high=2)}


IMAGES = f32(2, 3, 4, 5)
case("BatchNormalization", X=IMAGES, **channels(3), until=13, since=7, types=FLOAT_TYPES, atol=0.05, expect=normalized)
case(
    "BatchNormalization",
    X=IMAGES,
    **channels(3),
    since=15,
    types={"T": FLOATS, "T1": FLOATS, "T2": FLOATS},
    atol=0.1,
    rtol=0.05,
    expect=normalized,
)
case(
    "BatchNormalization",
    X=IMAGES,
    **channels(3),
    epsilon=0.5,
    opsets=(7, 9, 14, 15),
    expect=normalized,
    against_onnxruntime=True,
)
case("BatchNormalization", X=f32(4, 3), **channels(3), since=7, expect=normalized)
case(
    "BatchNormalization",
    X=f32(4),
    **channels(1),
    since=9,
    expect=lambda X, scale, B, input_mean, input_var: normalized(X[:, None], scale, B, input_mean, input_var)[:, 0],
)
case("BatchNormalization", X=f32(0, 3, 2), **channels(3), since=7, expect=np.zeros((0, 3, 2)))
case("BatchNormalization", X=IMAGES, **channels(3), is_test=1, opsets=(6,), expect=normalized)
case("BatchNormalization", X=IMAGES, **channels(3), is_test=1, consumed_inputs=[0, 0, 0, 1, 1], opsets=(1,), expect=normalized)
case("BatchNormalization", X=IMAGES, **channels(3), training_mode=1, momentum=0.75, expect=trained(0.75), atol=1e-5)
case("BatchNormalization", X=IMAGES, **channels(3), opsets=(6, 7, 9), expect=trained_and_saved, atol=1e-5)
case(
    "BatchNormalization",
    X=IMAGES,
    **channels(3),
    consumed_inputs=[0, 0, 0, 1, 1],
    opsets=(1,),
    expect=trained_and_saved,
    atol=1e-5,
)


def per_activation(X, scale, B, input_mean, input_var):
    """Without `spatial` each activation is a channel of its own."""
    Y, *rest = trained_and_saved(X.reshape(len(X), -1), scale, B, input_mean, input_var)
    return Y.reshape(X.shape), *rest


case(
    "BatchNormalization",
    X=f32(3, 2, 2),
    **channels(4),
    spatial=0,
    opsets=(6, 7),
    expect=lambda X, scale, B, input_mean, input_var: normalized(X.reshape(3, 4), scale, B, input_mean, input_var).reshape(
        3, 2, 2
    ),
)
case("BatchNormalization", X=f32(3, 2, 2), **channels(4), spatial=0, opsets=(6, 7), expect=per_activation, atol=1e-5)


# --- within a sample -------------------------------------------------------------------------------------------------


def standard(X, axes, epsilon=EPSILON):
    X = X.astype(np.float64)
    return (X - X.mean(axis=axes, keepdims=True)) / np.sqrt(X.var(axis=axes, keepdims=True) + epsilon)


def instance(input, scale, B, epsilon=EPSILON):
    axes = tuple(range(2, input.ndim))
    return standard(input, axes, epsilon) * column(scale, input.ndim) + column(B, input.ndim)


case("InstanceNormalization", input=IMAGES, scale=f32(3), B=f32(3), types=FLOAT_TYPES, atol=0.03, expect=instance)
case("InstanceNormalization", input=f32(2, 3, 7), scale=f32(3), B=f32(3), epsilon=0.1, expect=instance)
case("InstanceNormalization", input=f32(0, 3, 4), scale=f32(3), B=f32(3), expect=np.zeros((0, 3, 4)))


def grouped(X, scale, bias, num_groups, epsilon=EPSILON):
    rows = standard(X.reshape(len(X), num_groups, -1), (2,), epsilon).reshape(X.shape)
    return rows * column(scale, X.ndim) + column(bias, X.ndim)


case(
    "GroupNormalization",
    X=f32(2, 6, 3, 2),
    scale=f32(6),
    bias=f32(6),
    num_groups=3,
    since=21,
    types=FLOAT_TYPES,
    atol=0.03,
    expect=grouped,
)
case(
    "GroupNormalization",
    X=f32(2, 6, 5),
    scale=f32(6),
    bias=f32(6),
    num_groups=2,
    epsilon=0.25,
    stash_type=1,
    since=21,
    expect=lambda X, scale, bias: grouped(X, scale, bias, 2, 0.25),
)
case(
    "GroupNormalization",
    X=f32(2, 6, 3, 2),
    scale=f32(3),
    bias=f32(3),
    num_groups=3,
    opsets=(18,),
    expect=lambda X, scale, bias, num_groups: grouped(X, scale.repeat(2), bias.repeat(2), num_groups),
)
refuse("GroupNormalization", X=f32(2, 6, 3), scale=f32(6), bias=f32(6), num_groups=4, since=21, match="groups")


def layered(axis, epsilon=EPSILON):
    """Y, Mean and InvStdDev over the axes from `axis` on."""

    def expect(X, Scale, B=None):
        axes = tuple(range(axis % X.ndim, X.ndim))
        wide = X.astype(np.float64)
        Y = standard(X, axes, epsilon) * Scale + (0 if B is None else B)
        return Y, wide.mean(axis=axes, keepdims=True), 1 / np.sqrt(wide.var(axis=axes, keepdims=True) + epsilon)

    return expect


case("LayerNormalization", X=IMAGES, Scale=f32(5), B=f32(5), types=FLOAT_TYPES, atol=0.06, rtol=0.02, expect=layered(-1))
case("LayerNormalization", X=IMAGES, Scale=f32(5), stash_type=16, outputs=3, rtol=0.02, atol=0.02, expect=layered(-1))
for axis in range(-4, 4):
    shape = IMAGES.shape[axis:]
    case(
        "LayerNormalization",
        X=IMAGES,
        Scale=f32(*shape),
        B=f32(*shape),
        axis=axis,
        epsilon=0.01,
        expect=layered(axis, 0.01),
        atol=1e-5,
    )
case(
    "LayerNormalization",
    X=IMAGES,
    Scale=f32(1),
    B=f32(4, 5),
    axis=1,
    expect=lambda X, Scale, B: layered(1)(X, Scale, B)[0],
    outputs=[0],
)
case("LayerNormalization", X=f32(0, 4), Scale=f32(4), expect=np.zeros((0, 4)))
refuse("LayerNormalization", X=IMAGES, Scale=f32(5), axis=4, match="axis")


def root_mean_square(axis, epsilon=EPSILON):
    def expect(X, scale):
        wide = X.astype(np.float64)
        axes = tuple(range(axis % X.ndim, X.ndim))
        return wide / np.sqrt((wide**2).mean(axis=axes, keepdims=True) + epsilon) * scale

    return expect


case(
    "RMSNormalization",
    X=IMAGES,
    scale=f32(5),
    types={"T": FLOATS, "V": FLOATS},
    rtol=0.02,
    atol=0.02,
    expect=root_mean_square(-1),
)
for axis in range(-4, 4):
    case(
        "RMSNormalization",
        X=IMAGES,
        scale=f32(*IMAGES.shape[axis:]),
        axis=axis,
        epsilon=0.01,
        expect=root_mean_square(axis, 0.01),
    )
refuse("RMSNormalization", X=IMAGES, scale=f32(5), axis=-5, match="axis")


ROWS = np.float32([[3, 4, 0], [0, 0, 0], [-1, 2, 2]])
case("LpNormalization", input=ROWS, types=FLOAT_TYPES, expect=np.array([[0.6, 0.8, 0], [0, 0, 0], [-1 / 3, 2 / 3, 2 / 3]]))
case("LpNormalization", input=ROWS, p=1, expect=np.array([[3 / 7, 4 / 7, 0], [0, 0, 0], [-0.2, 0.4, 0.4]]))
case("LpNormalization", input=ROWS, axis=0, p=1, expect=lambda input: input / np.float32([4, 6, 2]))
refuse("LpNormalization", input=ROWS, p=3, match="p is 3")
refuse("LpNormalization", input=ROWS, axis=2, match="axis")

case("MeanVarianceNormalization", X=IMAGES, types=FLOAT_TYPES, atol=0.03, expect=lambda X: standard(X, (0, 2, 3), 0))
case("MeanVarianceNormalization", X=f32(2, 3, 4), axes=[-1], expect=lambda X: standard(X, (2,), 0))


ALPHA = float(np.float32(1e-4))


def local_response(size, alpha=ALPHA, beta=0.75, bias=1.0):
    def expect(X):
        Y = np.zeros(X.shape)
        for c in range(X.shape[1]):
            near = X[:, max(0, c - (size - 1) // 2) : c + math.ceil((size - 1) / 2) + 1].astype(np.float64)
            Y[:, c] = X[:, c] / (bias + alpha / size * (near**2).sum(axis=1)) ** beta
        return Y

    return expect


case("LRN", X=f32(2, 5, 3), size=2**40 + 1, expect=lambda X: X)  # so many neighbours weigh nothing
for beta in (0.5, 0.75, 0.6):  # the power of -inf is inf, that of -0 is 0, and there is none of other numbers below 0
    case("LRN", X=f32(2, 5, 3) + 1, size=3, alpha=-np.inf, beta=beta, expect=lambda X: np.zeros_like(X))
    case("LRN", X=f32(2, 5, 3) + 1, size=3, alpha=-1.0, beta=beta, bias=0.0, expect=lambda X: np.full_like(X, np.nan))
case("LRN", X=np.full((1, 3, 2), 1e-30, np.float32), size=1, alpha=-1.0, beta=0.5, bias=-0.0, expect=np.full((1, 3, 2), np.inf))
refuse("LRN", X=f32(2, 5, 3), size=0, match="size must be positive")
case("LRN", X=f32(2, 5, 3, 3), size=3, types=FLOAT_TYPES, expect=local_response(3))
for size in (1, 2, 4, 9):
    case("LRN", X=f32(2, 5, 3), size=size, alpha=0.5, beta=0.25, bias=2.0, expect=local_response(size, 0.5, 0.25, 2.0))
case("LRN", X=f32(0, 5, 3, 3), size=3, expect=np.zeros((0, 5, 3, 3)))


def test_float64_is_not_computed_in_float32():
    from sardonyx.providers.cpu.normalization import layer_normalization

    X = np.array([[1.0, 1.0 + 1e-9]])
    Y, *_ = layer_normalization(X, np.ones(2), epsilon=0.0)
    np.testing.assert_allclose(Y, [[-1, 1]], rtol=1e-6)
    assert Y.dtype == dtypes.float64.numpy
