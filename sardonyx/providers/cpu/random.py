"""Ops that draw random numbers, in NumPy. Each gets its generator from the runtime, seeded by the node or by the process."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.kernel_table import widened


@cpu.kernel("RandomNormal")
def random_normal(shape, dtype=1, mean=0.0, scale=1.0, *, rng):
    return rng.normal(mean, scale, tuple(shape))


@cpu.kernel("RandomNormalLike")
def random_normal_like(input, dtype=None, mean=0.0, scale=1.0, *, rng):
    return rng.normal(mean, scale, input.shape)


@cpu.kernel("RandomUniform")
def random_uniform(shape, dtype=1, low=0.0, high=1.0, *, rng):
    return rng.uniform(low, high, tuple(shape))


@cpu.kernel("RandomUniformLike")
def random_uniform_like(input, dtype=None, low=0.0, high=1.0, *, rng):
    return rng.uniform(low, high, input.shape)


@cpu.kernel("Bernoulli", widen=True)
def bernoulli(input, dtype=None, *, rng):
    return rng.random_sample(input.shape) < input


@cpu.kernel("Multinomial", widen=True)
def multinomial(input, dtype=6, sample_size=1, *, rng):
    """Inverts each row's distribution function; the input is log-probabilities up to a constant."""
    if input.ndim != 2 or input.shape[1] == 0:
        raise KernelError(f"Multinomial needs logits of shape [batch, classes], not {list(input.shape)}")
    logits = input.astype(np.float64)
    bounds = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    draws = rng.random_sample((len(bounds), sample_size)) * bounds[:, -1:]
    samples = [np.searchsorted(row, drawn, side="right") for row, drawn in zip(bounds, draws, strict=True)]
    return np.array(samples, np.int64).reshape(draws.shape)


@cpu.kernel("Dropout", since=7)
def dropout(data, ratio=0.5, training_mode=None, *, rng):
    """Without `training_mode`, which opsets 7 to 11 lack, nothing is dropped."""
    if training_mode is None or not training_mode.item():
        return data, np.ones(data.shape, np.bool_)
    return _dropped(data, float(np.asarray(ratio).item()), rng)


@cpu.kernel("Dropout", until=6)
def dropout_unless_test(data, ratio=0.5, is_test=0, *, rng):
    return (data, np.ones(data.shape, np.bool_)) if is_test else _dropped(data, ratio, rng)


def _dropped(data, ratio, rng):
    if not 0 <= ratio < 1:
        raise KernelError(f"ratio must be in the range [0, 1), not {ratio}")
    mask = rng.uniform(0.0, 1.0, data.shape) >= ratio
    return widened(data) * mask * (1 / (1 - ratio)), mask
