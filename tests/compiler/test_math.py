"""Elementary functions in generated code: units in the last place over the whole range, and special values, for every feature set."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sardonyx.compiler import math as functions_of_math
from sardonyx.compiler import powers, trigonometry
from sardonyx.compiler.builder import Function
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.compiler.types import F32, F64, I64, PTR
from tests.compiler.functions import call_pointers, each_level, levels, run

SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e-45,
    -1e-45,
    1e-38,
    3.4e38,
    -3.4e38,
    88.7,
    88.8,
    -87.4,
    -103.9,
]


def bit_patterns() -> np.ndarray:
    """float32 of all magnitudes, more of them where functions bend."""
    every = np.linspace(0, 2**32 - 1, 2**18).astype(np.uint32).view(np.float32)
    parts = [np.linspace(-bound, bound, 2**15).astype(np.float32) for bound in (1, 12, 110)]
    return np.concatenate([every, *parts, np.array(SPECIAL, np.float32)])


def doubles() -> np.ndarray:
    every = np.linspace(0, 2**64 - 2**12, 2**16).astype(np.uint64).view(np.float64)
    parts = [np.linspace(-bound, bound, 2**14 + 1) for bound in (1e-9, 1, 12, 800)]
    return np.concatenate([every, *parts, np.array([*SPECIAL, 5e-324, 1e-310, 1e308, 709.7, 709.8, 710.4, -745.0, -746.0])])


def off(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How many units in the last place results are from the wanted ones, known more precisely; inf where specials or signs differ."""
    with np.errstate(all="ignore"):
        nearest = wanted.astype(got.dtype)
        units = np.abs(got.astype(wanted.dtype) - wanted) / np.spacing(np.abs(nearest)).astype(wanted.dtype)
        same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
        units = np.where(same, 0, np.where(np.isnan(units), np.inf, units))
    return np.where((np.signbit(got) != np.signbit(nearest)) & ~np.isnan(nearest), np.inf, units)


def assert_within(units: float, got: np.ndarray, wanted: np.ndarray, *operands: np.ndarray) -> None:
    found = off(got, wanted)
    worst = int(np.argmax(found))
    assert found[worst] <= units, f"{found[worst]} units at {[x[worst] for x in operands]}: {got[worst]}, not {wanted[worst]}"


def sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


SINGLE = {
    "exp": (np.exp, 1.1),
    "exp2": (np.exp2, 1.1),
    "expm1": (np.expm1, 1.7),
    "log": (np.log, 1),
    "log1p": (np.log1p, 1),
    "tanh": (np.tanh, 1.8),
    "sigmoid": (sigmoid, 1.6),
    "softplus": (softplus, 1.8),
    "erf": (np.vectorize(math.erf), 1.3),
    "sinh": (np.sinh, 0.51),
    "cosh": (np.cosh, 0.51),
    "asinh": (np.arcsinh, 0.51),
    "acosh": (np.arccosh, 0.51),
    "atanh": (np.arctanh, 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6),
    "reciprocal": (lambda x: 1 / x, 0.51),
}
CIRCULAR = {
    "sin": (np.sin, 1.6),
    "cos": (np.cos, 1.6),
    "tan": (np.tan, 0.51),
    "asin": (np.arcsin, 0.51),
    "acos": (np.arccos, 0.51),
    "atan": (np.arctan, 0.51),
}
DOUBLE = {
    "exp": (np.exp, 1.5),
    "exp2": (np.exp2, 1.5),
    "expm1": (np.expm1, 3),
    "log": (np.log, 1.5),
    "log1p": (np.log1p, 2),
    "tanh": (np.tanh, 3),
    "sigmoid": (sigmoid, 3),
    "softplus": (softplus, 3),
    "sinh": (np.sinh, 4),
    "cosh": (np.cosh, 4),
    "asinh": (np.arcsinh, 4),
    "acosh": (np.arccosh, 4),
    "atanh": (np.arctanh, 4),
    "asin": (np.arcsin, 4),
    "acos": (np.arccos, 4),
    "atan": (np.arctan, 2),
    "erf": (np.vectorize(math.erf), 2),
    "sin": (np.sin, 2.5),
    "cos": (np.cos, 2.5),
    "tan": (np.tan, 5),
}


def function_of(name: str):
    return getattr(functions_of_math, name, None) or getattr(trigonometry, name)


@each_level
@pytest.mark.parametrize("name", [*SINGLE, *CIRCULAR])
def test_float32_is_near_the_exact_value_everywhere(name, level):
    reference, units = (SINGLE | CIRCULAR)[name]
    x = bit_patterns()
    with np.errstate(all="ignore"):
        wanted = reference(x.astype(np.longdouble if name in CIRCULAR else np.float64))
    assert_within(units, run(function_of(name), level, [(x, F32)], (x.dtype, F32)), wanted, x)


@pytest.mark.skipif("avx512" not in levels(), reason="this CPU has no AVX-512")
@pytest.mark.parametrize(("name", "units"), [("exp", 1.1), ("exp2", 1.1), ("sigmoid", 1.5), ("tanh", 1.3), ("softplus", 1.6)])
def test_what_is_looked_up_is_near_the_exact_value(name, units):
    """Between the points of tables too."""
    x = np.concatenate([np.linspace(-bound, bound, 2**19).astype(np.float32) for bound in (0.7, 10, 105)])
    wanted = SINGLE[name][0](x.astype(np.float64))
    assert_within(units, run(function_of(name), "avx512", [(x, F32)], (x.dtype, F32)), wanted, x)


@pytest.mark.skipif("avx512" not in levels(), reason="this CPU has no AVX-512")
@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid", "tanh"])
def test_several_registers_at_a_time_give_the_same(name):
    x = np.linspace(-30, 30, 1 << 12).astype(np.float32)
    results = []
    for lanes in (16, 64):
        f = Function([("x", PTR), ("y", PTR), ("count", I64)], target=X86_LEVELS["avx512"])
        with f.loop(0, f["count"], lanes) as i:
            f.store(function_of(name)(f.load(f["x"], i, F32, lanes)), f["y"], i, F32)
        results.append(np.zeros_like(x))
        call_pointers(f, X86_LEVELS["avx512"], [x, results[-1]], len(x))
    np.testing.assert_array_equal(*results)


@each_level
@pytest.mark.parametrize("name", DOUBLE)
def test_float64_is_near_the_exact_value_everywhere(name, level):
    reference, units = DOUBLE[name]
    x = doubles()
    with np.errstate(all="ignore"):
        wanted = reference(x.astype(np.longdouble))
    assert_within(units, run(function_of(name), level, [(x, F64)], (x.dtype, F64)), wanted, x)


@each_level
def test_powers_of_float32_are_those_of_c(level):
    rng = np.random.default_rng(1)
    every = bit_patterns()[::2]
    edges = np.array([*SPECIAL, 3.0, -3.0, -0.5, 16777215.0, -16777215.0, 1e9, -2.0], np.float32)
    grid = np.array(np.meshgrid(edges, edges), np.float32).reshape(2, -1)
    bases = np.exp(rng.uniform(-20, 20, 2**14)).astype(np.float32)
    x = np.concatenate([every, grid[0], bases])
    y = np.concatenate([rng.permutation(every), grid[1], rng.uniform(-8, 8, len(bases)).astype(np.float32)])
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), y.astype(np.float64))
    got = run(powers.pow, level, [(x, F32), (y, F32)], (x.dtype, F32))
    assert_within(0.51, got, wanted, x, y)


@each_level
def test_powers_of_float64_are_those_of_c(level):
    rng = np.random.default_rng(1)
    every = doubles()[::3]
    edges = np.array([*SPECIAL, 3.0, -3.0, -0.5, 2.0**53 - 1, 1 - 2.0**53, 1e300, -2.0, 5e-324, 1 + 2.0**-52, 1 - 2.0**-53])
    grid = np.array(np.meshgrid(edges, edges)).reshape(2, -1)
    bases = np.exp(rng.uniform(-20, 20, 2**14))
    near = 1 + rng.uniform(-1e-6, 1e-6, 2**12)
    x = np.concatenate([every, grid[0], bases, near])
    y = np.concatenate([rng.permutation(every), grid[1], rng.uniform(-30, 30, len(bases)), rng.uniform(-1e8, 1e8, len(near))])
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert_within(2, run(powers.pow, level, [(x, F64), (y, F64)], (x.dtype, F64)), wanted, x, y)
