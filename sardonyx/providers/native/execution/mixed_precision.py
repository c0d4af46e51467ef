"""Between gradients and weights of half precision and their masters in float32: one call of generated code over all tensors.

`updates.py` has the tables, and what is done to the masters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.jit import jit
from sardonyx.compiler.types import F32, F64, Type
from sardonyx.providers.native.execution.immediate import memory_of
from sardonyx.providers.native.execution.updates import Table, load_row, run_blocks, walk_vectors
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer
from sardonyx.providers.native.program.kernel import KernelFunction, kernel


class UnscaleArguments(Arguments):
    table: Pointer
    factor: Number
    traces: Pointer
    """Of each block a number that is 0 if all results are finite, and else is not a number."""


@kernel("gradients unscaled", UnscaleArguments)
def unscale_kernel(f: KernelFunction, a: UnscaleArguments, source: Type) -> None:
    lanes = f.lanes(F32)
    factor = f.splat(f.convert(a.factor, F32), lanes)
    zero = f.const(F32.vector(lanes), 0.0)
    with f.loop(f.begin, f.end) as row:
        gradients, masters, count = load_row(f, a.table, row, 2)
        trace = f.variable(zero)

        def unscaled(place: Value, rest: Value | None, pointers: Sequence[Value] = (gradients, masters)) -> None:
            value = f.load(pointers[0], place, source, lanes, remaining=rest) * factor
            trace.set(f.fma(value, zero, trace.get()))
            f.store(value, pointers[1], place, F32, remaining=rest)

        walk_vectors(f, count, lanes, unscaled)
        f.store(f.convert(f.reduce("add", trace.get()), F64), a.traces, row, F64)


def unscale(table: Table, source: Type, factor: float, threads: int = 1) -> bool:
    """Master = gradient · factor; whether all of them are finite. Kinds are gradients and masters, which may be the same."""
    traces = np.zeros(len(table.rows))
    arguments = UnscaleArguments(table=memory_of(table.rows), factor=factor, traces=memory_of(traces))
    run_blocks(unscale_kernel(jit().target, source), arguments, len(table.rows), threads)
    return not np.isnan(traces).any()


class TraceArguments(Arguments):
    table: Pointer
    traces: Pointer


@kernel("gradients looked through", TraceArguments)
def finite_kernel(f: KernelFunction, a: TraceArguments, source: Type) -> None:
    lanes = f.lanes(F32)
    zero = f.const(F32.vector(lanes), 0.0)
    with f.loop(f.begin, f.end) as row:
        values, count = load_row(f, a.table, row, 1)
        trace = f.variable(zero)
        with f.loop(0, count, lanes) as place:
            value = f.load(values, place, source, lanes, remaining=count - place)
            trace.set(f.fma(value, zero, trace.get()))
        f.store(f.convert(f.reduce("add", trace.get()), F64), a.traces, row, F64)


def is_finite(table: Table, source: Type, threads: int = 1) -> bool:
    """Whether no element of the one kind is infinite or not a number."""
    traces = np.zeros(len(table.rows))
    arguments = TraceArguments(table=memory_of(table.rows), traces=memory_of(traces))
    run_blocks(finite_kernel(jit().target, source), arguments, len(table.rows), threads)
    return not np.isnan(traces).any()


class RoundArguments(Arguments):
    table: Pointer


@kernel("masters rounded", RoundArguments)
def round_kernel(f: KernelFunction, a: RoundArguments, target: Type) -> None:
    lanes = f.lanes(F32)
    with f.loop(f.begin, f.end) as row:
        masters, weights, count = load_row(f, a.table, row, 2)

        def rounded(place: Value, rest: Value | None, pointers: Sequence[Value] = (masters, weights)) -> None:
            f.store(f.load(pointers[0], place, F32, lanes, remaining=rest), pointers[1], place, target, remaining=rest)

        walk_vectors(f, count, lanes, rounded)


def round_masters(table: Table, target: Type, threads: int = 1) -> None:
    """Weight = master, rounded to the nearest; kinds are masters and weights."""
    run_blocks(round_kernel(jit().target, target), RoundArguments(table=memory_of(table.rows)), len(table.rows), threads)
