"""Layers of com.microsoft for networks of several parallel streams, and the gates between them."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.ir import dim
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import same_as
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

contrib("BranchwiseRMSNorm", "ScaledSiLU")(same_as("X"))
contrib("HyperConnectionPostMix")(same_as("streams"))


@contrib("HyperConnectionPreMix")
def hyper_connection_pre_mix(streams, num_branches):
    if streams.shape is None:
        return None
    if num_branches:
        return (*streams.shape[:-1], dim.floordiv(streams.shape[-1], num_branches))
    return (*streams.shape[:-2], streams.shape[-1])


@contrib("EngramGate")
def engram_gate(query):
    return [query.shape, query.shape]
