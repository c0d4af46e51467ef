"""What the lowerings of control flow share: steps that jump, values of one element, shapes that must be equal."""

from __future__ import annotations

from collections.abc import Sequence, Set

from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.providers.native.kernels.control.kernels import SkipArguments, skip_kernel
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.values import dims, is_plain, stored
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.providers.provider import CannotCompile


def compute_captured(lowerer: Lowerer, node: Node) -> None:
    """Have all that graphs inside a node read from outside in memory."""
    for value in node.implicit_inputs():
        if not value.is_constant and known_sizes(value) is None and is_plain(value):
            lowerer.view(value)


def single(lowerer: Lowerer, value: Value) -> View:
    """A value of one element."""
    lowerer.require(dim.product(dims(value)), 1)
    return lowerer.view(value)


def require_equal(lowerer: Lowerer, value: Value, shape: Sequence[Dim], before: Set[str]) -> list[tuple[str, Dim]]:
    """Have NumPy compute whenever a value has not this shape. Sizes of the shape that a run settles are to become the value's.

    Those that were settled `before` the node at hand are the sizes of something else too, by the names that the model gives them.
    """
    sizes = dims(value)
    if len(sizes) != len(shape):
        raise CannotCompile(f"{value.name} has {len(sizes)} axes and not {len(shape)}", quiet=True)
    found = []
    for size, wanted in zip(sizes, shape):
        symbol = None if isinstance(wanted, int) else wanted.symbol
        if symbol is not None and symbol.name in lowerer.sizes.data_sizes and symbol.name not in before:
            found.append((symbol.name, size))
        else:
            lowerer.require(size, wanted)
    return found


def in_buffer(buffer: Buffer, value: Value) -> View:
    """A value without gaps in a buffer."""
    return View(buffer, stored(value), dims(value), contiguous_strides(dims(value)))


def land(lowerer: Lowerer, step: int) -> None:
    """Let a step jump to the one that comes next."""
    lowerer.program.steps[step].jump = len(lowerer.program.steps) - step


def skip(lowerer: Lowerer, condition: View | None = None) -> int:
    """Add a step that jumps, unless a condition holds if one is given; its number."""
    arguments = SkipArguments(decision=lowerer.scratch(8), condition=None if condition is None else condition.place)
    lowerer.call(skip_kernel(lowerer.target, condition is not None), arguments, 1)
    return len(lowerer.program.steps) - 1


def consistent(lowerer: Lowerer, settled: Sequence[tuple[str, Dim]]) -> list[tuple[str, Dim]]:
    """What sizes become, each once: where two axes have one name, both must become the same."""
    found: dict[str, Dim] = {}
    for name, size in settled:
        lowerer.require(found.setdefault(name, size), size)
    return list(found.items())
