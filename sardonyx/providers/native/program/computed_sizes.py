"""Sizes and positions that a lowering takes from numbers in memory. Lowerings of ops with computed operands call these functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.settling import Origin
from sardonyx.providers.native.program.steps import At, Buffer
from sardonyx.providers.native.program.values import dims, element_of, shape_of

if TYPE_CHECKING:
    from sardonyx.providers.native.program.lowering import Lowerer

LONGEST = 32
"""How many numbers of an operand may become sizes. No tensor has more axes."""


def shapes_of(value: Value) -> list[Sequence[Dim]]:
    """The shape of a value as it is known, and as it was inferred where the model declares another."""
    inferred = getattr(value.inferred, "shape", None)
    return [dims(value)] if inferred is None else [dims(value), inferred]


def settle_to(lowerer: Lowerer, pairs: Iterable[tuple[Dim, Origin]]) -> None:
    """Let sizes become numbers in memory, or other sizes. What is known of them otherwise must agree, else NumPy computes."""
    sources: dict[str, Origin] = {}
    for size, origin in pairs:
        symbol = None if isinstance(size, int) else size.symbol
        if symbol is None or not _is_free(lowerer, symbol.name) or symbol.name in sources:
            found = lowerer.sizes.add_data_size()
            lowerer.require(size, found)
            symbol = found.symbol
        assert symbol is not None
        sources[symbol.name] = origin
    lowerer.settle(list(sources.items()))


def _is_free(lowerer: Lowerer, name: str) -> bool:
    """Whether a size is to be settled, and no step has done so."""
    return name in lowerer.sizes.data_sizes and name not in lowerer.settled


def axes_of(value: Value, origins: Iterable[tuple[int, Origin]]) -> list[tuple[Dim, Origin]]:
    """Some axes of a value, and how long they are to be."""
    found = list(origins)
    return [(shape[axis], origin) for shape in shapes_of(value) for axis, origin in found]


def settle_shape(lowerer: Lowerer, value: Value, origins: Iterable[tuple[int, Origin]]) -> None:
    """Let some axes of a value be as long as these numbers say."""
    settle_to(lowerer, axes_of(value, origins))


def positions(lowerer: Lowerer, origins: Iterable[Origin]) -> list[Dim]:
    """Sizes that no value has, and that become these numbers."""
    found = [(lowerer.sizes.add_data_size(), origin) for origin in origins]
    settle_to(lowerer, found)
    return [size for size, _ in found]


def known_parts(value: Value) -> list[Dim | None]:
    """The whole numbers of an operand as far as shapes tell them: the parts of a Concat may be known one by one."""
    known = known_sizes(value)
    if known is not None:
        return list(known)
    node = value.producer
    if node is None or node.op_type != "Concat" or node.domain or not all(map(has_numbers, node.inputs)):
        return [None] * sum(size for size in dims(value) if isinstance(size, int))
    return [size for part in node.inputs if part is not None for size in known_parts(part)]


def numbers_of(lowerer: Lowerer, value: Value) -> list[At]:
    """Where the whole numbers of an operand lie, as int64. It has at most one axis, of known length."""
    view = lowerer.contiguous(value)
    length = dim.product(view.shape)
    assert isinstance(length, int) and length <= LONGEST
    place = view.place
    if view.type != I64:
        place = At(lowerer.scratch(I64.bytes * length), 0)
        arguments = ToNumbersArguments(source=view.place, target=place, count=length)
        lowerer.call(to_numbers_kernel(lowerer.target, view.type), arguments, 1)
    return numbers_at(place, length)


def numbers_at(place: Buffer | At, count: int) -> list[At]:
    """Places of int64 that follow each other."""
    first = place if isinstance(place, At) else At(place, 0)
    return [At(first.buffer, first.offset + I64.bytes * index) for index in range(count)]


class ToNumbersArguments(Arguments):
    source: Pointer
    target: Pointer
    count: Size


@kernel("to whole numbers", ToNumbersArguments)
def to_numbers_kernel(f: KernelFunction, a: ToNumbersArguments, type: Type) -> None:
    """Integers of any width as int64."""
    with f.loop(0, a.count) as index:
        f.store(f.convert(f.load(a.source, index, type), I64), a.target, index, I64)


def has_numbers(value: Value | None) -> bool:
    """Whether an operand has whole numbers, few and of known count."""
    type, shape = (None, None) if value is None else (element_of(value), shape_of(value))
    if type is None or shape is None or len(shape) > 1:
        return False
    count = dim.product(shape)
    return type.is_integer and type.bits <= 64 and isinstance(count, int) and count <= LONGEST
