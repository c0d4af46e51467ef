"""What a run and the code that settles its sizes have agreed on: see `settling`, which compiled models are run without."""

from __future__ import annotations

WRONG, TOO_SMALL, TEXTS_TOO_SMALL, UNEQUAL = 1, 2, 3, 4
"""What the status word says: NumPy has to compute, a size is beyond its capacity, strings need more memory, or NumPy has to compute as
sizes differ that should be equal.
"""
TABLE_FORM = 2
"""What the words of the table mean: another number where that changes, for code in files counts on it."""
SCRATCH = 64
"""Words at the beginning of the table of sizes, for what is computed on the way."""
SEEDS = 3
"""The number of the words of `random_state` among what a run has beside its arena: they follow arguments, steps and table."""
