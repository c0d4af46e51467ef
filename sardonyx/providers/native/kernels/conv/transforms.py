"""Winograd's transforms of one axis: sliding sums of products as products at a few points. `winograd.py` says when they pay.

`size` results of a window of `taps` come from size + taps - 1 inputs. Input and taps, each taken as a polynomial, are evaluated at as many
points, multiplied there, and the results come back as a combination of the products. The points are 0, ±p…, ∞.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.startup.records import dataclass

PAIRS = {4: (1.0,), 6: (0.75, 1.5)}
"""The points ±p by the number of all points. With the usual 1 and 2 errors are two to four times as large as with 3/4 and 3/2."""


@dataclass(frozen=True)
class Transform:
    """So many results at once, of a window of so many taps."""

    size: int
    taps: int

    @property
    def width(self) -> int:
        """Inputs, and points."""
        return self.size + self.taps - 1

    @property
    def pairs(self) -> tuple[float, ...]:
        return PAIRS[self.width]

    @property
    def points(self) -> list[float]:
        """All but infinity, which is the last one."""
        return [0.0, *(sign * pair for pair in self.pairs for sign in (1, -1))]

    @property
    def filter_matrix(self) -> np.ndarray:
        """G: taps at the points, each divided by what the input's transform is too large by."""
        points = self.points
        rows = []
        for point in points:
            others = [point - other for other in points if other != point]
            rows.append([point**power / np.prod(others) for power in range(self.taps)])
        return np.array([*rows, [0] * (self.taps - 1) + [1]], np.float64)

    @property
    def forward_matrix(self) -> np.ndarray:
        """B: what `forward` computes, a row for each point."""
        finite = [np.poly([other for other in self.points if other != point])[::-1] for point in self.points]
        return np.array([*(np.append(row, 0.0) for row in finite), np.poly(self.points)[::-1]])

    @property
    def backward_matrix(self) -> np.ndarray:
        """A: what `backward` computes, a row for each result."""
        rows = [[point**power for point in self.points] for power in range(self.size)]
        return np.array([[*row, float(power == self.size - 1)] for power, row in enumerate(rows)])

    def _without(self, left_out: float | None) -> np.ndarray:
        """The coefficients of the product of x² - p² over all pairs but one, of x² that is, the lowest power first."""
        product = np.ones(1)
        for pair in self.pairs:
            if pair != left_out:
                product = np.convolve(product, [-pair * pair, 1.0])
        return product

    def forward(self, f: KernelFunction, d: Sequence[Value]) -> list[Value]:
        """Inputs, at the points."""
        full = self._without(None)
        at_points = [_combined(f, full, d[0::2])]
        for pair in self.pairs:
            rest = self._without(pair)
            even, odd = _combined(f, rest, d[2::2]), _combined(f, rest, d[1::2])
            at_points += [f.fma(pair, odd, even), f.fma(-pair, odd, even)]
        return [*at_points, _combined(f, full, d[1::2])]

    def backward(self, f: KernelFunction, m: Sequence[Value]) -> list[Value]:
        """Products at the points, as results."""
        pairs = [(m[1 + 2 * number], m[2 + 2 * number]) for number in range(len(self.pairs))]
        sums, differences = [a + b for a, b in pairs], [a - b for a, b in pairs]
        results = []
        for power in range(self.size):
            terms = sums if power % 2 == 0 else differences
            start = m[0] if power == 0 else m[-1] if power == self.size - 1 else None
            for pair, term in zip(self.pairs, terms):
                factor = pair**power
                if start is None:
                    start = term if factor == 1 else term * factor
                else:
                    start = start + term if factor == 1 else f.fma(factor, term, start)
            assert start is not None
            results.append(start)
        return results


def _combined(f: KernelFunction, coefficients: np.ndarray, values: Sequence[Value]) -> Value:
    """A sum of values with coefficients, of which the last one is 1."""
    total = values[len(coefficients) - 1]
    for coefficient, value in zip(coefficients[:-1], values):
        total = f.fma(float(coefficient), value, total)
    return total
