"""From the raw scores of classifiers and regressors to labels and outputs, in one step behind the trees or products that made them.

Computed for as many rows at once as a vector holds. What it does is what `providers/cpu/ml/scores.py` and its callers do in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler import math
from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F64, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
GRAIN_ELEMENTS = 2048


@dataclass(frozen=True)
class ScoreSpec:
    """What shapes the code. Of a row, `width` numbers are read and `columns` written."""

    input: Type
    """As the scores lie in memory."""
    computed: Type
    """float32 or float64: they are rounded to it, and then computed with."""
    output: Type
    transform: str = "NONE"
    second: str = ""
    """Two columns are written for one score p: "complement" for 1 - p and p, "negative" for -p and p."""
    label: str = ""
    """"best" for the largest score's, "above" for the second label if a score is above a limit, "" for no labels."""
    counted: bool = False
    """Whether counts of votes follow the scores: one that nobody has voted for does not win."""
    base: bool = False
    average: bool = False
    identity: float | None = None
    """What the sum over nothing is; it becomes 0."""
    sign: bool = False
    """Whether 1 is written for scores above 0, and -1 for all others."""


@dataclass
class Scores:
    """Raw scores in memory, and what is to be done with them. Arrays have an element for each score."""

    place: Argument
    stride: int
    rows: Dim
    count: int
    base: np.ndarray | None = None
    candidates: np.ndarray | None = None
    """Which scores can win, for the label "best"; all by default."""
    labels: Sequence[int] = ()
    voted: int = 0
    """Which score decides, for the label "above"."""
    limit: float = 0.0
    divisor: float = 1.0


def finish_scores(lowerer: Lowerer, spec: ScoreSpec, scores: Scores, output: View, label: View | None) -> None:
    """Add the step that makes labels and outputs."""
    columns = 2 if spec.second else scores.count
    candidates = np.ones(scores.count) if scores.candidates is None else scores.candidates
    arguments = ScoreArguments(
        scores=scores.place,
        rows=scores.rows,
        stride=scores.stride,
        count=scores.count,
        output=output.place,
        base=lowerer.constant(scores.base.astype(np.float64)) if spec.base and scores.base is not None else None,
        divisor=scores.divisor if spec.average else None,
        label=None if label is None else label.place,
        labels=lowerer.constant(np.array(scores.labels, np.int64)) if spec.label else None,
        candidates=lowerer.constant(candidates.astype(np.int64)) if spec.label == "best" else None,
        voted=scores.voted if spec.label == "above" else None,
        limit=scores.limit if spec.label == "above" else None,
    )
    grain = max(1, GRAIN_ELEMENTS // max(1, columns * lowerer.target.lanes(spec.computed)))
    items = dim.ceildiv(scores.rows, lowerer.target.lanes(spec.computed))
    lowerer.call(score_kernel(lowerer.target, spec), arguments, items, grain, traffic=scores.rows * columns * 8)


class ScoreArguments(Arguments):
    scores: Pointer
    rows: Size
    stride: Size
    """From one row of scores to the next."""
    count: Size
    """How many scores a row has."""
    output: Pointer
    base: Pointer | None = when(lambda spec: spec.base)
    divisor: Number | None = when(lambda spec: spec.average)
    label: Pointer | None = when(lambda spec: spec.label)
    """Where the labels of all rows go."""
    labels: Pointer | None = when(lambda spec: spec.label)
    """Those to choose among."""
    candidates: Pointer | None = when(lambda spec: spec.label == "best")
    """For each score whether it can win, as an int64."""
    voted: Size | None = when(lambda spec: spec.label == "above")
    """Which score decides."""
    limit: Number | None = when(lambda spec: spec.label == "above")


@kernel("scores", ScoreArguments)
def score_kernel(f: KernelFunction, a: ScoreArguments, spec: ScoreSpec) -> None:
    """Items are vectors of rows; lanes behind the last row do that one again."""
    _Rows(f, a, spec).emit()


class _Rows:
    """As many rows as a vector has lanes."""

    def __init__(self, f: KernelFunction, a: ScoreArguments, spec: ScoreSpec):
        self.f = f
        self.a = a
        self.spec = spec
        self.lanes = f.lanes(spec.computed)
        self.type = spec.computed.vector(self.lanes)
        self.row = f.iota(I64, self.lanes)

    def emit(self) -> None:
        f = self.f
        with f.loop(f.begin, f.end) as item:
            rows = f.iota(I64, self.lanes) + f.splat(item * self.lanes, self.lanes)
            self.row = f.minimum(rows, f.splat(self.a.rows - 1, self.lanes))
            if self.spec.label == "best":
                self._label_best()
            elif self.spec.label == "above":
                self._label_above()
            if self.spec.second:
                self._write_second()
            else:
                self._write_all()

    # --- reading

    def _read(self, column: Value | int) -> Value:
        """A number of each row, rounded."""
        f = self.f
        place = self.row * f.splat(self.a.stride, self.lanes) + f.splat(f.as_value(column, I64), self.lanes)
        value = f.convert(f.gather(self.a.scores, place, self.spec.input), self.spec.computed)
        if self.spec.identity is not None:
            value = f.select(value == self.spec.identity, 0.0, value)
        return value

    def _score(self, column: Value | int) -> Value:
        """A score of each row, with its base value."""
        f, a = self.f, self.a
        value = self._read(column)
        with f.exact():
            if a.divisor is not None:
                value = value / f.splat(f.convert(a.divisor, self.spec.computed), self.lanes)
            if a.base is not None:
                base = f.convert(f.load(a.base, column, F64), self.spec.computed)
                value = value + f.splat(base, self.lanes)
        return value

    # --- labels

    def _label_best(self) -> None:
        """The first of the largest scores; NaN counts as larger than all, as NumPy has it."""
        f, a = self.f, self.a
        assert a.candidates is not None and a.label is not None and a.labels is not None
        best = f.variable(f.const(self.type, -np.inf))
        winner = f.variable(f.const(I64.vector(self.lanes), 0))
        with f.loop(0, a.count) as column:
            score = self._score(column)
            before = best.get()
            better = (score > before) | (f.is_nan(score) & ~f.is_nan(before))
            allowed = f.splat(f.load(a.candidates, column, I64) != 0, self.lanes)
            if self.spec.counted:
                allowed = allowed | (self._read(a.count + column) > 0.0)
            better = better & allowed
            best.set(f.select(better, score, before))
            winner.set(f.select(better, f.splat(column, self.lanes), winner.get()))
        f.scatter(f.gather(a.labels, winner.get(), I64), a.label, self.row, I64)

    def _label_above(self) -> None:
        f, a = self.f, self.a
        assert a.voted is not None and a.limit is not None and a.label is not None and a.labels is not None
        above = self._score(a.voted) > f.splat(f.convert(a.limit, self.spec.computed), self.lanes)
        no, yes = (f.splat(f.load(a.labels, place, I64), self.lanes) for place in range(2))
        f.scatter(f.select(above, yes, no), a.label, self.row, I64)

    # --- outputs

    def _write(self, value: Value, column: Value | int, columns: Value | int) -> None:
        f = self.f
        place = self.row * f.splat(f.as_value(columns, I64), self.lanes) + f.splat(f.as_value(column, I64), self.lanes)
        f.scatter(f.convert(value, self.spec.output), self.a.output, place, self.spec.output)

    def _write_second(self) -> None:
        score = self._score(0)
        if self.spec.transform == "LOGISTIC":
            score = logistic(score)
        elif self.spec.transform == "PROBIT":
            score = probit(score)
        with self.f.exact():
            other = -score if self.spec.second == "negative" else 1.0 - score
        self._write(other, 0, 2)
        self._write(score, 1, 2)

    def _write_all(self) -> None:
        f, transform = self.f, self.spec.transform
        if transform in ("SOFTMAX", "SOFTMAX_ZERO"):
            self._write_softmax(leave_zeros=transform == "SOFTMAX_ZERO")
            return
        with f.loop(0, self.a.count) as column:
            score = self._score(column)
            if self.spec.sign:
                score = f.select(score > 0.0, f.const(score.type, 1.0), -1.0)
            elif transform == "LOGISTIC":
                score = logistic(score)
            elif transform == "PROBIT":
                score = probit(score)
            self._write(score, column, self.a.count)

    def _write_softmax(self, leave_zeros: bool) -> None:
        f, count = self.f, self.a.count
        peak = f.variable(f.const(self.type, -np.inf))
        with f.loop(0, count) as column:
            score, before = self._score(column), peak.get()
            peak.set(f.select((score > before) | f.is_nan(score), score, before))
        total = f.variable(f.const(self.type, 0.0))
        with f.loop(0, count) as column:
            score = self._score(column)
            weight = math.exp(score - peak.get())
            if leave_zeros:
                weight = f.select(f.abs(score) > 1e-7, weight, 0.0)
            total.set(total.get() + weight)
        small = math.exp(-peak.get()) if leave_zeros else None
        with f.loop(0, count) as column:
            score = self._score(column)
            weight = math.exp(score - peak.get())
            if small is not None:
                weight = f.select(f.abs(score) > 1e-7, weight, score * small)
            self._write(weight / total.get(), column, count)


def logistic(score: Value) -> Value:
    f = score.f
    positive = 1.0 / (1.0 + math.exp(-f.abs(score)))
    return f.select(score < 0.0, 1.0 - positive, positive)


def probit(score: Value) -> Value:
    """The normal quantile by Winitzki's approximation of the inverse error function."""
    f = score.f
    with f.exact():
        x = 2.0 * score - 1.0
        log = math.log((1.0 - x) * (1.0 + x))
        half = 2 / (3.14159 * 0.147) + log * 0.5
        root = f.sqrt(f.sqrt(half * half - log / 0.147) - half)
        return f.select(x < 0.0, -root, root) * float(np.sqrt(2))
