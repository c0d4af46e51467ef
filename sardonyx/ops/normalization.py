"""Inference of the softmax family and of normalizations."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType
from sardonyx.ops.shapes import axis_index, axis_indices
from sardonyx.ops.table import infer


@infer("MeanVarianceNormalization")
def mean_variance_normalization(X, axes):
    if X.rank is not None:
        axis_indices(axes, X.rank)
    return X.shape


@infer("InstanceNormalization")
def instance_normalization(input, scale, B):
    check_channels(input, scale=scale, B=B)
    return input.shape


def check_channels(X, **parameters):
    """Refuse parameters that are not one number per channel."""
    channels = X.shape[1] if X.rank is not None and X.rank > 1 else None
    for name, parameter in parameters.items():
        shape = parameter.require_rank(1, name=name)
        if isinstance(channels, int) and shape is not None and isinstance(shape[0], int) and shape[0] != channels:
            raise InferenceError(f"{name} has {shape[0]} elements, X has {channels} channels")


@infer("LRN")
def lrn(X, size):
    if size < 1:
        raise InferenceError(f"size must be positive, it is {size}")
    return X.shape


@infer("Softmax", "LogSoftmax", "Hardmax", since=13)
@infer("LpNormalization")
def along_axis(input, axis):
    if input.rank:
        axis_index(axis, input.rank)
    return input.shape


@infer("Softmax", "LogSoftmax", "Hardmax", until=12)
def from_axis(input, axis):
    if input.rank is not None and not -input.rank <= axis <= input.rank:
        raise InferenceError(f"axis {axis} is outside [{-input.rank}, {input.rank}]")
    return input.shape


@infer("BatchNormalization")
def batch_normalization(X, scale, B, input_mean, input_var, output_count, spatial):
    if spatial != 0:
        check_channels(X, scale=scale, B=B, input_mean=input_mean, input_var=input_var)
    return [X.shape, *(input_mean.shape, input_var.shape, input_mean.shape, input_var.shape)[: output_count - 1]]


@infer("GroupNormalization")
def group_normalization(X, scale, bias, num_groups):
    channels = X.shape[1] if X.rank is not None and X.rank > 1 else None
    if num_groups < 1 or (isinstance(channels, int) and channels % num_groups):
        raise InferenceError(f"{channels} channels cannot be divided into {num_groups} groups")
    return X.shape


@infer("LayerNormalization")
def layer_normalization(X, Scale, axis, stash_type):
    stash = dtypes.from_code(stash_type)
    if X.shape is None:
        return [None, TensorType(stash), TensorType(stash)]
    axis = axis_index(axis, X.rank)
    statistics = TensorType(stash, X.shape[:axis] + (1,) * (X.rank - axis))
    return [X.shape, statistics, statistics]


@infer("RMSNormalization")
def rms_normalization(X, scale, axis):
    if X.rank is not None:
        axis_index(axis, X.rank)
    return X.shape
