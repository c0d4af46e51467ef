"""Squares of vectors with rows and columns exchanged in registers. Kernels ask here whose data lies along another axis than their lanes."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.instructions import Instructions
from sardonyx.compiler.values import Value


def transposed(f: Instructions, vectors: Sequence[Value]) -> list[Value]:
    """A square of as many vectors as they have lanes, with rows and columns exchanged.

    First inside parts of 16 bytes, then whole parts: these are the shuffles that CPUs have as one instruction.
    """
    width = len(vectors)
    inside = min(width, 16 // vectors[0].type.bytes)
    parts = width // inside
    groups = [_zipped(f, vectors[first : first + inside], parts) for first in range(0, width, inside)]
    dealt: list[list[Value]] = [_dealt(f, [group[index] for group in groups], inside) for index in range(inside)]
    return [dealt[index][part] for part in range(parts) for index in range(inside)]


def _zipped(f: Instructions, vectors: Sequence[Value], parts: int) -> list[Value]:
    """Squares side by side, each in its part of the vectors, transposed."""
    count = len(vectors)
    zipped = list(vectors)
    lanes = count * parts
    halves = [
        [
            base + lane // 2 + (lane % 2) * lanes + half * (count // 2)
            for base in range(0, lanes, count)
            for lane in range(count)
        ]
        for half in (0, 1)
    ]
    for _ in range(count.bit_length() - 1):
        zipped = [
            f.shuffle(zipped[index], zipped[index + count // 2], halves[half]) for index in range(count // 2) for half in (0, 1)
        ]
    return zipped


def _dealt(f: Instructions, vectors: list[Value], inside: int) -> list[Value]:
    """As many vectors as they have parts of `inside` lanes, with vectors and parts exchanged."""
    parts = len(vectors)
    choices = [[part * inside + lane for part in range(first, 2 * parts, 2) for lane in range(inside)] for first in (0, 1)]
    for _ in range(parts.bit_length() - 1):
        vectors = [f.shuffle(vectors[index], vectors[index + 1], chosen) for chosen in choices for index in range(0, parts, 2)]
    return vectors
