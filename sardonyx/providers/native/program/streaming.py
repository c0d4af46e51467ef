"""Results that go past the caches. A line of memory that is written whole need not be read before, which saves a third of a copy's traffic.

That pays for outputs of a program which are too large to wait in the caches for whoever reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.builder import Value
from sardonyx.providers.native.program.chain import Chain, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import replace

if TYPE_CHECKING:
    from sardonyx.providers.native.program.building import ProgramBuilder


def is_streamed(lowerer: ProgramBuilder, view: View) -> bool:
    """Whether a view is a large output; one whose size is not known before runs is taken for a small one."""
    size = view.buffer.bytes
    return view.buffer.kind == "output" and isinstance(size, int) and size >= lowerer.budgets.far


def streamed(lowerer: ProgramBuilder, chain: Chain, views: Sequence[View | None]) -> Chain:
    """The chain with those stores marked whose results, in `views`, go past the caches."""
    stores = tuple(
        replace(store, streams=view is not None and is_streamed(lowerer, view) and store.strides[-1:] == ("1",))
        for store, view in zip(chain.stores, views, strict=True)
    )
    return replace(chain, stores=stores)


def in_streams(f: KernelFunction, row: ChainRow, start: Value | int, body: Callable[[], None]) -> None:
    """Emit the loop that writes a row from a column on. A streaming loop is emitted twice: the caller's memory may not be aligned."""
    aligned = row.is_aligned(start, f.target.caches.line)
    if aligned is None:
        body()
        return
    with f.if_else(aligned) as otherwise:
        row.streaming = True
        body()
        row.streaming = False
        otherwise()
        body()
