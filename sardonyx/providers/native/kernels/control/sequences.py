"""Sequences that branches give and turns hand on: memory of their own, into which each puts its result."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir import Dim, Value
from sardonyx.providers.native.kernels.sequence.operators import copy_sequence
from sardonyx.providers.native.program.held import HeldSequence, held_sequence
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import stored_in, tensors_in

Settled = list[tuple[str, Dim]]
"""Names of sizes, and what they become."""


def is_sequence(value: Value | None) -> bool:
    return tensors_in(value) is not None


def memory_for(lowerer: Lowerer, value: Value) -> HeldSequence:
    """Memory for a sequence whose length only a run tells."""
    tensors = tensors_in(value)
    assert tensors is not None
    count, total = lowerer.sizes.add_data_size(), lowerer.sizes.add_data_size()
    return held_sequence(stored_in(value), tensors.rank, count, total)


def lengths_of(held: HeldSequence, count: Dim, total: Dim) -> Settled:
    """What the sizes of such memory become."""
    sizes = ((held.count, count), (held.total, total))
    return [(size.symbol.name, new) for size, new in sizes if not isinstance(size, int) and size.symbol is not None]


def put_sequences(lowerer: Lowerer, sources: Sequence[HeldSequence], targets: Sequence[HeldSequence]) -> Settled:
    """Copy sequences where they do not lie there already; returns what is to be settled. What lies in another's place is copied first."""
    places = {target.data for target in targets}
    moved = [(source, target) for source, target in zip(sources, targets, strict=True) if source.data is not target.data]
    for source, target in [(_apart(lowerer, source) if source.data in places else source, target) for source, target in moved]:
        copy_sequence(lowerer, source, target)
    return [pair for source, target in zip(sources, targets) for pair in lengths_of(target, source.count, source.total)]


def _apart(lowerer: Lowerer, held: HeldSequence) -> HeldSequence:
    copy = held_sequence(held.type, held.rank, held.count, held.total)
    copy_sequence(lowerer, held, copy)
    return copy
