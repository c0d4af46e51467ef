"""SVMClassifier and SVMRegressor of ai.onnx.ml: kernels between rows and support vectors, summed at once; then votes and probabilities."""

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
from sardonyx.providers.native.kernels.ml.scores import TRANSFORMS, Scores, ScoreSpec, finish_scores, logistic
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import fixed, shape_of
from sardonyx.startup.records import dataclass

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
ROWS = 4
"""How many rows are computed together."""
MAX_SUMS = 276
"""How many sums a row may have: they are kept on the stack."""
MAX_CLASSES = 24
"""So that there are no more pairs of them than that."""
MAX_PRODUCTS = 8
"""Up to this degree powers are products."""
PRODUCTS_PER_PIECE = 100_000
ITERATIONS = 100
_weights_of_pairs: Callable[..., np.ndarray] = duel_weights
TOLERANCE = 0.005
"""When probabilities are good enough, divided by the number of classes: as libsvm has it."""


@dataclass(frozen=True)
class SupportSpec:
    input: Type
    kernel: str
    degree: int
    """Of a polynomial, if it is a small whole number; else 0."""
    selects: bool = False
    """Whether weights that are NaN stand for vectors that do not count: 0 times an infinity would be NaN."""


def _claims(node: Node) -> bool:
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    attributes = all_attributes(node)
    if (
        shape is None
        or len(shape) not in (1, 2)
        or not isinstance(shape[-1], int)
        or not all(output.name for output in node.outputs)
    ):
        return False
    return attributes["kernel_type"] in KERNELS and attributes["post_transform"] in TRANSFORMS


def _claims_regressor(node: Node) -> bool:
    attributes = all_attributes(node)
    count = attributes.get("n_supports") or 0
    vectors, weights = attributes.get("support_vectors") or (), attributes.get("coefficients") or ()
    return (
        _claims(node) and 0 < count <= len(weights) and len(vectors) == count * _features(node) and len(attributes["rho"]) >= 1
    )


def _claims_classifier(node: Node) -> bool:
    attributes = all_attributes(node)
    sizes, labels = attributes.get("vectors_per_class") or [], attributes.get("classlabels_ints") or []
    vectors, weights, pairs = (
        attributes.get("support_vectors") or (),
        attributes.get("coefficients") or (),
        len(sizes) * (len(sizes) - 1) // 2,
    )
    if len(node.outputs) != 2 or not _claims(node) or not 2 <= len(sizes) == len(labels) <= MAX_CLASSES or min(sizes) < 0:
        return False
    whole = len(vectors) == sum(sizes) * _features(node) > 0 and len(weights) >= (len(sizes) - 1) * sum(sizes)
    if np.isnan(weights).any():
        return False
    chances = [attributes.get(name) or [] for name in ("prob_a", "prob_b")]
    return whole and len(attributes["rho"]) >= pairs and (not chances[0] or all(len(numbers) == pairs for numbers in chances))


def _features(node: Node) -> int:
    assert node.inputs[0] is not None
    return fixed((shape_of(node.inputs[0]) or (0,))[-1], "the number of features")


@lower("SVMRegressor", domain="ai.onnx.ml", claims=_claims_regressor)
def svm_regressor(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    weights = np.asarray(attributes["coefficients"][: attributes["n_supports"]], np.float32)[:, None]
    scores = _sums(lowerer, node, attributes, weights, np.asarray(attributes["rho"][:1], np.float32))
    output = lowerer.output(node.outputs[0])
    spec = ScoreSpec(F32, F32, output.type, sign=bool(attributes.get("one_class")))
    finish_scores(lowerer, spec, scores, output, None)


@lower("SVMClassifier", domain="ai.onnx.ml", claims=_claims_classifier)
def svm_classifier(lowerer: Lowerer, node: Node) -> None:
    """Classes are compared in pairs, and vote."""
    attributes = all_attributes(node)
    weights = _weights_of_pairs(attributes["coefficients"], attributes["vectors_per_class"], absent=np.nan)
    labels, transform = attributes["classlabels_ints"], attributes["post_transform"]
    scores = _sums(lowerer, node, attributes, weights, np.asarray(attributes["rho"][: weights.shape[1]], np.float32))
    output, second = lowerer.output(node.outputs[1]), ""
    chances = lowerer.scratch(scores.rows * (len(labels) * 4)) if attributes.get("prob_a") else None
    _duel(lowerer, node, scores, attributes, chances)
    if chances is not None:
        scores = Scores(place=chances, stride=len(labels), rows=scores.rows, count=len(labels))
    elif len(labels) == 2:
        second = "negative" if transform in ("NONE", "PROBIT") else "complement"
    finish_scores(lowerer, ScoreSpec(F32, F32, output.type, transform, second), scores, output, None)


# --- kernels and sums


def _sums(lowerer: Lowerer, node: Node, attributes: dict[str, Any], weights: np.ndarray, rho: np.ndarray) -> Scores:
    """Add the step that sums the kernels of each row with columns of weights."""
    assert node.inputs[0] is not None
    X = lowerer.contiguous(node.inputs[0])
    rows: Dim = (1, *X.shape)[-2]
    features, count, sums = _features(node), len(weights), weights.shape[1]
    for value in node.outputs:
        lowerer.require((shape_of(value) or (0,))[0], rows)
    lanes = lowerer.target.lanes(F32)
    padded = -(-count // lanes) * lanes
    vectors = np.zeros((features, padded), np.float32)
    vectors[:, :count] = np.asarray(attributes["support_vectors"], np.float32).reshape(count, features).T
    table = np.zeros((sums, padded), np.float32)
    table[:, :count] = weights.T
    place = lowerer.scratch(dim.ceildiv(rows, ROWS) * (ROWS * sums * 4))
    parameters = np.asarray([*(attributes.get("kernel_params") or ()), 0.0, 0.0, 0.0][:3], np.float32)
    arguments = SupportArguments(
        X=X.place,
        rows=rows,
        features=features,
        vectors=lowerer.table(vectors),
        weights=lowerer.table(table),
        count=count,
        padded=padded,
        sums=sums,
        rho=lowerer.constant(rho),
        parameters=lowerer.constant(parameters),
        scores=place,
    )
    work = max(1, (features + sums + 8) * count * ROWS)
    spec = SupportSpec(X.type, attributes["kernel_type"], _whole_degree(parameters), bool(np.isnan(weights).any()))
    lowerer.call(
        support_kernel(lowerer.target, spec),
        arguments,
        dim.ceildiv(rows, ROWS),
        max(1, PRODUCTS_PER_PIECE // work),
        flops=rows * (2 * (features + sums) * count),
        traffic=rows * (features * X.type.bytes + sums * 4),
    )
    return Scores(place=place, stride=sums, rows=rows, count=sums)


class SupportArguments(Arguments):
    X: Pointer
    rows: Size
    features: Size
    vectors: Pointer
    """[features, padded]"""
    weights: Pointer
    """[sums, padded]"""
    count: Size
    """How many support vectors there are."""
    padded: Size
    """The same, filled up to whole vectors of the CPU."""
    sums: Size
    """How many a row has."""
    rho: Pointer
    """What is added to each sum."""
    parameters: Pointer
    """Gamma, coef0 and degree."""
    scores: Pointer


@kernel("support vectors", SupportArguments)
def support_kernel(f: KernelFunction, a: SupportArguments, spec: SupportSpec) -> None:
    """Items are groups of `ROWS` rows; those behind the last row are like it. Sums stand on the stack, a vector for each."""
    lanes = f.lanes(F32)
    parameters = [f.splat(f.load(a.parameters, place, F32), lanes) for place in range(3)]
    parts = f.stack(F32, MAX_SUMS * ROWS * lanes)
    with f.loop(f.begin, f.end) as item:
        rows = [f.minimum(item * ROWS + row, a.rows - 1) for row in range(ROWS)]
        starts = [f.address(a.X, row * a.features, spec.input) for row in rows]
        with f.loop(0, a.sums * ROWS) as part:
            f.store(f.const(F32.vector(lanes), 0.0), parts, part * lanes, F32)
        with f.loop(0, a.padded, lanes) as column:
            values = _kernel_values(f, a, spec, starts, column, parameters)
            with f.loop(0, a.sums) as number:
                weight = f.load(a.weights, number * a.padded + column, F32, lanes)
                for row, value in enumerate(values):
                    place = (number * ROWS + row) * lanes
                    before = f.load(parts, place, F32, lanes)
                    after = f.fma(value, weight, before)
                    f.store(f.select(f.is_nan(weight), before, after) if spec.selects else after, parts, place, F32)
        with f.loop(0, a.sums) as number:
            for row in range(ROWS):
                whole = f.reduce("add", f.load(parts, (number * ROWS + row) * lanes, F32, lanes))
                f.store(whole + f.load(a.rho, number, F32), a.scores, (item * ROWS + row) * a.sums + number, F32)


def _kernel_values(
    f: KernelFunction, a: SupportArguments, spec: SupportSpec, starts: Sequence[Value], column: Value, parameters: list[Value]
) -> list[Value]:
    """For each row, whose features begin at `starts`, its kernels with a vector of support vectors from `column` on."""
    lanes = f.lanes(F32)
    totals = [f.variable(f.const(F32.vector(lanes), 0.0)) for _ in starts]
    with f.loop(0, a.features) as feature:
        vector = f.load(a.vectors, feature * a.padded + column, F32, lanes)
        for start, total in zip(starts, totals):
            x = f.splat(f.convert(f.load(start, feature, spec.input), F32), lanes)
            _add_feature(f, total, x, vector, spec.kernel)
    there = f.first_lanes(a.count - column, lanes)
    return [f.select(there, _kernel_value(total.get(), parameters, spec), 0.0) for total in totals]


def _add_feature(f: KernelFunction, total: Variable, x: Value, vector: Value, kernel: str) -> None:
    """One feature's part of a product or, for RBF, of a squared distance."""
    if kernel == "RBF":
        x = vector = x - vector
    total.set(f.fma(x, vector, total.get()))


def _kernel_value(total: Value, parameters: list[Value], spec: SupportSpec) -> Value:
    gamma, coef0, degree = parameters
    if spec.kernel == "RBF":
        return math.exp(-gamma * total)
    if spec.kernel == "POLY":
        base = gamma * total + coef0
        return functools.reduce(operator.mul, [base] * spec.degree) if spec.degree else pow(base, degree)
    return math.tanh(gamma * total + coef0) if spec.kernel == "SIGMOID" else total


def _whole_degree(parameters: np.ndarray) -> int:
    degree = float(parameters[2])
    return int(degree) if degree in range(1, MAX_PRODUCTS + 1) else 0


# --- votes and probabilities


def _duel(lowerer: Lowerer, node: Node, scores: Scores, attributes: dict[str, Any], chances: Buffer | None) -> None:
    """Add the step that counts votes for labels and, if it is given a place for them, computes probabilities."""
    label = lowerer.output(node.outputs[0])
    labels = np.asarray(attributes["classlabels_ints"], np.int64)
    sigmoids = None
    if chances is not None:
        sigmoids = lowerer.constant(np.stack([np.asarray(attributes[name], np.float32) for name in ("prob_a", "prob_b")]))
    arguments = DuelArguments(
        scores=scores.place,
        rows=scores.rows,
        classes=len(labels),
        label=label.place,
        labels=lowerer.constant(labels),
        sigmoids=sigmoids,
        chances=chances,
    )
    lanes = lowerer.target.lanes(F32)
    lowerer.call(duel_kernel(lowerer.target, chances is not None), arguments, dim.ceildiv(scores.rows, lanes), 8)


class DuelArguments(Arguments):
    scores: Pointer
    """For each row one of each pair of classes."""
    rows: Size
    classes: Size
    label: Pointer
    """Where the labels of all rows go."""
    labels: Pointer
    """Those of the classes."""
    sigmoids: Pointer | None = when(lambda probable: probable)
    """Slopes of all pairs, then their offsets."""
    chances: Pointer | None = when(lambda probable: probable)
    """Where probabilities go."""


@kernel("duels", DuelArguments)
def duel_kernel(f: KernelFunction, a: DuelArguments, probable: bool) -> None:
    """Items are vectors of rows; lanes behind the last row do that one again."""
    _Duels(f, a).emit()


class _Duels:
    """Votes and probabilities of as many rows as a vector has lanes, on the stack: an element for each class, or each two."""

    def __init__(self, f: KernelFunction, a: DuelArguments):
        self.f = f
        self.a = a
        self.classes = a.classes
        self.pairs = (self.classes * (self.classes - 1)) // 2
        self.lanes = f.lanes(F32)
        self.type = F32.vector(self.lanes)
        self.row = f.iota(I64, self.lanes)
        self.votes = f.stack(F32, MAX_CLASSES * self.lanes)
        self.p, self.Qp = (f.stack(F32, MAX_CLASSES * self.lanes) for _ in range(2))
        self.Q = f.stack(F32, MAX_CLASSES * MAX_CLASSES * self.lanes)

    def get(self, memory: Value, place: Value) -> Value:
        return self.f.load(memory, place * self.lanes, F32, self.lanes)

    def set(self, memory: Value, place: Value, value: Value | float) -> None:
        value = value if isinstance(value, Value) else self.f.const(self.type, value)
        self.f.store(value, memory, place * self.lanes, F32)

    def emit(self) -> None:
        f = self.f
        with f.loop(f.begin, f.end) as item:
            rows = f.iota(I64, self.lanes) + f.splat(item * self.lanes, self.lanes)
            self.row = f.minimum(rows, f.splat(self.a.rows - 1, self.lanes))
            with f.loop(0, self.classes) as number:
                self.set(self.votes, number, 0.0)
                if self.a.sigmoids is not None:
                    self.set(self.Q, number * self.classes + number, 0.0)
            pair = f.variable(0, I64)
            with f.loop(0, self.classes) as number, f.loop(number + 1, self.classes) as other:
                self._compare(number, other, pair.get())
                pair.set(pair.get() + 1)
            self._write_label()
            if self.a.chances is not None:
                self._couple(self.a.chances)

    def _compare(self, number: Value, other: Value, pair: Value) -> None:
        f, sigmoids = self.f, self.a.sigmoids
        place = self.row * f.splat(self.pairs, self.lanes) + f.splat(pair, self.lanes)
        score = f.gather(self.a.scores, place, F32)
        first = score > 0.0
        zero, vote = f.const(self.type, 0.0), f.const(self.type, 1.0)
        self.set(self.votes, number, self.get(self.votes, number) + f.select(first, vote, zero))
        self.set(self.votes, other, self.get(self.votes, other) + f.select(first, zero, vote))
        if sigmoids is not None:
            slope, offset = (f.splat(f.load(sigmoids, place, F32), self.lanes) for place in (pair, pair + self.pairs))
            with f.exact():
                self._remember(number, other, 1.0 - logistic(score * slope + offset))

    def _remember(self, number: Value, other: Value, won: Value) -> None:
        """What a pair adds to Q: products of both chances beside the diagonal, and on it the squares of a class's opponents."""
        low, high = float(np.float32(1e-7)), float(np.float32(1 - 1e-7))
        won = math.within(low, won, high)
        lost = 1.0 - won
        for row, column in ((number, other), (other, number)):
            self.set(self.Q, row * self.classes + column, -(won * lost))
        for place, chance in ((number, lost), (other, won)):
            diagonal = place * self.classes + place
            self.set(self.Q, diagonal, self.get(self.Q, diagonal) + chance * chance)

    def _write_label(self) -> None:
        f = self.f
        best = f.variable(f.const(self.type, -1.0))
        winner = f.variable(f.const(I64.vector(self.lanes), 0))
        with f.loop(0, self.classes) as number:
            votes = self.get(self.votes, number)
            better = votes > best.get()
            best.set(f.select(better, votes, best.get()))
            winner.set(f.select(better, f.splat(number, self.lanes), winner.get()))
        f.scatter(f.gather(self.a.labels, winner.get(), I64), self.a.label, self.row, I64)

    def _couple(self, chances: Value) -> None:
        """Class probabilities from pairwise ones: the second method of Wu, Lin and Weng, JMLR 5 (2004)."""
        f = self.f
        count = f.splat(f.convert(self.classes, F32), self.lanes)
        with f.loop(0, self.classes) as number:
            self.set(self.p, number, 1.0 / count)
        rounds = f.variable(0, I64)
        with f.while_() as improving:
            improving.leave_if(rounds.get() >= ITERATIONS)
            rounds.set(rounds.get() + 1)
            pQp = f.variable(f.const(self.type, 0.0))
            with f.loop(0, self.classes) as number:
                self.set(self.Qp, number, self._row_times_p(number))
                pQp.set(pQp.get() + self.get(self.p, number) * self.get(self.Qp, number))
            going = self._far(pQp.get(), TOLERANCE / count)
            improving.leave_if(f.reduce("max", f.select(going, f.const(self.type, 1.0), 0.0)) == 0.0)
            with f.loop(0, self.classes) as number:
                self._improve(number, pQp, going)
        with f.loop(0, self.classes) as number:
            place = self.row * f.splat(self.classes, self.lanes) + f.splat(number, self.lanes)
            f.scatter(self.get(self.p, number), chances, place, F32)

    def _row_times_p(self, row: Value) -> Value:
        total = self.f.variable(self.f.const(self.type, 0.0))
        with self.f.loop(0, self.classes) as column:
            total.set(total.get() + self.get(self.Q, row * self.classes + column) * self.get(self.p, column))
        return total.get()

    def _far(self, pQp: Value, tolerance: Value) -> Value:
        """Which rows are not good enough yet."""
        f = self.f
        error = f.variable(f.const(self.type, 0.0))
        with f.loop(0, self.classes) as number:
            mine, before = f.abs(self.get(self.Qp, number) - pQp), error.get()
            error.set(f.select((mine > before) | f.is_nan(mine), mine, before))
        return error.get() >= tolerance

    def _improve(self, number: Value, pQp: Variable, going: Value) -> None:
        """Set one class's probability to its best value; rows that are good enough keep what they have."""
        f = self.f
        own = self.get(self.Q, number * self.classes + number)
        mine = self.get(self.Qp, number)
        step = f.select(going, (pQp.get() - mine) / own, 0.0)
        grown = 1.0 + step
        pQp.set((pQp.get() + step * (step * own + 2.0 * mine)) / (grown * grown))
        self.set(self.p, number, self.get(self.p, number) + step)
        with f.loop(0, self.classes) as other:
            toward = self.get(self.Q, number * self.classes + other)
            self.set(self.Qp, other, (self.get(self.Qp, other) + step * toward) / grown)
            self.set(self.p, other, self.get(self.p, other) / grown)
