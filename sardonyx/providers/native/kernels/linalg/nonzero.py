"""A step that looks whether a tensor holds a zero, by which nobody may divide. The lowerer adds it before such divisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.compiler.types import I64, Type
from sardonyx.ir import dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.views import View

if TYPE_CHECKING:
    from sardonyx.providers.native.program.building import ProgramBuilder

GRAIN = 1 << 14


def check_nonzero(lowerer: ProgramBuilder, view: View) -> None:
    """Have NumPy compute the program again, and complain, if one of the elements, which lie without gaps, is 0."""
    count = dim.product(view.shape)
    lanes = lowerer.target.lanes(view.type)
    arguments = NonzeroArguments(source=view.place, count=count, status=lowerer.status())
    lowerer.call(nonzero_kernel(lowerer.target, view.type), arguments, dim.ceildiv(count, lanes), GRAIN // lanes)


class NonzeroArguments(Arguments):
    source: Pointer
    count: Size
    status: Pointer


@kernel("nonzero", NonzeroArguments)
def nonzero_kernel(f: KernelFunction, a: NonzeroArguments, type: Type) -> None:
    """Items are vectors."""
    lanes = f.lanes(type)
    with f.loop(f.begin, f.end) as item:
        remaining = a.count - item * lanes
        found = f.load(a.source, item * lanes, type, lanes, remaining=remaining)
        zeros = (found == 0) & f.first_lanes(remaining, lanes) if lanes > 1 else found == 0
        with f.if_(f.any_lane(zeros)):
            f.store(1, a.status, 0, I64)
