"""Losses of classification, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.normalization import log_softmax
from sardonyx.providers.cpu.table import cpu


@cpu.kernel("NegativeLogLikelihoodLoss", widen=True)
def negative_log_likelihood_loss(input, target, weight=None, ignore_index=None, reduction="mean"):
    if target.shape != (*input.shape[:1], *input.shape[2:]):
        raise KernelError(f"a target of shape {list(target.shape)} does not fit an input of shape {list(input.shape)}")
    counted = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    classes = np.where(counted, target, 0).astype(np.int64)
    _check_classes(classes, counted, input.shape[1])
    if input.shape[1] == 0:
        return _reduced(np.zeros(target.shape, input.dtype), counted.astype(input.dtype), reduction)
    picked = np.take_along_axis(input, classes[:, np.newaxis], axis=1)[:, 0]
    weights = counted.astype(input.dtype) if weight is None else np.where(counted, weight[classes], 0)
    return _reduced(np.where(counted, -picked * weights, 0), weights, reduction)


def _check_classes(classes, counted, count):
    wrong = counted & ((classes < 0) | (classes >= count))
    if wrong.any():
        raise KernelError(f"a target is {classes[wrong][0]}, expected a class from 0 to {count - 1}")


def _reduced(loss, weights, reduction):
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction != "mean":
        raise KernelError(f"reduction is {reduction!r}, expected 'none', 'sum' or 'mean'")
    with np.errstate(invalid="ignore", divide="ignore"):  # nothing counts: 0 / 0
        return loss.sum() / weights.sum()


@cpu.kernel("SoftmaxCrossEntropyLoss", widen=True)
def softmax_cross_entropy_loss(scores, labels, weights=None, ignore_index=None, reduction="mean"):
    log_prob = log_softmax(scores, axis=1)
    return negative_log_likelihood_loss(log_prob, labels, weights, ignore_index, reduction), log_prob
