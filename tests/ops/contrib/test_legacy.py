"""Cases of com.microsoft's predecessors of standard ops."""

import itertools

import numpy as np

from sardonyx.dtypes import bfloat16, bool_, complex64, float16, float32, float64, int8, int16, int32, int64, string, uint8
from tests.ops.cases import array, case, f32, f64, i32, i64, refuse, strings

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}
ALONE = {"domain": CONTRIB}
MANY = {float16, float32, float64, int8, int16, int32, int64, uint8, bool_}

for k, upper in itertools.product((None, -1, 0, 2, 9), (0, 1)):
    expect = lambda X, k=0, upper=1: np.triu(X, int(k)) if upper else np.tril(X, int(k))  # noqa: E731
    case("Trilu", X=f32(2, 3, 4), k=None if k is None else np.array(k), upper=upper, **BOTH, expect=expect)
case("Trilu", X=f32(3, 3), types={"T": MANY | {bfloat16}}, **ALONE, expect=lambda X: np.triu(X))
case("Trilu", X=f32(0, 3, 4), **ALONE, expect=np.zeros((0, 3, 4), np.float32))

for dtype in (np.int16, np.int32, np.int64, np.float32, np.float64):
    number = lambda value, dtype=dtype: np.array(value, dtype)  # noqa: E731
    case("Range", start=number(1), limit=number(9), **BOTH, expect=np.arange(1, 9, dtype=dtype))
    case("Range", start=number(1), limit=number(10), delta=number(4), **BOTH, expect=np.arange(1, 10, 4, dtype=dtype))
    case("Range", start=number([9]), limit=number([1]), delta=number([-3]), **BOTH, expect=np.array([9, 6, 3], dtype))
    case("Range", start=number(9), limit=number(1), **BOTH, expect=np.zeros(0, dtype))
refuse("Range", start=np.array(1), limit=np.array(2), delta=np.array(0), **ALONE, match="delta in Range")

for mode, pads in itertools.product(
    ("constant", "reflect", "edge"), ([0, 1, 1, 0], [[0, 1, 1, 0]], [1, 0, 0, -1], [0, 0, 0, 0])
):
    case("Pad", data=f32(3, 4), pads=np.array(pads), mode=mode, **BOTH, sizes_known=np.ndim(pads) == 1)
case("Pad", data=f32(3, 4), pads=np.array([0, 1, 1, 0]), value=7.0, **BOTH)
case("Pad", data=f32(3, 4), pads=np.array([0, 1, 1, 0]), value=np.array([7], np.float32), **BOTH)
halves = {"types": {"T": {float16, float32, float64}}, "expect": lambda data: np.pad(data, [(0, 1), (1, 0)])}
case("Pad", data=f32(0, 2), pads=np.array([0, 1, 1, 0]), **ALONE, **halves)
refuse("Pad", data=f32(3, 4), pads=np.array([0, 1, 1]), **ALONE, match="pads")

case("GatherND", data=f32(2, 3, 4), indices=np.array([[0, 1], [1, 2]]), **BOTH, expect=lambda data: data[[0, 1], [1, 2]])
case(
    "GatherND", data=f32(2, 3, 4), indices=np.array([[[1]], [[0]]], np.int32), **BOTH, expect=lambda data: data[[1, 0]][:, None]
)
kinds = {"types": {"T": MANY | {string, complex64}, "Tind": {int32, int64}}, "expect": lambda data: data[[1]]}
case("GatherND", data=f32(2, 3), indices=np.array([[1]]), **ALONE, **kinds)
refuse("GatherND", data=f32(2, 3, 4), indices=np.array([[0, 5]]), **ALONE, match="indices element out of data bounds")

FOUND = (np.array([2, 1, 3, 4], np.float32), np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1]))
case("Unique", x=np.array([2, 1, 1, 3, 4, 3], np.float32), **BOTH, sizes_known=False, expect=FOUND)
case("Unique", x=np.array([5], np.float32), **BOTH, sizes_known=False, expect=([5], [0], [1]))
case("Unique", x=f32(0), **BOTH, sizes_known=False, outputs=3)
case("Unique", x=np.array([2, np.nan, 1, np.nan], np.float32), **BOTH, sizes_known=False, outputs=3)
case(
    "Unique",
    x=np.array([1, 0, 1]),
    types={"T": MANY | {string}},
    **ALONE,
    sizes_known=False,
    expect=lambda x: (x[:2], [0, 1, 0], [2, 1]),
)
refuse("Unique", x=f32(2, 2), **ALONE, match="rank 1")

for mode, padding, corners in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)):
    settings = {"mode": mode, "padding_mode": padding, "align_corners": corners, "rtol": 1e-4, "atol": 1e-5}
    case("GridSample", X=f32(2, 3, 5, 4), Grid=f32(2, 3, 2, 2, low=-1.4, high=1.4), **settings, **BOTH)
case("GridSample", X=f32(1, 1, 4, 4), Grid=f32(1, 0, 3, 2), **ALONE, expect=np.zeros((1, 1, 0, 3), np.float32))
center = {"types": {"T1": {float16, float32, float64}}, "expect": lambda X: X[:, :, 1:2, 1:2]}
case("GridSample", X=f32(1, 2, 3, 3), Grid=np.zeros((1, 1, 1, 2), np.float32), **ALONE, **center)

REGULAR = np.array([[[2, 1], [1, 3]], [[0, 1], [4, 1]]], np.float32)
case("Inverse", X=REGULAR, **BOTH, expect=lambda X: np.array([[[3, -1], [-1, 2]], [[1, -1], [-4, 0]]]) / [[[5]], [[-4]]])
case("Inverse", X=f32(2, 2, 3, 3), **BOTH, expect=lambda X: np.linalg.inv(X), rtol=1e-3, atol=1e-4)
case("Inverse", X=REGULAR, types={"T": {float16, float32, float64}}, **ALONE, expect=lambda X: np.linalg.inv(X))
case("Inverse", X=f32(1, 1), **BOTH, expect=lambda X: 1 / X)
case("Inverse", X=f32(0, 3, 3), **BOTH, expect=np.zeros((0, 3, 3), np.float32))
case(
    "Inverse",
    X=np.stack([np.eye(2), np.zeros((2, 2))]).astype(np.float32),
    **ALONE,
    expect=lambda X: np.stack([X[0], X[1] * np.nan]),
)
case(
    "Inverse",
    X=np.stack([np.diag([1, 1e-9]), np.ones((2, 2))]).astype(np.float32),
    **ALONE,
    expect=lambda X: np.stack([np.diag([1, 1e9]), X[1] * np.nan]),
)
refuse("Inverse", X=f32(2, 3), **ALONE, match="differ")
refuse("Inverse", X=f32(3), **ALONE, match="at least two axes")

for axis in (0, 1, -1, 3, -4):
    case(
        "ExpandDims", X=f32(2, 3, 4), axis=np.array(axis, np.int32), **BOTH, expect=lambda X, axis: np.expand_dims(X, int(axis))
    )
case(
    "ExpandDims", X=f32(2, 0), axis=np.array([1], np.int32), types={"T": MANY | {string}}, **ALONE, expect=lambda X: X[:, None]
)
case("ExpandDims", X=f32(), axis=np.array(0, np.int32), **BOTH, expect=lambda X: X[None])
refuse("ExpandDims", X=f32(2), axis=np.array(2, np.int32), **ALONE, match="axis 2 is outside|Axis must be")

for axis, size, step in itertools.product((0, 1, -1), (1, 2, 3), (1, 2, 5)):
    case("UnfoldTensor", input=f32(4, 3, 5), dim=axis, size=size, step=step, **BOTH)
kinds = {"types": {"T": MANY | {string, bfloat16, complex64}}, "expect": lambda input: np.stack([input[:2], input[2:4]])}
case("UnfoldTensor", input=f32(5), size=2, step=2, **ALONE, **kinds)
case("UnfoldTensor", input=strings(2, 3), size=3, **ALONE, expect=lambda input: input[:, None])
case("UnfoldTensor", input=f32(0, 3), size=2, **ALONE, expect=np.zeros((0, 2, 2), np.float32))
refuse("UnfoldTensor", input=f32(4, 3), size=4, **ALONE, match="cannot be taken from 3")
refuse("UnfoldTensor", input=f32(4, 3), size=1, dim=2, **ALONE, match="dim 2 is outside")

ROIS = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [-0.5, 0.2, 1.3, 0.8], [0.9, 0.8, 0.1, 0.2]], np.float32)
for mode, size in itertools.product(("bilinear", "nearest"), ([3, 4], [1, 1], [1, 5], [7, 2])):
    settings = {"mode": mode, "extrapolation_value": 9.0, "rtol": 1e-4, "atol": 1e-5, **BOTH}
    regions = {"rois": ROIS, "batch_indices": np.array([0, 1, 1, 0], np.int32), "crop_size": np.array(size, np.int32)}
    case("CropAndResize", X=f32(2, 3, 6, 5), **regions, **settings)
nothing = {"rois": ROIS, "crop_size": np.array([0, 4], np.int32), "batch_indices": np.array([0, 9, -1, 0], np.int32)}
case("CropAndResize", X=f32(2, 3, 6, 5), **nothing, expect=np.zeros((4, 3, 0, 4)), **ALONE)
corner = {
    "rois": np.array([[0, 0, 1, 1]], np.float32),
    "batch_indices": np.array([0], np.int32),
    "crop_size": np.array([4, 4], np.int32),
}
case("CropAndResize", X=f32(1, 2, 4, 4), **corner, types={"T1": {float16, float32, float64}}, **ALONE, expect=lambda X: X)
case("CropAndResize", X=f32(1, 2, 1, 1), **corner, **BOTH)
nothing = {"rois": f32(0, 4), "batch_indices": i32(0), "crop_size": np.array([2, 3], np.int32)}
case("CropAndResize", X=f32(1, 2, 4, 4), **nothing, **ALONE, expect=np.zeros((0, 2, 2, 3), np.float32))
refuse("CropAndResize", X=f32(1, 2, 4, 4), **corner, mode="cubic", **ALONE, match="mode is .cubic., expected one of")
refuse(
    "CropAndResize", X=f32(1, 2, 4, 4), **{**corner, "batch_indices": np.array([3], np.int32)}, **ALONE, match="beyond 1 images"
)

for name, operand in (("crop_size", i32(1)), ("rois", f32(1, 3)), ("batch_indices", i32(2))):
    refuse("CropAndResize", X=f32(1, 2, 4, 4), **{**corner, name: operand}, **ALONE, match=name)

X, W = f32(1, 3, 4, 5), f32(3, 2, 3, 2)
case("ConvTransposeWithDynamicPads", X=X, W=W, B=f32(2), Pads=np.array([1, 0, 1, 1]), strides=[2, 1], **BOTH)
refuse("ConvTransposeWithDynamicPads", domain="com.microsoft", X=X, W=W, Pads=np.array([100, 0, 1, 1]), match="negative")
case("ConvTransposeWithDynamicPads", X=X, W=W, Pads=np.array([0, 0, 0, 0]), strides=[2, 2], output_padding=[1, 0], **BOTH)
doubles = {"X": f64(1, 1, 2), "W": f64(1, 1, 1), "expect": lambda X, W: X * W}
case("ConvTransposeWithDynamicPads", **doubles, Pads=i64(2, low=0, high=1), **ALONE)
refuse("ConvTransposeWithDynamicPads", X=f32(1, 1, 2), W=f32(1, 1, 1), Pads=np.array([2**31, 0]), domain=CONTRIB, match="pads")
case(
    "ConvTransposeWithDynamicPads",
    X=array(np.float16, 0, 1, 2),
    W=array(np.float16, 1, 1, 1),
    **ALONE,
    expect=np.zeros((0, 1, 2), np.float16),
)
