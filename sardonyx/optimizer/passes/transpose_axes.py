"""Orders of axes: what `transpose.py` and its handlers reckon with.

A layout is a permutation as Transpose has it: axis `i` of the new tensor is axis `layout[i]` of the old one. A node that can work in
other layouts has *units*, the axes that matter to it; a port tells which axes of one operand or result belong to each unit. Most
have one axis per unit; a reduced axis has none in the result, the axis that Gather looks up becomes those of its indices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence

from sardonyx.ir import Value
from sardonyx.ir.dim import Dim, evaluate, mod
from sardonyx.ir.types import Shape
from sardonyx.optimizer.values import dtype_of, shape_of

Layout = tuple[int, ...]
Order = tuple[int, ...]
"""A layout of a node's units."""
Run = tuple[int, ...]
Port = tuple[Run, ...]
"""For each unit of a node the axes of one operand or result that belong to it, in their order, without gaps between them."""

ASSUMED_SIZE = 64
"""What an unknown size counts as when work is estimated."""


@functools.lru_cache(maxsize=65536)
def compose(first: Layout, then: Layout) -> Layout:
    """The layout after two transpositions."""
    return tuple(first[axis] for axis in then)


@functools.lru_cache(maxsize=65536)
def inverse(layout: Layout) -> Layout:
    """The layout that leads back."""
    return tuple(sorted(range(len(layout)), key=layout.__getitem__))


@functools.cache
def identity(rank: int) -> Layout:
    return tuple(range(rank))


@functools.lru_cache(maxsize=65536)
def placed(port: Port, order: Order) -> Layout:
    """The layout in which a port's tensor lies when a node's units are in this order."""
    return tuple(axis for unit in order for axis in port[unit])


@functools.lru_cache(maxsize=65536)
def order_for(port: Port, layout: Layout) -> Order | None:
    """An order of units in which the port has this layout; units that the port lacks stay where they are. None if there is none."""
    unit_at = {axis: unit for unit, run in enumerate(port) for axis in run}
    order: list[int] = []
    at = 0
    while at < len(layout):
        unit = unit_at[layout[at]]
        run = port[unit]
        if layout[at : at + len(run)] != run:
            return None
        order.append(unit)
        at += len(run)
    moving = iter(order)
    return tuple(next(moving) if run else unit for unit, run in enumerate(port))


@functools.cache
def whole(rank: int, total: int | None = None) -> Port:
    """One axis per unit; where there are more units than axes, the first ones have none, as broadcasting has it."""
    missing = 0 if total is None else total - rank
    return ((),) * missing + tuple((axis,) for axis in range(rank))


def without(units: int, dropped: Sequence[int]) -> Port:
    """One axis for every unit but some."""
    port: list[Run] = []
    count = 0
    for unit in range(units):
        port.append(() if unit in dropped else (count,))
        count += unit not in dropped
    return tuple(port)


def permuted(shape: Shape, layout: Layout) -> Shape:
    return tuple(shape[axis] for axis in layout)


def estimated_bytes(value: Value) -> int:
    """About how much memory a tensor takes."""
    shape, dtype = shape_of(value) or (), dtype_of(value)
    return max(1, math.prod(_estimated(size) for size in shape)) * max(1, (dtype.bits if dtype else 32) // 8)


class _Assumed(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return ASSUMED_SIZE


def _estimated(size: Dim) -> int:
    return size if isinstance(size, int) else max(1, evaluate(size, _Assumed()))


# --- reshapes -------------------------------------------------------------------------------------------------------


def essence(shape: Shape, layout: Layout) -> Hashable:
    """What a layout has in common with all others that a Reshape leads to: they differ in where axes of size 1 are.

    A Reshape can be written if all sizes but one are known; other unknown ones must keep their places.
    """
    if 0 in shape:
        return layout
    symbolic = tuple(at for at, axis in enumerate(layout) if not isinstance(shape[axis], int))
    return tuple(axis for axis in layout if shape[axis] != 1), symbolic if len(symbolic) > 1 else ()


def reshape_target(source: Shape, target: Shape, inferred: bool = False) -> list[int] | None:
    """What to ask Reshape for, 0 for a size that stays in its place and -1 for one other unknown size; None if that is not enough.

    An empty tensor leaves -1 open where another size is 0, so unless the model itself asks for that (`inferred`), -1 stands among
    positive sizes only.
    """
    wanted: list[int] = []
    for axis, size in enumerate(target):
        if isinstance(size, int):
            wanted.append(size)
        else:
            wanted.append(0 if axis < len(source) and source[axis] == size else -1)
    if 0 in target or wanted.count(-1) > 1:
        return None
    copies = [axis for axis, size in enumerate(wanted) if size == 0]
    if -1 not in wanted or not copies or inferred:
        return wanted
    return None


def common_runs(source: Shape, target: Shape) -> list[tuple[Run, Run]] | None:
    """The shortest runs of axes with equal products of sizes in two shapes, in order; None if that is not clear."""
    if 0 in source or 0 in target:
        return None
    runs: list[tuple[Run, Run]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        if i < len(source) and source[i] == 1 and (j == len(target) or target[j] != 1):
            runs.append(((i,), ()))
            i += 1
        elif j < len(target) and target[j] == 1 and (i == len(source) or source[i] != 1):
            runs.append(((), (j,)))
            j += 1
        else:
            ends = _equal_products(source, target, i, j)
            if ends is None:
                return None
            runs.append((tuple(range(i, ends[0])), tuple(range(j, ends[1]))))
            i, j = ends
    return runs


def _equal_products(source: Shape, target: Shape, i: int, j: int) -> tuple[int, int] | None:
    if i == len(source) or j == len(target):
        return None
    left, right = source[i], target[j]
    i, j = i + 1, j + 1
    while left != right:
        if _divides(left, right) and i < len(source):
            left, i = left * source[i], i + 1
        elif _divides(right, left) and j < len(target):
            right, j = right * target[j], j + 1
        else:
            return None
    return i, j


def _divides(part: Dim, total: Dim) -> bool:
    if isinstance(part, int) and isinstance(total, int):
        return part < total
    return mod(total, part) == 0
