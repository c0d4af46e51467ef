"""Random numbers. torch draws them, before the run and in the order of the graph, so that they are those of eager torch."""

from __future__ import annotations

import torch

from sardonyx.training.torch.aten.table import aten


@aten("bernoulli.p")
def bernoulli(op, self, p=0.5):
    return op.drawn(lambda shape, dtype: torch.empty(shape, dtype=dtype).bernoulli_(p), op.out)


@aten("rand.default", "rand_like.default")
def rand(op, **arguments):
    return op.drawn(lambda shape, dtype: torch.rand(shape, dtype=dtype), op.out)


@aten("randn.default", "randn_like.default")
def randn(op, **arguments):
    return op.drawn(lambda shape, dtype: torch.randn(shape, dtype=dtype), op.out)


@aten("randint.default")
def randint(op, high, **arguments):
    return op.drawn(lambda shape, dtype: torch.randint(high, shape, dtype=dtype), op.out)


@aten("randint.low")
def randint_low(op, low, high, **arguments):
    return op.drawn(lambda shape, dtype: torch.randint(low, high, shape, dtype=dtype), op.out)


@aten("randperm.default")
def randperm(op, n):
    return op.drawn(lambda shape, dtype: torch.randperm(shape[0], dtype=dtype), op.out)


@aten("native_dropout.default")
def dropout(op, input, p, train):
    if train is False:
        return op.Identity(input), op.ConstantOfShape(op.shape_value(op.out[1].shape), value=[True])
    mask = op.drawn(lambda shape, dtype: torch.empty(shape, dtype=dtype).bernoulli_(1 - p), op.out[1])
    return op.scaled(op.where(mask, input), 0.0 if p == 1 else 1 / (1 - p)), mask


@aten("native_dropout_backward.default")
def dropout_backward(op, grad_output, mask, scale):
    return op.scaled(op.where(mask, grad_output), scale)
