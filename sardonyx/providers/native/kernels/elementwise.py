"""Loops over all elements of a domain, computing a chain: what elementwise nodes, casts and copies become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32, I64
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.arguments import Arguments, Operands, Size, each, group
from sardonyx.providers.native.program.chain import Apply, Chain, ChainCode, ChainRow, Load
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.streaming import in_streams

if TYPE_CHECKING:
    from sardonyx.providers.native.program.building import ProgramBuilder

MANY = 8
"""Vectors that a long chain takes at a time where there are registers for them: their instructions alternate."""
SKEW = 2
"""How many lines of code each of them is behind the one before, so that different instructions meet."""
PIECE_WORK = 65536
"""How many operations on elements, loading counted as one, are worth handing to another thread."""


def elementwise_step(lowerer: ProgramBuilder, domain: Sequence[Dim], chain: Chain, arguments: Sequence[Argument]) -> None:
    """Add the step that computes a chain over a domain."""
    total = dim.product(domain)
    moved = sum(item.type.bytes for item in chain.items if isinstance(item, Load)) + sum(
        store.type.bytes for store in chain.stores
    )
    work = sum(isinstance(item, Apply) for item in chain.items)
    piece = max(4096, PIECE_WORK // (work + 1)) & -64  # so that pieces begin where lines do
    by_rows = len(domain) > 1
    lowerer.call(
        elementwise_kernel(lowerer.target, chain),
        ElementwiseArguments(sizes=domain[1:], operands=arguments),
        dim.product(domain[:-1]) if by_rows else total,
        dim.maximum(1, dim.floordiv(piece, dim.maximum(1, domain[-1]))) if by_rows else piece,
        flops=total * work,
        traffic=total * moved,
    )


class ElementwiseArguments(Arguments):
    sizes: Sequence[Size] = each(lambda chain: chain.rank - 1)
    """Of all axes of the domain but the first."""
    operands: Operands = group(lambda chain: chain.slots)


@kernel("elementwise", ElementwiseArguments)
def elementwise_kernel(f: KernelFunction, a: ElementwiseArguments, chain: Chain) -> None:
    """A chain over a domain. Items are rows along the innermost axis, or elements if there is only that one."""
    code = ChainCode(f, chain, a.operands)
    if chain.rank == 1:
        _whole_row(code.row([]), f.begin, f.end)
    else:
        *outer, columns = a.sizes
        counters = _start(f, outer)
        with f.loop(f.begin, f.end):
            _whole_row(code.row([counter.get() for counter in counters]), f.const(I64, 0), columns)
            advance(f, counters, outer)
    if chain.streams:
        f.fence()


def _whole_row(row: ChainRow, start: Value, stop: Value) -> None:
    in_streams(row.f, row, start, lambda: _along(row, start, stop))


def chain_lanes(f: KernelFunction, chain: Chain) -> int:
    """How many elements are computed at once: as many as the widest type in the chain leaves room for in a register."""
    types = [item.type.computed for item in chain.items] + [store.type.computed for store in chain.stores]
    return min((f.lanes(type) for type in types if type.kind != "bool"), default=f.lanes(F32))


def _along(row: ChainRow, start: Value, stop: Value) -> None:
    """Several vectors at a time, then single ones, then what is left."""
    f, chain = row.f, row.code.chain
    lanes = chain_lanes(f, chain)
    for vectors in dict.fromkeys((_unrolling(f.target, chain, lanes), 1)):
        step = vectors * lanes
        masked = vectors == 1 and f.target.has_avx512  # there masks cost nothing
        whole = stop if masked else start + ((stop - start) // step) * step
        with f.loop(start, whole, step) as column:
            if vectors == MANY:
                _alternate(row, column, lanes)
            else:
                row.emit(column, step, stop - column if masked else None)
        start = whole
    if not masked:
        _rest(row, start, stop, lanes)


def _alternate(row: ChainRow, column: Value, lanes: int) -> None:
    """Many vectors at a time."""
    row.f.side_by_side(MANY, lambda number: row.emit(column + number * lanes, lanes), SKEW)


def _rest(row: ChainRow, start: Value, stop: Value, lanes: int) -> None:
    """Less than a vector: with a mask, or one by one where masks are made of branches."""
    f = row.f
    if _has_masks(f.target, row.code.chain):
        with f.if_(start < stop):
            row.emit(start, lanes, stop - start)
    else:
        with f.loop(start, stop) as column:
            row.emit(column, 1)


def _has_masks(target: Target, chain: Chain) -> bool:
    """Whether the CPU can load and store some lanes of a vector: AVX2 only those of 4 and 8 bytes."""
    types = [item.type for item in chain.items if isinstance(item, Load)] + [store.type for store in chain.stores]
    return target.has_avx512 or (target.name == "avx2" and all(type.bytes >= 4 for type in types))


def _unrolling(target: Target, chain: Chain, lanes: int) -> int:
    """How many vectors go side by side: a chain of dependent instructions alone leaves a CPU idle, too many leave no registers."""
    operands = [item for item in chain.items if isinstance(item, Load)] + list(chain.stores)
    if lanes > 16 or any(operand.strides[-1:] == ("n",) for operand in operands):
        return 1
    length, is_straight = _length(target, chain, lanes)
    if length >= 400:
        return 1
    if target.vector_registers < 32 or length >= 200:
        return 2
    return MANY if length >= 48 and is_straight else 4


def _length(target: Target, chain: Chain, lanes: int) -> tuple[int, bool]:
    """How many lines of code one vector takes, and whether they are without branches."""
    f = KernelFunction(target)
    row = ChainCode(f, chain, f.words(chain.slots)).row([f.begin] * (chain.rank - 1))
    before, block = f.lines, f.block
    row.emit(f.begin, lanes)
    return f.lines - before, f.block == block


def _start(f: KernelFunction, sizes: Sequence[Value]) -> list[Variable]:
    """Counters of the outer axes at the first item; `sizes` are those of all outer axes but the first."""
    rest = f.begin
    counters: list[Variable] = []
    for size in reversed(sizes):
        counters.append(f.variable(rest % size))
        rest = rest // size
    counters.append(f.variable(rest))
    return counters[::-1]


def advance(f: KernelFunction, counters: Sequence[Variable], sizes: Sequence[Value]) -> None:
    """Step to the next item: the last counter first, carrying into those before."""
    last = counters[-1].get() + 1
    if len(counters) == 1:
        counters[0].set(last)
        return
    counters[-1].set(last)
    with f.if_(last >= sizes[-1]):
        counters[-1].set(0)
        advance(f, counters[:-1], sizes[:-1])
