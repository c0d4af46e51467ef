"""What optimizers do to weights, in place: one call of generated code over all tensors of float32.

Tensors are cut into blocks; a row of the table has the addresses of a block in each tensor of a kind (weights, gradients, moments) and how
many elements it has. Whoever makes a table vouches for the addresses while the call runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.jit import jit
from sardonyx.compiler.pool import pool
from sardonyx.compiler.types import F32, F64, I64
from sardonyx.providers.native.execution.immediate import memory_of, numbers_of, run_step
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer
from sardonyx.providers.native.program.kernel import DeclaredKernel, KernelFunction, kernel

BLOCK = 16384
"""Elements of a block: some microseconds of work."""


class Table:
    """The blocks of tensors of known sizes."""

    def __init__(self, sizes: Sequence[int], kinds: int):
        """`kinds` is how many tensors of each size there are: weights, gradients and so on."""
        counts = [-(-size // BLOCK) for size in sizes]
        self.owner = np.repeat(np.arange(len(sizes)), counts)
        places = np.concatenate([np.arange(count) for count in counts] or [np.arange(0)])
        self._offsets = BLOCK * places
        self.rows = np.empty((len(places), kinds + 1), np.int64)
        self.rows[:, kinds] = np.minimum(BLOCK, np.array(sizes, np.int64)[self.owner] - BLOCK * places)

    def place(self, kind: int, addresses: Sequence[int], width: int = 4) -> None:
        """Say where the tensors of a kind lie, and how many bytes an element has."""
        self.rows[:, kind] = np.array(addresses, np.int64)[self.owner] + width * self._offsets


def run_blocks(code: DeclaredKernel, arguments: Arguments, items: int, threads: int) -> None:
    if items:
        words = numbers_of(code.declaration, code.title, arguments)
        functions = jit().load([code])  # held until it has run
        run_step(functions.addresses[0], words, items, 1, pool().ensure(threads) if min(threads, items) > 1 else 1)


# --- Adam


class AdamArguments(Arguments):
    table: Pointer
    beta1: Number
    rest1: Number
    beta2: Number
    rest2: Number
    rate: Number
    correction: Number
    epsilon: Number
    penalty: Number
    decay_before: Number
    decay_after: Number


@kernel("Adam step", AdamArguments)
def adam_kernel(f: KernelFunction, a: AdamArguments, has_penalty: bool) -> None:
    lanes = f.lanes(F32)
    names = ("beta1", "rest1", "beta2", "rest2", "rate", "correction", "epsilon", "penalty", "decay_before", "decay_after")
    n = {name: f.splat(f.convert(getattr(a, name), F32), lanes) for name in names}
    with f.loop(f.begin, f.end) as row:
        weights, gradients, means, squares, count = load_row(f, a.table, row, 4)
        pointers = (weights, gradients, means, squares)

        def update(place: Value, rest: Value | None, pointers: Sequence[Value] = pointers) -> None:
            w, g, m, v = (f.load(pointer, place, F32, lanes, remaining=rest) for pointer in pointers)
            if has_penalty:
                g = f.fma(n["penalty"], w, g)
            m = f.fma(n["beta1"], m, n["rest1"] * g)
            v = f.fma(n["beta2"], v, n["rest2"] * g * g)
            moved = n["rate"] * m / (f.sqrt(v * n["correction"]) + n["epsilon"])
            w = (w * n["decay_before"] - moved) * n["decay_after"]
            for value, pointer in zip((w, m, v), (pointers[0], *pointers[2:])):
                f.store(value, pointer, place, F32, remaining=rest)

        walk_vectors(f, count, lanes, update)


def walk_vectors(f: KernelFunction, count: Value, lanes: int, body: Callable[[Value, Value | None], None]) -> None:
    """Whole vectors, then what is left with a mask: masked stores are slow."""
    whole = count & -lanes
    with f.loop(0, whole, lanes) as place:
        body(place, None)
    with f.if_(whole < count):
        body(whole, count - whole)


def load_row(f: KernelFunction, table: Value, row: Value, kinds: int) -> list[Value]:
    """Pointers to the elements of a block, and how many there are."""
    words = [f.load(table, row * (kinds + 1) + kind, I64) for kind in range(kinds + 1)]
    return [*(f.as_pointer(word) for word in words[:kinds]), words[kinds]]


def adam(
    table: Table,
    *,
    beta1: float,
    beta2: float,
    rate: float,
    correction: float,
    epsilon: float,
    penalty: float = 0.0,
    decay_before: float = 1.0,
    decay_after: float = 1.0,
    threads: int = 1,
) -> None:
    """w = (w · decay_before - rate · m / (√(v · correction) + epsilon)) · decay_after; kinds are weights, gradients, m and v."""
    arguments = AdamArguments(
        table=memory_of(table.rows),
        beta1=beta1,
        rest1=1 - beta1,
        beta2=beta2,
        rest2=1 - beta2,
        rate=rate,
        correction=correction,
        epsilon=epsilon,
        penalty=penalty,
        decay_before=decay_before,
        decay_after=decay_after,
    )
    run_blocks(adam_kernel(jit().target, penalty != 0), arguments, len(table.rows), threads)


# --- SGD


class AxpyArguments(Arguments):
    table: Pointer
    factor: Number


@kernel("SGD step", AxpyArguments)
def sgd_kernel(f: KernelFunction, a: AxpyArguments) -> None:
    lanes = f.lanes(F32)
    rate = f.splat(f.convert(a.factor, F32), lanes)
    with f.loop(f.begin, f.end) as row:
        weights, gradients, count = load_row(f, a.table, row, 2)

        def update(place: Value, rest: Value | None, pointers: Sequence[Value] = (weights, gradients)) -> None:
            w, g = (f.load(pointer, place, F32, lanes, remaining=rest) for pointer in pointers)
            f.store(w - rate * g, pointers[0], place, F32, remaining=rest)

        walk_vectors(f, count, lanes, update)


def sgd(table: Table, rate: float, threads: int = 1) -> None:
    """w -= rate · gradient; kinds are weights and gradients."""
    run_blocks(sgd_kernel(jit().target), AxpyArguments(table=memory_of(table.rows), factor=rate), len(table.rows), threads)


# --- clipping


class SquaresArguments(Arguments):
    table: Pointer
    sums: Pointer


@kernel("sums of squares", SquaresArguments)
def squares_kernel(f: KernelFunction, a: SquaresArguments) -> None:
    lanes = f.lanes(F32)
    with f.loop(f.begin, f.end) as row:
        values, count = load_row(f, a.table, row, 1)
        total = f.variable(f.const(F64.vector(lanes), 0.0))
        with f.loop(0, count, lanes) as place:
            wide = f.convert(f.load(values, place, F32, lanes, remaining=count - place), F64.vector(lanes))
            total.set(f.fma(wide, wide, total.get()))
        f.store(f.reduce("add", total.get()), a.sums, row, F64)


@kernel("scaled in place", AxpyArguments)
def scale_kernel(f: KernelFunction, a: AxpyArguments) -> None:
    lanes = f.lanes(F32)
    factor = f.splat(f.convert(a.factor, F32), lanes)
    with f.loop(f.begin, f.end) as row:
        values, count = load_row(f, a.table, row, 1)

        def scaled(place: Value, rest: Value | None, values: Value = values) -> None:
            f.store(f.load(values, place, F32, lanes, remaining=rest) * factor, values, place, F32, remaining=rest)

        walk_vectors(f, count, lanes, scaled)


def norm(table: Table, threads: int = 1) -> float:
    """The root of the sum of all squares; the same for any number of threads."""
    sums = np.zeros(len(table.rows))
    arguments = SquaresArguments(table=memory_of(table.rows), sums=memory_of(sums))
    run_blocks(squares_kernel(jit().target), arguments, len(table.rows), threads)
    return float(np.sqrt(sums.sum()))


def scale(table: Table, factor: float, threads: int = 1) -> None:
    run_blocks(scale_kernel(jit().target), AxpyArguments(table=memory_of(table.rows), factor=factor), len(table.rows), threads)
