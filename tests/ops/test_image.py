"""Cases of resizing, sampling and decoding images."""

import io
import itertools
import sys

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.dtypes import COMPLEX, FLOATS, INTS, SUB_BYTE_INTS
from sardonyx.errors import KernelError
from sardonyx.providers.cpu.image import image_decoder
from tests.ops.cases import booleans, case, f32, f64, i32, i64, refuse, strings, u8

ANY = FLOATS | (INTS - SUB_BYTE_INTS) | COMPLEX | {dtypes.string, dtypes.bool_}
NUMBERS = FLOATS | (INTS - SUB_BYTE_INTS) | COMPLEX
IMAGE = f32(1, 2, 3, 4)


# --- Resize, Upsample: nearest ---------------------------------------------------------------------------------------


def doubled(X):
    return X.repeat(2, axis=2).repeat(2, axis=3)


case("Resize", X=i64(1, 2, 3, 4, low=0, high=50), scales=np.float32([1, 1, 2, 2]), until=10, types={"T": ANY}, expect=doubled)
case("Resize", X=i64(1, 2, 3, 4, low=0, high=50), scales=np.float32([1, 1, 2, 2]), since=13, types={"T1": ANY}, expect=doubled)
case("Resize", X=IMAGE, roi=f32(0), scales=np.float32([1, 1, 2, 2]), types={"T2": FLOATS}, expect=doubled)
case("Upsample", X=i64(1, 2, 3, 4, low=0, high=50), scales=np.float32([1, 1, 2, 2]), types={"T": ANY}, expect=doubled)
case("Upsample", X=IMAGE, height_scale=2.0, width_scale=2.0, expect=doubled)
case("Upsample", X=IMAGE, scales=np.float32([1, 1, 2, 2]), opsets=(9, 10), expect=doubled)
case("Upsample", X=f32(4), scales=np.float32([1.5]), expect=lambda X: X[[0, 0, 1, 2, 2, 3]])
case("Resize", X=f32(6), scales=np.float32([0.5]), until=10, expect=lambda X: X[::2])
case("Resize", X=f32(5), scales=np.float32([0.6]), until=10, expect=lambda X: X[[0, 2, 4]])
case("Resize", X=f32(0, 3), scales=np.float32([1, 2]), since=13, expect=np.zeros((0, 6)))
case("Resize", X=IMAGE, sizes=[1, 2, 3, 4], expect=lambda X: X)
case("Resize", X=IMAGE, sizes=[1, 2, 0, 4], expect=np.zeros((1, 2, 0, 4)))
case("Resize", X=IMAGE, scales=f32(0), sizes=[1, 2, 6, 8], expect=doubled)
# 7 to 2: the second pixel stands between two, at 3.5
for nearest_mode, picked in (("floor", 3), ("ceil", 4), ("round_prefer_floor", 3), ("round_prefer_ceil", 4)):
    case(
        "Resize",
        X=f32(7),
        sizes=[2],
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest_mode,
        expect=lambda X, picked=picked: X[[0, picked]],
    )
PLACES = (  # coordinate_transformation_mode, where the 4 outputs of 7 pixels stand
    ("half_pixel", [0.375, 2.125, 3.875, 5.625]),
    ("half_pixel_symmetric", [0.375, 2.125, 3.875, 5.625]),
    ("pytorch_half_pixel", [0.375, 2.125, 3.875, 5.625]),
    ("align_corners", [0, 2, 4, 6]),
    ("asymmetric", [0, 1.75, 3.5, 5.25]),
    ("tf_half_pixel_for_nn", [0.875, 2.625, 4.375, 6.125]),
)


def linear(places):
    """`expect` of a linear resize of one axis, each output at its place; nothing beyond the border."""
    return lambda X: np.interp(places, np.arange(len(X)), X)


for mode, places in PLACES:
    only = {"until": 12} if mode == "tf_half_pixel_for_nn" else {"since": 19} if mode == "half_pixel_symmetric" else {}
    case(
        "Resize",
        X=f32(7),
        roi=f32(0),
        scales=f32(0),
        sizes=[4],
        mode="linear",
        coordinate_transformation_mode=mode,
        **only,
        expect=linear(places),
    )
    case(
        "Resize",
        X=f32(7),
        roi=f32(0),
        scales=f32(0),
        sizes=[4],
        coordinate_transformation_mode=mode,
        nearest_mode="floor",
        **only,
        expect=lambda X, places=places: X[np.floor(places).astype(int)],
    )
case("Resize", X=f32(7), sizes=[1], mode="linear", coordinate_transformation_mode="pytorch_half_pixel", expect=lambda X: X[:1])
case("Resize", X=f32(7), sizes=[1], mode="linear", coordinate_transformation_mode="align_corners", expect=lambda X: X[:1])
case("Resize", X=f32(7), sizes=[1], mode="linear", expect=lambda X: X[3:4])
# 5 pixels by 0.5 are 2.5: the two that stay are moved towards the middle
case(
    "Resize",
    X=f32(5),
    scales=np.float32([0.5]),
    mode="linear",
    coordinate_transformation_mode="half_pixel_symmetric",
    since=19,
    expect=linear([1, 3]),
)
# corners go by whole pixels: 5 * 0.7 = 3.5 are 3, the last of which is the last of the image
case(
    "Resize",
    X=f32(5),
    scales=np.float32([0.7]),
    mode="linear",
    coordinate_transformation_mode="align_corners",
    expect=linear([0, 2, 4]),
)
for mode in ("linear", "cubic", "nearest"):
    for scales in ([1, 1, 1.5, 1.3], [1, 1, 0.6, 0.7], [1, 1, 2.6, 0.4], [1, 1, 3.34, 1.99]):
        case(
            "Resize",
            X=f32(1, 2, 7, 6),
            scales=np.float32(scales),
            mode=mode,
            coordinate_transformation_mode="align_corners",
            against_onnxruntime=True,
            atol=1e-5,
        )
refuse("Resize", X=IMAGE, scales=np.float32([1, 2]), match="scales")
refuse("Resize", X=IMAGE, sizes=[1, 2, 3], match="sizes")
refuse("Resize", X=IMAGE, scales=np.ones((4, 1), np.float32), match="scales")
refuse("Resize", X=IMAGE, sizes=np.ones((4, 1), np.int64), match="sizes", since=11)
refuse("Resize", X=IMAGE, match="scales or sizes", since=13)
refuse("Resize", X=f32(3), scales=np.float32([-1]), match="greater than 0|negative")
refuse("Resize", X=f32(3), sizes=[4], coordinate_transformation_mode="corner", match="corner")
refuse("Resize", X=f32(3), sizes=[4], mode="square", match="square")
refuse("Resize", X=f32(3), sizes=[4], nearest_mode="round", match="nearest_mode")
refuse("Resize", X=strings(3), sizes=[4], mode="linear", match="strings")
refuse("Upsample", X=IMAGE, scales=np.float32([1, 2]), match="scales")
refuse("Resize", X=IMAGE, scales=np.float32([1, 1, 2, 2]), mode="cubic", until=10, match="mode")


# --- linear and cubic ------------------------------------------------------------------------------------------------


def separably(*matrices):
    """Apply a matrix to each of the last axes."""

    def expect(X):
        for axis, matrix in enumerate(matrices, start=X.ndim - len(matrices)):
            X = np.moveaxis(np.tensordot(matrix, X, (1, axis)), 0, axis)
        return X

    return expect


def interpolation(length, places, weight, reach):
    """The matrix that reads an axis at `places`; what lies beyond the border is the border."""
    matrix = np.zeros((len(places), length))
    for row, place in enumerate(places):
        for pixel in range(int(np.floor(place)) - reach + 1, int(np.floor(place)) + reach + 1):
            matrix[row, np.clip(pixel, 0, length - 1)] += weight(abs(pixel - place))
    return matrix


def triangle(t):
    return max(0, 1 - t)


def keys(a):
    def weight(t):
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0

    return weight


DOUBLE = {length: [(place + 0.5) / 2 - 0.5 for place in range(2 * length)] for length in (3, 4)}
LINEAR = [interpolation(length, DOUBLE[length], triangle, 1) for length in (3, 4)]
CUBIC = [interpolation(length, DOUBLE[length], keys(-0.75), 2) for length in (3, 4)]
TWICE = np.float32([1, 1, 2, 2])
case(
    "Resize",
    X=IMAGE,
    scales=TWICE,
    mode="linear",
    since=13,
    types={"T1": FLOATS | COMPLEX},
    rtol=0.01,
    atol=0.02,
    expect=separably(*LINEAR),
)
case("Resize", X=f64(1, 2, 3, 4), scales=TWICE, mode="linear", since=13, expect=separably(*LINEAR))
case(
    "Resize",
    X=u8(1, 2, 3, 4, high=256),
    scales=TWICE,
    mode="linear",
    since=13,
    expect=lambda X: np.floor(separably(*LINEAR)(X)),
)
case(
    "Resize",
    X=i32(1, 2, 3, 4, low=-9, high=9),
    scales=TWICE,
    mode="linear",
    since=13,
    expect=lambda X: np.trunc(separably(*LINEAR)(X)),
)
case(
    "Resize",
    X=IMAGE,
    scales=TWICE,
    mode="cubic",
    since=11,
    expect=separably(*CUBIC),
    against_onnxruntime=True,
    rtol=1e-4,
    atol=1e-5,
)
case(
    "Resize",
    X=np.uint8([[0, 255, 255, 0]]),
    scales=np.float32([1, 2]),
    mode="cubic",
    since=13,
    expect=lambda X: np.clip(np.trunc(separably(CUBIC[1])(X)), 0, 255),
)
LARGEST = 2**63 - 1
case(  # the largest number of float64 that an int64 can be
    "Resize",
    X=np.int64([[0, LARGEST, LARGEST, 0]]),
    scales=np.float32([1, 2]),
    mode="cubic",
    since=13,
    expect=lambda X: [[int(np.clip(number, -(2**63), LARGEST - 1023)) for number in separably(CUBIC[1])(X)[0]]],
)
case(
    "Resize",
    X=f32(2, 4),
    sizes=[2, 8],
    mode="cubic",
    cubic_coeff_a=-0.5,
    expect=separably(interpolation(4, DOUBLE[4], keys(-0.5), 2)),
    rtol=1e-4,
)
case(
    "Resize", X=f32(2, 3, 4, 3), scales=np.float32([1, 2, 2, 1]), mode="linear", since=13, expect=separably(*LINEAR, np.eye(3))
)


def excluding(length, places, weight, reach):
    """As `interpolation`, but only pixels inside count."""
    matrix = np.zeros((len(places), length))
    for row, place in enumerate(places):
        for pixel in range(length):
            matrix[row, pixel] = weight(abs(pixel - place)) if abs(pixel - place) < reach else 0
    return matrix / matrix.sum(axis=1, keepdims=True)


case(
    "Resize",
    X=f32(2, 4),
    sizes=[2, 8],
    mode="cubic",
    exclude_outside=1,
    expect=separably(excluding(4, DOUBLE[4], keys(-0.75), 2)),
    rtol=1e-4,
    atol=1e-5,
)


def stretched(length, places, weight, reach, scale):
    """The filter widened by 1 / scale, weights normalized."""
    matrix = interpolation(length, places, lambda t: weight(t * scale), int(np.ceil(reach / scale)))
    return matrix / matrix.sum(axis=1, keepdims=True)


HALF = [(place + 0.5) * 2 - 0.5 for place in range(4)]
case("Resize", X=f32(2, 8), sizes=[2, 4], mode="linear", antialias=1, expect=separably(stretched(8, HALF, triangle, 1, 0.5)))
case(
    "Resize",
    X=f32(2, 8),
    sizes=[2, 4],
    mode="cubic",
    antialias=1,
    expect=separably(stretched(8, HALF, keys(-0.75), 2, 0.5)),
    rtol=1e-4,
    atol=1e-5,
)
case("Resize", X=f32(2, 4), sizes=[2, 8], mode="linear", antialias=1, expect=separably(LINEAR[1]))
case(
    "Resize",
    X=u8(2, 8, high=256),
    sizes=[2, 4],
    mode="linear",
    antialias=1,
    expect=lambda X: np.rint(separably(stretched(8, HALF, triangle, 1, 0.5))(X)),
)

case("Resize", X=f32(2, 3, 4), sizes=[8, 6], axes=[-1, 1], mode="linear", expect=separably(*LINEAR))
case("Resize", X=f32(4, 2, 3), scales=np.float32([0.5]), axes=[0], expect=lambda X: X[[0, 2]], nearest_mode="floor")
for policy, sizes in (("stretch", (8, 6)), ("not_larger", (3, 6)), ("not_smaller", (8, 16))):
    case(
        "Resize", X=f32(2, 4), sizes=[8, 6], keep_aspect_ratio_policy=policy, satisfies=lambda Y, sizes=sizes: Y.shape == sizes
    )
refuse("Resize", X=f32(2, 4), sizes=[8, 6], axes=[0, 5], since=18, match="axes")

CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
case("Resize", X=f32(5), roi=np.float32([0.25, 0.75]), scales=f32(0), sizes=[3], **CROP, expect=linear([1, 2, 3]))
case("Resize", X=f32(5), roi=np.float32([0.25, 0.75]), scales=f32(0), sizes=[1], **CROP, expect=linear([2]))
case(
    "Resize",
    X=f32(5),
    roi=np.float32([-0.25, 1]),
    scales=f32(0),
    sizes=[6],
    **CROP,
    extrapolation_value=7.0,
    expect=lambda X: np.concatenate([[7], X]),
)
case("Resize", X=f32(2, 5), roi=np.float32([1, 0]), scales=f32(0), sizes=[5], axes=[1], **CROP, expect=lambda X: X[:, ::-1])


# --- GridSample ------------------------------------------------------------------------------------------------------


def sampled(mode, padding_mode, align_corners):
    """`expect` of GridSample: each point by itself, each axis through its matrix row."""

    def expect(X, grid):
        X = X.astype(np.result_type(X, np.float64))
        Y = np.zeros((*X.shape[:2], *grid.shape[1:-1]), X.dtype)
        for n, place in itertools.product(range(len(X)), np.ndindex(*grid.shape[1:-1])):
            value = X[n]
            for size, g in zip(X.shape[:1:-1], grid[(n, *place)]):
                position = (g + 1) / 2 * (size - 1) if align_corners else ((g + 1) * size - 1) / 2
                value = value @ _row(mode, padding_mode, align_corners, size, float(position))
            Y[(n, slice(None), *place)] = value
        return Y

    return expect


def _row(mode, padding_mode, align_corners, size, position):
    below = int(np.floor(position))
    taps = {"nearest": [round(position)], "linear": [below, below + 1], "cubic": range(below - 1, below + 3)}[mode]
    weight = {"nearest": lambda t: 1, "linear": triangle, "cubic": keys(-0.75)}[mode]
    row = np.zeros(size)
    for tap in taps:
        pixel = _inside(tap, padding_mode, align_corners, size)
        if pixel is not None:
            row[pixel] += weight(abs(tap - position))
    return row


def _inside(pixel, padding_mode, align_corners, size):
    if padding_mode == "border":
        return min(max(pixel, 0), size - 1)
    while padding_mode == "reflection" and not 0 <= pixel < size:
        edge = 0 if align_corners else -0.5
        pixel = int(2 * edge - pixel) if pixel < 0 else int(2 * (size - 1 - edge) - pixel)
        if size == 1 and align_corners:
            return 0
    return pixel if 0 <= pixel < size else None


POINTS = f32(2, 3, 5, 2, low=-1.6, high=1.6)
for mode, padding_mode, align_corners in itertools.product(
    ("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (0, 1)
):
    expect = sampled(mode, padding_mode, align_corners)
    for name in (mode, f"bi{mode}") if mode != "nearest" else (mode,):
        case(
            "GridSample",
            X=f32(2, 2, 4, 3),
            grid=POINTS,
            mode=name,
            padding_mode=padding_mode,
            align_corners=align_corners,
            expect=expect,
            rtol=1e-4,
            atol=1e-5,
        )
case(
    "GridSample",
    X=f32(2, 2, 4, 3),
    grid=POINTS,
    types={"T1": FLOATS | COMPLEX, "T2": FLOATS},
    mode="linear",
    rtol=0.02,
    atol=0.02,
    opsets=(22,),
    expect=sampled("linear", "zeros", 0),
)
case(  # cubic sums beyond a byte are its largest and its least
    "GridSample",
    X=np.uint8([[[[0, 255, 255, 0, 0, 255]]]]),
    grid=np.float32([[[[-0.35, 0], [0.3, 0], [0, 0]]]]),
    mode="cubic",
    padding_mode="border",
    since=20,
    expect=lambda X, grid: np.clip(np.trunc(sampled("cubic", "border", 0)(X, grid)), 0, 255),
)
case(
    "GridSample",
    X=f32(2, 1, 3, 2, 4),
    grid=f32(2, 2, 2, 2, 3, low=-1.5, high=1.5),
    mode="linear",
    since=20,
    expect=sampled("linear", "zeros", 0),
    atol=1e-5,
)
case(
    "GridSample",
    X=f32(1, 1, 3, 2, 4),
    grid=f32(1, 2, 2, 2, 3, low=-1.5, high=1.5),
    mode="cubic",
    since=20,
    expect=sampled("cubic", "zeros", 0),
    rtol=1e-4,
    atol=1e-5,
)
case("GridSample", X=f32(1, 1, 4), grid=f32(1, 5, 1), mode="linear", since=20, expect=sampled("linear", "zeros", 0), atol=1e-5)
CENTRES = np.float32([[[[-1, -1], [1, 1], [-3, 0]]]])
EXACT = {"align_corners": 1, "mode": "nearest"}
case(
    "GridSample",
    X=i64(1, 1, 2, 3),
    grid=CENTRES,
    **EXACT,
    types={"T1": NUMBERS},
    expect=lambda X: np.stack([X[..., 0, 0], X[..., 1, 2], 0 * X[..., 0, 0]], -1)[:, :, None],
)
case(
    "GridSample",
    X=strings(1, 1, 2, 3),
    grid=CENTRES,
    **EXACT,
    expect=lambda X: np.array([[[[X[0, 0, 0, 0], X[0, 0, 1, 2], ""]]]], dtype=object),
)
case(
    "GridSample",
    X=booleans(1, 1, 2, 3),
    grid=CENTRES,
    **EXACT,
    expect=lambda X: np.array([[[[X[0, 0, 0, 0], X[0, 0, 1, 2], False]]]]),
)
case("GridSample", X=np.array([[[[0, 9]]]]), grid=np.float32([[[[0.2, 0]]]]), align_corners=1, expect=np.array([[[[5]]]]))
case(
    "GridSample",
    X=f32(1, 1, 2, 2),
    grid=np.float32([[[[np.nan, 0], [np.inf, 0], [-np.inf, 1e30]]]]),
    expect=np.zeros((1, 1, 1, 3)),
)
case("GridSample", X=f32(0, 1, 2, 2), grid=f32(0, 3, 3, 2), expect=np.zeros((0, 1, 3, 3)))
refuse("GridSample", X=f32(1, 1, 2, 2), grid=f32(1, 2, 2, 2), mode="square", match="mode")
refuse("GridSample", X=f32(1, 1, 2, 2), grid=f32(1, 2, 2, 2), padding_mode="wrap", match="padding_mode")


# --- AffineGrid, ImageDecoder ----------------------------------------------------------------------------------------


def affine(align_corners):
    def expect(theta, size):
        _, _, *spatial = size
        ticks = [np.linspace(-1, 1, n) if align_corners else (np.arange(n) + 0.5) / n * 2 - 1 for n in spatial]
        Y = np.zeros((len(theta), *spatial, len(spatial)))
        for place in np.ndindex(*spatial):
            point = [tick[p] for tick, p in zip(ticks, place)][::-1]
            Y[(slice(None), *place)] = theta @ np.array([*point, 1])
        return Y

    return expect


for align_corners in (0, 1):
    case(
        "AffineGrid",
        theta=f32(2, 2, 3),
        size=[2, 3, 4, 5],
        align_corners=align_corners,
        types={"T1": FLOATS},
        atol=0.02,
        expect=affine(align_corners),
    )
    case("AffineGrid", theta=f32(1, 3, 4), size=[1, 1, 2, 3, 4], align_corners=align_corners, expect=affine(align_corners))
case(
    "AffineGrid",
    theta=np.eye(2, 3, dtype=np.float32)[None],
    size=[1, 2**36, 1, 2],  # a grid has no channels, however many the image has
    align_corners=1,
    expect=np.array([[[[-1, 0], [1, 0]]]]),
)

for numbers in ([], [1], [2, 3], [1, 2, 3, 4, 5, 6]):
    refuse("AffineGrid", theta=f32(1, 2, 3), size=np.array(numbers, np.int64), match="4 or 5 numbers")

PIXELS = u8(3, 5, 3, high=256)


def encoded(format, pixels=PIXELS):
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.fromarray(pixels).save(stream, format)
    return np.frombuffer(stream.getvalue(), np.uint8)


for format in ("PNG", "BMP", "TIFF", "PPM"):
    case("ImageDecoder", encoded_stream=encoded(format), sizes_known=False, expect=PIXELS)
case("ImageDecoder", encoded_stream=encoded("PNG"), pixel_format="BGR", sizes_known=False, expect=PIXELS[..., ::-1])
GREY = u8(4, 2, high=256)
case("ImageDecoder", encoded_stream=encoded("PNG", GREY), pixel_format="Grayscale", sizes_known=False, expect=GREY[..., None])
case("ImageDecoder", encoded_stream=encoded("PNG", GREY), sizes_known=False, expect=GREY[..., None].repeat(3, axis=2))
case("ImageDecoder", encoded_stream=np.zeros(9, np.uint8), sizes_known=False, expect=np.zeros((0, 0, 3)))
refuse("ImageDecoder", encoded_stream=encoded("PNG"), pixel_format="CMYK", match="pixel_format")


def test_without_pillow_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(KernelError, match=r"pip install sardonyx\[image\]"):
        image_decoder(np.zeros(3, np.uint8))
