"""Normalizations that are composed of other ops: statistics of a batch while training, and types that no kernel here takes."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir import Node, Value
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of, required
from sardonyx.providers.provider import CannotCompile


def _statistics(op: Composer, X: Value) -> tuple[Value, Value]:
    """Mean and variance of each channel, in a shape that broadcasts."""
    axes = [0, *range(2, rank_of(X))]
    mean = op.ReduceMean(X, axes=axes, keepdims=1)
    centred = op.Sub(X, mean)
    return mean, op.ReduceMean(op.Mul(centred, centred), axes=axes, keepdims=1)


def _by_channel(op: Composer, value: Value, X: Value) -> Value:
    """One number for each channel of X, in its type and a shape that broadcasts to it."""
    op.require_shape(value, dims(X)[1:2])
    return op.reshape(op.cast(value, X), dims(X)[1], *(1,) * (rank_of(X) - 2))


def _normalized(op: Composer, X: Value, scale: Value, B: Value, mean: Value, var: Value, epsilon: float) -> Value:
    factor = op.Div(_by_channel(op, scale, X), op.Sqrt(op.Add(var, op.number(epsilon, X))))
    made: Value = op.Add(op.Mul(op.Sub(X, mean), factor), _by_channel(op, B, X))
    return made


def _by_running_statistics(op: Composer, X: Value, scale: Value, B: Value, mean: Value, var: Value, epsilon: float) -> Value:
    """Factor and summand of each channel are computed in the type of the statistics."""
    factor = op.Div(op.cast(scale, var), op.Sqrt(op.Add(var, op.number(epsilon, var))))
    shift = op.Sub(op.cast(B, var), op.Mul(mean, factor))
    made: Value = op.Add(op.Mul(X, _by_channel(op, factor, X)), _by_channel(op, shift, X))
    return made


def _running(op: Composer, old: Value, new: Value, momentum: float) -> Value:
    """A mean that moves toward that of this batch."""
    new = op.cast(op.reshape(new, *dims(old)), old)
    made: Value = op.Add(op.Mul(old, op.number(momentum, old)), op.Mul(new, op.number(1 - momentum, old)))
    return made


@compose("BatchNormalization", since=14, widen=True)
def batch_normalization(
    op: Composer,
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    epsilon: float,
    momentum: float,
    training_mode: int,
) -> Sequence[Value]:
    """While training, by the statistics of the batch; else by the running ones, of other types than the data's."""
    if rank_of(X) == 1 and not training_mode:  # all are of one channel
        row = op.reshape(X, dims(X)[0], 1)
        return (op.reshape(_by_running_statistics(op, row, scale, B, input_mean, input_var, epsilon), dims(X)[0]),)
    if rank_of(X) < 2:
        raise CannotCompile("there are no channels", quiet=True)
    if not training_mode:
        return (_by_running_statistics(op, X, scale, B, input_mean, input_var, epsilon),)
    results, _ = _trained(op, X, scale, B, input_mean, input_var, epsilon, momentum)
    return results


def _trained(
    op: Composer, X: Value, scale: Value, B: Value, input_mean: Value, input_var: Value, epsilon: float, momentum: float
) -> tuple[list[Value], tuple[Value, Value]]:
    """Y and the running statistics; and those of the batch."""
    mean, var = _statistics(op, X)
    Y = _normalized(op, X, scale, B, mean, var, epsilon)
    return [Y, _running(op, input_mean, mean, momentum), _running(op, input_var, var, momentum)], (mean, var)


@compose("BatchNormalization", until=13, widen=True)
def batch_normalization_by_outputs(
    op: Composer,
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    epsilon: float,
    momentum: float,
    spatial: int | None,
    is_test: int | None,
    node: Node,
) -> Sequence[Value]:
    """Up to opset 13 a node trains if it has the outputs for it."""
    if spatial == 0 or is_test or len(node.outputs) < 2 or rank_of(X) < 2:
        raise CannotCompile("it does not train", quiet=True)
    results, statistics = _trained(op, X, scale, B, input_mean, input_var, epsilon, momentum)
    return results + [op.reshape(value, *dims(input_mean)) for value in statistics]


@compose("RMSNormalization", widen=True)
def rms_normalization(op: Composer, X: Value, scale: Value, axis: int, epsilon: float) -> Value:
    axes = list(range(axis % rank_of(X), rank_of(X)))
    mean = op.ReduceMean(op.Mul(X, X), axes=axes, keepdims=1)
    normalized = op.Mul(X, op.Reciprocal(op.Sqrt(op.Add(mean, op.number(epsilon, X)))))
    made: Value = op.Mul(normalized, op.cast(scale, X))
    op.require_shape(made, dims(X))
    return made


@compose("Hardmax", since=13)
def hardmax(op: Composer, input: Value, axis: int) -> Value:
    if not dims(input):
        return op.number(1, input)
    axis %= rank_of(input)
    size = dims(input)[axis]
    places = op.counted(size)
    places = op.reshape(places, size, *(1,) * (rank_of(input) - axis - 1))
    return op.cast(op.Equal(places, op.ArgMax(input, axis=axis, keepdims=1)), input)


@compose("Hardmax", until=12)
def hardmax_of_rows(op: Composer, input: Value, axis: int) -> Value:
    """Up to opset 12 the axes from `axis` on were one flat row."""
    rows = op.Flatten(input, axis=axis)
    return op.reshape(hardmax(op, rows, 1), *dims(input))


def _has_factors(node: Node) -> bool:
    """Whether there is more than one factor, which the kernels take."""
    return dims(required(node.inputs[1])) != (1,) or (len(node.inputs) > 2 and node.inputs[2] is not None)


@compose("LayerNormalization", claims=_has_factors, widen=True)
def layer_normalization(
    op: Composer, X: Value, Scale: Value, B: Value | None, axis: int, epsilon: float, stash_type: int, node: Node
) -> Sequence[Value]:
    """With factors and summands that broadcast to rows in other ways than one for each column."""
    normalized, *statistics = _several(
        op.LayerNormalization(
            X, op.reshape(op.number(1, X), 1), outputs=len(node.outputs), axis=axis, epsilon=epsilon, stash_type=stash_type
        )
    )
    result = op.Mul(normalized, op.cast(Scale, X))
    result = result if B is None else op.Add(result, op.cast(B, X))
    op.require_shape(result, dims(X))
    return result, *statistics


@compose("SimplifiedLayerNormalization", claims=_has_factors, widen=True)
def simplified_layer_normalization(
    op: Composer, X: Value, scale: Value, axis: int, epsilon: float, stash_type: int, node: Node
) -> Sequence[Value]:
    """With factors of another type than the numbers, of which the one or the other is float64."""
    normalized, *statistics = _several(
        op.SimplifiedLayerNormalization(
            X, op.reshape(op.number(1, X), 1), outputs=len(node.outputs), axis=axis, epsilon=epsilon, stash_type=stash_type
        )
    )
    result = op.Mul(*(op.cast_to(factor, dtypes.float64) for factor in (normalized, scale)))
    op.require_shape(result, dims(X))
    return result, *statistics


def _several(made: Value | Sequence[Value]) -> Sequence[Value]:
    return [made] if isinstance(made, Value) else made
