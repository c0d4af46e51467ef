"""Quantization and dequantization in generated code: the same whole numbers as NumPy's, whatever the scales, zero points and types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sardonyx import dtypes, errors
from sardonyx.providers.scalars.quantize import FEW_BITS
from sardonyx.runtime.execution.executor import execute
from tests.compiler.functions import levels
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import use_level

SMALL = {"uint8": np.uint8, "int8": np.int8, "uint16": np.uint16, "int16": np.int16}
REALS = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
each_small = pytest.mark.parametrize("whole", SMALL)
each_real = pytest.mark.parametrize("real", REALS)


def _numbers(*shape: int) -> np.ndarray:
    """Reals of all sizes, with halves between whole numbers, infinities and NaN."""
    rng = np.random.default_rng(3)
    numbers = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 6, shape)).astype(np.float32)
    odd = [np.nan, np.inf, -np.inf, 0.25, 0.75, -0.25, 1e30, -1e30, -0.0][: numbers.size]
    numbers.reshape(-1)[: len(odd)] = odd
    return numbers


def _points(whole: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(SMALL[whole])
    return np.random.default_rng(4).integers(limits.min, limits.max, shape, endpoint=True).astype(SMALL[whole])


def _scales(real: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(5).uniform(0.01, 2, shape).astype(REALS[real])


@each_small
@each_real
def test_one_scale(whole: str, real: str) -> None:
    source = f"""g ({real}[A,B] x, {real} s, {whole} p) => ({whole}[A,B] y, {real}[A,B] z) {{
        y = QuantizeLinear(x, s, p) z = DequantizeLinear(y, s, p) }}"""
    with np.errstate(all="ignore"):
        sets = [
            {"x": _numbers(*shape).astype(REALS[real]), "s": _scales(real).reshape(()), "p": _points(whole).reshape(())}
            for shape in ((5, 13), (0, 3), (1, 1))
        ]
    assert_agrees(source, sets, tolerance=0.0)


@each_small
@pytest.mark.parametrize("level", levels())
def test_numbers_far_away_become_the_ends_of_the_range(whole: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With zero points at both ends: 32 bits hold neither these numbers nor, shifted, the least of their own."""
    use_level(monkeypatch, level)
    far = [2.0**power * sign for power in (15, 16, 29, 30, 31, 32, 33, 63, 127) for sign in (1, -1)]
    numbers = np.array([*far, 2.0**31 - 128, -(2.0**31) - 256, np.inf, -np.inf, np.nan, 0, -0.0], np.float32)
    limits = np.iinfo(SMALL[whole])
    source = f"""g (float[N] x, float s, {whole} p) => ({whole}[N] y, float[N] z) {{
        y = QuantizeLinear(x, s, p) z = DequantizeLinear(y, s, p) }}"""
    for point in (limits.min, limits.max, 0):
        feeds = {"x": numbers, "s": np.array(1, np.float32), "p": np.array(point, SMALL[whole])}
        assert_agrees(source, feeds, tolerance=0.0)


@each_small
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scale_for_each_index_of_an_axis(whole: str, axis: int) -> None:
    shape = (3, 5, 7)
    size = shape[axis]
    source = f"""g (float[3,5,7] x, float[{size}] s, {whole}[{size}] p) => ({whole}[3,5,7] y, float[3,5,7] z) {{
        y = QuantizeLinear<axis={axis}>(x, s, p) z = DequantizeLinear<axis={axis}>(y, s, p) }}"""
    assert_agrees(source, {"x": _numbers(*shape), "s": _scales("float", size), "p": _points(whole, size)}, tolerance=0.0)


@each_small
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scale_for_each_block(whole: str, axis: int) -> None:
    shape = (4, 6, 8)
    blocks = [size // 2 if number == axis % 3 else size for number, size in enumerate(shape)]
    sizes = ",".join(map(str, blocks))
    source = f"""g (float[4,6,8] x, float[{sizes}] s, {whole}[{sizes}] p) => ({whole}[4,6,8] y, float[4,6,8] z) {{
        y = QuantizeLinear<axis={axis}, block_size=2>(x, s, p) z = DequantizeLinear<axis={axis}, block_size=2>(y, s, p) }}"""
    assert_agrees(source, {"x": _numbers(*shape), "s": _scales("float", *blocks), "p": _points(whole, *blocks)}, tolerance=0.0)


@pytest.mark.parametrize("few", sorted(dtype.name for dtype in FEW_BITS))
@pytest.mark.parametrize("form", ["one scale", "a scale for each column", "a scale for each block"])
def test_numbers_of_few_bits_are_dequantized(few: str, form: str) -> None:
    """All codes that there are. Zero points of floats are 0, as the standard has it."""
    dtype = getattr(dtypes, few)
    codes = (np.arange(256).reshape(16, 16) % (1 << dtype.bits)).astype(np.uint8)
    scales, attributes = {"one scale": ((), ""), "a scale for each column": ((16,), "<axis=1>")}.get(
        form, ((4, 16), "<axis=0, block_size=4>")
    )
    point = codes.reshape(-1)[: int(np.prod(scales))].reshape(scales) * ("float" not in few)
    sizes = f"[{','.join(map(str, scales))}]" if scales else ""
    source = f"""g ({few}[16,16] x, float{sizes} s, {few}{sizes} p) => (float[16,16] y, float[16,16] z) {{
        y = DequantizeLinear{attributes}(x, s, p) z = DequantizeLinear{attributes}(x, s) }}"""
    feeds = {"x": codes.view(dtype.numpy), "s": _scales("float", *scales), "p": point.astype(np.uint8).view(dtype.numpy)}
    assert_agrees(source, feeds, opset=28, tolerance=0.0)


def test_without_zero_points() -> None:
    source = """g (float[3,7] x, int32[3,7] n, float s, float[7] t) => (uint8[3,7] y, float[3,7] z, float[3,7] w, uint8[3,7] v) {
        y = QuantizeLinear(x, s) z = DequantizeLinear(y, s) w = DequantizeLinear(n, t) v = QuantizeLinear(n, s) }"""
    whole = np.random.default_rng(6).integers(-(2**31), 2**31, (3, 7)).astype(np.int32)
    feeds = {"x": _numbers(3, 7), "n": whole, "s": _scales("float").reshape(()), "t": _scales("float", 7)}
    assert_agrees(source, feeds, opset=13, tolerance=0.0)


def test_reals_between_two_scales_are_rounded_by_each_op() -> None:
    """A product and a sum in one rounding would give other whole numbers behind it."""
    source = """g (uint8[2,999] a, uint8[2,999] b) => (uint8[2,999] y)
        <float s = {0.0123}, uint8 p = {17}, float t = {0.0371}, uint8 q = {200}, float u = {0.0113}, uint8 r = {3}> {
        c = DequantizeLinear(a, s, p) d = DequantizeLinear(b, t, q) e = Add(c, d) y = QuantizeLinear(e, u, r) }"""
    assert_agrees(source, {"a": _points("uint8", 2, 999), "b": _points("uint8", 999, 2).T.copy()}, steps=1)


def test_quantizing_is_part_of_the_loop_before() -> None:
    source = """g (float[4,8] x, float[8,5] w) => (int8[4,5] y) <float s = {0.1}, int8 p = {3}> {
        a = MatMul(x, w) b = Relu(a) y = QuantizeLinear(b, s, p) }"""
    feeds = {"x": _scales("float", 4, 8) - 1, "w": _scales("float", 8, 5)}
    assert_agrees(source, feeds)
    (program,) = programs(native_plan(source))
    assert [step.kernel.title for step in program.program.steps if step.kernel.title == "elementwise"] == []


@pytest.mark.parametrize("count", [0, 1, 7, 8193, 40000])
@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf, 1e38])
def test_dynamic_quantization(count: int, odd: float | None) -> None:
    numbers = (np.random.default_rng(count).standard_normal(count) * 9).astype(np.float32)
    if count and odd is not None:
        numbers[count // 2] = odd
    source = "g (float[N] x) => (uint8[N] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"
    assert_agrees(source, [{"x": numbers}, {"x": np.abs(numbers)}, {"x": np.zeros_like(numbers)}], tolerance=0.0)


@pytest.mark.parametrize("whole", ["uint8", "int8"])
def test_quantized_arithmetic(whole: str) -> None:
    source = f"""g ({whole}[3,70] a, {whole}[3,70] b, {whole}[70] c, bool[3,70] d)
        => ({whole}[3,70] add, {whole}[3,70] mul, {whole}[3,70] where) <
        float s = {{0.02}}, {whole} p = {{17}}, float t = {{0.3}}, {whole} q = {{100}}, float u = {{0.31}}, {whole} r = {{5}}> {{
        add = com.microsoft.QLinearAdd(a, s, p, b, t, q, u, r)
        mul = com.microsoft.QLinearMul(a, s, p, c, t, q, u, r)
        where = com.microsoft.QLinearWhere(d, a, s, p, b, t, q, u, r) }}"""
    feeds = {
        "a": _points(whole, 3, 70),
        "b": _points(whole, 70, 3).T.copy(),
        "c": _points(whole, 70),
        "d": _points("uint8", 3, 70) > 99,
    }
    assert_agrees(source, feeds)


@pytest.mark.parametrize("whole", ["uint8", "int8"])
def test_quantized_activations_of_all_numbers(whole: str) -> None:
    source = f"""g ({whole}[256] x) => ({whole}[256] y, {whole}[256] z) <
        float s = {{0.05}}, {whole} p = {{17}}, float t = {{0.0037}}, {whole} q = {{3}}> {{
        y = com.microsoft.QLinearSigmoid(x, s, p, t, q) z = com.microsoft.QLinearLeakyRelu<alpha=0.1>(x, s, p, t, q) }}"""
    assert_agrees(source, {"x": np.arange(256).astype(np.uint8).view(SMALL[whole])})


def test_scales_that_do_not_fit_are_refused() -> None:
    source = "g (float[3,5] x, float[N] s) => (uint8[3,5] y) { y = QuantizeLinear<axis=1>(x, s) }"
    plan = native_plan(source)
    assert programs(plan)
    with pytest.raises(errors.CODED, match="a scale or zero point has 4 elements, but axis 1 has 5"):
        execute(plan, {"x": _numbers(3, 5), "s": _scales("float", 4)})
