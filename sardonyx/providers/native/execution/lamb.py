"""LAMB in place: two calls of generated code over all tensors of float32, one for moments and norms, one for weights.

The direction of a step is computed in both, so that it needs no memory of its own. `updates.py` has the other optimizers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.jit import jit
from sardonyx.compiler.types import F32, F64
from sardonyx.providers.native.execution.immediate import memory_of
from sardonyx.providers.native.execution.updates import Table, load_row, run_blocks, walk_vectors
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer
from sardonyx.providers.native.program.kernel import KernelFunction, kernel


class LambArguments(Arguments):
    table: Pointer
    others: Pointer
    """Of each block two sums of squares, of weights and of directions, or how far it goes."""
    beta1: Number
    rest1: Number
    beta2: Number
    rest2: Number
    first: Number
    second: Number
    epsilon: Number
    decay: Number


NUMBERS = ("beta1", "rest1", "beta2", "rest2", "first", "second", "epsilon", "decay")


def _direction(f: KernelFunction, n: dict[str, Value], w: Value, m: Value, v: Value) -> Value:
    return f.fma(n["decay"], w, n["first"] * m / (f.sqrt(v * n["second"]) + n["epsilon"]))


@kernel("LAMB moments", LambArguments)
def moments_kernel(f: KernelFunction, a: LambArguments) -> None:
    lanes = f.lanes(F32)
    n = {name: f.splat(f.convert(getattr(a, name), F32), lanes) for name in NUMBERS}
    with f.loop(f.begin, f.end) as row:
        *pointers, count = load_row(f, a.table, row, 4)
        totals = [f.variable(f.const(F64.vector(lanes), 0.0)) for _ in range(2)]
        with f.loop(0, count, lanes) as place:
            rest = count - place
            w, g, m, v = (f.load(pointer, place, F32, lanes, remaining=rest) for pointer in pointers)
            m = f.fma(n["beta1"], m, n["rest1"] * g)
            v = f.fma(n["beta2"], v, n["rest2"] * g * g)
            for value, pointer in zip((m, v), pointers[2:]):
                f.store(value, pointer, place, F32, remaining=rest)
            for total, value in zip(totals, (w, _direction(f, n, w, m, v))):
                # behind the end are zeros, of which epsilon makes a direction of 0
                wide = f.convert(value, F64.vector(lanes))
                total.set(f.fma(wide, wide, total.get()))
        for number, total in enumerate(totals):
            f.store(f.reduce("add", total.get()), a.others, 2 * row + number, F64)


@kernel("LAMB step", LambArguments)
def step_kernel(f: KernelFunction, a: LambArguments) -> None:
    lanes = f.lanes(F32)
    n = {name: f.splat(f.convert(getattr(a, name), F32), lanes) for name in NUMBERS}
    with f.loop(f.begin, f.end) as row:
        weights, _, means, squares, count = load_row(f, a.table, row, 4)
        rate = f.splat(f.convert(f.load(a.others, row, F64), F32), lanes)

        def update(
            place: Value, rest: Value | None, rate: Value = rate, pointers: Sequence[Value] = (weights, means, squares)
        ) -> None:
            w, m, v = (f.load(pointer, place, F32, lanes, remaining=rest) for pointer in pointers)
            f.store(w - rate * _direction(f, n, w, m, v), pointers[0], place, F32, remaining=rest)

        walk_vectors(f, count, lanes, update)


def lamb(
    table: Table,
    *,
    beta1: float,
    beta2: float,
    rate: float,
    first: float,
    second: float,
    epsilon: float,
    decay: float,
    ratios: tuple[float, float],
    threads: int = 1,
) -> None:
    """w -= rate · ratio · direction, with direction = first · m / (√(second · v) + epsilon) + decay · w; kinds are as in Adam.

    The ratio is that of the norms of a tensor and of its direction, between two bounds, and 1 where one of these norms is 0.
    """
    numbers = {"beta1": beta1, "rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2}
    numbers |= {"first": first, "second": second, "epsilon": epsilon, "decay": decay}
    rows, sums = memory_of(table.rows), np.zeros((len(table.rows), 2))
    run_blocks(moments_kernel(jit().target), LambArguments(table=rows, others=memory_of(sums), **numbers), len(sums), threads)
    weight, direction = np.sqrt([np.bincount(table.owner, part) for part in sums.T]) if len(sums) else np.zeros((2, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((weight == 0) | (direction == 0), 1.0, np.clip(weight / direction, *ratios))
    rates = (rate * ratio)[table.owner]
    run_blocks(step_kernel(jit().target), LambArguments(table=rows, others=memory_of(rates), **numbers), len(sums), threads)
