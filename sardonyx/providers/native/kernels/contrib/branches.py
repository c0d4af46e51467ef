"""Layers of com.microsoft for networks of several parallel streams, and the gates between them, composed of ONNX's own ops."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile

CONTRIB = "com.microsoft"


def _rms_norm(op: Composer, X: Value, epsilon: float) -> Value:
    mean = op.ReduceMean(op.Mul(X, X), axes=[-1], keepdims=1)
    made: Value = op.Div(X, op.Sqrt(op.Add(mean, op.number(epsilon, X))))
    return made


def _apart(op: Composer, X: Value, branches: int) -> Value:
    """(…, branches, features), of a tensor in which they may stand side by side."""
    if not branches:
        return X
    features: Dim = dim.floordiv(dims(X)[-1], branches)
    op.require(features * branches, dims(X)[-1])
    return op.reshape(X, *dims(X)[:-1], branches, features)


@compose("BranchwiseRMSNorm", domain=CONTRIB, widen=True)
def branchwise_rms_norm(op: Composer, X: Value, scale: Value | None, num_branches: int, epsilon: float) -> Value:
    streams = _apart(op, X, num_branches)
    normalized = _rms_norm(op, streams, epsilon)
    if scale is not None:
        features, count = dims(streams)[-1], dim.product(dims(scale))
        if count != features:
            scale = op.reshape(scale, *dims(streams)[-2:])
        normalized = op.Mul(normalized, scale)
    return op.reshape(normalized, *dims(X))


def _spread(op: Composer, mix: Value, streams: Value) -> Value:
    """Gates of branches, or of each feature of each branch, in a shape that broadcasts with that of the streams."""
    shape = dims(streams)
    if dims(mix) == shape[:-1] or (rank_of(mix) == len(shape) - 1 and not isinstance(dims(mix)[-1], int)):
        op.require_shape(mix, shape[:-1])
        return op.reshape(mix, *dims(mix), 1)
    if rank_of(mix) == len(shape) and dims(mix)[-2:] in ((shape[-2], 1), shape[-2:]):
        return mix
    return op.reshape(mix, *shape)


@compose("HyperConnectionPreMix", domain=CONTRIB, widen=True)
def hyper_connection_pre_mix(op: Composer, streams: Value, pre_mix: Value, num_branches: int, reduction_scale: float) -> Value:
    streams = _apart(op, streams, num_branches)
    total = op.ReduceSum(op.Mul(streams, _spread(op, pre_mix, streams)), axes=[-2], keepdims=0)
    made: Value = op.Mul(total, op.number(reduction_scale, streams))
    return made


@compose("HyperConnectionPostMix", domain=CONTRIB, widen=True)
def hyper_connection_post_mix(
    op: Composer, streams: Value, block_output: Value, post_mix: Value, stream_mix: Value | None, num_branches: int
) -> Value:
    apart = _apart(op, streams, num_branches)
    mixed = apart
    if stream_mix is not None:
        rank = rank_of(stream_mix)
        mixed = op.MatMul(op.Transpose(stream_mix, perm=[*range(rank - 2), rank - 1, rank - 2]), apart)
    block = op.Unsqueeze(block_output, axes=[-2])
    return op.reshape(op.Add(mixed, op.Mul(_spread(op, post_mix, apart), block)), *dims(streams))


@compose("EngramGate", domain=CONTRIB, widen=True)
def engram_gate(
    op: Composer,
    key: Value,
    query: Value,
    value: Value,
    key_norm_scale: Value,
    query_norm_scale: Value,
    conv_norm_scale: Value | None,
    epsilon: float,
) -> Sequence[Value]:
    features = op.cast(op.sizes(dims(key)[-1]), key)
    keys = op.Mul(_rms_norm(op, key, epsilon), key_norm_scale)
    queries = op.Mul(_rms_norm(op, query, epsilon), query_norm_scale)
    total = op.ReduceSum(op.Mul(keys, queries), axes=[-1], keepdims=1)
    score = op.Div(total, op.Sqrt(features))
    root = op.Sqrt(op.Max(op.Abs(score), op.number(1e-6, key)))
    gated = op.Mul(op.Sigmoid(op.Mul(op.Sign(score), root)), op.Unsqueeze(value, axes=[-2]))
    return (gated,) if conv_norm_scale is None else (gated, op.Mul(_rms_norm(op, gated, epsilon), conv_norm_scale))


@compose("LinearAttentionGate", domain=CONTRIB, widen=True)
def linear_attention_gate(op: Composer, a: Value, dt_bias: Value, decay_scale: Value, b: Value | None) -> Sequence[Value]:
    decay = op.Mul(decay_scale, op.Softplus(op.Add(a, dt_bias)))
    return (decay,) if b is None else (decay, op.Sigmoid(b))


@compose("GatedRMSNorm", domain=CONTRIB, widen=True)
def gated_rms_norm(op: Composer, X: Value, scale: Value, gate: Value, activation: str, epsilon: float) -> Value:
    """Runs of as many features as there are scales are normalized by themselves."""
    if activation not in ("silu", "swish", "sigmoid"):
        raise CannotCompile(f"activation is {activation!r}", quiet=True)
    size = dim.product(dims(scale))
    count: Dim = dim.floordiv(dims(X)[-1], size)
    op.require(count * size, dims(X)[-1])
    runs = op.reshape(X, *dims(X)[:-1], count, size)
    normalized = op.reshape(op.Mul(_rms_norm(op, runs, epsilon), op.reshape(scale, size)), *dims(X))
    gated = op.Sigmoid(gate) if activation == "sigmoid" else op.Swish(gate)
    made: Value = op.Mul(normalized, gated)
    return made
