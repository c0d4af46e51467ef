"""Layers of com.microsoft for networks of several parallel streams, and the gates between them, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.activation import sigmoid
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("BranchwiseRMSNorm", widen=True)
def branchwise_rms_norm(X, scale=None, *, num_branches=0, epsilon=1e-5):
    streams = _apart(X, num_branches)
    normalized = _rms_norm(streams, epsilon)
    if scale is not None:
        normalized = normalized * (scale.reshape(streams.shape[-2:]) if scale.size > streams.shape[-1] else scale)
    return normalized.reshape(X.shape)


def _rms_norm(X, epsilon):
    mean = np.square(X).sum(axis=-1, keepdims=True) / np.float32(X.shape[-1])
    return X / np.sqrt(mean + np.float32(epsilon))


def _apart(X, branches):
    """(…, branches, features), of a tensor in which they may stand side by side."""
    if not branches:
        return X
    if X.shape[-1] % branches:
        raise KernelError(f"{X.shape[-1]} features cannot be divided among {branches} branches", InvalidArgument)
    return X.reshape(*X.shape[:-1], branches, X.shape[-1] // branches)


@contrib("ScaledSiLU")
@np.errstate(over="ignore")
def scaled_silu(X, scale=None, *, alpha=1.0):
    """Each step is rounded to the type of X, as the op's text has it."""
    factor = np.float32(alpha) if scale is None else scale.reshape(()).astype(np.float32)
    scaled = (X.astype(np.float32) * factor).astype(X.dtype)
    gate = sigmoid(scaled.astype(np.float32)).astype(X.dtype)
    return (scaled.astype(np.float32) * gate.astype(np.float32)).astype(X.dtype)


@contrib("HyperConnectionPreMix", widen=True)
def hyper_connection_pre_mix(streams, pre_mix, *, num_branches=0, reduction_scale=1.0):
    streams = _apart(streams, num_branches)
    return (streams * _spread(pre_mix, streams.shape)).sum(axis=-2) * np.float32(reduction_scale)


def _spread(mix, shape):
    """Gates of branches, or of each feature of each branch, in a shape that broadcasts with that of the streams."""
    lead, branches = shape[:-1], shape[-2]
    if mix.shape == lead:
        return mix[..., None]
    if mix.shape[-2:] in ((branches, 1), shape[-2:]) and mix.ndim == len(shape):
        return mix
    if mix.size == math.prod(shape):
        return mix.reshape(shape)
    raise KernelError(f"gates of shape {list(mix.shape)} do not go with streams of {list(shape)}", InvalidArgument)


@contrib("HyperConnectionPostMix", widen=True)
def hyper_connection_post_mix(streams, block_output, post_mix, stream_mix=None, *, num_branches=0):
    apart = _apart(streams, num_branches)
    mixed = apart if stream_mix is None else stream_mix.swapaxes(-1, -2) @ apart
    return (mixed + _spread(post_mix, apart.shape) * block_output[..., None, :]).reshape(streams.shape)


@contrib("EngramGate", widen=True)
def engram_gate(key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale=None, *, epsilon=1e-5):
    products = _rms_norm(key, epsilon) * key_norm_scale * _rms_norm(query, epsilon) * query_norm_scale
    score = products.sum(axis=-1, keepdims=True) / np.float32(math.sqrt(key.shape[-1]))
    gate = sigmoid(np.sign(score) * np.sqrt(np.maximum(np.abs(score), np.float32(1e-6))))
    gated = gate * value[..., None, :]
    return gated, None if conv_norm_scale is None else _rms_norm(gated, epsilon) * conv_norm_scale
