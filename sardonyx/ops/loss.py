"""Inference of losses of classification."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ops.shapes import merge_shapes
from sardonyx.ops.table import infer


@infer("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(input, target, reduction):
    return _reduced(input.shape, target.shape, reduction)


@infer("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(scores, labels, reduction):
    return [_reduced(scores.shape, labels.shape, reduction), scores.shape]


def _reduced(scores, classes, reduction):
    """Shape of the loss: one number, or one for each sample, of which the scores' axis 1 is the classes."""
    if scores is not None and len(scores) < 2:
        raise InferenceError(f"the scores must have a batch and a class axis, their rank is {len(scores)}")
    samples = None if scores is None else (scores[0], *scores[2:])
    merged = merge_shapes(classes, samples, "scores and classes")
    return merged if reduction == "none" else ()
