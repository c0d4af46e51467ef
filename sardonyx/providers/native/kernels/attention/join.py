"""Attention whose keys were split among threads: what each part has of a row is joined. `rows` writes the parts and adds the step."""

from __future__ import annotations

import math

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import Type
from sardonyx.providers.native.kernels.attention.cache import along
from sardonyx.providers.native.kernels.attention.operands import Tensor, TensorArguments, told
from sardonyx.providers.native.kernels.attention.weight import weight
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel

HEADER = 2
"""Numbers of a part before its sums: the largest score, and the sum of weights."""


class JoinArguments(Arguments):
    partial: Pointer
    """For each row its parts, for each of these its numbers."""
    output: TensorArguments
    heads: Size
    queries: Size
    parts: Size
    keys: Size
    size: Size | None = when(lambda size: size is None)


@kernel("attention, parts joined", JoinArguments)
def join_kernel(f: KernelFunction, a: JoinArguments, real: Type, output: Type, size: int | None, empty_is_zero: bool) -> None:
    """Items are rows of all heads."""
    tensor = Tensor(f, a.output, output)
    length = told(size, a.size)
    with f.loop(f.begin, f.end) as item:
        query, head, batch = item % a.queries, item // a.queries % a.heads, item // a.queries // a.heads
        row = f.address(a.partial, item * a.parts * (length + HEADER), real)
        total = _weigh_parts(f, a, real, length, row)
        divided = 1.0 / divisor(total, a.keys, empty_is_zero)
        into = tensor.at(batch, head, query)

        def join(h: Value, lanes: int, remaining: Value | None) -> None:
            whole = f.variable(f.const(real.vector(lanes), 0.0))
            with f.loop(0, a.parts) as part:
                place = f.address(row, part * (length + HEADER), real)
                values = f.load(f.address(place, HEADER, real), h, real, lanes, remaining=remaining)
                whole.set(f.fma(f.splat(f.load(place, 0, real), lanes), values, whole.get()))
            f.store(whole.get() * divided, into, h, output, remaining=remaining)

        along(f, length, f.lanes(real), join)


def _weigh_parts(f: KernelFunction, a: JoinArguments, real: Type, size: Value | int, row: Value) -> Value:
    """Put the factor of each part in place of its largest score; returns the sum of all weights."""
    most = f.variable(f.const(real, -math.inf))
    with f.loop(0, a.parts) as part:
        most.set(f.maximum(f.load(row, part * (size + HEADER), real), most.get()))
    base = f.select(most.get() == -math.inf, 0.0, most.get())
    total = f.variable(f.const(real, 0.0))
    with f.loop(0, a.parts) as part:
        place = f.address(row, part * (size + HEADER), real)
        factor = weight(f.load(place, 0, real) - base)
        f.store(factor, place, 0, real)
        total.set(f.fma(f.load(place, 1, real), factor, total.get()))
    return total.get()


def divisor(total: Value, keys: Value, empty_is_zero: bool) -> Value:
    """What sums are divided by; where nothing was seen 1, if then 0 is wanted."""
    f = total.f
    return f.select(total == 0.0 if empty_is_zero else keys == 0, 1.0, total)
