"""How far results are from those of a baseline: differences of arrays, their percentiles, words that are the same.

The programs that compare models of `models.gpt2` and `models.llama` share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PERCENTILES = (50, 90, 95, 99)


def largest_difference(baseline: np.ndarray, treatment: np.ndarray) -> float:
    """The largest difference of two arrays of a shape, 0 of empty ones; NaN where one of them has it."""
    return float(np.abs(baseline.astype(np.float64) - treatment).max(initial=0))


def percentiles(differences: Sequence[float]) -> dict[int, float]:
    """Percentiles of differences, leaving NaN out; NaN if there are no others."""
    known = [difference for difference in differences if not np.isnan(difference)]
    return {share: float(np.percentile(known, share)) if known else float("nan") for share in PERCENTILES}


def top_words(logits: np.ndarray, count: int, in_order: bool = False) -> np.ndarray:
    """The likeliest next words of each row, (batch, count): the likeliest first, or by their numbers.

    Logits are (batch, length, vocabulary). Of equal ones the first counts.
    """
    last = logits[:, -1, :].astype(np.float64)
    words = np.argsort(-last, axis=1, kind="stable")[:, :count]
    return words if in_order else np.sort(words, axis=1)


def match_rate(baseline: np.ndarray, treatment: np.ndarray) -> float:
    """The share of rows that agree in all words."""
    return float((baseline == treatment).all(axis=-1).mean())
