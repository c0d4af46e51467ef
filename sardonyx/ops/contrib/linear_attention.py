"""Layers of com.microsoft that carry a state along a sequence, and the gates around them."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.attention import recurrence_shapes
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

TYPES = {float32, float16, bfloat16}

define(
    "com.microsoft",
    "LinearAttention",
    1,
    "(query: T, key: T, value: T, past_state: S?, decay: T?, beta: T?, *, q_num_heads: int, kv_num_heads: int,"
    " update_rule: string = 'gated_delta', scale: float = 0.0, chunk_size: int = 64, state_window: int = 0)"
    " -> (output: T, present_state: S)",
    T=TYPES,
    S=TYPES,
)
define(
    "com.microsoft",
    "CausalConvWithState",
    1,
    "(input: T, weight: T, bias: T?, past_state: T?, *, activation: string = 'none', ndim: int = 1, dilation: int = 1,"
    " channels_last: int = 0, state_window: int = 0) -> (output: T, present_state: T)",
    T=TYPES,
)
define(
    "com.microsoft",
    "LinearAttentionGate",
    1,
    "(a: T, dt_bias: TF, decay_scale: TF, b: T?) -> (decay: T, beta: T?)",
    T=TYPES,
    TF={float32},
)
define(
    "com.microsoft",
    "GatedRMSNorm",
    1,
    "(X: T, scale: T, gate: T, *, activation: string = 'silu', epsilon: float = 1e-5) -> (Y: T)",
    T=TYPES,
)
define("com.microsoft", "GatedAdd", 1, "(X: T, Y: T, gate: T) -> (output: T)", T=TYPES)


@contrib("GatedRMSNorm")
def gated_rms_norm(X, scale, gate):
    scale.require_rank(1, name="scale")
    return _with_as_many_axes(X, gate=gate)


@contrib("GatedAdd")
def gated_add(X, Y, gate):
    return _with_as_many_axes(X, Y=Y, gate=gate)


def _with_as_many_axes(X, **others):
    """The shape of X, whose axes the others must have, too."""
    for name, operand in others.items():
        if X.rank is not None:
            operand.require_rank(X.rank, name=name)
    return X.shape


@contrib("LinearAttention")
def linear_attention(query, key, value, past_state, decay, beta, q_num_heads, kv_num_heads, state_window):
    most, least = max(q_num_heads, kv_num_heads), min(q_num_heads, kv_num_heads)
    if least < 1 or most % least:
        raise InferenceError(f"one of q_num_heads {q_num_heads} and kv_num_heads {kv_num_heads} must divide the other")
    queries, keys, values = recurrence_shapes(query, key, value, decay, beta)
    size = dim.floordiv(values[2], kv_num_heads)
    state = (queries[0], kv_num_heads, dim.floordiv(keys[2], kv_num_heads), size)
    dtype = query.dtype if past_state is None else past_state.dtype
    return [(*queries[:2], most * size), TensorType(dtype, (state_window, *state) if state_window else state)]


@contrib("CausalConvWithState")
def causal_conv_with_state(input, weight, past_state, ndim, dilation, channels_last, state_window):
    if ndim != 1 or dilation < 1:
        raise InferenceError(f"ndim must be 1 and dilation positive, they are {ndim} and {dilation}")
    kernel = weight.require_rank(3, name="weight")
    input.require_rank(3, 4, name="input")
    if input.shape is None:
        return [None, None if past_state is None else past_state.shape]
    length = dim.fresh() if kernel is None else (kernel[2] - 1) * dilation
    batch, *rest = input.shape
    state = (batch, length, *rest[1:]) if channels_last else (batch, rest[0], length)
    return [input.shape, (state_window, *state) if state_window else state]


@contrib("LinearAttentionGate")
def linear_attention_gate(a, b):
    return [a.shape, None if b is None else b.shape]
