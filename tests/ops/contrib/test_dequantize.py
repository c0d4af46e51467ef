"""Cases of com.microsoft's QuantizeLinear, DequantizeLinear and GatherBlockQuantized."""

import itertools

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.dtypes import bfloat16, float16, float32, int4, int8, int16, int32, int64, uint4, uint8, uint16
from tests.ops.cases import array, case, f32, i32, i64, refuse, u8

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}


def shaped(parameter, x, axis):
    return parameter if axis is None or np.ndim(parameter) == 0 else parameter.reshape(-1, *(1,) * (x.ndim - axis % x.ndim - 1))


def quantized(x, y_scale, y_zero_point, axis=None):
    limits = {np.dtype(np.int32): (-8, 7)}.get(y_zero_point.dtype) or (
        np.iinfo(y_zero_point.dtype).min,
        np.iinfo(y_zero_point.dtype).max,
    )
    values = np.rint(x / shaped(y_scale, x, axis)) + shaped(y_zero_point.astype(np.int64), x, axis)
    return np.clip(values, *limits).astype(y_zero_point.dtype)


EVERY = {int8, uint8, int16, uint16, int4, uint4}
X = f32(2, 3, 4) * 100
for dtype in (np.uint8, np.int8, np.int16, np.uint16):
    case("QuantizeLinear", x=X, y_scale=0.5, y_zero_point=np.array(5, dtype), **BOTH, expect=quantized)
    points = {"y_zero_point": array(dtype, 3), "y_scale": f32(3, low=0.25, high=0.5)}
    case("QuantizeLinear", x=X, **points, axis=1, **BOTH, expect=quantized)
    case("QuantizeLinear", x=X, **points, axis=-2, **BOTH, expect=quantized)
    case("QuantizeLinear", x=f32(0, 3), y_scale=0.5, y_zero_point=np.array(5, dtype), **BOTH, expect=quantized)
    case("QuantizeLinear", x=f32(), y_scale=0.5, y_zero_point=np.array(5, dtype), **BOTH, expect=quantized)
for dtype, low, high in ((ml_dtypes.int4, -8, 7), (ml_dtypes.uint4, 0, 15)):
    case(
        "QuantizeLinear",
        x=f32(2, 3) * 5,
        y_scale=0.5,
        y_zero_point=np.array(2, dtype),
        **BOTH,
        expect=lambda x, low=low, high=high: np.clip(np.rint(x * 2) + 2, low, high).astype(np.int32),
    )
case("QuantizeLinear", x=X, y_scale=0.5, **BOTH, expect=lambda x: np.clip(np.rint(x * 2), 0, 255).astype(np.uint8))
halves = {"y_scale": 0.5, "y_zero_point": np.array(3, np.uint8), "types": {"T1": {float16, float32}}}
case(
    "QuantizeLinear",
    x=f32(2, 3),
    **halves,
    domain=CONTRIB,
    expect=lambda x: np.clip(np.rint(x * 2) + 3, 0, 255).astype(np.uint8),
)
ties = np.array([0.25, 0.75, 1.25, -0.25, np.inf, -np.inf], np.float32)
case("QuantizeLinear", x=ties, y_scale=0.5, y_zero_point=np.array(1, np.int16), **BOTH, expect=[1, 3, 3, 1, 32767, -32768])
refuse("QuantizeLinear", x=X, y_scale=f32(3), y_zero_point=u8(3), domain=CONTRIB, match="without an axis there is one scale")
refuse("QuantizeLinear", x=X, y_scale=f32(2), y_zero_point=u8(2), axis=1, domain=CONTRIB, match=r"y_scale is \[2\], but axis 1")

for dtype in (np.uint8, np.int8, np.int16, np.uint16, np.int32):
    x = array(dtype, 2, 3, 4)
    zero = np.zeros if dtype is np.int32 else np.ones
    expect = lambda x, x_scale, x_zero_point, axis=None: (  # noqa: E731
        (x.astype(np.float32) - shaped(x_zero_point, x, axis)) * shaped(np.float32(x_scale), x, axis)
    )
    case("DequantizeLinear", x=x, x_scale=0.3, x_zero_point=zero((), dtype), **BOTH, expect=expect)
    case("DequantizeLinear", x=x, x_scale=f32(4), x_zero_point=zero(4, dtype), axis=-1, **BOTH, expect=expect)
    case("DequantizeLinear", x=x, x_scale=0.3, **BOTH, expect=lambda x: x.astype(np.float32) * np.float32(0.3))
    case("DequantizeLinear", x=x[:0], x_scale=0.3, **BOTH, expect=lambda x: x.astype(np.float32))
case(
    "DequantizeLinear",
    x=u8(2, 3),
    x_scale=0.5,
    types={"T1": EVERY | {int32}},
    domain=CONTRIB,
    expect=lambda x: x * np.float32(0.5),
)
case(
    "DequantizeLinear",
    x=u8(2, 3),
    x_scale=0.5,
    types={"T2": {float16, float32}},
    domain=CONTRIB,
    expect=lambda x: x * np.float32(0.5),
)
refuse("DequantizeLinear", x=u8(2, 3), x_scale=f32(3), domain=CONTRIB, match="without an axis there is one scale")

# --- GatherBlockQuantized


def gathered(data, indices, scales, zero_points=None, gather_axis=0, quantize_axis=1, block_size=128, bits=4):
    """By dequantizing everything before the gathering."""
    quantize_axis %= data.ndim
    shift = 0
    if data.dtype == np.uint8:
        data, shift = split_bytes(data, bits), 2 ** (bits - 1)
    length = data.shape[quantize_axis]
    block_size = block_size or length
    if zero_points is not None:
        if zero_points.dtype == np.uint8:
            zero_points = split_bytes(zero_points, bits)
            blocks = -(-length // block_size)
            zero_points = zero_points[..., :blocks] if quantize_axis == data.ndim - 1 else zero_points
        shift = np.repeat(zero_points.astype(np.float32), block_size, axis=quantize_axis)[cut(quantize_axis, length)]
    spread = np.repeat(scales, block_size, axis=quantize_axis)[cut(quantize_axis, length)]
    whole = (data.astype(np.float32) - shift) * spread
    size = whole.shape[gather_axis]
    inside = (indices >= -size) & (indices < size)
    result = np.take(whole, np.where(inside, indices, 0), axis=gather_axis)
    rest = whole.ndim - gather_axis % whole.ndim - 1
    return np.where(inside.reshape((*inside.shape, *(1,) * rest)), result, 0)


def cut(axis, length):
    return (slice(None),) * axis + (slice(length),)


def split_bytes(data, bits):
    parts = [(data >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*data.shape[:-1], -1)


INDICES = (np.array([1, 4, 0]), np.array([[2, -1], [0, 3]], np.int32), np.array(3), np.array([1, 9, -7, 2]))
for bits, indices in itertools.product((2, 4, 8), INDICES):
    packed = array(np.uint8, 5, 40 * bits // 8, low=0, high=256)
    settings = {"block_size": 16, "bits": bits, **BOTH, "expect": gathered}
    case("GatherBlockQuantized", data=packed, indices=indices, scales=f32(5, 3), **settings)
    points = array(np.uint8, 5, -(-3 * bits // 8), low=0, high=256)
    case("GatherBlockQuantized", data=packed, indices=indices, scales=f32(5, 3), zero_points=points, **settings)
    deep = array(np.uint8, 5, 2, 32 * bits // 8, low=0, high=256)
    case("GatherBlockQuantized", data=deep, indices=indices, scales=f32(5, 2, 2), quantize_axis=-1, **settings)
for dtype, indices in itertools.product((ml_dtypes.int4, ml_dtypes.uint4), INDICES):
    data = array(dtype, 5, 40)
    settings = {"block_size": 16, **BOTH, "expect": gathered}
    case("GatherBlockQuantized", data=data, indices=indices, scales=f32(5, 3), **settings)
    case("GatherBlockQuantized", data=data, indices=indices, scales=f32(5, 3), zero_points=array(dtype, 5, 3), **settings)
    other = {"data": array(dtype, 3, 5, 20), "scales": f32(3, 5, 2), "zero_points": array(dtype, 3, 5, 2)}
    case("GatherBlockQuantized", **other, indices=indices, gather_axis=1, quantize_axis=2, **settings)
    first = {"data": array(dtype, 20, 5), "scales": f32(2, 5), "zero_points": array(dtype, 2, 5)}
    case("GatherBlockQuantized", **first, indices=indices, gather_axis=1, quantize_axis=0, **settings)
    case("GatherBlockQuantized", **first, indices=np.array([17, 3, 16]), gather_axis=0, quantize_axis=0, **settings)
for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz):
    for block_size, blocks in ((16, 3), (0, 1)):
        settings = {"block_size": block_size, "domain": CONTRIB, "expect": gathered}
        case("GatherBlockQuantized", data=array(dtype, 5, 40), indices=INDICES[1], scales=f32(5, blocks), **settings)
        case("GatherBlockQuantized", data=array(dtype, 5, 40), indices=INDICES[0], scales=f32(1, blocks), **settings)
case(
    "GatherBlockQuantized",
    data=array(ml_dtypes.float4_e2m1fn, 5, 32),
    indices=INDICES[0],
    scales=f32(5, 2),
    block_size=16,
    domain=CONTRIB,
    expect=gathered,
)
WHOLE = {"data": u8(5, 20, high=256), "scales": f32(5, 3), "block_size": 16, "domain": CONTRIB}
kinds = {"T2": {float32, float16, bfloat16}, "Tind": {int32, int64}}
case("GatherBlockQuantized", **WHOLE, indices=INDICES[0], types=kinds, expect=gathered, rtol=2e-2, atol=2e-2)
case("GatherBlockQuantized", **WHOLE, indices=i64(0, 2), expect=np.zeros((0, 2, 40), np.float32))
case("GatherBlockQuantized", **WHOLE, indices=np.array([9, -9]), expect=np.zeros((2, 40), np.float32))
nothing = {**WHOLE, "data": u8(0, 20), "scales": f32(0, 3)}
case("GatherBlockQuantized", **nothing, indices=np.array([0, 1]), expect=np.zeros((2, 40), np.float32))
single = {**WHOLE, "data": u8(1, 20, high=256), "scales": f32(1, 3)}
case("GatherBlockQuantized", **single, indices=np.array([0, 0, -1]), expect=gathered)
refuse("GatherBlockQuantized", **WHOLE, indices=i32(2), bits=3, match="bits must be 2, 4 or 8")
refuse("GatherBlockQuantized", **WHOLE, indices=i32(2), gather_axis=1, match="neither the last nor quantize_axis")
refuse("GatherBlockQuantized", **WHOLE, indices=i32(2), gather_axis=2, match="gather_axis 2 is outside")
refuse("GatherBlockQuantized", **WHOLE, indices=i32(2), quantize_axis=2, match="quantize_axis 2 is outside")


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize(("name", "scales", "points"), [("scales", 3, 1), ("scales", 2, 2), ("zero_points", 1, 2)])
def test_blocks_of_a_table_of_open_size_are_counted_in_runs(native, name, scales, points):
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (uint8[a,b] data, int64[n] indices, float[c,d] scales, uint8[e,f] points) => (y)
        { y = com.microsoft.GatherBlockQuantized<block_size=0, bits=8>(data, indices, scales, points) }"""
    )
    session = sardonyx.InferenceSession(proto.SerializeToString(), providers=[("CPUExecutionProvider", {"native": native})])
    feeds = {"data": u8(5, 40), "indices": np.array([4, 0])}
    right = {"scales": np.ones((5, 1), np.float32), "points": np.zeros((5, 1), np.uint8)}
    np.testing.assert_array_equal(session.run(None, feeds | right)[0], feeds["data"][[4, 0]].astype(np.float32))
    with pytest.raises(errors.CODED, match=f"{name} is .*, blocks of 0 ask for"):
        session.run(None, feeds | {"scales": np.ones((5, scales), np.float32), "points": np.zeros((5, points), np.uint8)})
