"""Losses and their gradients. Means divide by the sum of the weights that count, as torch's do."""

from __future__ import annotations

from sardonyx.training.torch.aten.table import aten

NONE, MEAN, SUM = 0, 1, 2


@aten("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss_forward(op, self, target, weight, reduction, ignore_index):
    _, kept, share = _shares(op, self, target, weight, ignore_index)
    picked = _picked(op, self, kept)
    losses = op.Neg(op.Mul(picked, share))
    total = op.ReduceSum(share, keepdims=0)
    if reduction == NONE:
        return losses, op.number(0, self)
    whole = op.ReduceSum(losses, keepdims=0)
    return (op.Div(whole, total) if reduction == MEAN else whole), total


@aten("nll_loss_backward.default", "nll_loss2d_backward.default")
def nll_loss_backward(op, grad_output, self, target, weight, reduction, ignore_index, total_weight):
    ignored, kept, share = _shares(op, self, target, weight, ignore_index)
    if reduction == MEAN:
        grad_output = op.Div(grad_output, total_weight)
    parts = op.Where(ignored, op.number(0, self), op.Neg(op.Mul(share, grad_output)))  # zero also where the mean is of nothing
    classes = 1 if op.rank(self) > 1 else 0
    places = op.Unsqueeze(kept, axes=[classes]) if op.rank(self) > op.rank(kept) else op.Reshape(kept, op.ints(1))
    updates = op.Unsqueeze(parts, axes=[classes]) if op.rank(self) > op.rank(kept) else op.Reshape(parts, op.ints(1))
    return op.ScatterElements(op.zeros(self), places, updates, axis=classes)


def _shares(op, self, target, weight, ignore_index):
    """Which labels are ignored, the labels with 0 in their place, and what each one counts."""
    ignored = op.Equal(target, op.scalar(ignore_index, op.dtype(target)))
    kept = op.Where(ignored, op.number(0, target), op.from_front(target))
    one = op.number(1, self) if weight is None else op.Gather(weight, kept, axis=0)
    return ignored, kept, op.Where(ignored, op.number(0, self), one)


def _picked(op, self, kept):
    """The log-probability at each label."""
    if op.rank(self) == 1:
        return op.Gather(self, kept, axis=0)
    return op.Squeeze(op.GatherElements(self, op.Unsqueeze(kept, axes=[1]), axis=1), axes=[1])


def _reduced(op, losses, reduction):
    if reduction == NONE:
        return losses
    return op.node("ReduceMean" if reduction == MEAN else "ReduceSum", losses, keepdims=0)


def _share(op, grad_output, like, reduction):
    return op.Div(grad_output, op.size(like, like)) if reduction == MEAN else grad_output


@aten("mse_loss.default")
def mse_loss(op, self, target, reduction=MEAN):
    difference = op.Sub(self, target)
    return _reduced(op, op.Mul(difference, difference), reduction)


@aten("mse_loss_backward.default")
def mse_loss_backward(op, grad_output, self, target, reduction):
    return op.Mul(op.scaled(op.Sub(self, target), 2), _share(op, grad_output, self, reduction))


@aten("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(op, self, target, weight=None, pos_weight=None, reduction=MEAN):
    """(1 - t) · x + w · softplus(-x), where w = 1 + (p - 1) · t."""
    one = op.number(1, self)
    soft = op.Softplus(op.Neg(self))
    if pos_weight is not None:
        soft = op.Mul(soft, op.Add(one, op.Mul(op.Sub(pos_weight, one), target)))
    losses = op.Add(op.Mul(op.Sub(one, target), self), soft)
    return _reduced(op, losses if weight is None else op.Mul(losses, weight), reduction)
