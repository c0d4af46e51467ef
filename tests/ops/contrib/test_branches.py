"""Cases of com.microsoft's layers for parallel streams."""

import numpy as np

from sardonyx.dtypes import bfloat16, float16, float32
from tests.ops.cases import case, f32, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}
ALONE = {"domain": CONTRIB}
HALVES = {"types": {"T": {float32, float16, bfloat16}}, "rtol": 3e-2, "atol": 3e-2}


def rms(x, epsilon=1e-5):
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + epsilon)


def normalized(X, scale=None, num_branches=0, epsilon=1e-5):
    streams = np.stack(np.split(X, num_branches, axis=-1), axis=-2) if num_branches else X
    factor = 1 if scale is None else scale.reshape(streams.shape[-2:]) if scale.size > streams.shape[-1] else scale
    return (rms(streams, epsilon) * factor).reshape(X.shape).astype(np.float32)


for scale in (None, f32(4), f32(12), f32(3, 4)):
    settings = {"scale": scale, "expect": normalized, **BOTH}
    case("BranchwiseRMSNorm", X=f32(2, 5, 3, 4), **settings)
    case("BranchwiseRMSNorm", X=f32(2, 5, 12), num_branches=3, epsilon=0.5, **settings)
case("BranchwiseRMSNorm", X=f32(2, 3, 4), scale=f32(4), **BOTH, **HALVES, expect=normalized)
case("BranchwiseRMSNorm", X=f32(0, 3, 4), **ALONE, expect=np.zeros((0, 3, 4), np.float32))
refuse("BranchwiseRMSNorm", X=f32(2, 10), num_branches=3, **ALONE, match="divided among 3 branches")


def silu(X, scale=None, alpha=1.0):
    x = X * np.float32(alpha if scale is None else scale)
    return x / (1 + np.exp(-x))


case("ScaledSiLU", X=f32(2, 3), **BOTH, expect=silu)
case("ScaledSiLU", X=f32(2, 3), alpha=0.5, **BOTH, **HALVES, expect=silu)
case("ScaledSiLU", X=f32(2, 3), scale=np.array(1.7, np.float32), alpha=0.5, **BOTH, expect=silu)
case("ScaledSiLU", X=np.array([-200, 200], np.float32), **ALONE, expect=[0, 200])
case("ScaledSiLU", X=f32(0, 3), **ALONE, expect=np.zeros((0, 3), np.float32))


def gates(mix, shape):
    return mix[..., None] if mix.shape == shape[:-1] else mix.reshape(shape) if mix.size == np.prod(shape) else mix


def reduced(streams, pre_mix, num_branches=0, reduction_scale=1.0):
    apart = np.stack(np.split(streams, num_branches, axis=-1), axis=-2) if num_branches else streams
    return (apart * gates(pre_mix, apart.shape)).sum(axis=-2) * reduction_scale


for mix in (f32(2, 5, 3), f32(2, 5, 3, 1), f32(2, 5, 3, 4)):
    case("HyperConnectionPreMix", streams=f32(2, 5, 3, 4), pre_mix=mix, **BOTH, expect=reduced)
    case(
        "HyperConnectionPreMix", streams=f32(2, 5, 12), pre_mix=mix, num_branches=3, reduction_scale=0.5, **BOTH, expect=reduced
    )
case("HyperConnectionPreMix", streams=f32(2, 5, 12), pre_mix=f32(2, 5, 12), num_branches=3, **BOTH, expect=reduced)
case("HyperConnectionPreMix", streams=f32(5, 3, 4), pre_mix=f32(5, 3), **ALONE, **HALVES, expect=reduced)
refuse("HyperConnectionPreMix", streams=f32(5, 3, 4), pre_mix=f32(5, 2), **ALONE, match="do not go with streams")


def mixed(streams, block_output, post_mix, stream_mix=None, num_branches=0):
    apart = np.stack(np.split(streams, num_branches, axis=-1), axis=-2) if num_branches else streams
    old = apart if stream_mix is None else np.einsum("...ck,...ch->...kh", stream_mix, apart)
    return (old + gates(post_mix, apart.shape) * block_output[..., None, :]).reshape(streams.shape)


for mix in (f32(2, 5, 3), f32(2, 5, 3, 1), f32(2, 5, 3, 4)):
    for stream_mix in (None, f32(2, 5, 3, 3)):
        settings = {"block_output": f32(2, 5, 4), "post_mix": mix, "stream_mix": stream_mix, **BOTH, "expect": mixed}
        case("HyperConnectionPostMix", streams=f32(2, 5, 3, 4), **settings)
        case("HyperConnectionPostMix", streams=f32(2, 5, 12), num_branches=3, **settings)
case(
    "HyperConnectionPostMix", streams=f32(5, 3, 4), block_output=f32(5, 4), post_mix=f32(5, 3), **ALONE, **HALVES, expect=mixed
)


def gated(key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale=None, epsilon=1e-5):
    score = (rms(key, epsilon) * key_norm_scale * rms(query, epsilon) * query_norm_scale).sum(axis=-1) / np.sqrt(key.shape[-1])
    gate = 1 / (1 + np.exp(-np.sign(score) * np.sqrt(np.maximum(abs(score), 1e-6))))
    output = gate[..., None] * value[:, :, None]
    return output if conv_norm_scale is None else (output, rms(output, epsilon) * conv_norm_scale)


ENGRAM = {"key": f32(2, 5, 3, 4), "query": f32(2, 5, 3, 4), "value": f32(2, 5, 4)}
ENGRAM |= {"key_norm_scale": f32(3, 4), "query_norm_scale": f32(3, 4)}
case("EngramGate", **ENGRAM, **BOTH, expect=gated)
case("EngramGate", **ENGRAM, conv_norm_scale=f32(3, 4), epsilon=0.1, **BOTH, expect=gated)
case("EngramGate", **ENGRAM, **BOTH, **HALVES, expect=gated)
