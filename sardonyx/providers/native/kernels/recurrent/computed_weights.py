"""Weights of recurrent layers that are computed: packed by a step of each run, by tables of where each element comes from.

The tables are made by the function that packs constants, which is given the elements' numbers in place of the elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from sardonyx.compiler.types import I32, I64, Type
from sardonyx.ir import Value
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.values import dims, fixed
from sardonyx.providers.native.program.views import View
from sardonyx.providers.provider import CannotCompile

GRAIN = 8192
"""How many elements are worth handing to another thread."""
MAX_ELEMENTS = 1 << 24
"""Numbers up to here are exact as float32."""

Pack = Callable[..., Sequence[np.ndarray]]


def pack_in_runs(lowerer: Lowerer, weights: Mapping[str, Value], pack: Pack, type: Type) -> list[Buffer]:
    """What `pack` makes of weights by name, in buffers that steps fill. It moves elements, and adds the halves of the bias B."""
    shapes = {name: [fixed(size, f"the size of {name}") for size in dims(value)] for name, value in weights.items()}
    if max(map(math.prod, shapes.values())) > MAX_ELEMENTS:
        raise CannotCompile(f"weights of more than {MAX_ELEMENTS} elements are packed before runs only", quiet=True)
    buffers = []
    for name, tables in _tables(pack, shapes):
        if name is None:
            buffers.append(lowerer.constant(np.zeros(len(tables[0]), f"f{type.bytes}")))
        else:
            buffers.append(_packed(lowerer, lowerer.contiguous(weights[name]), tables, type))
    return buffers


def _tables(pack: Pack, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str | None, list[np.ndarray]]]:
    """For each result of `pack` the weight that it is made of, None for zeros, and tables of the elements that are added: -1 for none."""
    numbers = {name: np.arange(1.0, 1 + math.prod(shape)).reshape(shape) for name, shape in shapes.items()}
    given = [(name, array) for name, array in numbers.items() if name != "B"]
    if "B" in numbers:
        is_first = np.arange(shapes["B"][-1]) < shapes["B"][-1] // 2
        given += [("B", numbers["B"] * is_first), ("B", numbers["B"] * ~is_first)]
    zeros = {name: np.zeros(shape) for name, shape in shapes.items()}
    packed = [[array.reshape(-1).astype(np.int32) for array in pack(**zeros | {name: array})] for name, array in given]
    for results in zip(*packed, strict=True):
        found = [(name, result - 1) for (name, _), result in zip(given, results) if result.any()]
        yield (found[0][0], [table for _, table in found]) if found else (None, [results[0]])


def _packed(lowerer: Lowerer, source: View, tables: Sequence[np.ndarray], type: Type) -> Buffer:
    count = len(tables[0])
    target = lowerer.scratch(count * type.bytes)
    lowerer.call(
        packed_kernel(lowerer.target, source.type, type, len(tables)),
        PackedArguments(source=source.place, target=target, count=count, tables=[lowerer.table(table) for table in tables]),
        -(-count // lowerer.target.lanes(type)),
        GRAIN // lowerer.target.lanes(type),
    )
    return target


class PackedArguments(Arguments):
    source: Pointer
    target: Pointer
    count: Size
    tables: Sequence[Pointer] = each(lambda tables: tables)


@kernel("packed weights", PackedArguments)
def packed_kernel(f: KernelFunction, a: PackedArguments, stored: Type, type: Type, tables: int) -> None:
    """Items are vectors of the result."""
    lanes = f.lanes(type)
    with f.loop(f.begin, f.end) as item:
        start = item * lanes
        remaining = a.count - start
        total = None
        for table in a.tables:
            index = f.load(table, start, I32, lanes, remaining=remaining)
            mask = (index >= 0) & f.first_lanes(remaining, lanes)
            found = f.convert(f.gather(a.source, f.convert(index, I64), stored, mask=mask), type)
            total = found if total is None else total + found
        assert total is not None
        f.store(total, a.target, start, type, remaining=remaining)
