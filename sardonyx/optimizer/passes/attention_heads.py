"""Query, key and value of an attention: how their heads are laid out, and how to get them into the layout that an op takes.

`passes/attention.py` asks a `Heads` for its operand as (batch, length, heads·size), which is what projections make and what exporters
take apart again, or as (batch, heads, length, size).
"""

from __future__ import annotations

from sardonyx.ir import Graph, Value
from sardonyx.ir.dim import Dim, product
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import operand
from sardonyx.optimizer.axes import Axis, Stage, Trace, users_along
from sardonyx.optimizer.passes.attention_scores import Unfit
from sardonyx.optimizer.values import shape_of
from sardonyx.startup.records import dataclass


def size_of(axis: Axis) -> Dim:
    """How long an axis is."""
    return product(atom.size for atom in axis)


@dataclass
class Merged:
    """Where the operand stands as (batch, length, heads·size): `stage` holds it, as the part `index` of its last axis if that is set."""

    stage: Stage
    index: int | None = None
    has_heads_apart: bool = False
    """Whether heads and sizes are two axes still."""
    is_turned: bool = False
    """Whether it is (length, batch, heads·size)."""


class Heads:
    """One operand of attention, whose product is one of (batch·heads, length, size) or (batch, heads, length, size) matrices.

    `heads` is how many heads there are where they are joined with the batch. `is_transposed`: length and size have changed places.
    """

    def __init__(self, value: Value, *, heads: int | None = None, is_transposed: bool = False, factors: bool = False):
        self.value = value
        self.is_transposed = is_transposed
        self.count = heads
        for repeats in (True, False):
            self.trace = Trace(value, factors=factors, repeats=repeats)
            self._read_axes()
            self.merged = self._find_merged() if self.has_known_heads else None
            self.apart = self._find_apart() if self.has_known_heads else None
            if self.group == 1 or (self.group != 0 and (self.merged is not None or self.apart is not None)):
                break

    def _read_axes(self) -> None:
        *leading, rows, columns = self.trace.axes
        self.length, self.size = (columns, rows) if self.is_transposed else (rows, columns)
        joined = [atom for axis in leading for atom in axis]
        if len(leading) == 2:
            batch = len(leading[0])
        else:
            batch = next((at for at in range(len(joined) + 1) if size_of(joined[at:]) == (self.count or 1)), len(joined))
        self.batch, heads = joined[:batch], joined[batch:]
        self.heads = [atom for atom in heads if not atom.repeated]
        repeated = heads[len(self.heads) :]
        self.group = size_of(repeated)
        """How many heads in a row are the same."""
        if any(atom.repeated for atom in self.batch) or not all(atom.repeated for atom in repeated):
            self.group = 0

    @property
    def head_count(self) -> Dim:
        return size_of(self.heads)

    @property
    def has_known_heads(self) -> bool:
        """Whether the axes tell where heads end and batches begin."""
        return len(self.trace.axes) == 4 or self.head_count == (self.count or 1)

    def _find_apart(self) -> Stage | None:
        return self.trace.find_last([self.batch, self.heads, self.length, self.size])

    def _find_merged(self) -> Merged | None:
        """The last stage that has this layout; else one that needs a Transpose or Slice, which are work."""
        whole, other = None, None
        features = self.heads + self.size
        for stage in self.trace.stages:
            if stage.axes == [self.batch, self.length, features]:
                whole = Merged(stage)
            elif stage.axes == [self.batch, self.length, self.heads, self.size]:
                whole = Merged(stage, has_heads_apart=True)
            elif stage.axes == [self.length, self.batch, features]:
                other = Merged(stage, is_turned=True)
            elif stage.axes[:2] == [self.batch, self.length] and len(stage.axes) == 3:
                index = _part(stage.axes[2], features)
                other = other or (None if index is None else Merged(stage, index))
        return whole or other

    # --- the operand in an op's layout; with the number by which it is to be multiplied

    def as_merged(self, op: Builder) -> tuple[Value, float]:
        """(batch, length, heads·size)."""
        merged = self.merged
        if merged is None:
            value, factor = self.as_apart(op)
            turned = op.Transpose(value, perm=[0, 2, 1, 3])
            return op.Reshape(turned, op.constant([0, 0, self._features()])), factor
        value = merged.stage.value
        if merged.has_heads_apart:
            value = op.Reshape(value, op.constant([0, 0, self._features()]))
        elif merged.index is not None:
            width = self._features()
            value = op.Slice(value, starts=[merged.index * width], ends=[(merged.index + 1) * width], axes=[2])
        elif merged.is_turned:
            value = op.Transpose(value, perm=[1, 0, 2])
        return value, merged.stage.factor

    def _features(self) -> int:
        width = size_of(self.size) * (self.head_count if self.has_known_heads else self.count or 1)
        if not isinstance(width, int):
            raise Unfit("the size of a head is not known")
        return width

    def as_apart(self, op: Builder) -> tuple[Value, float]:
        """(batch, heads, length, size)."""
        if self.apart is not None:
            return self.apart.value, self.apart.factor
        if self.group != 1:
            raise Unfit("heads that are repeated cannot be told apart")
        value = self.value
        rank = len(self.trace.axes)
        if self.is_transposed:
            value = op.Transpose(value, perm=[*range(rank - 2), rank - 1, rank - 2])
        if rank == 3:
            value = heads_apart(op, value, self.count or 1)
        return value, 1.0


def _part(axis: Axis, features: Axis) -> int | None:
    """Which of the equal parts of `axis` the features are."""
    if not features or axis[len(axis) - len(features) :] != features:
        return None
    index = 0
    for atom in axis[: len(axis) - len(features)]:
        if atom.index is None or not isinstance(atom.size, int):
            return None
        index = index * atom.size + atom.index
    return index


def heads_apart(op: Builder, value: Value, heads: int) -> Value:
    """(batch·heads, rows, columns) as (batch, heads, rows, columns)."""
    # a 0 in a Reshape copies the size at its own place, so rows and columns go where they belong first
    return op.Reshape(op.Unsqueeze(value, axes=[0]), op.constant([-1, heads, 0, 0]))


# --- past keys and values


@dataclass
class Past:
    """Keys or values that are those of the past and new ones behind them."""

    past: Value
    new: Heads
    both: Value
    factor: float


def past_of(heads: Heads, graph: Graph | None) -> Past | None:
    """What a key or value is put together from in `graph`, if a cache is part of it."""
    stage = heads.apart
    node = None if stage is None else stage.value.producer
    if stage is None or node is None or node.domain or node.op_type != "Concat" or len(node.inputs) != 2:
        return None
    if node.graph is not graph:
        return None
    past, new = node.inputs
    if operand(node, "axis") not in (2, -2) or past is None or new is None or shape_of(new) is None:
        return None
    return Past(past, Heads(new), stage.value, stage.factor)


# --- the output


@dataclass
class Joined:
    """The tensor into which the heads of an output are joined: (batch, length, heads·size)."""

    value: Value
    heads: Axis
    is_turned: bool
    """Whether it is (length, batch, heads·size)."""
    is_flat: bool
    """Whether batch and length are one axis."""


def joined_output(output: Value) -> Joined | None:
    """Where the heads of an attention's output come together again."""
    for value in users_along(output, 4):
        trace = Trace(value)
        stage = next((stage for stage in trace.stages if stage.value is output), None)
        if stage is None:
            continue
        *leading, length, size = stage.axes
        joined = [atom for axis in leading for atom in axis]
        for at in range(len(joined)) if len(leading) == 1 else (len(leading[0]),):
            placed = _joined(trace.axes, joined[:at], length, joined[at:], size)
            if placed is not None:
                return Joined(value, joined[at:], *placed)
    return None


def _joined(axes: list[Axis], batch: Axis, length: Axis, heads: Axis, size: Axis) -> tuple[bool, bool] | None:
    """Whether axes in which heads are joined are turned, and flat."""
    features = heads + size
    for is_turned, (outer, inner) in enumerate(((batch, length), (length, batch))):
        if axes == [outer, inner, features]:
            return bool(is_turned), False
        if axes == [outer + inner, features]:
            return bool(is_turned), True
    return None
