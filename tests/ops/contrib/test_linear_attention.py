"""Cases of com.microsoft's layers with a state, and of the gates around them."""

import itertools

import numpy as np
import pytest

from sardonyx import errors
from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.providers.cpu.contrib.linear_attention import causal_conv_with_state, linear_attention
from tests.ops.cases import case, f32, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}
ALONE = {"domain": CONTRIB}
TYPES = {float32, float16, bfloat16}


# --- LinearAttention


def recurrence(
    query, key, value, q_num_heads, kv_num_heads, past_state=None, decay=None, beta=None, update_rule="gated_delta", scale=0.0
):
    """Output and all states, one token at a time."""
    batch, steps, _ = query.shape
    size, value_size = key.shape[2] // kv_num_heads, value.shape[2] // kv_num_heads
    heads = max(q_num_heads, kv_num_heads)
    output = np.zeros((batch, steps, heads, value_size))
    states = np.zeros((steps + 1, batch, kv_num_heads, size, value_size))
    if past_state is not None:
        states[0] = past_state
    for b, t, h in itertools.product(range(batch), range(steps), range(kv_num_heads)):
        state = states[t, b, h].copy()
        k, v = key[b, t].reshape(kv_num_heads, size)[h], value[b, t].reshape(kv_num_heads, value_size)[h]
        if update_rule.startswith("gated"):
            gate = decay[b, t].reshape(kv_num_heads, -1)[h]
            state *= np.exp(gate)[:, None]
        if update_rule.endswith("delta"):
            v = beta[b, t][h if beta.shape[2] > 1 else 0] * (v - state.T @ k)
        states[t + 1, b, h] = state + np.outer(k, v)
        for head in range(heads):
            if head * kv_num_heads // heads == h:
                q = query[b, t].reshape(q_num_heads, size)[head * q_num_heads // heads]
                output[b, t, head] = (scale or size**-0.5) * q @ states[t + 1, b, h]
    return output.reshape(batch, steps, heads * value_size), states


def attended(
    query, key, value, q_num_heads, kv_num_heads, past_state=None, decay=None, beta=None, update_rule="gated_delta", scale=0.0
):
    output, states = recurrence(query, key, value, q_num_heads, kv_num_heads, past_state, decay, beta, update_rule, scale)
    return output.astype(np.float32), states[-1].astype(np.float32)


NEAR = {"rtol": 1e-4, "atol": 1e-5, "expect": attended}
for (queries, keys), rule in itertools.product(((2, 2), (4, 2), (2, 4)), ("linear", "gated", "delta", "gated_delta")):
    tensors = {"query": f32(2, 5, queries * 4), "key": f32(2, 5, keys * 4) / 2, "value": f32(2, 5, keys * 3)}
    rates = {"decay": -f32(2, 5, keys, low=0, high=1)} if rule.startswith("gated") else {}
    rates |= {"beta": f32(2, 5, keys, low=0, high=1)} if rule.endswith("delta") else {}
    heads = {"q_num_heads": queries, "kv_num_heads": keys, "update_rule": rule}
    case("LinearAttention", **tensors, **rates, **heads, **NEAR, **BOTH)
    case("LinearAttention", **tensors, **rates, **heads, past_state=f32(2, keys, 4, 3), scale=0.3, **NEAR, **BOTH)
tensors = {"query": f32(2, 5, 8), "key": f32(2, 5, 8) / 2, "value": f32(2, 5, 6), "q_num_heads": 2, "kv_num_heads": 2}
by_key = {"decay": -f32(2, 5, 8, low=0, high=1), "beta": f32(2, 5, 1, low=0, high=1), "chunk_size": 2}
case("LinearAttention", **tensors, **by_key, **NEAR, **BOTH)
case("LinearAttention", **tensors, update_rule="linear", types={"T": TYPES}, **ALONE, expect=attended, rtol=3e-2, atol=3e-2)
none = {**tensors, "query": f32(2, 0, 8), "key": f32(2, 0, 8), "value": f32(2, 0, 6)}
case("LinearAttention", **none, update_rule="linear", past_state=f32(2, 2, 4, 3), **ALONE, expect=attended)
refuse("LinearAttention", **{**tensors, "q_num_heads": 3}, **ALONE, match="must divide the other")
refuse("LinearAttention", **tensors, update_rule="square", **ALONE, match="update_rule is .square., expected one of")


@pytest.mark.parametrize("window", [1, 3, 7])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("with_past", [False, True])
def test_a_window_holds_the_state_after_each_of_the_last_tokens(window, steps, with_past):
    query, key, value = f32(2, steps, 8), f32(2, steps, 8), f32(2, steps, 6)
    past = f32(window, 2, 2, 4, 3) if with_past else None
    settings = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    output, after = linear_attention(query, key, value, past, **settings, state_window=window)
    expected, states = recurrence(query, key, value, past_state=past[-1] if with_past else None, **settings)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    for slot in range(window):
        token = steps - window + slot
        np.testing.assert_allclose(after[slot], states[token + 1] if token >= 0 else 0 * states[0], rtol=1e-4, atol=1e-5)


# --- CausalConvWithState


def convolved(input, weight, bias=None, past_state=None, activation="none", dilation=1, channels_last=0):
    """Output and state, one position and one tap at a time; channels first inside."""
    shape = input.shape
    if channels_last:
        input = np.moveaxis(input.reshape(*shape[:2], -1), 1, 2)
        past_state = None if past_state is None else np.moveaxis(past_state.reshape(*past_state.shape[:2], -1), 1, 2)
    batch, channels, length = input.shape
    taps = weight.shape[2]
    reach = (taps - 1) * dilation
    past = np.zeros((batch, channels, reach), np.float32) if past_state is None else past_state
    line = np.concatenate([past, input], axis=2)
    output = np.zeros(input.shape, np.float32)
    for position, tap in itertools.product(range(length), range(taps)):
        output[:, :, position] += line[:, :, position + tap * dilation] * weight[:, 0, tap]
    output += 0 if bias is None else bias[:, None]
    if activation != "none":
        output = output / (1 + np.exp(-output))
    state = line[:, :, length:]
    if channels_last:
        output = np.moveaxis(output, 2, 1).reshape(shape)
        state = np.moveaxis(state, 2, 1).reshape(batch, reach, *shape[2:])
    return output, state


for dilation, activation in itertools.product((1, 2), ("none", "silu", "swish")):
    settings = {"dilation": dilation, "activation": activation, **BOTH, "expect": convolved}
    case("CausalConvWithState", input=f32(2, 3, 6), weight=f32(3, 1, 4), **settings)
    past = f32(2, 3, 3 * dilation)
    case("CausalConvWithState", input=f32(2, 3, 6), weight=f32(3, 1, 4), bias=f32(3), past_state=past, **settings)
    case("CausalConvWithState", input=f32(2, 3, 1), weight=f32(3, 1, 4), past_state=past, **settings)
    last = {"channels_last": 1, **settings}
    case("CausalConvWithState", input=f32(2, 6, 3), weight=f32(3, 1, 4), bias=f32(3), **last)
    past = f32(2, 3 * dilation, 3)
    case("CausalConvWithState", input=f32(2, 6, 3), weight=f32(3, 1, 4), past_state=past, **last)
    case("CausalConvWithState", input=f32(2, 6, 2, 3), weight=f32(6, 1, 4), bias=f32(6), **last)
case("CausalConvWithState", input=f32(2, 3, 6), weight=f32(3, 1, 1), **BOTH, expect=convolved)
case("CausalConvWithState", input=f32(0, 3, 6), weight=f32(3, 1, 4), **ALONE, expect=convolved)
reach = 3 << 40  # so many zeros between the taps are passed over, as there is no channel
empty = (np.zeros((2, 0, 6)), np.zeros((2, 0, reach)))
case("CausalConvWithState", input=f32(2, 0, 6), weight=f32(0, 1, 4), dilation=1 << 40, **ALONE, expect=empty)
case(
    "CausalConvWithState",
    input=f32(2, 3, 6),
    weight=f32(3, 1, 2),
    types={"T": TYPES},
    **ALONE,
    expect=convolved,
    rtol=3e-2,
    atol=3e-2,
)
refuse(
    "CausalConvWithState",
    input=f32(2, 3, 6),
    weight=f32(3, 1, 4),
    activation="relu",
    **ALONE,
    match="activation is .relu., expected one of",
)
refuse("CausalConvWithState", input=f32(2, 3, 4, 6), weight=f32(3, 1, 4), ndim=2, **ALONE, match="ndim must be 1")
refuse("CausalConvWithState", input=f32(2, 3, 6), weight=f32(3, 1, 4), dilation=0, **ALONE, match="dilation positive")


@pytest.mark.parametrize("window", [1, 3, 7])
@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("channels_last", [0, 1])
def test_a_window_holds_the_inputs_before_each_of_the_last_positions(window, length, channels_last):
    shape = (2, length, 3) if channels_last else (2, 3, length)
    input, weight = f32(*shape), f32(3, 1, 3)
    past = f32(window, *((2, 2, 3) if channels_last else (2, 3, 2)))
    output, after = causal_conv_with_state(input, weight, None, past, channels_last=channels_last, state_window=window)
    expected, _ = convolved(input, weight, past_state=past[-1], channels_last=channels_last)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    axis = 1 if channels_last else 2
    line = np.concatenate([past[-1], input], axis=axis)
    for slot in range(window):
        seen = length - window + slot + 1
        wanted = np.take(line, [seen, seen + 1], axis=axis) if seen > 0 else np.zeros_like(past[-1])
        np.testing.assert_array_equal(after[slot], wanted)


def test_more_than_one_dimension_is_refused_by_the_kernel_too():
    with pytest.raises(errors.KernelError, match="ndim is 2"):
        causal_conv_with_state(f32(1, 2, 3, 4), f32(2, 1, 2, 2), ndim=2)


# --- gates


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


case(
    "LinearAttentionGate",
    a=f32(2, 5, 4),
    dt_bias=f32(4),
    decay_scale=f32(4),
    b=f32(2, 5, 4),
    **BOTH,
    expect=lambda a, dt_bias, decay_scale, b: (decay_scale * np.logaddexp(0, a + dt_bias), sigmoid(b)),
)
GATE = {
    "dt_bias": f32(4),
    "decay_scale": f32(4),
    "expect": lambda a, dt_bias, decay_scale: decay_scale * np.logaddexp(0, a + dt_bias),
}
case("LinearAttentionGate", a=f32(2, 5, 4), **GATE, **BOTH, types={"T": TYPES}, rtol=2e-2, atol=1e-2)
case("LinearAttentionGate", a=np.full((1, 1, 4), 90, np.float32), **GATE, **BOTH)
case("LinearAttentionGate", a=f32(0, 5, 4), **GATE, **ALONE)


def gated_norm(X, scale, gate, epsilon=1e-5, activation="silu"):
    runs = np.stack(np.split(X, X.shape[-1] // len(scale), axis=-1), axis=-2)
    unit = runs / np.sqrt((runs**2).mean(axis=-1, keepdims=True) + epsilon) * scale
    return unit.reshape(X.shape) * (sigmoid(gate) if activation == "sigmoid" else gate * sigmoid(gate))


for activation, size in itertools.product(("silu", "swish", "sigmoid"), (4, 8)):
    settings = {"activation": activation, **BOTH, "expect": gated_norm}
    case("GatedRMSNorm", X=f32(2, 5, 8), scale=f32(size), gate=f32(2, 5, 8), **settings)
    case("GatedRMSNorm", X=f32(3, 8), scale=f32(size), gate=f32(3, 8), epsilon=0.5, **settings)
case(
    "GatedRMSNorm",
    X=f32(2, 8),
    scale=f32(4),
    gate=f32(2, 8),
    types={"T": TYPES},
    **BOTH,
    expect=gated_norm,
    rtol=3e-2,
    atol=2e-2,
)
case("GatedRMSNorm", X=f32(0, 8), scale=f32(4), gate=f32(0, 8), **ALONE, expect=np.zeros((0, 8), np.float32))
refuse("GatedRMSNorm", X=f32(2, 8), scale=f32(3), gate=f32(2, 8), **ALONE, match="not made of runs of 3")
refuse("GatedRMSNorm", X=f32(2, 8), scale=f32(4), gate=f32(2, 8), activation="relu", **ALONE, match="not 'relu'")

case("GatedAdd", X=f32(2, 5, 8), Y=f32(2, 5, 8), gate=f32(2, 5, 1), **BOTH, expect=lambda X, Y, gate: X + Y * gate)
case(
    "GatedAdd",
    X=f32(3, 1),
    Y=f32(3, 1),
    gate=f32(3, 1),
    **BOTH,
    types={"T": TYPES},
    expect=lambda X, Y, gate: X + Y * gate,
    rtol=2e-2,
)
case("GatedAdd", X=f32(0, 8), Y=f32(0, 8), gate=f32(0, 1), **ALONE, expect=np.zeros((0, 8), np.float32))
