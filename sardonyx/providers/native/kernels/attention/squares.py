"""Squares of vectors with rows and lanes exchanged, for kernels whose lanes are queries."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.providers.native.program.kernel import KernelFunction


def transposed(f: KernelFunction, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as they have lanes, with rows and lanes exchanged.

    First inside pieces of 16 bytes, then whole pieces: these are the shuffles that CPUs have as one instruction.
    """
    lanes, piece = len(rows), max(1, 128 // rows[0].type.bits)
    groups = [_transposed_pieces(f, rows[start : start + piece]) for start in range(0, lanes, piece)]
    columns = [_gathered_pieces(f, [group[column] for group in groups], piece) for column in range(piece)]
    return [columns[column % piece][column // piece] for column in range(lanes)]


def _transposed_pieces(f: KernelFunction, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as elements are in a piece: in each piece, column i of the rows in vector i."""
    if len(rows) == 2:
        return [_interleaved(f, rows[0], rows[1], 2, side, 1) for side in range(2)]
    halves = [[_interleaved(f, rows[i], rows[i + 1], 4, side, 1) for side in range(2)] for i in (0, 2)]
    return [_interleaved(f, halves[0][column // 2], halves[1][column // 2], 4, column % 2, 2) for column in range(4)]


def _interleaved(f: KernelFunction, a: Value, b: Value, piece: int, side: int, width: int) -> Value:
    """In each piece the elements of one half of a's and b's piece, `width` of them by turns."""
    lanes, half = a.type.lanes, piece // 2
    turns = [
        start + side * half + offset + extra + other * lanes
        for start in range(0, lanes, piece)
        for offset in range(0, half, width)
        for other in range(2)
        for extra in range(width)
    ]
    return f.shuffle(a, b, turns)


def _gathered_pieces(f: KernelFunction, vectors: Sequence[Value], piece: int) -> list[Value]:
    """Vector i has the pieces i of all, in their order."""
    if len(vectors) == 1:
        return [vectors[0]]
    lanes = vectors[0].type.lanes
    sides = []
    for side in range(2):
        chosen = [start + lane for start in range(side * piece, 2 * lanes, 2 * piece) for lane in range(piece)]
        joined = [f.shuffle(vectors[i], vectors[i + 1], chosen) for i in range(0, len(vectors), 2)]
        sides.append(_gathered_pieces(f, joined, piece))
    return [vector for pair in zip(*sides) for vector in pair]
