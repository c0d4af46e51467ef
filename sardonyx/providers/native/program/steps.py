"""What a cluster becomes: steps of compiled kernels over buffers, with sizes that are known once the inputs' shapes are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Union

import numpy as np

from sardonyx.ir import Dim, Node, Value
from sardonyx.providers.native.program.parts import Batch
from sardonyx.startup.records import dataclass, field

if TYPE_CHECKING:
    from sardonyx.compiler.jit import Kernel
    from sardonyx.providers.native.program.settling import Settlement
    from sardonyx.providers.native.program.texts import TextConstants


class Buffer:
    """A piece of memory without gaps: an input, an output, a constant, or a part of the arena."""

    __slots__ = ("name", "bytes", "kind", "index", "array")

    def __init__(self, name: str, bytes: Dim, kind: str = "arena", index: int = 0, array: np.ndarray | None = None):
        self.name = name
        self.bytes = bytes
        self.kind = kind
        """input, output, constant, status, run, texts or arena; "run" for what a run has beside its arena, which `index` tells."""
        self.index = index
        """The number of the input, output or constant. Of the arena: the number of the buffer, once `memory` has counted them."""
        self.array = array

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {self.bytes} bytes>"


@dataclass(frozen=True)
class At:
    """A place in a buffer, some bytes from its beginning."""

    buffer: Buffer
    offset: Dim


Argument = Union[Buffer, At, Dim, float]
"""Pointers, sizes and numbers that kernels are given."""


@dataclass
class Step:
    """One kernel with its arguments. Items are shared among threads, at least `grain` to a piece."""

    kernel: Kernel
    arguments: Sequence[Argument]
    items: Dim
    grain: Dim
    label: str
    """The nodes that it computes, for people."""
    flops: Dim = 0
    traffic: Dim = 0
    """Bytes that it must read and write at least."""
    scratch: Sequence[Buffer] = ()
    nodes: Sequence[Node] = ()
    """The nodes that it computes. Where several share it, the one that asked first."""
    estimates: Sequence[tuple[str, float]] = ()
    """Algorithms that there were to choose from, with the cycles that they would take; for people."""
    jump: int = 0
    """How many steps further on, or back, a run goes on if the word is set to which the kernel's first argument points; 0 for none."""
    settles: Settlement | None = None
    """Sizes that it settles."""

    def sizes(self) -> Iterator[Dim]:
        """All sizes that a run must know for it."""
        yield from (self.items, self.grain, self.flops, self.traffic)
        for argument in self.arguments:
            if isinstance(argument, At):
                yield argument.offset
            elif not isinstance(argument, (Buffer, float)):
                yield argument
        yield from (buffer.bytes for buffer in (*self.buffers(), *self.scratch))
        if self.settles is not None:
            yield from (source for _, source in self.settles.sources if not isinstance(source, (Buffer, At)))

    def buffers(self) -> list[Buffer]:
        return [
            argument.buffer if isinstance(argument, At) else argument
            for argument in self.arguments
            if isinstance(argument, (Buffer, At))
        ]


@dataclass
class Program:
    """The steps of a cluster, in order."""

    name: str
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    steps: list[Step] = field(default_factory=list)
    constants: list[Buffer] = field(default_factory=list)
    conditions: dict[tuple[Dim, Dim], Sequence[Node]] = field(default_factory=dict)
    """Sizes that must be equal for the program to be right, and the nodes that ask for it. Where they are not, NumPy computes, and raises
    what there is to raise."""
    batch: Batch | None = None
    """The batch along which it may be cut into parts that run one after the other."""
    shared: list[tuple[int, int]] = field(default_factory=list)
    """Inputs and outputs, by their places, that may be one memory: the steps that read the one and write the other are made for it."""
    loose: dict[int, Buffer] = field(default_factory=dict)
    """Outputs whose sizes runs settle, and where they lie in the arena until they are copied into arrays."""

    texts: TextConstants | None = None
    """Its constant strings, if it has to do with strings."""

    @property
    def constant_bytes(self) -> int:
        return sum(buffer.array.nbytes for buffer in self.constants if buffer.array is not None)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of all steps, each once."""
        return list({step.kernel.symbol: step.kernel for step in self.steps}.values())
