"""Weights of recurrent layers that are computed: steps of each run put them in the order of the constant ones, whatever their sizes."""

from __future__ import annotations

from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.values import stored
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 8192
"""How many elements are worth handing to another thread."""


@dataclass(frozen=True)
class Gates:
    """Some gates of each direction, as they lie in a weight: [directions, all gates, units, depth]."""

    count: int
    """That lie side by side in a panel."""
    direction_stride: Dim
    first: Dim = 0
    """The element with which they begin."""
    second: Dim | None = None
    """The same of numbers that are added to them,"""
    added: tuple[int, ...] = ()
    """but to these gates alone."""
    groups: int = 1
    """Of so many gates, panel beside panel."""


class GateArguments(Arguments):
    source: Pointer
    target: Pointer
    hidden: Size
    """Units of a gate."""
    depth: Size
    panels: Size
    groups: Size
    direction_stride: Size
    first: Size
    second: Size | None = when(lambda added: added)


def pack_gates(lowerer: Lowerer, weight: Value, gates: Gates, sizes: tuple[Dim, Dim, Dim], lanes: int, fits: Dim) -> Buffer:
    """Panels (directions, vectors of units, groups, depth, gates, lanes) that a step fills, with zeros behind the last unit.

    `sizes` are the number of directions, units and depth. The step does nothing if `fits` turns out to be 0.
    """
    directions, hidden, depth = sizes
    view, type = lowerer.contiguous(weight), stored(weight).computed
    panels = dim.ceildiv(hidden, lanes)
    panel = depth * (gates.count * lanes)
    items = directions * panels * gates.groups
    target = lowerer.scratch(items * panel * type.bytes)
    lowerer.call(
        gates_kernel(lowerer.target, view.type, gates.count, gates.added),
        GateArguments(
            source=view.place,
            target=target,
            hidden=hidden,
            depth=depth,
            panels=panels,
            groups=gates.groups,
            direction_stride=gates.direction_stride,
            first=gates.first,
            second=gates.second,
        ),
        items * fits,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, panel))),
        traffic=2 * items * panel * type.bytes,
    )
    return target


@kernel("packed gates", GateArguments)
def gates_kernel(f: KernelFunction, a: GateArguments, stored: Type, count: int, added: tuple[int, ...]) -> None:
    """Items are panels of groups."""
    type = stored.computed
    lanes = f.lanes(type)
    rows = f.iota(I64, lanes) * f.splat(a.depth, lanes)
    with f.loop(f.begin, f.end) as item:
        group, outer = item % a.groups, item // a.groups
        unit = (outer % a.panels) * lanes
        start = (outer // a.panels) * a.direction_stride + unit * a.depth
        target = f.address(a.target, item * a.depth * (count * lanes), type)
        inside = f.first_lanes(f.minimum(a.hidden - unit, lanes), lanes)
        for gate in range(count):
            offset = start + (group * count + gate) * a.hidden * a.depth
            places = [a.first] if a.second is None or gate not in added else [a.first, a.second]
            sources = [f.address(a.source, offset + place, stored) for place in places]
            with f.loop(0, a.depth) as k:
                parts = [
                    f.convert(f.gather(f.address(source, k, stored), rows, stored, mask=inside), type) for source in sources
                ]
                f.store(parts[0] if len(parts) == 1 else parts[0] + parts[1], target, (k * count + gate) * lanes, type)
