"""The state of a recurrence before its first step: a kernel that puts initial_h and initial_c into rows of scratch memory."""

from __future__ import annotations

from sardonyx.compiler.types import I64, Type
from sardonyx.providers.native.kernels.recurrent.cells import CELL_STATE
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel


class StateArguments(Arguments):
    """h or c of all rows, as the model has it: initial ones are read, final ones written."""

    place: Pointer
    direction_stride: Size
    row_stride: Size


class WordArguments(Arguments):
    """What teams agree by: see `team`."""

    place: Pointer
    count: Size


class BeginArguments(Arguments):
    state: Pointer
    """Rows of all directions; each has `planes` vectors of `padded` numbers."""
    batch: Size
    hidden: Size
    padded: Size
    initial_h: StateArguments
    initial_c: StateArguments | None = when(lambda cell_state: cell_state)
    words: WordArguments | None = when(lambda team: team)


@kernel("recurrent state", BeginArguments)
def state_kernel(
    f: KernelFunction, a: BeginArguments, stored: Type, planes: int, cell_state: bool = False, team: bool = False
) -> None:
    """Put initial_h (and initial_c) into rows of the state, zero behind their end. Items are rows of all directions.

    The first one also clears the words by which teams agree.
    """
    type = stored.computed
    lanes = f.lanes(type)
    if a.words is not None:
        with f.if_(f.begin == 0), f.loop(0, a.words.count) as word:
            f.store(f.const(I64, 0), a.words.place, word, I64)
    with f.loop(f.begin, f.end) as item:
        row = f.address(a.state, item * a.padded * planes, type)
        for plane, source in ((0, a.initial_h), (CELL_STATE, a.initial_c)):
            if source is None:
                continue
            offset = (item // a.batch) * source.direction_stride + (item % a.batch) * source.row_stride
            place = f.address(source.place, offset, stored)
            with f.loop(0, a.padded, lanes) as unit:
                value = f.load(place, unit, stored, lanes, remaining=a.hidden - unit)
                f.store(value, row, a.padded * plane + unit, type)
