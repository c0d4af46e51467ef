"""Depthwise transposed convolutions, composed: every so-manieth pixel of the result is a plain convolution with some of the taps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv.transpose import has_phases, transposed_of
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile


@compose("ConvTranspose", claims=has_phases, widen=True)
def conv_transpose(op: Composer, X: Value, W: Value, B: Value | None, node: Node) -> Value:
    """With stride s, pixels p, p + s, p + 2s … of the result are the image convolved with the taps p, p + s, … backwards."""
    sizes = transposed_of(node)
    kernel_shape = operand(node, "kernel_shape")
    if dims(X)[1] != sizes.groups or (kernel_shape and tuple(kernel_shape) != sizes.kernel):
        raise CannotCompile("channels and filters do not fit", quiet=True)
    strides = sizes.strides
    more = [max(0, -(-size // stride) - 1) for size, stride in zip(sizes.kernel, strides)]
    lengths = [length + extra for length, extra in zip(sizes.input, more)]
    phases = [_phase(op, X, W, phase, strides, more, sizes.groups) for phase in itertools.product(*map(range, strides))]
    whole = _interleaved(op, phases, lengths, strides)
    return _with_bias(op, _cut(op, whole, sizes.begin, sizes.output), B)


def _phase(
    op: Composer, X: Value, W: Value, phase: Sequence[int], strides: Sequence[int], more: Sequence[int], groups: int
) -> Value:
    """The pixels of the result at one place between the strides; `more` than the image has."""
    axes = range(2, rank_of(W))
    kernel = dims(W)[2:]
    taps = [len(range(first, int(size), stride)) for first, size, stride in zip(phase, kernel, strides)]  # type: ignore[arg-type]
    if not all(taps):
        shape = [size + extra for size, extra in zip(dims(X)[2:], more)]
        zeros: Value = op.Expand(op.number(0, X), op.sizes(*dims(X)[:2], *shape))
        return zeros
    last = [first + (count - 1) * stride for first, count, stride in zip(phase, taps, strides)]
    ends = [first - stride if first >= stride else -(2**31) for first, stride in zip(phase, strides)]
    steps = [-stride for stride in strides]
    chosen = op.Slice(W, op.constant(last), op.constant(ends), op.constant(list(axes)), op.constant(steps))
    made: Value = op.Conv(X, chosen, group=groups, pads=[*(count - 1 for count in taps), *more])
    return made


def _interleaved(op: Composer, phases: Sequence[Value], lengths: Sequence[Dim], strides: Sequence[int]) -> Value:
    """All phases in their places, (N, C, length · stride, …)."""
    rank = len(lengths)
    batch, channels = dims(phases[0])[:2]
    stacked = op.Concat(*(op.Unsqueeze(phase, axes=[2]) for phase in phases), axis=2)
    apart = op.reshape(stacked, batch, channels, *strides, *lengths)
    order = [0, 1, *itertools.chain.from_iterable((2 + rank + axis, 2 + axis) for axis in range(rank))]
    joined = [length * stride for length, stride in zip(lengths, strides)]
    return op.reshape(op.Transpose(apart, perm=order), batch, channels, *joined)


def _cut(op: Composer, whole: Value, begin: Sequence[Dim], output: Sequence[Dim]) -> Value:
    """The part of it that is the result, with zeros where that reaches beyond."""
    axes = op.constant(list(range(2, rank_of(whole))))
    ends = [first + size for first, size in zip(begin, output)]
    missing = [dim.maximum(0, end - size) for end, size in zip(ends, dims(whole)[2:])]
    if any(size != 0 for size in missing):
        zeros = [0] * (rank_of(whole) + 2)
        whole = op.Pad(whole, op.sizes(*zeros, *missing))
    part = op.Slice(whole, op.sizes(*begin), op.sizes(*(dim.maximum(0, end) for end in ends)), axes)
    return op.reshape(part, *dims(whole)[:2], *output)


def _with_bias(op: Composer, image: Value, B: Value | None) -> Value:
    if B is None:
        return image
    op.require_shape(B, dims(image)[1:2])
    made: Value = op.Add(image, op.reshape(B, dims(B)[0], *(1,) * (rank_of(image) - 2)))
    return made
