"""Accumulators, optimizers and shape arithmetic of training graphs, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("BroadcastGradientArgs")
def broadcast_gradient_args(a_shape, b_shape):
    """The axes along which each of two shapes was broadcast to the other."""
    rank = max(len(a_shape), len(b_shape))
    a, b = ([1] * (rank - len(shape)) + shape.tolist() for shape in (a_shape, b_shape))
    if any(mine != theirs and 1 not in (mine, theirs) for mine, theirs in zip(a, b, strict=True)):
        raise KernelError(f"shapes cannot be broadcast together: {a_shape.tolist()} and {b_shape.tolist()}", InvalidArgument)
    return tuple(
        np.array([axis for axis in range(rank) if shape[axis] == 1 and (other[axis] != 1 or axis < rank - size)], np.int64)
        for shape, other, size in ((a, b, len(a_shape)), (b, a, len(b_shape)))
    )


@contrib("InPlaceAccumulatorV2")
def in_place_accumulator(accumulation_buffer, value, overwrite_flag=None):
    """The sum is a new array: what was fed is the caller's."""
    overwrites = overwrite_flag is not None and bool(overwrite_flag.reshape(-1)[0])
    return np.array([True]), value.copy() if overwrites else accumulation_buffer + value


@contrib("ReduceAllL2")
def reduce_all_l2(X):
    return np.float32(norm_of_all(X))


def norm_of_all(tensors):
    return math.sqrt(sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in tensors))


@contrib("InplaceClipGradNorm")
def clip_grad_norm(gradients, *, max_norm=1.0, norm_type="fro"):
    if norm_type != "fro":
        raise KernelError(f"norm_type is {norm_type!r}, only 'fro' is known", InvalidArgument)
    factor = np.float32(min(1.0, max_norm / (norm_of_all(gradients) + 1e-6)))
    return ([gradient * factor for gradient in gradients],)


@contrib("SGDOptimizerV2")
def sgd_optimizer(lr, weights, gradients, update_signal=None):
    if _is_off(update_signal):
        return np.array([False]), list(weights)
    rate = lr.reshape(-1)[0]
    return np.array([True]), [weight - rate * gradient for weight, gradient in zip(weights, gradients, strict=True)]


@contrib("AdamWOptimizer")
def adam_w_optimizer(
    lr,
    step,
    weights,
    gradients,
    momentums_1,
    momentums_2,
    update_signal=None,
    *,
    alpha=0.9,
    beta=0.999,
    epsilon=1e-8,
    weight_decay=1e-2,
    adam_mode=0,
    correct_bias=1,
):
    """Mode 0 is PyTorch's AdamW, mode 1 that of Hugging Face, where the decay comes last and takes the new weight."""
    if _is_off(update_signal):
        return np.array([False]), list(weights), list(momentums_1), list(momentums_2)
    rate, count = float(lr.reshape(-1)[0]), int(step.reshape(-1)[0])
    first, second = (1 - alpha**count, 1 - beta**count) if correct_bias else (1.0, 1.0)
    updated: tuple[list, list, list] = ([], [], [])
    for weight, gradient, m, v in zip(weights, gradients, momentums_1, momentums_2, strict=True):
        kind = weight.dtype.type
        m = kind(alpha) * m + kind(1 - alpha) * gradient
        v = kind(beta) * v + kind(1 - beta) * gradient * gradient
        if adam_mode == 0:
            weight = weight - kind(rate * weight_decay) * weight
            weight = weight - kind(rate / first) * m / (np.sqrt(v / kind(second)) + kind(epsilon))
        else:
            weight = weight - kind(rate * math.sqrt(second) / first) * m / (np.sqrt(v) + kind(epsilon))
            weight = weight - kind(rate * weight_decay) * weight
        for values, value in zip(updated, (weight, m, v), strict=True):
            values.append(value)
    return np.array([True]), *updated


def _is_off(signal):
    return signal is not None and not bool(signal.reshape(-1)[0])
