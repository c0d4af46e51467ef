"""What is true of an op whoever computes it. Its entry says so where its inference is registered; `table.facts_of` tells it.

    @infer("Reshape", reshapes=True, moves=True)
    def reshape(data, shape, allowzero): ...

Some facts depend on a node's attributes or types: they are functions of the node.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from sardonyx.ir import Node, TensorType, Value
from sardonyx.ops.reading import operand
from sardonyx.startup.records import dataclass


class Operands(enum.Enum):
    """Some of a node's operands."""

    NONE = enum.auto()
    FIRST = enum.auto()
    ALL = enum.auto()


def never(node: Node) -> bool:
    return False


def always(node: Node) -> bool:
    return True


# --- of what a result is not below zero

Needs = Callable[[Node], "Sequence[Value | None] | None"]
"""Operands none of which may be below zero, so that the result is not; None if it may be all the same."""


def never_below_zero(node: Node) -> Sequence[Value | None]:
    return ()


def with_first_operand(node: Node) -> Sequence[Value | None]:
    return node.inputs[:1]


def with_all_operands(node: Node) -> Sequence[Value | None]:
    return node.inputs


def from_operand(name: str) -> Needs:
    """Nothing is below an operand, which is a number known before runs."""

    def needs(node: Node) -> Sequence[Value | None] | None:
        bound = operand(node, name)
        while isinstance(bound, list):
            bound = bound[0] if bound else None
        return () if bound is not None and bound >= 0 else None

    return needs


def _unknown(node: Node) -> None:
    return None


# --- what the precision of numbers is to an op


class Precision(enum.Enum):
    """How an op treats floating-point operands."""

    ROUNDS = enum.auto()
    """It computes with them, and rounds what it makes."""
    EXACT = enum.auto()
    """It moves, chooses or compares them, and rounds nothing."""
    BLIND = enum.auto()
    """It says the same of them before and after they are rounded."""
    BOUND = enum.auto()
    """It depends on their type itself: on its bits, on where it overflows, on how many steps fit."""


def _rounds(node: Node) -> Precision:
    return Precision.ROUNDS


def exact(node: Node) -> Precision:
    return Precision.EXACT


def exact_if(name: str, *words: str) -> Callable[[Node], Precision]:
    """Exact where an attribute is one of some words, or the op version does not have it."""

    def precision(node: Node) -> Precision:
        return Precision.EXACT if operand(node, name) in (None, *words) else Precision.ROUNDS

    return precision


def blind(node: Node) -> Precision:
    return Precision.BLIND


def bound_to_type(node: Node) -> Precision:
    return Precision.BOUND


# --- how the entries of a batch meet

Rows = Callable[[Node, Sequence[bool]], bool]
"""Whether a node treats the entries of a batch by themselves; it is told which of its operands are batches."""


def _together(node: Node, batched: Sequence[bool]) -> bool:
    return False


def by_entry(node: Node, batched: Sequence[bool]) -> bool:
    """Each entry of the first operand makes one of the result."""
    return batched[0]


def first_output_by_entry(node: Node, batched: Sequence[bool]) -> bool:
    """The same, but what else the node tells counts over all entries."""
    return batched[0] and not any(output.name for output in node.outputs[1:])


def along_axis(node: Node, batched: Sequence[bool]) -> bool:
    """It works along one axis, which is not the first."""
    axis = operand(node, "axis")
    return batched[0] and axis is not None and int(axis) % _rank(node.outputs[0]) != 0


def along_axes(node: Node, batched: Sequence[bool]) -> bool:
    """It works along axes that are known, the first not among them."""
    axes = operand(node, "axes")
    return batched[0] and bool(axes) and all(int(axis) % _rank(node.inputs[0]) for axis in axes)


def in_order(node: Node, batched: Sequence[bool]) -> bool:
    """It gives axes another order, and the first stays."""
    return (operand(node, "perm") or [None])[0] == 0


def by_row(node: Node, batched: Sequence[bool]) -> bool:
    """Rows or matrices of the first operand, times the same matrix or each its own."""
    first, second = _rank(node.inputs[0]), _rank(node.inputs[1])
    if not batched[0] or first < 2 or operand(node, "transA"):
        return False
    return first == second >= 3 if batched[1] else second == 2 and not any(batched[2:])


def _rank(value: Value | None) -> int:
    shape = value.type.shape if value is not None and isinstance(value.type, TensorType) else None
    return 0 if shape is None else len(shape)


@dataclass(frozen=True)
class Facts:
    """What is true of an op in a range of its versions."""

    elementwise: Operands = Operands.NONE
    """Which operands it takes element by element: the first, with settings beside it, or all, broadcast to the result's shape."""
    commutative: bool = False
    """Two operands may stand in either order."""
    reshapes: bool = False
    """The result is the first operand's elements in their order; nothing but the shape differs."""
    moves: bool = False
    """The elements of the result are such of the first operand, at which it does not look."""
    reads_shapes: bool = False
    """It reads shapes, and no elements."""
    precision: Callable[[Node], Precision] = _rounds
    """What it does with floating-point numbers. What `moves` is exact, and what `reads_shapes` is blind: they need not say so."""
    has_layout: bool = False
    """The second axis of its first operand and of its first output is that of the channels; a provider may want them last."""
    takes_any_data: Callable[[Node], bool] = never
    """Whether it cannot fail once types and shapes fit."""
    non_negative: Needs = _unknown
    """When no number of its first output is below zero; NaN counts as not below."""
    rows: Rows = _together
    """Whether entries of a batch, the first axis, are treated by themselves."""

    def is_exact(self, node: Node) -> bool:
        """Whether it rounds nothing."""
        return self.moves or self.precision(node) is Precision.EXACT

    def is_blind(self, node: Node) -> bool:
        """Whether rounded operands make no difference to it."""
        return self.reads_shapes or self.precision(node) is Precision.BLIND

    def is_bound_to_type(self, node: Node) -> bool:
        """Whether another type in place of its operands' changes what it means."""
        return self.precision(node) is Precision.BOUND


NO_FACTS = Facts()
