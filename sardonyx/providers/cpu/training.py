"""Optimizer steps of the domain ai.onnx.preview.training, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu

training = cpu.in_domain("ai.onnx.preview.training")


@training("Adagrad")
def adagrad(R, T, inputs, *, decay_factor=0.0, epsilon=1e-6, norm_coefficient=0.0):
    rate = R / (1 + T * R.dtype.type(decay_factor))

    def step(X, G, H):
        gradient = X.dtype.type(norm_coefficient) * X + G
        squares = H + gradient * gradient
        return X - rate.astype(X.dtype) * gradient / (np.sqrt(squares) + X.dtype.type(epsilon)), squares

    return _each(step, inputs, groups=3)


@training("Adam")
def adam(R, T, inputs, *, alpha=0.9, beta=0.999, epsilon=1e-6, norm_coefficient=0.0, norm_coefficient_post=0.0):
    rate = R * np.sqrt(1 - beta**T) / (1 - alpha**T) if T > 0 else R

    def step(X, G, V, H):
        kind = X.dtype.type
        gradient = kind(norm_coefficient) * X + G
        momentum = kind(alpha) * V + kind(1 - alpha) * gradient
        squares = kind(beta) * H + kind(1 - beta) * gradient * gradient
        moved = X - rate.astype(X.dtype) * momentum / (np.sqrt(squares) + kind(epsilon))
        return kind(1 - norm_coefficient_post) * moved, momentum, squares

    return _each(step, inputs, groups=4)


@training("Momentum")
def momentum(R, T, inputs, *, alpha, beta, mode, norm_coefficient):
    if mode not in ("standard", "nesterov"):
        raise KernelError(f"mode must be standard or nesterov, not {mode!r}", InvalidArgument)
    adjusted = beta if T > 0 else 1.0  # the first step takes the gradient whole

    def step(X, G, V):
        kind = X.dtype.type
        gradient = kind(norm_coefficient) * X + G
        following = kind(alpha) * V + kind(adjusted) * gradient
        direction = gradient + kind(alpha) * following if mode == "nesterov" else following
        return X - R.astype(X.dtype) * direction, following

    return _each(step, inputs, groups=3)


def _each(step, inputs, groups):
    """Apply `step` to each optimized tensor; `inputs` holds all tensors, then all gradients, then all of each further state."""
    if len(inputs) % groups:
        raise KernelError(f"{len(inputs)} tensors cannot be divided into {groups} groups", InvalidArgument)
    count = len(inputs) // groups
    results = [step(*inputs[k::count]) for k in range(count)]
    return tuple(result[part] for part in range(groups - 1) for result in results)
