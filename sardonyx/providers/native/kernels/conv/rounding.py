"""How much larger the rounding errors of transformed sums are than those of direct ones. `winograd.py` asks before it takes a transform.

A transform enlarges the rounding errors of its products on the way back. By how much depends on where in the window a filter's weights
lie, not on how large they are: channels and filters never mix, so that their ranges cancel out. With weights spread over the window the
direct sum has as many more roundings, and both come out alike. A filter with nearly all its weight on one tap, a corner above all, has
a short direct sum, and the transform's errors stand out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sardonyx.providers.native.kernels.conv.transforms import Transform

BOUND = 8.0
"""A transform is taken up to this estimate: the largest of many errors, which scatter, then stays within 10 times the direct sum's."""


def tap_energies(weights: np.ndarray) -> np.ndarray:
    """(M, C, taps…) as (M, taps…): sums of squares over channels. float64 has room for the squares of all float32."""
    return np.einsum("mc...,mc...->m...", weights, weights, dtype=np.float64)


def error_ratio(energies: np.ndarray, factors: Sequence[np.ndarray]) -> float:
    """About how many times the direct sum's error the transformed one's is, for the worst filter.

    `energies` are those of taps, `factors` say for each axis how much errors of a weight on each tap are enlarged. Filters that are not
    finite have no bound.
    """
    flat = energies.reshape(len(energies), -1)
    flat = flat[flat.any(axis=1)]  # errors of zeros are zeros
    if not np.isfinite(flat).all():
        return math.inf
    total = flat.sum(axis=1)
    enlarged = np.sqrt(flat @ _outer(factors).reshape(-1) ** 2 / total)
    # as many taps as would share the weight evenly: roundings of the direct sum grow with them
    even_taps = total**2 / (flat**2).sum(axis=1)
    return float((enlarged / np.sqrt(even_taps)).max(initial=0.0))


def _outer(factors: Sequence[np.ndarray]) -> np.ndarray:
    product = np.ones(())
    for factor in factors:
        product = np.multiply.outer(product, factor)
    return product


def tap_factors(transform: Transform) -> np.ndarray:
    """By how much a transform enlarges independent errors of the products of a weight on each tap, in the result where that is most."""
    backward = transform.backward_matrix**2
    inputs = (transform.forward_matrix**2).sum(axis=1)
    at_points = transform.filter_matrix**2 * inputs[:, np.newaxis]
    return np.sqrt((backward @ at_points).max(axis=0))
