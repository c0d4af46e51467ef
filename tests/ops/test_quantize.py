"""Cases of quantization, dequantization and matrix products of quantized numbers."""

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx import dtypes, errors
from sardonyx.dtypes import FLOAT6, FLOAT8, FLOATS, HALVES, INTS, SMALL_FLOATS
from tests.ops.cases import array, case, f32, i32, refuse

NAN, INF = np.nan, np.inf
QUANTIZED = (INTS | SMALL_FLOATS) - {dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float8e8m0}
X = f32(2, 6, 5, low=-40, high=40)


def limits(dtype):
    found = ml_dtypes.iinfo(dtype.numpy) if dtype in INTS else ml_dtypes.finfo(dtype.numpy)
    return float(found.min), float(found.max)


def quantized(x, scale, zero_point, dtype):
    """The spec's formula in double precision, of a scale and zero point that broadcast."""
    low, high = limits(dtype)
    values = np.asarray(x, np.float64) / np.asarray(scale, np.float64)
    values = np.rint(values) if dtype in INTS else values
    return np.clip(values + np.asarray(zero_point, np.float64), low, high).astype(np.float32).astype(dtype.numpy)


# --- QuantizeLinear; scales that are powers of two make every way of dividing the same ---

STEP = np.float32(0.5)
for dtype in sorted(QUANTIZED, key=str):
    zero_point = np.array(1, dtype.numpy)
    case("QuantizeLinear", x=X, y_scale=STEP, y_zero_point=zero_point, expect=quantized(X, STEP, 1, dtype))
    case("DequantizeLinear", x=zero_point, x_scale=STEP, expect=STEP)
    if dtype in (dtypes.int8, dtypes.uint8):
        continue
    since = {dtypes.int2: 25, dtypes.uint2: 25, dtypes.float4e2m1: 23, dtypes.float6e2m3: 28, dtypes.float6e3m2: 28}
    case(
        "QuantizeLinear",
        x=X,
        y_scale=STEP,
        output_dtype=dtype.code,
        since=since.get(dtype, 21),
        expect=quantized(X, STEP, 0, dtype),
    )

case("QuantizeLinear", x=X, y_scale=STEP, expect=quantized(X, STEP, 0, dtypes.uint8))
case("QuantizeLinear", x=X, y_scale=np.float32([0.5]), y_zero_point=np.int8([3]), expect=quantized(X, STEP, 3, dtypes.int8))
HALF_STEPS = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
case("QuantizeLinear", x=HALF_STEPS, y_scale=1.0, y_zero_point=np.int8(0), expect=[0, 2, 2, 0, -2])
BROKEN = np.array([INF, -INF, NAN, 1e30], np.float32)
case("QuantizeLinear", x=BROKEN, y_scale=1.0, y_zero_point=np.uint8(3), expect=[255, 0, 0, 255])
case("QuantizeLinear", x=f32(), y_scale=0.01, y_zero_point=np.int8(0), expect=lambda x: np.rint(x / np.float32(0.01)))
case("QuantizeLinear", x=f32(0, 3), y_scale=1.0, expect=np.zeros((0, 3), np.uint8))
WHOLE = i32(2, 6, 5, low=-900, high=900)
case(
    "QuantizeLinear",
    x=WHOLE,
    y_scale=4.0,
    y_zero_point=np.int8(-1),
    opsets=(10, 13, 23, 28),
    expect=quantized(WHOLE, 4, -1, dtypes.int8),
)
case("QuantizeLinear", x=WHOLE, y_scale=np.array(7, np.int32), since=19, expect=quantized(WHOLE, 7, 0, dtypes.uint8))
for dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16):
    narrow = X.astype(dtype.numpy)
    case(
        "QuantizeLinear", x=narrow, y_scale=STEP.astype(dtype.numpy), since=19, expect=quantized(narrow, STEP, 0, dtypes.uint8)
    )

for axis, length in ((1, 6), (-1, 5), (0, 2)):
    steps, zeros = 2.0 ** i32(length, low=-3, high=3).astype(np.float32), i32(length, low=0, high=9)
    along = np.moveaxis(np.empty((1, 1, length)), -1, axis).shape
    for dtype in (dtypes.uint8, dtypes.int8):
        case(
            "QuantizeLinear",
            x=X,
            y_scale=steps,
            y_zero_point=zeros.astype(dtype.numpy),
            axis=axis,
            expect=quantized(X, steps.reshape(along), zeros.reshape(along), dtype),
        )
    codes = i32(2, 6, 5, low=-100, high=100).astype(np.int8)
    case(
        "DequantizeLinear",
        x=codes,
        x_scale=steps,
        x_zero_point=zeros.astype(np.int8),
        axis=axis,
        expect=(codes.astype(np.float64) - zeros.reshape(along)) * steps.reshape(along),
    )

for block, count in ((2, 3), (4, 2), (6, 1), (9, 1)):
    shape = (2, count, 5)
    steps, zeros = 2.0 ** i32(*shape, low=-3, high=3).astype(np.float32), i32(*shape, low=0, high=7)
    wide_steps, wide_zeros = (np.repeat(given, block, axis=1)[:, :6] for given in (steps, zeros))
    given = {"axis": 1, "block_size": block}
    case(
        "QuantizeLinear",
        x=X,
        y_scale=steps,
        y_zero_point=zeros.astype(ml_dtypes.int4),
        **given,
        expect=quantized(X, wide_steps, wide_zeros, dtypes.int4),
    )
    codes = i32(2, 6, 5, low=-8, high=8).astype(ml_dtypes.int4)
    case(
        "DequantizeLinear",
        x=codes,
        x_scale=steps,
        x_zero_point=zeros.astype(ml_dtypes.int4),
        **given,
        expect=(codes.astype(np.float64) - wide_zeros) * wide_steps,
    )
refuse(
    "QuantizeLinear", x=X, y_scale=f32(4), y_zero_point=np.zeros(4, np.uint8), since=13, match=r"y_scale is \[4\], but axis 1"
)
refuse("QuantizeLinear", x=X, y_scale=f32(6), axis=3, match="axis 3")
refuse("QuantizeLinear", x=X, y_scale=1.0, precision=99, match="precision 99 is no element type")
refuse("DequantizeLinear", x=i32(2, 6), x_scale=f32(2, 2), block_size=2, since=21, match=r"need \[2, 3\]")
refuse("QuantizeLinear", x=X, y_scale=1.0, y_zero_point=np.int8(0), output_dtype=dtypes.uint8.code, match="output_dtype")

BEYOND = np.array([1e6, -INF, NAN, 0.25], np.float32)
for dtype in sorted(FLOAT8 - {dtypes.float8e8m0}, key=str):
    largest, overflow = limits(dtype)[1], INF if dtype is dtypes.float8e5m2 else NAN
    zero = np.array(0, dtype.numpy)
    case("QuantizeLinear", x=BEYOND, y_scale=1.0, y_zero_point=zero, expect=[largest, -largest, NAN, 0.25])
    case("QuantizeLinear", x=BEYOND, y_scale=1.0, y_zero_point=zero, saturate=0, expect=[overflow, -overflow, NAN, 0.25])
for dtype in sorted(FLOAT6 | {dtypes.float4e2m1}, key=str):
    zero = np.array(0, dtype.numpy)
    case("QuantizeLinear", x=BEYOND[:2], y_scale=1.0, y_zero_point=zero, saturate=0, expect=list(limits(dtype)[::-1]))

THIRD = np.float32(1 / 3)
for dtype in sorted(HALVES, key=str):
    case(
        "QuantizeLinear",
        x=X,
        y_scale=THIRD,
        y_zero_point=np.int8(1),
        precision=dtype.code,
        expect=quantized((X.astype(dtype.numpy) / THIRD.astype(dtype.numpy)).astype(np.float32), 1, 1, dtypes.int8),
    )
POWER = np.array(0.25, ml_dtypes.float8_e8m0fnu)
case("QuantizeLinear", x=X, y_scale=POWER, y_zero_point=np.int8(0), expect=quantized(X, 0.25, 0, dtypes.int8))

# --- DequantizeLinear ---

for dtype in sorted(QUANTIZED | {dtypes.int32}, key=str):
    codes = array(dtype.numpy, 3, 4)
    values = codes.astype(np.float64)
    case("DequantizeLinear", x=codes, x_scale=STEP, expect=values * 0.5)
    for target in sorted(FLOATS - {dtypes.float64}, key=str):
        case(
            "DequantizeLinear",
            x=codes,
            x_scale=STEP.astype(target.numpy),
            x_zero_point=np.array(0, dtype.numpy),
            expect=values * 0.5,
        )
    case("DequantizeLinear", x=codes, x_scale=POWER, output_dtype=dtypes.bfloat16.code, expect=values * 0.25)
    case("DequantizeLinear", x=codes, x_scale=STEP, output_dtype=dtypes.float16.code, expect=values * 0.5)
case("DequantizeLinear", x=np.uint8([0, 255]), x_scale=2.0, x_zero_point=np.uint8(128), expect=[-256, 254])
case("DequantizeLinear", x=np.uint16([0, 65535]), x_scale=2.0, x_zero_point=np.uint16(65535), expect=[-131070, 0])
case("DequantizeLinear", x=np.int8([]), x_scale=2.0, expect=np.zeros(0, np.float32))
refuse("DequantizeLinear", x=np.int8([1]), x_scale=POWER, match="output_dtype is needed")

# --- DynamicQuantizeLinear ---

for x, scale, zero_point in (
    (np.array([-1, 0, 1, 1.55], np.float32), 2.55 / 255, 100),
    (np.array([1, 2.55], np.float32), 2.55 / 255, 0),
    (np.array([[-2.55], [-1]], np.float32), 2.55 / 255, 255),
    (np.zeros((2, 2), np.float32), 1, 0),
    (np.zeros((0, 2), np.float32), 1, 0),
):
    case(
        "DynamicQuantizeLinear",
        x=x,
        expect=(quantized(x, scale, zero_point, dtypes.uint8), np.float32(scale), np.uint8(zero_point)),
    )

# --- MatMulInteger: exact, whatever the depth ---

BYTES = {"T1": {dtypes.int8, dtypes.uint8}, "T2": {dtypes.int8, dtypes.uint8}}


def exact(A, B, a=0, b=0):
    return (np.asarray(A, np.int64) - np.asarray(a, np.int64)) @ (np.asarray(B, np.int64) - np.asarray(b, np.int64))


for depth in (3, 300, 70000):
    full = {"A": i32(2, depth, low=-128, high=256), "B": i32(depth, 3, low=-128, high=256)}
    case("MatMulInteger", **full, types=BYTES, expect=lambda A, B: exact(A, B).astype(np.int32))
A, B = array(np.uint8, 2, 3, 4, low=0, high=256), array(np.int8, 4, 5, low=-128, high=128)
case("MatMulInteger", A=A, B=B, a_zero_point=np.uint8(7), b_zero_point=np.int8(-3), expect=exact(A, B, 7, -3))
case("MatMulInteger", A=A, B=B, b_zero_point=np.int8([-3]), expect=exact(A, B, 0, -3))
ROWS, COLUMNS = np.uint8([1, 200, 3]), np.int8([-128, 5, 0, 1, 127])
case("MatMulInteger", A=A, B=B, a_zero_point=ROWS, b_zero_point=COLUMNS, expect=exact(A, B, ROWS[:, None], COLUMNS))
PER_BATCH = array(np.uint8, 2, 3, 1, low=0, high=256)
case("MatMulInteger", A=A, B=B, a_zero_point=PER_BATCH, expect=exact(A, B, PER_BATCH))
case("MatMulInteger", A=A[0, 0], B=B, a_zero_point=np.uint8(3), expect=exact(A[0, 0], B, 3))
case("MatMulInteger", A=A, B=B[:, 0], expect=exact(A, B[:, 0]))
case("MatMulInteger", A=A[0, 0], B=B[:, 0], expect=exact(A[0, 0], B[:, 0]))
case("MatMulInteger", A=np.zeros((2, 0), np.uint8), B=np.zeros((0, 3), np.int8), expect=np.zeros((2, 3), np.int32))
refuse("MatMulInteger", A=A, B=B[:3], match="inner sizes differ")
refuse("MatMulInteger", A=np.uint8(1), B=B, match="rank 1 or more")

# --- QLinearMatMul ---

SMALL_A, SMALL_B = i32(2, 3, 4, low=0, high=20), i32(4, 5, low=0, high=20)
PARAMETERS = {"a_scale": 0.5, "a_zero_point": 3, "b_scale": 0.25, "b_zero_point": 2, "y_scale": 2.0, "y_zero_point": 5}
case(
    "QLinearMatMul",
    a=SMALL_A,
    b=SMALL_B,
    **PARAMETERS,
    types={**BYTES, "T3": {dtypes.int8, dtypes.uint8}},
    opsets=(10, 21),
    expect=lambda a, b, y_zero_point: quantized(exact(a, b, 3, 2) / 8, 2, 5, dtypes.from_numpy(y_zero_point.dtype)),
)
case(
    "QLinearMatMul",
    a=SMALL_A,
    b=SMALL_B,
    **PARAMETERS,
    since=21,
    types={"TS": FLOATS - {dtypes.float64}, "T1": {dtypes.uint8}, "T2": {dtypes.int8}, "T3": {dtypes.uint8}},
    expect=quantized(exact(SMALL_A, SMALL_B, 3, 2) / 8, 2, 5, dtypes.uint8),
)
ROW_STEPS, COLUMN_STEPS = np.float32([0.5, 1, 2]), np.float32([0.25, 1, 0.5, 2, 4])
case(
    "QLinearMatMul",
    a=SMALL_A.astype(np.uint8),
    a_scale=ROW_STEPS,
    a_zero_point=np.uint8([1, 2, 3]),
    b=SMALL_B.astype(np.int8),
    b_scale=COLUMN_STEPS,
    b_zero_point=np.int8([1, 2, 3, 4, 5]),
    y_scale=16.0,
    y_zero_point=np.int8(5),
    expect=quantized(
        exact(SMALL_A, SMALL_B, np.array([[1], [2], [3]]), [1, 2, 3, 4, 5]) * ROW_STEPS[:, None] * COLUMN_STEPS,
        16,
        5,
        dtypes.int8,
    ),
)
for dtype in sorted(FLOAT8 - {dtypes.float8e8m0}, key=str):
    zero = np.array(0, dtype.numpy)
    left, right = (i32(*shape, low=-3, high=4).astype(np.float32).astype(dtype.numpy) for shape in ((2, 3), (3, 4)))
    case(
        "QLinearMatMul",
        a=left,
        a_scale=0.5,
        a_zero_point=zero,
        b=right,
        b_scale=2.0,
        b_zero_point=zero,
        y_scale=1.0,
        y_zero_point=zero,
        expect=(left.astype(np.float32) @ right.astype(np.float32)).astype(dtype.numpy),
    )


@pytest.mark.parametrize("scale", [0.0, -0.5, np.nan, np.inf])
def test_a_session_refuses_constant_scales_by_which_nothing_can_be_divided(scale):
    header = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>'
    number = np.float32(scale)
    bodies = {
        "y_scale": "b = QuantizeLinear(x, s)",
        "x_scale": "a = QuantizeLinear(x, one) b = DequantizeLinear(a, s)",
        "w_scale": "a = QuantizeLinear(x, one) b = QLinearConv(a, one, z, w, s, z, one, z)",
        "X_scale": "a = QuantizeLinear(x, one) b = com.microsoft.QLinearSoftmax<opset=13>(a, s, z, one, z)",
    }
    for name, body in bodies.items():
        proto = onnx.parser.parse_model(
            f"{header} g (float[1,1,2,2] x) => (b) <float one = {{1}}, uint8 z = {{0}}, uint8[1,1,1,1] w = {{1}}> {{ {body} }}"
        )
        proto.graph.initializer.append(onnx.numpy_helper.from_array(number, "s"))
        if scale <= 0 and name != "y_scale":  # all numbers stand for 0, or for their negatives
            sardonyx.InferenceSession(proto.SerializeToString())
            continue
        with pytest.raises(errors.CODED, match=f"{name} must be finite.*{number}"):
            sardonyx.InferenceSession(proto.SerializeToString())


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_an_axis_that_x_lacks_is_refused_where_a_scale_of_open_size_is_not_one_number(op, native):
    kind, x = ("float", X) if op == "QuantizeLinear" else ("int8", X.astype(np.int8))
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({kind}[a,b,c] x, float[s] s, int8[s] z) => (y) {{ y = {op}<axis=-100>(x, s, z) }}'
    )
    session = sardonyx.InferenceSession(proto.SerializeToString(), providers=[("CPUExecutionProvider", {"native": native})])
    (result,) = session.run(None, {"x": x, "s": np.float32([0.5]), "z": np.int8([3])})
    wanted = quantized(X, 0.5, 3, dtypes.int8) if op == "QuantizeLinear" else (x.astype(np.float32) - 3) * 0.5
    np.testing.assert_array_equal(result, wanted)
    with pytest.raises(errors.CODED, match="axis -100 is not in valid range"):
        session.run(None, {"x": x, "s": np.full(2, 0.5, np.float32), "z": np.full(2, 3, np.int8)})
