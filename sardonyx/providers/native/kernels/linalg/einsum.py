"""Einsum: a view of an operand, a product of elements, a batched matrix product, or a sum over some axes, whatever the equation says.

Axes are known by their labels. What has rows, columns and something to sum over is a matrix product, whose batch axes are those that both
operands have, and those that stand before them in the result. All else is a product of elements, folded along the axes that are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.types import Type
from sardonyx.errors import InferenceError
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.einsum import parse_equation
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.linalg.matmul import Factor, packed_factor, tiled_product, viewed_factor
from sardonyx.providers.native.kernels.linalg.packing import packed_weights
from sardonyx.providers.native.kernels.reduction.kernels import Reduction
from sardonyx.providers.native.kernels.reduction.operators import fold_steps
from sardonyx.providers.native.program.chain import Apply, Chain, Item, Load, pattern, stride_arguments
from sardonyx.providers.native.program.chain_lowering import Source
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, stored
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides, grouped_shape, regrouped
from sardonyx.providers.scalars.table import name_of, newest_scalar
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass, replace

Labels = tuple[str, ...]
Groups = tuple[Labels, ...]


@dataclass(frozen=True)
class Equation:
    """Labels of the operands' axes and of the result's, and the size that each stands for."""

    operands: tuple[Labels, ...]
    output: Labels
    sizes: dict[str, Dim]

    @property
    def summed(self) -> Labels:
        return tuple(label for label in self.sizes if label not in self.output)


def equation_of(node: Node) -> Equation | None:
    """None if the equation does not fit its operands."""
    shapes = [dims(required(value)) for value in node.inputs]
    try:
        labels, output = parse_equation(str(operand(node, "equation")), [len(shape) for shape in shapes])
    except InferenceError:
        return None
    sizes: dict[str, Dim] = {}
    for own, shape in zip(labels, shapes):
        for label, size in zip(own, shape):
            known = sizes.get(label, 1)
            if isinstance(known, int) and isinstance(size, int) and 1 not in (known, size) and known != size:
                return None
            if known == 1 or (isinstance(size, int) and size != 1):
                sizes[label] = size
    return Equation(tuple(labels), output, sizes)


def claims_einsum(node: Node) -> bool:
    """Numbers of one type; sums of products of more than two operands are left to NumPy, which finds a good order."""
    types = {element_of(value) for value in (*node.inputs, *node.outputs) if value is not None}
    type = types.pop()
    if types or type is None or type.kind == "bool" or any(value is None for value in node.inputs):
        return False
    equation = equation_of(node)
    return equation is not None and (len(node.inputs) <= 2 or not equation.summed)


class Term:
    """An operand as axes with different labels, the diagonal of those that had equal ones. It is repeated along all others."""

    def __init__(self, lowerer: Lowerer, value: Value, labels: Labels, sizes: dict[str, Dim]):
        self.lowerer = lowerer
        self.value = value
        self.all_labels = labels
        self.sizes = sizes
        for label, size in self._real_axes():
            lowerer.require(size, sizes[label])
        self.labels: Labels = tuple(dict.fromkeys(label for label, _ in self._real_axes()))

    def _real_axes(self) -> list[tuple[str, Dim]]:
        """Axes along which the operand is not repeated."""
        return [(label, size) for label, size in zip(self.all_labels, dims(self.value)) if size != 1 or self.sizes[label] == 1]

    @cached_property
    def view(self) -> View:
        """Asked for late: a constant that is packed is not needed as it is."""
        view = self.lowerer.view(self.value)
        steps: dict[str, Dim] = dict.fromkeys(self.labels, 0)
        for label, size, stride in zip(self.all_labels, view.shape, view.strides):
            if size != 1:
                steps[label] = steps[label] + stride
        return replace(view, shape=tuple(self.sizes[label] for label in self.labels), strides=tuple(steps.values()))

    @property
    def is_packable(self) -> bool:
        """Whether it is a constant that can be packed now."""
        return self.lowerer.can_pack(self.value) and len(self._real_axes()) == len(self.labels)

    def strides_along(self, labels: Sequence[str]) -> list[Dim]:
        steps = dict(zip(self.labels, self.view.strides))
        return [steps.get(label, 0) for label in labels]

    def shape_of(self, groups: Groups) -> Dims:
        return tuple(dim.product(self.sizes[label] for label in group if label in self.labels) for group in groups)

    def arranged(self, groups: Groups) -> View | None:
        """With an axis for each group of labels, of size 1 if it has none of them; None if the axes of a group don't step evenly."""
        return _regrouped(self.view.transposed([self.labels.index(label) for label in self._own(groups)]), self._counts(groups))

    def copied(self, groups: Groups) -> View:
        """The same in memory of its own."""
        view = self.view.transposed([self.labels.index(label) for label in self._own(groups)])
        memory = self.lowerer.scratch(dim.product(view.shape) * view.type.bytes)
        copied = View(memory, view.type, view.shape, contiguous_strides(view.shape))
        self.lowerer.copy(view, copied)
        regrouped = _regrouped(copied, self._counts(groups))
        assert regrouped is not None
        return regrouped

    def array(self, array: np.ndarray, groups: Groups) -> np.ndarray:
        """A constant with an axis for each group."""
        real = [size for size, label in zip(array.shape, self.all_labels) if size != 1 or self.sizes[label] == 1]
        ordered = array.reshape(real).transpose([self.labels.index(label) for label in self._own(groups)])
        shape: list[Any] = list(self.shape_of(groups))
        return ordered.reshape(shape)

    def _own(self, groups: Groups) -> list[str]:
        return [label for group in groups for label in group if label in self.labels]

    def _counts(self, groups: Groups) -> list[int]:
        return [sum(label in self.labels for label in group) for group in groups]


def _regrouped(view: View, counts: Sequence[int]) -> View | None:
    strides = regrouped(view.shape, view.strides, counts)
    return None if strides is None else replace(view, shape=grouped_shape(view.shape, counts), strides=strides)


@lower("Einsum", claims=claims_einsum)
def einsum(lowerer: Lowerer, node: Node) -> None:
    """What is left of an equation once labels tell its axes apart."""
    equation = equation_of(node)
    assert equation is not None
    terms = [Term(lowerer, required(value), own, equation.sizes) for value, own in zip(node.inputs, equation.operands)]
    plan = _product_of(equation, terms) if len(terms) == 2 else None
    if not equation.summed:
        _without_sums(lowerer, node, equation, terms)
    elif plan is None:
        _folded(lowerer, node, equation, terms)
    else:
        _multiply(lowerer, node, plan)


# --- nothing is summed ----------------------------------------------------------------------------------------------


def _without_sums(lowerer: Lowerer, node: Node, equation: Equation, terms: Sequence[Term]) -> None:
    """One operand looked at in another way, or several multiplied element by element."""
    shape = tuple(equation.sizes[label] for label in equation.output)
    views = [replace(term.view, shape=shape, strides=tuple(term.strides_along(equation.output))) for term in terms]
    if len(views) == 1:
        lowerer.set_view(node.outputs[0], views[0])
        return
    target = lowerer.output(node.outputs[0])
    items: list[Item] = [Load(view.type, ()) for view in views]
    lowerer.combine(_multiplied(items, target.type), views, target)


def _multiplied(loads: Sequence[Item], type: Type) -> list[Item]:
    """Loads and their product, in the type that is computed with."""
    items = list(loads)
    multiply, last = name_of(newest_scalar("Mul")), 0
    for number in range(1, len(loads)):
        items.append(Apply(multiply, (last, number), type.computed))
        last = len(items) - 1
    return items


# --- sums of products of elements -----------------------------------------------------------------------------------


@dataclass
class _Run:
    """Neighbouring axes that are all kept or all summed, and that every operand steps evenly through."""

    kind: str
    size: Dim
    strides: list[Dim]
    count: int = 1


def _folded(lowerer: Lowerer, node: Node, equation: Equation, terms: Sequence[Term]) -> None:
    """All elements of the result and of the sums, in the order in which the operand with most axes lies in memory."""
    labels = _order_of_loops(equation, terms)
    runs = _runs(equation, terms, labels)
    loads = [Load(term.view.type, pattern([run.strides[n] for run in runs])) for n, term in enumerate(terms)]
    arguments: list[Argument] = []
    for number, term in enumerate(terms):
        arguments += stride_arguments(term.view, [run.strides[number] for run in runs])
    type = stored(node.outputs[0])
    source = Source(Chain(len(runs), tuple(_multiplied(loads, type)), ()), arguments)
    kept = [label for label in labels if label in equation.output]
    order = [equation.output.index(label) for label in kept]
    groups = [run.count for run in runs if run.kind == "K"] or [0]
    sink = lowerer.sink(node, groups, order=None if order == sorted(order) else order)
    kinds = "".join(run.kind for run in runs)
    reduction = Reduction("Sum", "add", type.computed, kinds, source.chain, sink.chain)
    fold_steps(lowerer, reduction, source, sink, [run.size for run in runs])


def _order_of_loops(equation: Equation, terms: Sequence[Term]) -> list[str]:
    """The order in which the operand with most axes lies in memory. Axes of one element stand where they disturb no other."""
    sizes, output = equation.sizes, equation.output
    largest = max(terms, key=lambda term: sum(sizes[label] != 1 for label in term.labels))
    order = [label for label in dict.fromkeys([*largest.labels, *sizes]) if sizes[label] != 1]
    place = 0
    for label in output:
        place = order.index(label) + 1 if label in order else place
        if label not in order:
            order.insert(place, label)
            place += 1
    rest = [label for label in sizes if label not in order]
    return [*rest, *order]


def _runs(equation: Equation, terms: Sequence[Term], labels: Sequence[str]) -> list[_Run]:
    runs: list[_Run] = []
    steps = [term.strides_along(labels) for term in terms]
    for label, *strides in zip(labels, *steps):
        kind, size = "K" if label in equation.output else "R", equation.sizes[label]
        before = runs[-1] if runs else None
        if before and before.kind == kind and (1 in (before.size, size) or _is_even(before.strides, strides, size)):
            before.strides = before.strides if size == 1 else strides
            before.size, before.count = before.size * size, before.count + 1
        else:
            runs.append(_Run(kind, size, strides))
    return runs


def _is_even(outer: Sequence[Dim], inner: Sequence[Dim], size: Dim) -> bool:
    return all(a == b * size for a, b in zip(outer, inner))


# --- matrix products ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """Which axes of both factors and of the result are what in a batched matrix product."""

    left: Term
    right: Term
    batch: Labels
    rows: Labels
    columns: Labels
    summed: Labels
    order: tuple[int, ...] | None
    """How the result's axes lie in memory, if not as they are."""


def _product_of(equation: Equation, terms: Sequence[Term]) -> _Product | None:
    """None if there are no rows, no columns, nothing that both factors are summed over, or something that only one is."""
    left, right = terms
    summed = tuple(label for label in left.labels if label in right.labels and label not in equation.output)
    left_only = [label for label in left.labels if label not in right.labels]
    other = [label for label in right.labels if label not in left.labels]
    if (
        not summed
        or set(equation.summed) - set(summed)
        or not all(_has_many(equation, labels) for labels in (left_only, other))
    ):
        return None
    kinds = "".join("R" if label in left_only else "C" if label in other else "B" for label in equation.output)
    start = _first_of_tail(kinds)
    if start is None:
        by_kind = [[label for label, kind in zip(equation.output, kinds) if kind == wanted] for wanted in "BRC"]
        order = tuple(equation.output.index(label) for group in by_kind for label in group)
        batch, rows, columns = (tuple(group) for group in by_kind)
        return _Product(left, right, batch, rows, columns, summed, order)
    tail = equation.output[start:]
    rows, columns = (tuple(label for label in tail if label in own) for own in (left_only, other))
    if kinds[start] == "C":
        left, right, rows, columns = right, left, columns, rows
    return _Product(left, right, equation.output[:start], rows, columns, summed, None)


def _has_many(equation: Equation, labels: Sequence[str]) -> bool:
    return any(equation.sizes[label] != 1 for label in labels)


def _first_of_tail(kinds: str) -> int | None:
    """Where the axes of a result begin that are rows and then columns, or the other way round; None if one of both is missing."""
    for start in range(len(kinds)):
        tail = kinds[start:]
        halves = tail.lstrip(tail[0])
        if "B" not in tail and halves and not halves.strip(halves[0]):
            return start
    return None


def _multiply(lowerer: Lowerer, node: Node, plan: _Product) -> None:
    batch = tuple((label,) for label in plan.batch)
    summed = _order_of_sum(plan, batch)
    lefts, rights = (*batch, plan.rows, summed), (*batch, summed, plan.columns)
    a = plan.left.arranged(lefts) or plan.left.copied(lefts)
    sizes = tuple(plan.left.sizes[label] for label in plan.batch)
    right, shape = plan.right, plan.right.shape_of(rights)

    def factor(width: int, is_once: bool) -> Factor:
        if right.is_packable:
            key = ("einsum", right.all_labels, rights)
            packed = packed_weights(lowerer, right.value, key, lambda array: right.array(array, rights), a.type, width)
            return packed_factor(shape, packed, sizes, width)
        return viewed_factor(lowerer, right.arranged(rights) or right.copied(rights), sizes, width, is_once)

    groups = (len(plan.batch), len(plan.rows), len(plan.columns))
    tiled_product(lowerer, node, a, shape, sizes, factor, groups, order=plan.order)


def _order_of_sum(plan: _Product, batch: Groups) -> Labels:
    """The axes that are summed, in an order in which neither factor must be copied, if there is one."""
    orders = [tuple(label for label in term.labels if label in plan.summed) for term in (plan.left, plan.right)]
    for summed in orders:
        is_left_fit = plan.left.arranged((*batch, plan.rows, summed)) is not None
        if is_left_fit and (plan.right.is_packable or plan.right.arranged((*batch, summed, plan.columns)) is not None):
            return summed
    return orders[0]
