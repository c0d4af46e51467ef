"""CausalConvWithState: a convolution along a sequence that begins with the end of what came before, composed of a plain one."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile

CONTRIB = "com.microsoft"


@compose("CausalConvWithState", widen=True)
def causal_conv_with_state(
    op: Composer, input: Value, weight: Value, bias: Value | None, past_state: Value | None, activation: str
) -> Sequence[Value]:
    return _convolved(op, input, weight, bias, past_state, activation, dilation=1)


def _convolved(
    op: Composer, input: Value, weight: Value, bias: Value | None, past: Value | None, activation: str, dilation: int
) -> Sequence[Value]:
    if rank_of(input) != 3 or rank_of(weight) != 3:
        raise CannotCompile("sequences have three axes", quiet=True)
    if activation not in ("none", "silu", "swish"):
        raise CannotCompile(f"{activation} is no activation", quiet=True)
    batch, channels, _ = dims(input)
    kept = (dim.maximum(dims(weight)[-1], 1) - 1) * dilation
    if past is None:
        past = op.Expand(op.number(0, input), op.sizes(batch, channels, kept))
    else:
        op.require_shape(past, (batch, channels, kept))
        past = op.reshape(past, batch, channels, kept)
    sequence = op.Concat(past, input, axis=2)
    length = dims(sequence)[2]
    groups = next((size for size in (channels, dims(weight)[0]) if isinstance(size, int)), None)
    if groups is not None:
        output = op.Conv(sequence, weight, bias, group=groups, dilations=[dilation])
    else:
        output = _of_open_channels(op, sequence, weight, bias, dims(input)[2], dilation)
    state = op.Slice(sequence, op.sizes(length - kept), op.sizes(length), op.constant([2]))
    return output if activation == "none" else op.Swish(output), state


def _of_open_channels(op: Composer, sequence: Value, weight: Value, bias: Value | None, length: Dim, dilation: int) -> Value:
    """The same convolution of as many channels as a run has: each with its filter, windows side by side."""
    channels, taps = dims(sequence)[1], dim.maximum(dims(weight)[2], 1)
    op.require_shape(weight, (channels, 1, taps))
    first, steps = op.reshape(op.counted(length), length, 1), op.Mul(op.counted(taps), op.constant(dilation))
    windows = op.Gather(sequence, op.Add(first, steps), axis=2)
    output: Value = op.Einsum(windows, op.reshape(weight, channels, taps), equation="bclt,ct->bcl")
    if bias is None:
        return output
    op.require_shape(bias, (channels,))
    made: Value = op.Add(output, op.reshape(bias, channels, 1))
    return made


@compose("CausalConvWithState", domain=CONTRIB, widen=True)
def contrib_causal_conv_with_state(
    op: Composer,
    input: Value,
    weight: Value,
    bias: Value | None,
    past_state: Value | None,
    activation: str,
    ndim: int,
    dilation: int | None,
    channels_last: int | None,
    state_window: int | None,
) -> Sequence[Value]:
    if ndim != 1 or (dilation or 1) < 1 or state_window:
        raise CannotCompile("states of several tokens are left to NumPy", quiet=True)
    if rank_of(input) < 3 or not channels_last:
        return _convolved(op, input, weight, bias, past_state, activation, dilation or 1)
    past = None if past_state is None else _channels_first(op, past_state)
    output, state = _convolved(op, _channels_first(op, input), weight, bias, past, activation, dilation or 1)
    return _channels_last(op, output, input), _channels_last(op, state, input)


def _channels_first(op: Composer, tensor: Value) -> Value:
    """(batch, sequence, channels…) as (batch, channels, sequence)."""
    batch, length, *channels = dims(tensor)
    flat = tensor if rank_of(tensor) == 3 else op.reshape(tensor, batch, length, dim.product(channels))
    made: Value = op.Transpose(flat, perm=[0, 2, 1])
    return made


def _channels_last(op: Composer, tensor: Value, like: Value) -> Value:
    batch, _, length = dims(tensor)
    return op.reshape(op.Transpose(tensor, perm=[0, 2, 1]), batch, length, *dims(like)[2:])
