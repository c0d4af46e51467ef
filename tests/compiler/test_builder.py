"""The builder of functions: types in memory and in registers, masks, rounding, loops and branches, for every feature set."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sardonyx.compiler.builder import Function
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.compiler.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, PTR, U8, U16, U32, U64
from tests.compiler.functions import call_pointers, each_level, run

STORED = {
    np.float16: F16,
    ml_dtypes.bfloat16: BF16,
    np.float32: F32,
    np.float64: F64,
    np.int8: I8,
    np.int16: I16,
    np.int32: I32,
    np.int64: I64,
    np.uint8: U8,
    np.uint16: U16,
    np.uint32: U32,
    np.uint64: U64,
    np.bool_: BOOL,
}


def floats() -> np.ndarray:
    """float32 of all magnitudes, halves between neighbours of the 16-bit types among them."""
    every = np.linspace(0, 2**32 - 1, 2**16).astype(np.uint32)
    halves = np.arange(2**16, dtype=np.uint32) << 16 | 0x8000
    ties = (np.arange(2**16, dtype=np.uint32) << 13) + 0x38001000
    small = np.arange(0, 2**12, dtype=np.uint32) * 37 + 0x33000000
    return np.concatenate([every, halves, halves + 1, halves - 1, ties, ties + 1, ties - 1, small]).view(np.float32)


def same_bits(got: np.ndarray, wanted: np.ndarray) -> None:
    nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(got[~nan].view(np.uint16), wanted[~nan].view(np.uint16))


@each_level
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_narrow_floats_round_to_nearest_even(level, dtype):
    x = floats()
    with np.errstate(all="ignore"):
        wanted = x.astype(dtype)
    same_bits(run(lambda x: x, level, [(x, F32)], (np.dtype(dtype), STORED[dtype])), wanted)


@each_level
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_narrow_floats_come_as_float32(level, dtype):
    x = np.arange(2**16).astype(np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32)
    np.testing.assert_array_equal(run(lambda x: x, level, [(x, STORED[dtype])], (np.dtype(np.float32), F32)), wanted)


@each_level
@pytest.mark.parametrize("dtype", STORED, ids=lambda one: np.dtype(one).name)
@pytest.mark.parametrize("count", [0, 1, 3, 7, 70])
def test_partial_vectors_touch_no_neighbours(level, dtype, count):
    x = (np.arange(count + 70) % 2).astype(dtype)
    y = np.ones(count + 70, dtype)
    target, type = X86_LEVELS[level], STORED[dtype]
    lanes = target.lanes(type)
    f = Function([("x", PTR), ("y", PTR), ("count", I64)], target=target)
    with f.loop(0, f["count"], lanes) as i:
        f.store(f.load(f["x"], i, type, lanes, remaining=f["count"] - i), f["y"], i, type, remaining=f["count"] - i)
    call_pointers(f, target, [x, y], count)
    np.testing.assert_array_equal(y.astype(np.float64), np.concatenate([x[:count], np.ones(70, dtype)]).astype(np.float64))


@each_level
@pytest.mark.parametrize(
    "name, reference", [("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round_even", np.rint), ("abs", np.abs)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_to_whole_numbers(level, name, reference, dtype):
    with np.errstate(all="ignore"):
        x = np.concatenate([floats().astype(dtype), np.arange(-9, 9, 0.25, dtype), np.array([2**52 - 0.5, 2**53], dtype)])
        wanted = reference(x)
    got = run(lambda x: getattr(x.f, name)(x), level, [(x, STORED[dtype])], (np.dtype(dtype), STORED[dtype]))
    np.testing.assert_array_equal(got, wanted)
    finite = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(wanted[finite]))


@each_level
def test_integers_are_signed_or_not(level):
    x = np.arange(256).astype(np.uint8)
    signed = x.view(np.int8)
    bytes_ = np.dtype(np.uint8), U8
    np.testing.assert_array_equal(run(lambda x: x >> 1, level, [(x, U8)], bytes_), x >> 1)
    np.testing.assert_array_equal(run(lambda x: x >> 1, level, [(signed, I8)], (np.dtype(np.int8), I8)), signed >> 1)
    np.testing.assert_array_equal(run(lambda x: x.f.maximum(x, 100), level, [(x, U8)], bytes_), np.maximum(x, 100))
    np.testing.assert_array_equal(run(lambda x: x < 0, level, [(signed, I8)], (np.dtype(np.bool_), BOOL)), signed < 0)
    np.testing.assert_array_equal(run(lambda x: x.f.convert(x, F32), level, [(x, U8)], (np.dtype(np.float32), F32)), x)


@each_level
def test_minimum_and_maximum_give_the_right_operand_for_nan(level):
    x, y = np.array([np.nan, 1, 2, np.nan], np.float32), np.array([1, np.nan, 3, np.nan], np.float32)
    single = np.dtype(np.float32), F32
    np.testing.assert_array_equal(
        run(lambda x, y: x.f.minimum(x, y), level, [(x, F32), (y, F32)], single), [1, np.nan, 2, np.nan]
    )
    np.testing.assert_array_equal(
        run(lambda x, y: x.f.maximum(x, y), level, [(x, F32), (y, F32)], single), [1, np.nan, 3, np.nan]
    )


@each_level
@pytest.mark.parametrize("how, reference", [("add", np.sum), ("min", np.min), ("max", np.max)])
def test_lanes_are_reduced(level, how, reference):
    x, y = np.arange(3, 19, dtype=np.float32), np.zeros(1, np.float32)
    target = X86_LEVELS[level]
    f = Function([("x", PTR), ("y", PTR)], target=target)
    f.store(f.reduce(how, f.load(f["x"], 0, F32, 16)), f["y"], 0, F32)
    call_pointers(f, target, [x, y])
    assert y[0] == reference(x)


@each_level
def test_gather_reads_the_lanes_of_its_mask(level):
    target = X86_LEVELS[level]
    x, y = np.arange(100, dtype=np.float32), np.zeros(8, np.float32)
    f = Function([("x", PTR), ("y", PTR)], target=target)
    f.store(f.gather(f["x"], f.iota(I64, 8) * 11, F32, mask=f.iota(I32, 8) < 5), f["y"], 0, F32)
    call_pointers(f, target, [x, y])
    np.testing.assert_array_equal(y, [0, 11, 22, 33, 44, 0, 0, 0])


def test_variables_change_in_loops_and_branches():
    target = X86_LEVELS["sse2"]
    y = np.zeros(2, np.int64)
    f = Function([("y", PTR), ("count", I64)], target=target)
    total, kind = f.variable(0, I64), f.variable(0, I64)
    with f.loop(0, f["count"]) as i:
        with f.loop(0, i):
            total.set(total.get() + 1)
        with f.if_(i == 3):
            total.set(total.get() + 1000)
    with f.if_else(f["count"] > 4) as otherwise:
        kind.set(1)
        otherwise()
        kind.set(2)
    with f.while_() as body:
        body.leave_if(kind.get() > 9)
        kind.set(kind.get() + 5)
    f.store(total.get(), f["y"], 0, I64)
    f.store(kind.get(), f["y"], 1, I64)
    call_pointers(f, target, [y], 5)
    assert y.tolist() == [1010, 11]
    call_pointers(f, target, [y], 2)
    assert y.tolist() == [1, 12]


def test_products_and_sums_keep_their_roundings_where_exactness_is_asked():
    x = np.array([1 + 2.0**-12] * 16, np.float32)

    def lost(x):
        with x.f.exact():
            return x * x - (1 + 2.0**-11)

    np.testing.assert_array_equal(run(lost, "sse2", [(x, F32)], (x.dtype, F32)), x * x - np.float32(1 + 2.0**-11))


@each_level
def test_copies_side_by_side_do_what_each_does(level):
    x = np.arange(64, dtype=np.float32)
    y = np.zeros(64, np.float32)
    f = Function([("x", PTR), ("y", PTR)], target=X86_LEVELS[level])

    def emit(number):
        numbers = f.constants(F32, [number, 1, 2, 3])
        f.store(f.load(f["x"], 4 * number, F32, 4) * 2.0 + numbers, f["y"], 4 * number, F32)

    f.side_by_side(16, emit, 2)
    call_pointers(f, X86_LEVELS[level], [x, y])
    np.testing.assert_array_equal(y.reshape(16, 4), x.reshape(16, 4) * 2 + [[number, 1, 2, 3] for number in range(16)])


def test_branches_do_not_stand_side_by_side():
    f = Function([("x", PTR)])

    def emit(number):
        with f.if_(f.load(f["x"], number, I64) > 0):
            f.store(0, f["x"], number, I64)

    with pytest.raises(ValueError, match="branches"):
        f.side_by_side(2, emit, 1)


@each_level
def test_what_streams_arrives(level):
    x = np.arange(64, dtype=np.float32)
    room = np.zeros(96, np.float32)
    start = -room.ctypes.data % 64 // 4
    y = room[start : start + 64]
    f = Function([("x", PTR), ("y", PTR)], target=X86_LEVELS[level])
    f.store(f.load(f["x"], 0, F32, 64), f["y"], 0, F32, streams=True)
    f.fence()
    call_pointers(f, X86_LEVELS[level], [x, y])
    np.testing.assert_array_equal(y, x)


def test_mistakes_of_type_are_errors():
    f = Function([("x", PTR)])
    a, b = f.load(f["x"], 0, F32), f.load(f["x"], 0, I32)
    with pytest.raises(TypeError, match="expected float, got i32"):
        a + b
    with pytest.raises(TypeError, match="not a whole number"):
        b + 0.5
    with pytest.raises(TypeError, match="not known yet"):
        bool(a > 1.0)
    with pytest.raises(TypeError, match="constants of half"):
        f.const(F16, 1.0)
