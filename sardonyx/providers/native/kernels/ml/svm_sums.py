"""Kernels between rows and support vectors, and sums of them: the step with which SVMClassifier and SVMRegressor begin. `svm` adds it.

Few sums are made with a column of weights each. The pairs of many classes share their sums: what the vectors of one class say for it
against each other one is summed once, and a pair's score is one such number of both its classes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.compiler import math
from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.powers import pow
from sardonyx.compiler.types import F32, I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.cpu.ml.svm import duel_weights
from sardonyx.providers.native.kernels.ml.scores import Scores
from sardonyx.providers.native.program.arguments import Arguments, Pointer, ScratchSlotArguments, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import ScratchSlots
from sardonyx.providers.native.program.values import shape_of
from sardonyx.startup.records import dataclass

ROWS = 4
"""How many rows are computed together."""
FEW_CLASSES = 6
"""So many have no more pairs than a vector has lanes: sums by pair are fewer instructions than sums by class."""
MAX_SUMS = FEW_CLASSES * (FEW_CLASSES - 1) // 2
"""They are kept on the stack."""
MAX_PRODUCTS = 8
"""Up to this degree powers are products."""
PRODUCTS_PER_PIECE = 100_000
_weights_of_pairs: Callable[..., np.ndarray] = duel_weights


@dataclass(frozen=True)
class SupportSpec:
    input: Type
    kernel: str
    degree: int
    """Of a polynomial, if it is a small whole number; else 0."""
    selects: bool = False
    """Whether weights that are NaN stand for vectors that do not count: 0 times an infinity would be NaN."""


def features_of(node: Node, count: int) -> int:
    """How many features rows have; where that is open, as many as each of `count` support vectors."""
    assert node.inputs[0] is not None
    columns = (shape_of(node.inputs[0]) or (0,))[-1]
    return columns if isinstance(columns, int) else len(all_attributes(node).get("support_vectors") or ()) // max(1, count)


def whole_sums(lowerer: Lowerer, node: Node, attributes: dict[str, Any]) -> Scores:
    """Add the step that sums the kernels of each row, each with its vector's weight."""
    weights = np.asarray(attributes["coefficients"][: attributes["n_supports"]], np.float32)[:, None]
    return _sums(lowerer, node, attributes, weights, np.asarray(attributes["rho"][:1], np.float32))


def pair_sums(lowerer: Lowerer, node: Node, attributes: dict[str, Any]) -> Scores:
    """Add the step that computes for each row the scores of all pairs of classes."""
    sizes = attributes["vectors_per_class"]
    rho = np.asarray(attributes["rho"][: len(sizes) * (len(sizes) - 1) // 2], np.float32)
    if len(sizes) > FEW_CLASSES:
        return _sums_by_class(lowerer, node, attributes, sizes, rho)
    weights = _weights_of_pairs(attributes["coefficients"], sizes, absent=np.nan)
    return _sums(lowerer, node, attributes, weights, rho)


# --- rows and vectors


class SupportArguments(Arguments):
    """Rows, and the vectors with which they are compared."""

    X: Pointer
    rows: Size
    features: Size
    vectors: Pointer
    """[features, padded]"""
    count: Size
    """How many support vectors there are."""
    padded: Size
    """The same, filled up to whole vectors of the CPU."""
    parameters: Pointer
    """Gamma, coef0 and degree."""


def _support(
    lowerer: Lowerer, node: Node, attributes: dict[str, Any], count: int, selects: bool = False
) -> tuple[Dim, SupportArguments, SupportSpec]:
    """How many rows there are, what kernels know of them, and what shapes the code."""
    assert node.inputs[0] is not None
    X = lowerer.contiguous(node.inputs[0])
    rows: Dim = (1, *X.shape)[-2]
    for value in node.outputs:
        lowerer.require((shape_of(value) or (0,))[0], rows)
    features, lanes = features_of(node, count), lowerer.target.lanes(F32)
    lowerer.require(X.shape[-1], features)
    padded = -(-count // lanes) * lanes
    vectors = np.zeros((features, padded), np.float32)
    vectors[:, :count] = np.asarray(attributes["support_vectors"], np.float32).reshape(count, features).T
    parameters = np.asarray([*(attributes.get("kernel_params") or ()), 0.0, 0.0, 0.0][:3], np.float32)
    arguments = SupportArguments(
        X=X.place,
        rows=rows,
        features=features,
        vectors=lowerer.table(vectors),
        count=count,
        padded=padded,
        parameters=lowerer.constant(parameters),
    )
    return rows, arguments, SupportSpec(X.type, attributes["kernel_type"], _whole_degree(parameters), selects)


def _whole_degree(parameters: np.ndarray) -> int:
    degree = float(parameters[2])
    return int(degree) if degree in range(1, MAX_PRODUCTS + 1) else 0


class _Support:
    """The code that computes kernels of some rows with a vector of support vectors."""

    def __init__(self, f: KernelFunction, a: SupportArguments, spec: SupportSpec):
        self.f = f
        self.a = a
        self.spec = spec
        self.lanes = f.lanes(F32)
        self.parameters = [f.splat(f.load(a.parameters, place, F32), self.lanes) for place in range(3)]

    def starts(self, item: Value) -> list[Value]:
        """Where the features of the rows of an item begin; rows behind the last one are like it."""
        f, a = self.f, self.a
        rows = [f.minimum(item * ROWS + row, a.rows - 1) for row in range(ROWS)]
        return [f.address(a.X, row * a.features, self.spec.input) for row in rows]

    def values(self, starts: Sequence[Value], column: Value) -> list[Value]:
        """The kernels of each row with the support vectors from `column` on; 0 behind the last one."""
        f, a = self.f, self.a
        totals = [f.variable(f.const(F32.vector(self.lanes), 0.0)) for _ in starts]
        with f.loop(0, a.features) as feature:
            vector = f.load(a.vectors, feature * a.padded + column, F32, self.lanes)
            for start, total in zip(starts, totals):
                self._add_feature(total, f.splat(f.convert(f.load(start, feature, self.spec.input), F32), self.lanes), vector)
        there = f.first_lanes(a.count - column, self.lanes)
        return [f.select(there, self._value(total.get()), 0.0) for total in totals]

    def _add_feature(self, total: Variable, x: Value, vector: Value) -> None:
        """One feature's part of a product or, for RBF, of a squared distance."""
        if self.spec.kernel == "RBF":
            x = vector = x - vector
        total.set(self.f.fma(x, vector, total.get()))

    def _value(self, total: Value) -> Value:
        gamma, coef0, degree = self.parameters
        if self.spec.kernel == "RBF":
            return math.exp(-gamma * total)
        if self.spec.kernel == "POLY":
            base = gamma * total + coef0
            return functools.reduce(operator.mul, [base] * self.spec.degree) if self.spec.degree else pow(base, degree)
        return math.tanh(gamma * total + coef0) if self.spec.kernel == "SIGMOID" else total


# --- sums with columns of weights


class SumArguments(Arguments):
    support: SupportArguments
    weights: Pointer
    """[sums, padded]"""
    sums: Size
    """How many a row has."""
    rho: Pointer
    """What is added to each sum."""
    scores: Pointer


def _sums(lowerer: Lowerer, node: Node, attributes: dict[str, Any], weights: np.ndarray, rho: np.ndarray) -> Scores:
    """Add the step that sums the kernels of each row with columns of weights."""
    count, sums = weights.shape
    rows, support, spec = _support(lowerer, node, attributes, count, selects=bool(np.isnan(weights).any()))
    table = np.zeros((sums, support.padded), np.float32)
    table[:, :count] = weights.T
    place = lowerer.scratch(dim.ceildiv(rows, ROWS) * (ROWS * sums * 4))
    arguments = SumArguments(support=support, weights=lowerer.table(table), sums=sums, rho=lowerer.constant(rho), scores=place)
    features = features_of(node, count)
    work = max(1, (features + sums + 8) * count * ROWS)
    lowerer.call(
        sum_kernel(lowerer.target, spec),
        arguments,
        dim.ceildiv(rows, ROWS),
        max(1, PRODUCTS_PER_PIECE // work),
        flops=rows * (2 * (features + sums) * count),
        traffic=rows * (features * spec.input.bytes + sums * 4),
    )
    return Scores(place=place, stride=sums, rows=rows, count=sums)


@kernel("support vectors", SumArguments)
def sum_kernel(f: KernelFunction, a: SumArguments, spec: SupportSpec) -> None:
    """Items are groups of `ROWS` rows. Sums stand on the stack, a vector for each."""
    support, lanes = _Support(f, a.support, spec), f.lanes(F32)
    parts = f.stack(F32, MAX_SUMS * ROWS * lanes)
    with f.loop(f.begin, f.end) as item:
        starts = support.starts(item)
        with f.loop(0, a.sums * ROWS) as part:
            f.store(f.const(F32.vector(lanes), 0.0), parts, part * lanes, F32)
        with f.loop(0, a.support.padded, lanes) as column:
            values = support.values(starts, column)
            with f.loop(0, a.sums) as number:
                weight = f.load(a.weights, number * a.support.padded + column, F32, lanes)
                for row, value in enumerate(values):
                    place = (number * ROWS + row) * lanes
                    before = f.load(parts, place, F32, lanes)
                    after = f.fma(value, weight, before)
                    f.store(f.select(f.is_nan(weight), before, after) if spec.selects else after, parts, place, F32)
        with f.loop(0, a.sums) as number:
            for row in range(ROWS):
                whole = f.reduce("add", f.load(parts, (number * ROWS + row) * lanes, F32, lanes))
                f.store(whole + f.load(a.rho, number, F32), a.scores, (item * ROWS + row) * a.sums + number, F32)


# --- sums by class


class ClassSumArguments(Arguments):
    support: SupportArguments
    weights: Pointer
    """[count, width]: those of each vector against each other class."""
    width: Size
    """How many other classes there are, filled up to whole vectors of the CPU."""
    begins: Pointer
    """The first vector of each class, and behind them how many there are."""
    classes: Size
    rho: Pointer
    """What is added to the score of each pair."""
    scratch: Pointer
    slots: ScratchSlotArguments
    scores: Pointer


def _sums_by_class(lowerer: Lowerer, node: Node, attributes: dict[str, Any], sizes: Sequence[int], rho: np.ndarray) -> Scores:
    """Add the step that sums for each class the kernels of its vectors with their weights against each other class."""
    classes, count = len(sizes), sum(sizes)
    rows, support, spec = _support(lowerer, node, attributes, count)
    lanes, others = lowerer.target.lanes(F32), classes - 1
    width = -(-others // lanes) * lanes
    weights = np.zeros((count, width), np.float32)
    weights[:, :others] = np.asarray(attributes["coefficients"][: others * count], np.float32).reshape(others, count).T
    features, pairs = features_of(node, count), len(rho)
    work = (features + width + 8) * count * ROWS
    slots = ScratchSlots(dim.ceildiv(rows, ROWS), max(1, PRODUCTS_PER_PIECE // work))
    place = lowerer.scratch(rows * (pairs * 4))
    arguments = ClassSumArguments(
        support=support,
        weights=lowerer.table(weights),
        width=width,
        begins=lowerer.constant(np.array([0, *np.cumsum(sizes)], np.int64)),
        classes=classes,
        rho=lowerer.constant(rho),
        scratch=lowerer.scratch(_scratch_elements(support.padded, classes, width) * 4 * slots.count),
        slots=slots.arguments,
        scores=place,
    )
    lowerer.call(
        class_sum_kernel(lowerer.target, spec),
        arguments,
        slots.items,
        slots.grain,
        flops=rows * (2 * (features + others) * count),
        traffic=rows * (features * spec.input.bytes + pairs * 4),
    )
    return Scores(place=place, stride=pairs, rows=rows, count=pairs)


def _scratch_elements(padded: Any, classes: Any, width: Any) -> Any:
    """What the rows of an item need: their kernels, then their sums."""
    return (padded + classes * width) * ROWS


@kernel("support vectors by class", ClassSumArguments)
def class_sum_kernel(f: KernelFunction, a: ClassSumArguments, spec: SupportSpec) -> None:
    """Items are groups of `ROWS` rows."""
    _ClassSums(f, a, spec).emit()


class _ClassSums:
    """Kernels [row, vector], and sums [row, class, other class] of them."""

    def __init__(self, f: KernelFunction, a: ClassSumArguments, spec: SupportSpec):
        self.f = f
        self.a = a
        self.support = _Support(f, a.support, spec)
        self.lanes = f.lanes(F32)
        first = f.scratch_slot(a.slots) * _scratch_elements(a.support.padded, a.classes, a.width)
        self.kernels = f.address(a.scratch, first, F32)
        self.sums = f.address(self.kernels, a.support.padded * ROWS, F32)

    def emit(self) -> None:
        f, a = self.f, self.a
        pairs = (a.classes * (a.classes - 1)) // 2
        with f.loop(f.begin, f.end) as item:
            starts = self.support.starts(item)
            with f.loop(0, a.support.padded, self.lanes) as column:
                for row, value in enumerate(self.support.values(starts, column)):
                    f.store(value, self.kernels, a.support.padded * row + column, F32)
            with f.loop(0, a.classes) as number, f.loop(0, a.width, self.lanes) as other:
                self._sum(number, other)
            with f.loop(0, f.minimum(a.support.rows - item * ROWS, ROWS)) as number:
                self._write_pairs(number, f.address(a.scores, (item * ROWS + number) * pairs, F32))

    def _sum(self, number: Value, other: Value) -> None:
        """What the vectors of one class say against a vector of others, for all rows."""
        f, a = self.f, self.a
        totals = [f.variable(f.const(F32.vector(self.lanes), 0.0)) for _ in range(ROWS)]
        with f.loop(f.load(a.begins, number, I64), f.load(a.begins, number + 1, I64)) as vector:
            weight = f.load(a.weights, vector * a.width + other, F32, self.lanes)
            for row, total in enumerate(totals):
                value = f.load(self.kernels, a.support.padded * row + vector, F32)
                total.set(f.fma(f.splat(value, self.lanes), weight, total.get()))
        for row, total in enumerate(totals):
            f.store(total.get(), self.sums, (a.classes * row + number) * a.width + other, F32)

    def _write_pairs(self, row: Value, scores: Value) -> None:
        """A pair's score is what the first class has against the second, whose own place is left out, and what that one has."""
        f, a = self.f, self.a
        sums = f.address(self.sums, row * a.classes * a.width, F32)
        pair = f.variable(0, I64)
        with f.loop(0, a.classes) as number, f.loop(number + 1, a.classes, self.lanes) as other:
            left = a.classes - other
            opponents = f.minimum(f.iota(I64, self.lanes) + f.splat(other, self.lanes), f.splat(a.classes - 1, self.lanes))
            places = opponents * f.splat(a.width, self.lanes) + f.splat(number, self.lanes)
            own = f.load(sums, number * a.width + other - 1, F32, self.lanes, remaining=left)
            rho = f.load(a.rho, pair.get(), F32, self.lanes, remaining=left)
            f.store(own + f.gather(sums, places, F32) + rho, scores, pair.get(), F32, remaining=left)
            pair.set(pair.get() + f.minimum(left, self.lanes))
