"""Ops of com.microsoft that diffusion models are optimized to, composed of ONNX's own."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile

CONTRIB = "com.microsoft"


@compose("BiasSplitGelu", domain=CONTRIB, widen=True)
def bias_split_gelu(op: Composer, X: Value, bias: Value) -> Value:
    half: Dim = dim.floordiv(dims(X)[-1], 2)
    op.require(half * 2, dims(X)[-1])
    both = op.reshape(op.Add(X, bias), *dims(X)[:-1], 2, half)
    left, right = op.Split(both, outputs=2, axis=-2, num_outputs=2)
    made: Value = op.Mul(left, op.Gelu(right))
    return op.reshape(made, *dims(X)[:-1], half)


def channels_first(op: Composer, X: Value) -> Value:
    made: Value = op.Transpose(X, perm=[0, rank_of(X) - 1, *range(1, rank_of(X) - 1)])
    return made


def channels_last(op: Composer, X: Value) -> Value:
    made: Value = op.Transpose(X, perm=[0, *range(2, rank_of(X)), 1])
    return made


@compose("GroupNorm", domain=CONTRIB, widen=True)
def group_norm(
    op: Composer, X: Value, gamma: Value, beta: Value, groups: int, activation: int, epsilon: float, channels_last: int
) -> Value:
    if activation not in (0, 1):
        raise CannotCompile(f"activation is {activation}", quiet=True)
    arranged = channels_first(op, X) if channels_last else X
    Y = op.GroupNormalization(arranged, op.cast(gamma, X), op.cast(beta, X), num_groups=groups, epsilon=epsilon)
    Y = op.Swish(Y) if activation else Y
    return _back(op, Y) if channels_last else Y


_back = channels_last


@compose("SkipGroupNorm", domain=CONTRIB, widen=True)
def skip_group_norm(
    op: Composer,
    X: Value,
    gamma: Value,
    beta: Value,
    skip: Value,
    bias: Value | None,
    groups: int,
    activation: int,
    epsilon: float,
    channels_last: int,
) -> Sequence[Value]:
    if rank_of(skip) == 2:
        shape = (dims(skip)[0], 1, 1, dims(skip)[1]) if channels_last else (*dims(skip), 1, 1)
        skip = op.reshape(skip, *shape)
    S = op.Add(X, skip)
    if bias is not None:
        S = op.Add(S, bias if channels_last else op.reshape(bias, *dims(bias), 1, 1))
    return group_norm(op, S, gamma, beta, groups, activation, epsilon, channels_last), S


@compose("NhwcConv", domain=CONTRIB)
def nhwc_conv(
    op: Composer,
    X: Value,
    W: Value,
    B: Value | None,
    auto_pad: str,
    kernel_shape: Sequence[int] | None,
    dilations: Sequence[int] | None,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    group: int,
) -> Value:
    windows = {"kernel_shape": kernel_shape, "dilations": dilations, "strides": strides, "pads": pads}
    filters = channels_first(op, W)
    return channels_last(op, op.Conv(channels_first(op, X), filters, B, auto_pad=auto_pad, group=group, **windows))
