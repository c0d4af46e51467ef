"""What a step of a plan calls: `StepCall` says all that the runtime may ask of it, so that nothing is probed for by name.

Bound kernels and compiled clusters are such calls. A provider may also return a plain function from `compile`; plans wrap it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.ir import Node

Pairs = tuple[tuple[int, int], ...]
"""(input, output) by position."""
ANY = -1
"""Stands in a pair for every input, or for every output."""


@dataclass(frozen=True)
class Sharing:
    """Which outputs may lie in the memory of which inputs. Memory plans read it from a step's call."""

    alias: Pairs = ()
    """The output is the input's memory, element after element (Reshape); a copy if the input is a strided view."""
    view: Pairs = ()
    """The output is a part of the input's memory, or the same in another order (Slice, Transpose)."""
    inplace: Pairs = ()
    """The output may be written over the input, if nobody needs that any more and the sizes are equal."""


NO_SHARING = Sharing()


@dataclass(frozen=True)
class Piece:
    """Memory that a compiled cluster uses inside, from one of its kernels to another."""

    name: str
    bytes: int
    first: int
    last: int


class Workspace(Protocol):
    """Memory that a compiled cluster uses inside."""

    nodes: Sequence[Sequence[Node]]
    """What each kernel computes, in the order in which they run; nothing where that is not known."""

    def pieces(self, symbols: Mapping[str, int]) -> Sequence[Piece]:
        """What it consists of for these values of symbols; KeyError if one is missing."""
        ...

    def bytes_for(self, symbols: Mapping[str, int]) -> int:
        """How much it is for these values of symbols; KeyError if one is missing."""
        ...


FastPath = Callable[[list[Any]], Sequence[Any] | None]
"""One run on arrays without gaps, without the executor: the results, or None if the run must take the ordinary path."""


class StepCall:
    """Computes a step: called with the values of its inputs, it returns those of its outputs. Threads may call it at the same time.

    The rest are offers, and the defaults offer nothing. The runtime calls a method only if the attribute beside it says that it may.
    """

    __slots__ = ()

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError(f"{type(self).__name__} computes nothing")

    refusal: str | None = None
    """Why a run was left to another way to compute the step; None if none was."""
    had_unequal_sizes: bool = False
    """Whether one was left because sizes that it decided differ, though they should be equal as the model names them."""

    # --- memory

    sharing: Sharing = NO_SHARING
    """Which outputs may lie in the memory of which inputs."""
    workspace: Workspace | None = None
    """Memory that a run takes besides inputs and outputs, for memory plans."""

    def shrink(self) -> None:
        """Give back memory that is kept from one run to the next."""

    # --- where results go

    takes_out: bool = False
    """Whether `run_into` writes the first output where it is told to."""

    def run_into(self, inputs: Sequence[Any], out: np.ndarray) -> Sequence[Any]:
        """One run that writes its first output over `out`, one of the inputs."""
        raise NotImplementedError(f"{type(self).__name__} does not write into given memory")

    takes_destinations: bool = False
    """Whether `run_with` takes memory for outputs."""
    one_memory: Sequence[tuple[int, int]] = ()
    """Inputs and outputs by position that may be one memory given by the caller, as the past and the present of a cache."""

    # --- what a run may be told

    takes_stop: bool = False
    """Whether `run_with` looks at the word that stops it."""

    def run_with(
        self,
        inputs: Sequence[Any],
        stop: int = 0,
        destinations: Sequence[np.ndarray | None] | None = None,
        over: Sequence[tuple[int, int]] = (),
    ) -> Sequence[Any]:
        """One run. `stop` is the address of a word that another thread may set to leave out the rest, `destinations` memory for outputs.

        `over` are inputs and outputs, pairs of which `sharing` says that the one may be written over the other.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be stopped")

    def run_with_bodies(self, inputs: Sequence[Any], bodies: Mapping[str, Callable[..., Any]]) -> Sequence[Any]:
        """One run of a node with graphs inside, which are called like functions."""
        raise NotImplementedError(f"{type(self).__name__} takes no graphs")

    def run_timed(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """One run, and how long each kernel inside took, as profiles list them; nothing where that is not known."""
        return self(inputs), ()

    # --- without the executor

    is_random: bool = False
    """Whether two runs on the same inputs may give different results."""
    knows_shapes: bool = False
    """Whether its fast path takes only shapes that the ordinary path has checked before."""

    def fast_path(self) -> FastPath | None:
        """The fast path for plain arrays; None if there is none."""
        return None

    def fast_path_into(self, reader: StepCall) -> FastPath | None:
        """A shorter way through this call and the only one that reads its only result; None if there is none."""
        return None

    def fast_path_for_any_shape(self) -> Callable[[list[Any]], list[Any] | None] | None:
        """The fast path of a call that checks the shapes of its inputs itself. The list may go to the user as it is."""
        return None


class PlainCall(StepCall):
    """A function of the inputs that offers nothing more."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Sequence[Any]], Sequence[Any]]):
        self._function = function

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return self._function(inputs)


def as_call(function: Callable[[Sequence[Any]], Sequence[Any]]) -> StepCall:
    """What a provider returned from `compile`, as plans hold it."""
    return function if isinstance(function, StepCall) else PlainCall(function)
