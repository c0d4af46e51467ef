"""Cases of com.microsoft's ops for diffusion models, of which onnxruntime has kernels for GPUs only."""

import math

import numpy as np

from sardonyx.dtypes import float16, float32, float64
from tests.ops.cases import case, f32, refuse

CONTRIB = "com.microsoft"
HALVES = {"types": {"T": {float16, float32}}, "domain": CONTRIB, "rtol": 1e-2, "atol": 1e-2}

case("BiasAdd", X=f32(2, 3, 4), bias=f32(4), skip=f32(2, 3, 4), **HALVES, expect=lambda X, bias, skip: X + bias + skip)
case("BiasAdd", X=f32(0, 3, 4), bias=f32(4), skip=f32(0, 3, 4), domain=CONTRIB, expect=np.zeros((0, 3, 4), np.float32))


def split_gelu(X, bias):
    left, right = np.split(X + bias, 2, axis=2)
    return left * right * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float32])(right / math.sqrt(2)))


case("BiasSplitGelu", X=f32(2, 3, 8), bias=f32(8), **HALVES, expect=split_gelu)
case("BiasSplitGelu", X=f32(0, 3, 8), bias=f32(8), domain=CONTRIB, expect=np.zeros((0, 3, 4), np.float32))


def group_norm(X, gamma, beta, groups, activation, epsilon=1e-5, channels_last=1, skip=None, bias=None):
    image = X if channels_last else X.transpose(0, 2, 3, 1)
    if skip is not None:
        if skip.ndim == 2:
            skip = skip[:, None, None]
        elif not channels_last:
            skip = skip.transpose(0, 2, 3, 1)
        image = image + skip + (0 if bias is None else bias)
    Y = np.empty_like(image)
    size = image.shape[3] // groups
    for n in range(len(image)):
        for start in range(0, image.shape[3], size):
            part = image[n, :, :, start : start + size]
            Y[n, :, :, start : start + size] = (part - part.mean()) / np.sqrt(part.var() + epsilon)
    Y = Y * gamma + beta
    Y = Y / (1 + np.exp(-Y)) if activation else Y
    back = (lambda t: t) if channels_last else (lambda t: t.transpose(0, 3, 1, 2))
    return back(Y) if skip is None else (back(Y), back(image))


for activation in (0, 1):
    for channels_last, shape in ((1, (2, 4, 5, 6)), (0, (2, 6, 4, 5))):
        common = {"X": f32(*shape), "gamma": f32(6), "beta": f32(6), "groups": 3, "activation": activation}
        common |= {"channels_last": channels_last, "expect": group_norm, **HALVES}
        case("GroupNorm", **common)
        case("GroupNorm", **common, epsilon=0.5)
        for skip in (f32(*shape), f32(2, 6), f32(2, 1, 1, 6) if channels_last else f32(2, 6, 1, 1)):
            case("SkipGroupNorm", **common, skip=skip)
        case("SkipGroupNorm", **common, skip=f32(*shape), bias=f32(6))
case("GroupNorm", X=f32(0, 4, 5, 6), gamma=f32(6), beta=f32(6), groups=3, activation=0, domain=CONTRIB, expect=group_norm)
REFUSED = {"X": f32(2, 4, 5, 6), "gamma": f32(6), "beta": f32(6), "domain": CONTRIB}
refuse("GroupNorm", **REFUSED, groups=4, activation=0, match="6 channels cannot be divided into 4 groups")
refuse("GroupNorm", **REFUSED, groups=3, activation=2, match="activation must be 0")

case(
    "NhwcConv",
    X=f32(2, 4, 5, 3),
    W=f32(6, 4, 5, 3),
    B=f32(6),
    types={"T": {float16, float32, float64}},
    domain=CONTRIB,
    expect=lambda X, W, B: (np.einsum("nhwc,mhwc->nm", X, W) + B)[:, None, None],
    rtol=1e-2,
    atol=5e-2,
)
case(
    "NhwcConv",
    X=f32(1, 4, 5, 4),
    W=f32(4, 1, 1, 1),
    group=4,
    strides=[2, 1],
    domain=CONTRIB,
    expect=lambda X, W: X[:, ::2] * W[:, 0, 0, 0],
)
refuse("NhwcConv", X=f32(1, 4, 5, 4), W=f32(4, 2, 2, 3), domain=CONTRIB, match="channels")
