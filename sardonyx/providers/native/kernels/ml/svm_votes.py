"""Votes of an SVMClassifier's pairs of classes, and the probabilities of its classes. `svm` adds this step behind that of the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.compiler import math
from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import F32, I64
from sardonyx.ir import Node, dim
from sardonyx.providers.native.kernels.ml.scores import Scores, logistic
from sardonyx.providers.native.program.arguments import Arguments, Pointer, ScratchSlotArguments, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import ScratchSlots
from sardonyx.providers.native.program.steps import Buffer

ITERATIONS = 100
TOLERANCE = 0.005
"""When probabilities are good enough, divided by the number of classes: as libsvm has it."""
PIECE_VECTORS = 8
"""How many vectors of rows are worth a thread."""


def duel(lowerer: Lowerer, node: Node, scores: Scores, attributes: dict[str, Any], chances: Buffer | None) -> None:
    """Add the step that counts votes for labels and, if it is given a place for them, computes probabilities."""
    label = lowerer.output(node.outputs[0])
    labels = np.asarray(attributes["classlabels_ints"], np.int64)
    sigmoids = None
    if chances is not None:
        sigmoids = lowerer.constant(np.stack([np.asarray(attributes[name], np.float32) for name in ("prob_a", "prob_b")]))
    lanes = lowerer.target.lanes(F32)
    slots = ScratchSlots(dim.ceildiv(scores.rows, lanes), PIECE_VECTORS)
    arguments = DuelArguments(
        scores=scores.place,
        rows=scores.rows,
        classes=len(labels),
        scratch=lowerer.scratch(_vectors(len(labels), chances is not None) * lanes * 4 * slots.count),
        slots=slots.arguments,
        label=label.place,
        labels=lowerer.constant(labels),
        sigmoids=sigmoids,
        chances=chances,
    )
    lowerer.call(duel_kernel(lowerer.target, chances is not None), arguments, slots.items, slots.grain)


def _vectors(classes: Any, probable: bool) -> Any:
    """How many vectors of numbers rows need: their votes; with probabilities also p, Q·p and Q."""
    return classes * (classes + 3) if probable else classes


class DuelArguments(Arguments):
    scores: Pointer
    """For each row one of each pair of classes."""
    rows: Size
    classes: Size
    scratch: Pointer
    slots: ScratchSlotArguments
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
    """Votes and probabilities of as many rows as a vector has lanes: a vector for each class, or each two."""

    def __init__(self, f: KernelFunction, a: DuelArguments):
        self.f = f
        self.a = a
        self.classes = a.classes
        self.pairs = (self.classes * (self.classes - 1)) // 2
        self.lanes = f.lanes(F32)
        self.type = F32.vector(self.lanes)
        self.row = f.iota(I64, self.lanes)
        first = f.scratch_slot(a.slots) * _vectors(self.classes, a.sigmoids is not None)
        self.votes, self.p, self.Qp, self.Q = (
            f.address(a.scratch, (first + self.classes * place) * self.lanes, F32) for place in range(4)
        )

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
