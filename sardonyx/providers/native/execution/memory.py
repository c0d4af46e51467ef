"""Places in the arena for a program's buffers: those that are not needed at the same time may lie on each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sardonyx.ir import Dim, Node, dim
from sardonyx.providers.arena import Placement, Span, find_conflicts, place
from sardonyx.providers.native.program.parts import Batch, entries_at_once
from sardonyx.providers.native.program.sizes import THREADS_NAME
from sardonyx.providers.native.program.steps import Buffer, Step
from sardonyx.providers.steps import Piece
from sardonyx.startup.properties import cached_property


def loops_of(jumps: Iterable[int]) -> list[Span]:
    """The first and the last steps of a program's loops, inner ones before those around them."""
    return [(step + jump, step) for step, jump in enumerate(jumps) if jump < 0]


def _outlasting(first: int, last: int, loops: Sequence[Span]) -> int:
    """The last step that needs what is there from before a loop and is read inside: each turn of the loop reads it again."""
    for start, end in loops:
        if first < start <= last < end:
            last = end
    return last


def outlived_inputs(
    arrays: np.ndarray, counts: np.ndarray, jumps: np.ndarray, inputs: int, batch: Batch | None = None
) -> tuple[tuple[int, int], ...]:
    """Inputs and outputs of a program, in pairs, of which the one is read for the last time before the other is first written.

    `arrays` are the argument words that are arrays and which those are, the outputs behind the inputs; `counts` are the words of each
    step, `jumps` where it may go on. In parts, a program comes back to what all parts read.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    ends = np.cumsum(counts)
    for step, array in zip(np.searchsorted(ends, arrays[:, 0], side="right").tolist(), arrays[:, 1].tolist()):
        first[array] = min(step, first.get(array, step))
        last[array] = max(step, last.get(array, step))
    loops = loops_of(jumps.tolist())
    last = {array: _outlasting(-1, step, loops) for array, step in last.items()}
    return tuple(
        (source, result - inputs)
        for result, begun in sorted(first.items())
        for source in range(inputs)
        if result >= inputs and last.get(source, -1) < begun and (batch is None or batch.elements[source])
    )


class Workspace:
    """The arena of a program: its buffers, each with the steps during which it is in use. Buffers get their index here."""

    def __init__(self, steps: Sequence[Step], kept: Iterable[Buffer] = ()):
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for number, step in enumerate(steps):
            for buffer in (*step.buffers(), *step.scratch):
                if buffer.kind == "arena":
                    first.setdefault(buffer, number)
                    last[buffer] = number
        last.update(dict.fromkeys(kept, len(steps) - 1))
        for index, buffer in enumerate(first):
            buffer.index = index
        self.sizes: Sequence[Dim] = [buffer.bytes for buffer in first]
        self.names = [buffer.name for buffer in first]
        self.nodes: Sequence[Sequence[Node]] = [step.nodes for step in steps]
        loops = loops_of(step.jump for step in steps)
        self.spans: Sequence[Span] = [(first[one], _outlasting(first[one], last[one], loops)) for one in first]
        self.flops: Dim = sum((step.flops for step in steps), start=0)
        self.batch: Batch | None = None
        """The batch along which the program may be cut. The arena is then only as large as one part needs."""
        self.threads = 1
        """The number of threads for which sizes are computed."""

    @classmethod
    def restored(cls, sizes: Sequence[Dim], spans: Sequence[Span]) -> Workspace:
        """The arena of a program that comes out of a file."""
        workspace = cls([])
        workspace.sizes, workspace.spans = sizes, spans
        return workspace

    @cached_property
    def _conflicts(self) -> list[list[int]] | None:
        return find_conflicts(self.spans)

    def place(self, sizes: Sequence[int]) -> Placement:
        """Where the buffers lie once their sizes are known."""
        return place(sizes, self.spans, self._conflicts)

    def bytes_for(self, symbols: Mapping[str, int]) -> int:
        """How large the arena is for these values of symbols; KeyError if one is missing."""
        known = {**symbols, THREADS_NAME: self.threads}
        whole = self._bytes(known)
        if self.batch is None:
            return whole
        count = known[self.batch.symbol]
        at_once = entries_at_once(count, whole, dim.evaluate(self.flops, known), self.batch.weights)
        return whole if at_once >= count else self._bytes({**known, self.batch.symbol: at_once})

    def pieces(self, symbols: Mapping[str, int]) -> list[Piece]:
        """What the arena consists of for these values of symbols; KeyError if one is missing."""
        known = {**symbols, THREADS_NAME: self.threads}
        sizes = [max(dim.evaluate(size, known), 0) for size in self.sizes]
        return [Piece(name, size, *span) for name, size, span in zip(self.names, sizes, self.spans)]

    def _bytes(self, symbols: Mapping[str, int]) -> int:
        return self.place([max(dim.evaluate(size, symbols), 0) for size in self.sizes]).size
