"""How much a kernel lets lie in which cache: fractions of the caches' sizes, all in this place, so that they can be compared."""

from __future__ import annotations

import functools

from sardonyx.compiler.caches import Caches
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Budgets:
    """Bytes."""

    # --- matrix products
    matrix_block: int
    """Bytes of B that are used with one tile of rows after the other. They should stay in the second-level cache."""
    unpacked_distance: int
    """How far apart elements of following k may lie without being packed."""

    # --- convolutions
    window_filters: int
    """Bytes of filters. Up to this size, each tile of pixels is multiplied with all panels before the next tile."""
    window_block: int
    """Bytes of an image. Where the filters are larger, each panel is multiplied with so much of the image before the next panel."""
    band: int
    """Bytes of expanded rows where two convolutions are fused."""
    strassen_sums: int
    """Bytes of the sums of blocks that stay beside the filters."""
    transformed: int
    """Bytes of the transformed input and the sums of a block of Winograd's tiles."""
    transformed_beside_large_filters: int
    """The same where the filters are too large for the last-level cache, so that each is read once."""
    cached_filters: int
    """Transformed filters up to this size are likely to stay in the last-level cache from one block of tiles to the next."""
    near_filters: int
    """Transformed filters up to this size stay in the second-level cache of every thread."""
    near_input: int
    """Transformed input up to this size may be read again for each panel of filters, so that sums of one panel suffice."""

    # --- recurrent layers
    near_weights: int
    """Recurrent weights up to this size stay near for the most part: they are met to and fro, others as they stream in best."""

    # --- whole programs
    arena: int
    """So much of an arena is likely to stay in the last-level cache between one step and the next."""
    far: int
    """Traffic from which on operands come from memory. Outputs of this size are written past the caches."""
    between_runs: int
    """What a run touches may stay in the last-level cache until the next one, up to this size."""


@functools.cache
def of(caches: Caches) -> Budgets:
    second, last = caches.second, caches.last
    return Budgets(
        matrix_block=second * 3 // 8,
        unpacked_distance=caches.distance * 2,
        window_filters=second * 3 // 16,
        window_block=second // 4,
        band=second // 8,
        strassen_sums=second * 3 // 4,
        transformed=second * 5 // 8,
        transformed_beside_large_filters=second * 2,
        cached_filters=last // 2,
        near_filters=second // 2,
        near_input=caches.first * 3 // 2,
        near_weights=second,
        arena=last * 3 // 16,
        far=last // 4,
        between_runs=last * 3 // 2,
    )
