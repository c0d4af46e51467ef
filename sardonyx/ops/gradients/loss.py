"""Gradients of losses of classification. NegativeLogLikelihoodLoss has a body, through which its gradient goes."""

from __future__ import annotations

from sardonyx.ops.gradients.table import gradient


@gradient("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(op, node, labels, weights, output_grad, log_prob_grad, reduction, ignore_index):
    log_prob = op.result(node, 1)
    inputs = (log_prob, labels) if weights is None else (log_prob, labels, weights)
    form = {"reduction": reduction, "ignore_index": ignore_index}
    parts = []
    if output_grad is not None:
        parts.append(op.contrib("SoftmaxCrossEntropyLossGrad", output_grad, *inputs, **form))
    if log_prob_grad is not None:
        parts.append(op.contrib("LogSoftmaxGrad_13", log_prob_grad, log_prob, axis=1))
    return op.Add(*parts) if len(parts) > 1 else parts[0]
