"""Layers of com.microsoft for networks of several parallel streams, and the gates between them."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import same_as, text
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

TYPES = {float32, float16, bfloat16}

define(
    "com.microsoft",
    "BranchwiseRMSNorm",
    1,
    "(X: T, scale: M?, *, num_branches: int = 0, epsilon: float = 1e-5) -> (Y: T)",
    T=TYPES,
    M=TYPES,
)
define("com.microsoft", "ScaledSiLU", 1, "(X: T, scale: M?, *, alpha: float = 1.0) -> (Y: T)", T=TYPES, M=TYPES)
define(
    "com.microsoft",
    "HyperConnectionPreMix",
    1,
    "(streams: T, pre_mix: M, *, num_branches: int = 0, reduction_scale: float = 1.0) -> (output: T)",
    T=TYPES,
    M=TYPES,
)
define(
    "com.microsoft",
    "HyperConnectionPostMix",
    1,
    "(streams: T, block_output: T, post_mix: M, stream_mix: M?, *, num_branches: int = 0) -> (output: T)",
    T=TYPES,
    M=TYPES,
)
define(
    "com.microsoft",
    "EngramGate",
    1,
    "(key: T, query: T, value: T, key_norm_scale: T, query_norm_scale: T, conv_norm_scale: T?, *, epsilon: float = 1e-5)"
    " -> (output: T, gated_value_normed: T?)",
    T=TYPES,
)

contrib("ScaledSiLU")(same_as("X"))


@contrib("BranchwiseRMSNorm")
def branchwise_rms_norm(X, num_branches):
    _check_branches(X, num_branches, "X", 1)
    return X.shape


@contrib("HyperConnectionPostMix")
def hyper_connection_post_mix(streams, num_branches):
    _check_branches(streams, num_branches, "streams", 2)
    return streams.shape


@contrib("HyperConnectionPreMix")
def hyper_connection_pre_mix(streams, num_branches):
    _check_branches(streams, num_branches, "streams", 2)
    if streams.shape is None:
        return None
    if num_branches:
        return (*streams.shape[:-1], dim.floordiv(streams.shape[-1], num_branches))
    return (*streams.shape[:-2], streams.shape[-1])


def _check_branches(operand, num_branches, name, fewest):
    """There are as many axes, one fewer where branches stand side by side among the features."""
    if num_branches < 0:
        raise InferenceError(f"num_branches must not be negative, it is {num_branches}")
    _check_rank(operand, name, 1 if num_branches else fewest)


def _check_rank(operand, name, fewest):
    if operand.rank is not None and operand.rank < fewest:
        axes = "an axis" if fewest == 1 else f"at least {fewest} axes"
        raise InferenceError(f"{name} must have {axes}, it is {text(operand.shape)}")


@contrib("EngramGate")
def engram_gate(key, query, value):
    for name, operand in (("key", key), ("query", query), ("value", value)):
        _check_rank(operand, name, 1)
    return [query.shape, query.shape]
