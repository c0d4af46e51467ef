"""Kernels that decide where a run goes on, and those that move rows of what a loop goes through. The lowerings of control flow call them.

The first argument of a kernel that decides points to its decision: a word that is set if the step shall jump.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, I64, Type
from sardonyx.providers.native.kernels.shape.copying import copy_row
from sardonyx.providers.native.kernels.shape.walking import StridedTensor, address_of, runs
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.settled import UNEQUAL


class SkipArguments(Arguments):
    decision: Pointer
    condition: Pointer | None = when(lambda is_conditional: is_conditional)


@kernel("skip", SkipArguments)
def skip_kernel(f: KernelFunction, a: SkipArguments, is_conditional: bool) -> None:
    """Jump, or do so unless a condition holds."""
    jumps = f.const(I64, 1)
    if a.condition is not None:
        jumps = f.select(f.load(a.condition, 0, BOOL), 0, jumps)
    f.store(jumps, a.decision, 0, I64)


class SameSizesArguments(Arguments):
    left: Sequence[Size] = each(lambda count: count)
    right: Sequence[Size] = each(lambda count: count)
    status: Pointer


@kernel("same sizes", SameSizesArguments)
def same_sizes_kernel(f: KernelFunction, a: SameSizesArguments, count: int) -> None:
    """Leave the run to NumPy if two sizes differ that must be equal."""
    for left, right in zip(a.left, a.right):
        with f.if_(left != right):
            f.store(UNEQUAL, a.status, 0, I64)


class TurnArguments(Arguments):
    decision: Pointer
    turn: Pointer
    """The number of the turn."""
    count: Size | None = when(lambda limit: limit == "size")
    limit: Pointer | None = when(lambda limit: limit == "data")
    """How many turns there are at most."""
    going: Pointer | None = when(lambda is_asked: is_asked)
    """Whether the last turn wants another one."""
    status: Pointer | None = when(lambda must_turn: must_turn)


@kernel("turn", TurnArguments)
def turn_kernel(f: KernelFunction, a: TurnArguments, is_first: bool, limit: str, is_asked: bool, must_turn: bool) -> None:
    """Begin a turn. Before the first one the decision is whether to jump behind the loop, later whether to jump back to its first step.

    With `must_turn`, a loop without turns is left to NumPy.
    """
    number = f.const(I64, 0) if is_first else f.load(a.turn, 0, I64) + 1
    goes_on = f.const(BOOL, True)
    if a.count is not None:
        goes_on = number < a.count
    if a.limit is not None:
        goes_on = number < f.load(a.limit, 0, I64)
    if a.going is not None:
        goes_on = goes_on & f.load(a.going, 0, BOOL)
    if a.status is not None:
        with f.if_(~goes_on):
            f.store(1, a.status, 0, I64)
    f.store(number, a.turn, 0, I64)
    f.store(f.select(goes_on, f.const(I64, int(not is_first)), int(is_first)), a.decision, 0, I64)


class RowArguments(Arguments):
    turn: Pointer
    length: Size
    """How many rows there are."""
    step: Size
    """From a row to the next one, in elements."""
    sizes: Sequence[Size] = each(lambda rank: rank - 1)
    """Those of a row, of all axes but the first."""
    row: StridedTensor
    first: StridedTensor
    """The first of all rows."""
    status: Pointer


@kernel("row", RowArguments)
def row_kernel(
    f: KernelFunction, a: RowArguments, type: Type, rank: int, is_dense: bool, is_backward: bool, is_put: bool
) -> None:
    """Copy the row of the turn out of all rows, or put it among them. Items are the elements of a row; `is_dense` if they lie in a row."""
    turn = f.load(a.turn, 0, I64)
    position = a.length - 1 - turn if is_backward else turn
    with f.if_else(turn < a.length) as otherwise:

        def run(outer: Sequence[Code], column: Code, count: Code) -> None:
            row = address_of(f, a.row, [*outer, column], type)
            kept = f.address(address_of(f, a.first, [*outer, column], type), position * a.step, type)
            source, target = (row, kept) if is_put else (kept, row)
            if is_dense:
                copy_row(f, source, target, count, type)
                return
            read, written = (tensor.strides[-1] for tensor in ((a.row, a.first) if is_put else (a.first, a.row)))
            with f.loop(0, count) as index:
                f.store(f.load(source, index * read, type), target, index * written, type)

        if rank == 1:
            run([], f.begin, f.end - f.begin)
        else:
            runs(f, a.sizes, run)
        otherwise()
        f.store(1, a.status, 0, I64)
