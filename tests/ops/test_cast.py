"""Cases of conversions between element types."""

import ml_dtypes
import numpy as np
import pytest

from sardonyx import dtypes, errors
from sardonyx.dtypes import COMPLEX, FLOAT6, FLOAT8, FLOATS, HALVES, INTS, NUMERIC, SMALL_FLOATS
from tests.ops.cases import array, case, f32, i32, i64, refuse, strings

NAN, INF = np.nan, np.inf

# --- among numbers: small whole ones survive every conversion ---

SMALL = np.array([[0, 1, 2], [1, 0, 3]])
for target in sorted(NUMERIC | SMALL_FLOATS - {dtypes.float8e8m0} | {dtypes.bool_}, key=str):
    case(
        "Cast",
        input=SMALL,
        to=target.code,
        since=9,
        opsets=(28,),
        types={"T1": NUMERIC - {dtypes.int2} | SMALL_FLOATS - {dtypes.float8e8m0} | {dtypes.bool_}},
        expect=lambda input, t=target: input != 0 if t is dtypes.bool_ else input.astype(np.int64).astype(t.numpy),
    )
    if target not in FLOAT6:
        case("CastLike", input=SMALL % 2, target_type=np.zeros(2, target.numpy), expect=(SMALL % 2).astype(target.numpy))
case("Cast", input=f32(), to=dtypes.float64.code, since=6, expect=lambda input: input)
case("Cast", input=f32(0, 3), to=dtypes.int8.code, since=6, expect=np.zeros((0, 3), np.int8))
for name in ("FLOAT", "DOUBLE", "FLOAT16", "INT8", "UINT64", "BOOL"):
    case("Cast", input=i32(3), to=name, until=1, expect=lambda input, n=name: input.astype(dtypes.from_name(n.lower()).numpy))

# what does not fit: the upper bits are lost, fractions too; floats overflow to infinity
LARGE = np.array([200, -9, 300, 65537, 2**40 + 5])
case("Cast", input=LARGE, to=dtypes.int8.code, since=6, expect=[-56, -9, 44, 1, 5])
case("Cast", input=LARGE, to=dtypes.uint8.code, since=6, expect=[200, 247, 44, 1, 5])
case("Cast", input=LARGE, to=dtypes.int4.code, since=21, expect=[-8, 7, -4, 1, 5])
case("Cast", input=LARGE, to=dtypes.uint4.code, since=21, expect=[8, 7, 12, 1, 5])
case("Cast", input=LARGE, to=dtypes.int2.code, since=25, expect=[0, -1, 0, 1, 1])
case("Cast", input=LARGE, to=dtypes.uint2.code, since=25, expect=[0, 3, 0, 1, 1])
case("Cast", input=np.array([2.9, -2.9, -0.5]), to=dtypes.int32.code, since=6, expect=[2, -2, 0])
case("Cast", input=np.array([1e39, -1e39, 70000]), to=dtypes.float32.code, since=6, expect=[INF, -INF, 70000])
case("Cast", input=np.array([1e39, -1e39, 70000]), to=dtypes.float16.code, since=6, expect=[INF, -INF, INF])
case("Cast", input=np.array([0.5, -0.0, NAN, INF], np.float32), to=dtypes.bool_.code, since=6, expect=[True, False, True, True])

# --- to float8 and smaller: the tables of the spec ---

SPECIAL = np.array([0, -0.0, NAN, INF, -INF, 1e6, -1e6, 0.3, 463, 465])
LARGEST = {t: float(ml_dtypes.finfo(t.numpy).max) for t in sorted(FLOAT8 - {dtypes.float8e8m0}, key=str)}
for target, largest in LARGEST.items():
    rounded = SPECIAL.astype(target.numpy).astype(np.float64)
    case(
        "Cast",
        input=SPECIAL,
        to=target.code,
        types={"T1": FLOATS},
        since=19,
        atol=0.0,
        expect=np.clip(np.where(np.isinf(SPECIAL), SPECIAL, np.where(np.isnan(rounded), SPECIAL, rounded)), -largest, largest),
    )
    overflow = INF if target is dtypes.float8e5m2 else NAN
    case(
        "Cast",
        input=np.array([1e6, -1e6, INF, 0.25], np.float32),
        to=target.code,
        saturate=0,
        expect=[overflow, -overflow, overflow, 0.25],
    )
    case("CastLike", input=np.array([1e6, -INF], np.float32), target_type=np.zeros(1, target.numpy), expect=[largest, -largest])
    case(
        "CastLike",
        input=np.array([1e6], np.float32),
        target_type=np.zeros(1, target.numpy),
        saturate=0,
        expect=[overflow],
    )
case("Cast", input=np.array([2**40, -7]), to=dtypes.float8e5m2.code, since=19, expect=[57344, -7])
for saturate in (0, 1):  # these have neither infinity nor NaN
    beyond = np.array([INF, -1e6, 1.25, -0.3], np.float32)
    case("Cast", input=beyond, to=dtypes.float4e2m1.code, saturate=saturate, expect=[6, -6, 1, -0.5])
    case("Cast", input=beyond, to=dtypes.float6e2m3.code, saturate=saturate, expect=[7.5, -7.5, 1.25, -0.25])
    case("Cast", input=beyond, to=dtypes.float6e3m2.code, saturate=saturate, expect=[28, -28, 1.25, -0.3125])

POWERS = np.array([1, 1.25, 1.5, 1.75, 2, 0.75])
case("Cast", input=POWERS, to=dtypes.float8e8m0.code, since=24, types={"T1": FLOATS}, expect=[1, 2, 2, 2, 2, 1])
case("Cast", input=POWERS, to=dtypes.float8e8m0.code, round_mode="down", expect=[1, 1, 1, 1, 2, 0.5])
case("Cast", input=POWERS, to=dtypes.float8e8m0.code, round_mode="nearest", expect=[1, 1, 2, 2, 2, 1])
EXTREME = np.array([0, INF, NAN, 1e300, 1e-300])
case("Cast", input=EXTREME, to=dtypes.float8e8m0.code, since=24, expect=[2.0**-127, 2.0**127, NAN, 2.0**127, 2.0**-127])
case("Cast", input=EXTREME, to=dtypes.float8e8m0.code, round_mode="nearest", saturate=0, expect=[NAN] * 5)
case("CastLike", input=POWERS, target_type=np.ones(1, ml_dtypes.float8_e8m0fnu), round_mode="down", expect=[1, 1, 1, 1, 2, 0.5])
case(
    "Cast",
    input=np.array([0.25, 1, 4], ml_dtypes.float8_e8m0fnu),
    to=dtypes.float16.code,
    expect=np.array([0.25, 1, 4], np.float16),
)

# --- text ---

TEXTS = np.array([["3.14", "1e-3", "+INF"], ["-inf", "nan", "-7"]], object)
NUMBERS = np.array([[3.14, 1e-3, INF], [-INF, NAN, -7]])
for target in sorted(FLOATS, key=str):
    case("Cast", input=TEXTS, to=target.code, since=9 if target not in HALVES else 13, expect=NUMBERS)
for target in sorted(INTS, key=str):
    case("Cast", input=np.array(["1", " 0", "+1"], object), to=target.code, since=9, opsets=(28,), expect=[1, 0, 1])
case("Cast", input=np.array(["100.5", "-2", "300"], object), to=dtypes.uint8.code, since=9, expect=[100, 254, 44])
case(
    "Cast",
    input=np.array(["18446744073709551615"], object),
    to=dtypes.uint64.code,
    since=9,
    expect=np.array([2**64 - 1], np.uint64),
)
case("Cast", input=np.array(["1", "0"], object), to=dtypes.bool_.code, since=9, expect=[True, False])
case("Cast", input=np.array(["500", "-1"], object), to=dtypes.float8e4m3fn.code, expect=[448, -1])
case("Cast", input=strings(2), to=dtypes.string.code, since=9, expect=lambda input: input)
case("Cast", input=np.array("2.5", object), to=dtypes.float32.code, since=9, expect=np.float32(2.5))
refuse("Cast", input=np.array(["abc"], object), to=dtypes.float32.code, since=9, kind=errors.RuntimeException, match="abc")
refuse("Cast", input=np.array(["inf"], object), to=dtypes.int32.code, since=9, kind=errors.RuntimeException, match="infinity")


def texts(*items):
    return np.array(items, object)


PRINTED = np.array([0.1, 1e20, 3.125, NAN, INF, -INF, 1, -0.0])
WORDS = texts("0.1", "1e+20", "3.125", "NaN", "INF", "-INF", "1", "-0")
case("Cast", input=PRINTED, to=dtypes.string.code, since=9, types={"T1": {dtypes.float32, dtypes.float64}}, expect=WORDS)
case(
    "Cast",
    input=np.array([0.5, 3]),
    to=dtypes.string.code,
    since=9,
    types={"T1": FLOATS | SMALL_FLOATS},
    opsets=(28,),
    expect=lambda input: texts(*(f"{x:g}" for x in input.tolist())),
)
case(
    "Cast",
    input=np.array([1, 0]),
    to=dtypes.string.code,
    types={"T1": INTS | {dtypes.bool_}},
    opsets=(28,),
    expect=texts("1", "0"),
)
case("Cast", input=np.array(-(2**63)), to=dtypes.string.code, since=9, expect=np.array(str(-(2**63)), object))
case("CastLike", input=i64(3), target_type=strings(1), expect=lambda input: texts(*map(str, input.tolist())))

# --- bits ---

PAIRS = (
    (dtypes.float32, dtypes.int32),
    (dtypes.float64, dtypes.uint64),
    (dtypes.complex64, dtypes.float64),
    (dtypes.bfloat16, dtypes.float16),
    (dtypes.float16, dtypes.int16),
    (dtypes.float8e4m3fn, dtypes.uint8),
    (dtypes.float8e8m0, dtypes.int8),
)
for source, target in PAIRS:
    given = array(np.uint8, 3, 4 * source.numpy.itemsize, low=0, high=120).view(source.numpy)
    case("BitCast", input=given, to=target.code, expect=given.view(target.numpy))
case("BitCast", input=np.float32([1, -2]), to=dtypes.uint32.code, expect=np.uint32([0x3F800000, 0xC0000000]))
case("BitCast", input=np.array([7, -8, -1], ml_dtypes.int4), to=dtypes.uint4.code, expect=[7, 8, 15])
case("BitCast", input=np.array([1, 9, 15], ml_dtypes.uint4), to=dtypes.float4e2m1.code, expect=[0.5, -0.5, -6])
case("BitCast", input=np.array([3, 2], ml_dtypes.uint2), to=dtypes.int2.code, expect=[-1, -2])
case("BitCast", input=np.array([True, False]), to=dtypes.uint8.code, expect=[1, 0])
refuse("BitCast", input=f32(2), to=dtypes.int64.code, match="float has 32 bits and int64 has 64")


def test_conversion_knows_every_pair_of_types():
    from sardonyx.providers.cpu.cast import convert

    types = dtypes.ALL - COMPLEX - {dtypes.string}
    for source in types:
        for target in types | {dtypes.string}:
            assert convert(np.ones((2, 0, 3), source.numpy), target).shape == (2, 0, 3)
            assert convert(np.ones((), source.numpy), target).dtype == target.numpy


@pytest.mark.parametrize("target", sorted(FLOAT8 | FLOAT6, key=str), ids=str)
def test_all_numbers_of_a_small_type_survive_the_way_through_float64(target):
    from sardonyx.providers.cpu.cast import convert

    codes = np.arange(64 if target in FLOAT6 else 256, dtype=np.uint8)
    values = codes.view(target.numpy).astype(np.float64)
    back = convert(values, target, saturate=0).astype(np.float64)
    np.testing.assert_array_equal(back, values)
