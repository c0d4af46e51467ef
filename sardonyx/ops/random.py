"""Type and shape inference of ops that draw random numbers."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.facts import Precision
from sardonyx.ops.reading import constant, input_named
from sardonyx.ops.shapes import element_type
from sardonyx.ops.table import infer


@infer("RandomNormal", "RandomUniform")
def random(shape, dtype):
    return TensorType(element_type(dtype), tuple(shape))


@infer("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def random_like(input, dtype):
    return TensorType(input.dtype if dtype is None else element_type(dtype), input.shape)


@infer("Multinomial")
def multinomial(input, dtype, sample_size):
    shape = input.require_rank(2)
    return TensorType(element_type(dtype), (dim.fresh() if shape is None else shape[0], sample_size))


def _exact_outside_training(node):
    """What training keeps it multiplies."""
    mode = input_named(node, "training_mode")
    training = None if mode is None else constant(mode)
    return Precision.EXACT if mode is None or (training is not None and not training.any()) else Precision.ROUNDS


@infer("Dropout", precision=_exact_outside_training)
def dropout(data, ratio, training_mode):
    for name, operand in (("ratio", ratio), ("training_mode", training_mode)):
        if operand is not None and operand.rank not in (None, 0, 1):
            raise InferenceError(f"{name} must be a scalar, not of rank {operand.rank}")
    return [data.shape, data.shape]
