"""How kernels go through items that are elements of a domain, row by row, wherever a thread's share of them begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, Type
from sardonyx.providers.native.kernels.elementwise import advance
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction


def runs(f: KernelFunction, sizes: Sequence[Value], run: Callable[[Sequence[Value], Value, Value], None]) -> None:
    """Go through items that are elements of a domain, row by row: `run(outer coordinates, column, count)` does what lies in one row.

    `sizes` are those of all axes but the first.
    """
    inner = sizes[-1]
    column, rest = f.variable(f.begin % inner), f.begin // inner
    counters = []
    for size in reversed(sizes[:-1]):
        counters.append(f.variable(rest % size))
        rest = rest // size
    counters.append(f.variable(rest))
    counters.reverse()
    place = f.variable(f.begin)
    with f.while_() as body:
        body.leave_if(place.get() >= f.end)
        count = f.minimum(inner - column.get(), f.end - place.get())
        run([counter.get() for counter in counters], column.get(), count)
        place.set(place.get() + count)
        column.set(0)
        advance(f, counters, sizes[:-1])


class StridedTensor(Arguments):
    """An operand that is walked through along `rank` axes, with a stride for each."""

    place: Pointer
    strides: Sequence[Size] = each(lambda rank: rank)


def address_of(f: KernelFunction, tensor: StridedTensor, coordinates: Sequence[Value], type: Type) -> Value:
    """Where an element of a tensor with these coordinates lies."""
    return f.address(tensor.place, offset_of(f, coordinates, tensor.strides), type)


def offset_of(f: KernelFunction, coordinates: Sequence[Value], strides: Sequence[Value]) -> Value:
    """Where an element with these coordinates lies, counted in elements."""
    total = f.const(I64, 0)
    for coordinate, stride in zip(coordinates, strides):
        total = total + coordinate * stride
    return total
