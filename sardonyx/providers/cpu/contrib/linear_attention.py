"""Layers of com.microsoft that carry a state along a sequence, and the gates around them, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.activation import sigmoid, softplus, swish
from sardonyx.providers.cpu.conv import causal_conv_with_state as conv_with_state
from sardonyx.providers.cpu.linear_attention import linear_attention as attend
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched

contrib = cpu.in_domain("com.microsoft")


@contrib("LinearAttention", widen=True)
def linear_attention(
    query,
    key,
    value,
    past_state=None,
    decay=None,
    beta=None,
    *,
    q_num_heads,
    kv_num_heads,
    update_rule="gated_delta",
    scale=0.0,
    chunk_size=64,
    state_window=0,
):
    """Beyond the standard's op: more key heads than query heads, and the states after each of the last tokens."""
    if kv_num_heads > q_num_heads:
        query = _repeated_heads(query, q_num_heads, kv_num_heads)
        q_num_heads = kv_num_heads
    settings = {"q_num_heads": q_num_heads, "kv_num_heads": kv_num_heads, "update_rule": update_rule, "scale": scale}
    if not state_window:
        return attend(query, key, value, past_state, decay, beta, **settings)

    def piece(tokens, state):
        rates = (None if part is None else part[:, tokens] for part in (decay, beta))
        return attend(query[:, tokens], key[:, tokens], value[:, tokens], state, *rates, **settings)

    return _windowed(piece, query.shape[1], state_window, None if past_state is None else past_state[-1], axis=1)


def _repeated_heads(query, heads, wanted):
    batch, steps, width = query.shape
    apart = query.reshape(batch, steps, heads, width // heads)
    return np.repeat(apart, wanted // heads, axis=2).reshape(batch, steps, width // heads * wanted)


def _windowed(piece, length, window, state, axis):
    """`piece(tokens, state)`, an output and the state after it, for the first tokens together and the last ones apart.

    Returns the whole output and the states of the window; those of tokens that came before this run are zeros.
    """
    together = max(0, length - window + 1)
    pieces = [piece(slice(0, together), state)]
    for token in watched(range(together, length)):
        pieces.append(piece(slice(token, token + 1), pieces[-1][1]))
    outputs, states = zip(*pieces, strict=True)
    after = np.zeros((window, *states[0].shape), states[0].dtype)
    kept = states[-min(window, length) :] if length else ()
    for slot, kept_state in enumerate(kept, start=window - len(kept)):
        after[slot] = kept_state
    return np.concatenate(outputs, axis=axis), after


@contrib("CausalConvWithState", widen=True)
def causal_conv_with_state(
    input,
    weight,
    bias=None,
    past_state=None,
    *,
    activation="none",
    ndim=1,
    dilation=1,
    channels_last=0,
    state_window=0,
):
    if ndim != 1:
        raise KernelError(f"only sequences of one dimension are supported, ndim is {ndim}", InvalidArgument)
    shape = input.shape
    if channels_last:
        input = _channels_first(input)
        past_state = None if past_state is None else _channels_first(past_state, leading=1 if state_window else 0)
    weight = _dilated(weight, dilation)

    def piece(tokens, state):
        return conv_with_state(input[:, :, tokens], weight, bias, state, activation)

    if state_window:
        output, state = _windowed(piece, input.shape[2], state_window, None if past_state is None else past_state[-1], axis=2)
    else:
        output, state = piece(slice(None), past_state)
    if channels_last:
        output = output.swapaxes(-1, -2).reshape(shape)
        state = state.swapaxes(-1, -2).reshape(*state.shape[:-2], state.shape[-1], *shape[2:])
    return output, state


def _channels_first(tensor, leading=0):
    """(batch, sequence, channels…) as (batch, channels, sequence), behind `leading` more axes."""
    *lead, length = tensor.shape[: leading + 2]
    channels = math.prod(tensor.shape[leading + 2 :])
    return tensor.reshape(*lead, length, channels).swapaxes(-1, -2)


def _dilated(weight, dilation):
    """A kernel with zeros between its taps."""
    if dilation == 1:
        return weight
    spread = np.zeros((*weight.shape[:2], (weight.shape[2] - 1) * dilation + 1), weight.dtype)
    spread[:, :, ::dilation] = weight
    return spread


@contrib("LinearAttentionGate", widen=True)
def linear_attention_gate(a, dt_bias, decay_scale, b=None):
    return decay_scale * softplus(a + dt_bias), None if b is None else sigmoid(b)


GATES = {"silu": swish, "swish": swish, "sigmoid": sigmoid}


@contrib("GatedRMSNorm", widen=True)
def gated_rms_norm(X, scale, gate, *, activation="silu", epsilon=1e-5):
    """Runs of as many features as there are scales are normalized by themselves."""
    if activation not in GATES:
        raise KernelError(f"activation must be silu, swish or sigmoid, not {activation!r}", InvalidArgument)
    if scale.ndim != 1 or gate.ndim != X.ndim:
        raise KernelError(f"scale must have one axis and gate {X.ndim}, not {scale.ndim} and {gate.ndim}", InvalidArgument)
    if not scale.size or X.shape[-1] % scale.size:
        raise KernelError(f"{X.shape[-1]} features are not made of runs of {scale.size}", InvalidArgument)
    runs = X.reshape(*X.shape[:-1], X.shape[-1] // scale.size, scale.size)
    mean = np.square(runs).sum(axis=-1, keepdims=True) / np.float32(scale.size)
    normalized = runs / np.sqrt(mean + np.float32(epsilon)) * scale
    return normalized.reshape(X.shape) * GATES[activation](gate)


@contrib("GatedAdd")
def gated_add(X, Y, gate):
    """The product is rounded to the type of the operands before it is added."""
    if not X.ndim == Y.ndim == gate.ndim or np.broadcast_shapes(X.shape, Y.shape, gate.shape) != X.shape:
        shapes = ", ".join(str(list(operand.shape)) for operand in (X, Y, gate))
        raise KernelError(f"Y and gate must fit into X; the shapes are {shapes}", InvalidArgument)
    product = (Y.astype(np.float32) * gate.astype(np.float32)).astype(X.dtype)
    return (X.astype(np.float32) + product.astype(np.float32)).astype(X.dtype)
