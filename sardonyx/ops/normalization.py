"""Inference of the softmax family and of normalizations."""

from __future__ import annotations

from typing import Any

from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType
from sardonyx.ops.facts import along_axis, always, by_entry, exact, first_output_by_entry, never_below_zero
from sardonyx.ops.reading import operand
from sardonyx.ops.shapes import axis_index, axis_indices, element_type, text
from sardonyx.ops.table import infer


def _channels(X):
    return X.shape[1] if X.rank is not None and X.rank > 1 else None


def _check_length(wanted, *also, **parameters):
    """Refuse parameters that are no vectors of so many numbers, or as many as one of `also` says."""
    for name, parameter in parameters.items():
        length = (parameter.require_rank(1, name=name) or (None,))[0]
        if isinstance(length, int) and isinstance(wanted, int) and length not in (wanted, *also):
            raise InferenceError(f"{name} must have {wanted} elements, not {length}")


@infer("InstanceNormalization", has_layout=True, rows=by_entry)
def instance_normalization(input, scale, B):
    _check_length(_channels(input), scale=scale, B=B)
    return input.shape


@infer("LRN", has_layout=True, rows=by_entry)
def lrn(X, size):
    if size < 1:
        raise InferenceError(f"size must be positive, it is {size}")
    return X.shape


@infer("MeanVarianceNormalization")
def mean_variance_normalization(X, axes):
    if X.rank is not None:
        axis_indices(axes, X.rank)
    return X.shape


SOFTMAX: dict[str, Any] = {"non_negative": never_below_zero, "takes_any_data": always, "rows": along_axis}


@infer("Softmax", since=13, **SOFTMAX)
@infer("LogSoftmax", since=13, rows=along_axis)
@infer("Hardmax", since=13, precision=exact)
@infer("LpNormalization")
def of_one_axis(input, axis):
    if input.rank:
        axis_index(axis, input.rank)
    return input.shape


@infer("Softmax", until=12, **SOFTMAX)
@infer("LogSoftmax", until=12, rows=along_axis)
@infer("Hardmax", until=12, precision=exact)
def from_axis(input, axis):
    if input.rank is not None and not -input.rank <= axis <= input.rank:
        raise InferenceError(f"axis {axis} is outside [{-input.rank}, {input.rank}]")
    return input.shape


def _by_entry_unless_training(node, batched):
    return first_output_by_entry(node, batched) and not operand(node, "training_mode")


@infer("BatchNormalization", has_layout=True, rows=_by_entry_unless_training)
def batch_normalization(X, scale, B, input_mean, input_var, spatial, output_count):
    if spatial != 0:  # before opset 9 every activation could have parameters of its own
        _check_length(_channels(X), scale=scale, B=B, input_mean=input_mean, input_var=input_var)
    return [X.shape, *(input_mean.shape, input_var.shape, input_mean.shape, input_var.shape)[: output_count - 1]]


@infer("GroupNormalization", since=21, rows=by_entry)
def group_normalization(X, scale, bias, num_groups):
    return _grouped(X, scale, bias, num_groups, _channels(X))


@infer("GroupNormalization", until=20, rows=by_entry)
def group_normalization_by_group(X, scale, bias, num_groups):
    """Before opset 21 scale and bias belonged to the groups, not to the channels."""
    return _grouped(X, scale, bias, num_groups, num_groups)


def _grouped(X, scale, bias, num_groups, wanted):
    """A single number is for all: the function body of the op broadcasts it."""
    channels = _channels(X)
    if num_groups < 1 or (isinstance(channels, int) and channels % num_groups):
        raise InferenceError(f"{channels} channels cannot be divided into {num_groups} groups")
    _check_length(wanted, 1, scale=scale, bias=bias)
    return X.shape


def _check_broadcast(X, **parameters):
    """Refuse parameters that do not broadcast to X."""
    for name, parameter in parameters.items():
        if parameter is None or parameter.shape is None or X.shape is None:
            continue
        places = X.shape[len(X.shape) - len(parameter.shape) :] if len(parameter.shape) <= len(X.shape) else None
        if places is None or any(
            size != 1 and isinstance(size, int) and isinstance(place, int) and size != place
            for size, place in zip(parameter.shape, places)
        ):
            raise InferenceError(f"{name} {text(parameter.shape)} cannot be broadcast to X {text(X.shape)}")


@infer("LayerNormalization", rows=along_axis)
def layer_normalization(X, Scale, B, axis, stash_type):
    _check_broadcast(X, Scale=Scale, B=B)
    stash = element_type(stash_type, "stash_type")
    if X.shape is None:
        return [None, TensorType(stash), TensorType(stash)]
    axis = axis_index(axis, X.rank)
    statistics = TensorType(stash, X.shape[:axis] + (1,) * (X.rank - axis))
    return [X.shape, statistics, statistics]


@infer("RMSNormalization")
def rms_normalization(X, scale, axis):
    _check_broadcast(X, scale=scale)
    if X.rank is not None:
        axis_index(axis, X.rank)
    return X.shape
