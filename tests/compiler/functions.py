"""How tests of the compiler run a function of vectors that they have written: over arrays, for any feature set that this CPU has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, NoCompiler, host, jit
from sardonyx.compiler.target import X86_LEVELS, Target
from sardonyx.compiler.types import I64, PTR, Type


def levels() -> list[str]:
    """Feature sets up to that of this CPU."""
    try:
        name = host().name
    except NoCompiler:
        return []
    known = list(X86_LEVELS)
    return known[: known.index(name) + 1] if name in known else []


each_level = pytest.mark.parametrize("level", levels())


def run(
    function: Callable[..., Value], level: str, inputs: list[tuple[np.ndarray, Type]], result: tuple[np.dtype, Type]
) -> np.ndarray:
    """A function of vectors for all elements of arrays of one length, in vectors as wide as the narrowest count of lanes allows."""
    target = X86_LEVELS[level]
    dtype, type = result
    lanes = min(target.lanes(one) for one in (type, *(given for _, given in inputs)) if one.kind != "bool")
    output = np.zeros(len(inputs[0][0]), dtype)
    call_pointers(
        _over_arrays(target, function, [given for _, given in inputs], type, lanes),
        target,
        [*(array for array, _ in inputs), output],
        len(output),
    )
    return output


def _over_arrays(target: Target, function: Callable[..., Value], inputs: list[Type], result: Type, lanes: int) -> Function:
    names = [f"x{n}" for n in range(len(inputs))]
    f = Function([*((name, PTR) for name in names), ("y", PTR), ("count", I64)], target=target)
    whole = (f["count"] // lanes) * lanes
    with f.loop(0, whole, lanes) as i:
        f.store(function(*(f.load(f[name], i, type, lanes) for name, type in zip(names, inputs))), f["y"], i, result)
    with f.if_(whole < f["count"]):
        rest = f["count"] - whole
        given = [f.load(f[name], whole, type, lanes, remaining=rest) for name, type in zip(names, inputs)]
        f.store(function(*given), f["y"], whole, result, remaining=rest)
    return f


def call_pointers(f: Function, target: Target, arrays: list[np.ndarray], *numbers: int) -> None:
    """Compile and call a function of pointers to arrays, then of whole numbers."""
    address = jit(target).addresses([Kernel("test", f.text(PLACEHOLDER))])[0]
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays), *[ctypes.c_int64] * len(numbers))
    prototype(address)(*(array.ctypes.data for array in arrays), *numbers)
