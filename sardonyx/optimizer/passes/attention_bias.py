"""The attention_bias input of a fused attention: all that is added to its scores, as one tensor (batch, heads, queries, keys)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from sardonyx.dtypes import ElementType
from sardonyx.ir import Value
from sardonyx.ir.dim import Dim
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant
from sardonyx.ops.shapes import as_they_fit
from sardonyx.optimizer.passes.attention_heads import heads_apart
from sardonyx.optimizer.passes.attention_masks import hides_for_sure
from sardonyx.optimizer.passes.attention_scores import Choice, Factor, Shift, Step, Unfit
from sardonyx.optimizer.values import dtype_of, shape_of
from sardonyx.startup.records import dataclass, field


@dataclass(frozen=True)
class Scores:
    """What is known of the scores: their element type and the sizes of (batch, heads, queries, keys)."""

    element: ElementType
    batch: Dim
    heads: int
    queries: Dim
    keys: Dim


@dataclass
class BiasMaker:
    """Makes biases, each once: all layers of a model mostly share one mask."""

    made: dict[Hashable, Value] = field(default_factory=dict)

    def make(self, op: Builder, steps: Sequence[Step], scores: Scores, query: Value, axis: int) -> Value | None:
        """The sum of all that the steps add, None if they add nothing. `axis` of `query` tells how many queries there are."""
        while steps and isinstance(steps[0], Factor):
            steps = steps[1:]
        if not steps:
            return None
        key = (tuple(steps), scores)
        if key not in self.made:
            self.made[key] = _made(op, steps, scores, query, axis)
        return self.made[key]

    def stacked(self, op: Builder, bias: Value, groups: int) -> Value:
        """A bias for query heads that stand behind each other as one: (batch, heads/groups, groups·queries, keys)."""
        key = (bias, groups)
        if key not in self.made:
            heads = _heads_of(bias)
            if heads == 1:
                self.made[key] = op.Concat(*[bias] * groups, axis=2)
            else:
                self.made[key] = op.Reshape(bias, op.constant([0, heads // groups, -1, 0]))
        return self.made[key]

    def blind_rows(self, op: Builder, bias: Value) -> Value:
        """Which queries see no key, as (batch, queries, 1)."""
        key = (bias, "blind")
        if key not in self.made:
            if _heads_of(bias) != 1:
                raise Unfit("a query may see no key in one head and some in another")
            highest = op.Squeeze(op.ReduceMax(bias, axes=[3], keepdims=1), axes=[1])
            element = dtype_of(bias)
            assert element is not None
            self.made[key] = op.Equal(highest, op.constant(np.array(-np.inf, element.numpy)))
        return self.made[key]

    def forget(self, op: Builder) -> None:
        """Drop what was made in an attempt that came to nothing."""
        lost = {id(value) for value in (*op.constants, *(output for node in op.made for output in node.outputs))}
        self.made = {key: value for key, value in self.made.items() if id(value) not in lost}


def covers_all(steps: Sequence[Step], scores: Scores) -> bool:
    """Whether masks certainly have a number for each query and each key, so that none is broadcast along them."""
    masks = [
        (step.value if isinstance(step, Shift) else step.condition, step.rank) for step in steps if not isinstance(step, Factor)
    ]
    return all(_fitting_shape(mask, rank, scores)[2:] == [scores.queries, scores.keys] for mask, rank in masks)


def _heads_of(bias: Value) -> int:
    shape = shape_of(bias)
    if shape is None or not isinstance(shape[1], int):
        raise Unfit("the shape of a mask is not known")
    return shape[1]


def _made(op: Builder, steps: Sequence[Step], scores: Scores, query: Value, axis: int) -> Value:
    total: Value | None = None
    queries: list[Dim] = []
    for step in steps:
        if isinstance(step, Factor):
            total = None if total is None else op.Mul(total, _number(op, step.number, scores))
            continue
        operand = step.value if isinstance(step, Shift) else step.condition
        shape = _fitting_shape(operand, step.rank, scores)
        queries.append(shape[2])
        operand = _in_four_axes(op, operand, step.rank, shape, scores)
        total = (
            _shifted(op, total, operand, step, scores) if isinstance(step, Shift) else _chosen(op, total, operand, step, scores)
        )
    assert total is not None
    if scores.queries != 1 and all(size == 1 for size in queries):
        total = _for_all_queries(op, total, scores, query, axis)
    return total


def _number(op: Builder, number: float, scores: Scores) -> Value:
    return op.constant(np.array(number, scores.element.numpy))


def _fitting_shape(operand: Value, rank: int, scores: Scores) -> list[Dim]:
    """The operand's shape with four axes, if that certainly broadcasts to the scores' own."""
    sizes = shape_of(operand)
    if sizes is None or len(sizes) > rank:
        raise Unfit("the shape of a mask is not known")
    shape = [*[1] * (rank - len(sizes)), *sizes]
    if rank == 3:
        whole = scores.batch * scores.heads
        if shape[0] not in (1, whole):
            raise Unfit(f"a mask of shape {sizes} may enlarge the scores")
        shape = [1, 1, *shape[1:]] if shape[0] == 1 else [scores.batch, scores.heads, *shape[1:]]
    wanted = (scores.batch, scores.heads, scores.queries)
    shape = list(as_they_fit(tuple(shape), (*wanted, scores.keys))[0])
    if any(size not in (1, full) for size, full in zip(shape[:3], wanted, strict=True)):
        raise Unfit(f"a mask of shape {sizes} may enlarge the scores")
    if shape[3] == 1 and scores.keys != 1:
        raise Unfit("a mask is the same for all keys")
    return shape


def _in_four_axes(op: Builder, operand: Value, rank: int, shape: Sequence[Dim], scores: Scores) -> Value:
    sizes = shape_of(operand) or ()
    if len(sizes) == 4:
        return operand
    if rank == 3 and len(sizes) == 3 and sizes[0] != 1:
        return heads_apart(op, operand, scores.heads)
    array = constant(operand)
    if array is not None and operand.is_constant:
        return op.constant(array.reshape([1] * (4 - array.ndim) + list(array.shape)))
    return op.Unsqueeze(operand, axes=list(range(4 - len(sizes))))


def _shifted(op: Builder, total: Value | None, operand: Value, step: Shift, scores: Scores) -> Value:
    if dtype_of(step.value) is not scores.element:
        raise Unfit("a mask has another element type than the query")
    if total is None:
        return operand if step.sign == 1 else op.Neg(operand)
    return op.Add(total, operand) if step.sign == 1 else op.Sub(total, operand)


def _chosen(op: Builder, total: Value | None, condition: Value, step: Choice, scores: Scores) -> Value:
    if not hides_for_sure(step, scores.element):
        raise Unfit(f"masked scores become {step.number:g}, which may not hide them")
    total = _number(op, 0.0, scores) if total is None else total
    hidden = _number(op, step.number, scores)
    return op.Where(condition, *((total, hidden) if step.keeps else (hidden, total)))


def _for_all_queries(op: Builder, bias: Value, scores: Scores, query: Value, axis: int) -> Value:
    """onnxruntime takes a bias for each query only, even where it is the same for all."""
    if isinstance(scores.queries, int):
        return op.Expand(bias, op.constant([1, 1, scores.queries, 1]))
    ones = op.constant([1])
    count = op.Slice(op.Shape(query), starts=[axis], ends=[axis + 1], axes=[0])
    return op.Expand(bias, op.Concat(ones, ones, count, ones, axis=0))
