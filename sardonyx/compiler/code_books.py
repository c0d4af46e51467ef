"""Looks up float32 numbers in a table of sixteen. Kernels whose codes stand for numbers that no formula gives call it."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler import registers
from sardonyx.compiler.types import F32, I32
from sardonyx.compiler.values import Value

BITS = 4
_PERMUTED = 8
"""Numbers that one instruction of AVX2 chooses from."""


def looked_up(numbers: Sequence[float], indices: Value) -> Value:
    """Numbers at the lowest four bits of indices, which are 32 bits wide."""
    f, target = indices.f, indices.f.target
    indices = f.bitcast(indices, I32.vector(indices.type.lanes))
    if registers.fits(indices):
        return registers.looked_up(numbers, indices)
    if target is not None and target.name == "avx2" and indices.type.lanes == _PERMUTED:
        low, high = (_permuted(f.constants(F32, numbers[first : first + _PERMUTED]), indices) for first in (0, _PERMUTED))
        return f.select((indices << (32 - BITS)) < 0, high, low)
    return _chosen([f.const(F32.vector(indices.type.lanes), number) for number in numbers], indices, BITS - 1)


def _permuted(table: Value, indices: Value) -> Value:
    """Numbers of a register at the lowest three bits of indices."""
    name = "llvm.x86.avx2.permps"
    table.f.declare(f"declare {table.type} @{name}({table.type}, {indices.type})")
    return table.f.emit(table.type, f"call {table.type} @{name}({table}, {indices})")


def _chosen(numbers: list[Value], indices: Value, bit: int) -> Value:
    """The same on any CPU: of two halves one, bit by bit."""
    if bit < 0:
        return numbers[0]
    half = len(numbers) // 2
    low, high = (_chosen(part, indices, bit - 1) for part in (numbers[:half], numbers[half:]))
    return low.f.select((indices & (1 << bit)) != 0, high, low)
