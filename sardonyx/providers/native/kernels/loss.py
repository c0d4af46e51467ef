"""Losses of classification, composed of other ops."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir import Value
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims
from sardonyx.providers.provider import CannotCompile


@compose("NegativeLogLikelihoodLoss", widen=True)
def negative_log_likelihood_loss(
    op: Composer, input: Value, target: Value, weight: Value | None, ignore_index: int | None, reduction: str
) -> Value:
    op.require_shape(target, (dims(input)[0], *dims(input)[2:]))
    target = op.cast_to(target, dtypes.int64)
    counted = None if ignore_index is None else op.Not(op.Equal(target, op.number(ignore_index, target)))
    zero = op.number(0, target)
    classes = target if counted is None else op.Where(counted, target, zero)
    # a negative class is no class counted from behind: one beyond the last is refused as it must be
    classes = op.Where(op.Less(classes, zero), op.sizes(dims(input)[1]), classes)
    picked = op.Neg(op.Squeeze(op.GatherElements(input, op.Unsqueeze(classes, axes=[1]), axis=1), axes=[1]))
    weights = op.Expand(op.number(1, input), op.sizes(*dims(target))) if weight is None else op.Gather(weight, classes)
    none = op.number(0, input)
    weights = weights if counted is None else op.Where(counted, weights, none)
    loss = op.Mul(picked, weights)
    loss = loss if counted is None else op.Where(counted, loss, none)
    return _reduced(op, loss, weights, reduction)


def _reduced(op: Composer, loss: Value, weights: Value, reduction: str) -> Value:
    made: Value
    if reduction == "none":
        return loss
    if reduction not in ("sum", "mean"):
        raise CannotCompile(f"reduction is {reduction!r}, expected 'none', 'sum' or 'mean'", quiet=True)
    made = op.ReduceSum(loss, keepdims=0)
    return made if reduction == "sum" else op.Div(made, op.ReduceSum(weights, keepdims=0))


@compose("SoftmaxCrossEntropyLoss", widen=True)
def softmax_cross_entropy_loss(
    op: Composer, scores: Value, labels: Value, weights: Value | None, ignore_index: int | None, reduction: str
) -> Sequence[Value]:
    log_prob = op.LogSoftmax(scores, axis=1)
    return negative_log_likelihood_loss(op, log_prob, labels, weights, ignore_index, reduction), log_prob
