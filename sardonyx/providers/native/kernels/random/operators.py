"""Lowerings of random ops: float64 is drawn, all else is made of that."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sardonyx import dtypes
from sardonyx.compiler.types import F64
from sardonyx.ir import Node, TensorType, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.random.generator import DrawArguments, draw_kernel
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of
from sardonyx.providers.provider import CannotCompile

NORMAL, UNIFORM = ("RandomNormal", "RandomNormalLike"), ("RandomUniform", "RandomUniformLike")


def _has_bounds(node: Node) -> bool:
    """Whether NumPy draws with such attributes, too: it refuses scales below 0, -0 among them, and ranges that are not finite."""
    seed = operand(node, "seed")
    if seed is not None and not math.isfinite(seed):
        return False
    first, factor = _moments(node)
    return math.copysign(1, factor) > 0 if node.op_type in NORMAL else math.isfinite(factor) and math.isfinite(first)


def _moments(node: Node) -> tuple[float, float]:
    """What is added to numbers, and by what they are multiplied before."""
    if node.op_type in NORMAL:
        return float(operand(node, "mean")), float(operand(node, "scale"))
    low = float(operand(node, "low"))
    return low, float(operand(node, "high")) - low


@lower(*NORMAL, *UNIFORM, claims=lambda node: element_of(node.outputs[0]) == F64 and _has_bounds(node))
def draw(lowerer: Lowerer, node: Node) -> None:
    target, seed = lowerer.output(node.outputs[0]), operand(node, "seed")
    first, factor = _moments(node)
    count = dim.product(target.shape)
    lowerer.call(
        draw_kernel(lowerer.target, node.op_type in NORMAL, seed is not None),
        DrawArguments(
            target=target.place,
            count=count,
            first=first,
            factor=factor,
            seed=None if seed is None else int(seed) & 0xFFFFFFFF,
            seeds=lowerer.seeds() if seed is None else None,
        ),
        1,
        traffic=count * F64.bytes,
    )


@compose("RandomNormal", "RandomUniform", claims=_has_bounds)
def random(op: Composer, node: Node) -> Value:
    return _doubles(op, node)


@compose("RandomNormalLike", "RandomUniformLike", claims=_has_bounds)
def random_like(op: Composer, node: Node, input: Value) -> Value:
    """The operand only tells a shape: nobody computes it."""
    return _doubles(op, node, input)


def _doubles(op: Composer, node: Node, *inputs: Value) -> Value:
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    made: Value = getattr(op, node.op_type)(*inputs, **attributes | {"dtype": dtypes.float64.code})
    return made


def _uniform(op: Composer, like: Value, seed: float | None) -> Value:
    """Numbers from 0 to 1 in float64, as many as another value has."""
    given = {} if seed is None else {"seed": float(seed)}
    made: Value = op.RandomUniformLike(like, dtype=dtypes.float64.code, **given)
    return made


@compose("Bernoulli")
def bernoulli(op: Composer, input: Value, seed: float | None) -> Value:
    made: Value = op.Less(_uniform(op, input, seed), op.cast_to(input, dtypes.float64))
    return made


@compose("Multinomial", widen=True)
def multinomial(op: Composer, input: Value, sample_size: int, seed: float | None) -> Value:
    """How many bounds of a row's distribution function a number is not below."""
    if sample_size < 0:
        raise CannotCompile(f"sample_size is {sample_size}", quiet=True)
    rows, classes = dims(input)
    op.require(dim.minimum(classes, 1), 1)
    logits = op.cast_to(input, dtypes.float64)
    bounds = op.CumSum(op.Exp(op.Sub(logits, op.ReduceMax(logits, op.constant([1])))), op.constant(1))
    total = op.Gather(bounds, op.constant([-1]), axis=1)
    drawn = _uniform(op, op.Expand(op.number(0, logits), op.sizes(rows, sample_size)), seed)
    drawn = op.reshape(op.Mul(drawn, total), rows, sample_size, 1)
    passed = op.Not(
        op.Greater(op.reshape(bounds, rows, 1, classes), drawn)
    )  # where numbers are NaN, too, as NumPy sorts them last
    made: Value = op.ReduceSum(op.cast_to(passed, dtypes.int64), op.constant([2]), keepdims=0)
    return made


# --- Dropout


def _drops_nothing(training_mode: Value | None) -> bool:
    """Whether the switch is off, or absent as in all versions before it."""
    return training_mode is None or (training_mode.constant is not None and not training_mode.constant.numpy().any())


@compose("Dropout", since=7)
def dropout(
    op: Composer, node: Node, data: Value, ratio: Value | float | None, training_mode: Value | None, seed: int | None
) -> Sequence[Value]:
    """In training some elements become 0, and the others larger in turn; else all are kept."""
    if training_mode is None or _drops_nothing(training_mode):
        return op.Identity(data), op.Expand(op.constant(np.asarray(True)), op.sizes(*dims(data)))
    is_training = op.reshape(training_mode)
    share = op.cast_to(op.reshape(ratio), dtypes.float64) if isinstance(ratio, Value) else op.constant(np.float64(0.5))
    share = _checked(op, share, op.Not(is_training))
    computed = _computed(op, data)
    kept, dropped = _dropped(op, computed, share, seed)
    mask = op.Or(kept, op.Not(is_training))
    return _rounded(op, op.Where(is_training, dropped, computed), node), mask


@compose("Dropout", until=6)
def dropout_unless_test(op: Composer, node: Node, data: Value, ratio: float, is_test: int) -> Sequence[Value]:
    if is_test:
        return op.Identity(data), op.Expand(op.number(1, data), op.sizes(*dims(data)))
    if not 0 <= ratio < 1:
        raise CannotCompile(f"ratio is {ratio}", quiet=True)
    kept, dropped = _dropped(op, _computed(op, data), op.constant(np.float64(ratio)), None)
    return dropped, kept


def _checked(op: Composer, share: Value, is_unused: Value) -> Value:
    """The share that is dropped. Of one number there is no second: where it is out of range, reading it sets the status."""
    is_share = op.And(op.GreaterOrEqual(share, op.number(0, share)), op.Less(share, op.number(1, share)))
    wrong = op.Not(op.Or(is_share, is_unused))
    made: Value = op.Gather(op.reshape(share, 1), op.cast_to(wrong, dtypes.int64))
    return made


def _computed(op: Composer, data: Value) -> Value:
    """Numbers in the type in which they are computed with."""
    assert isinstance(data.type, TensorType)
    return op.cast_to(data, dtypes.float32) if data.type.dtype in dtypes.WIDENED else data


def _dropped(op: Composer, data: Value, share: Value, seed: int | None) -> tuple[Value, Value]:
    """Which elements are kept, and all of them with the others 0."""
    kept = op.GreaterOrEqual(_uniform(op, data, None if seed is None else seed & 0xFFFFFFFF), share)
    factor = op.cast(op.Div(op.number(1, share), op.Sub(op.number(1, share), share)), data)
    return kept, op.Mul(op.Mul(data, op.cast(kept, data)), factor)


def _rounded(op: Composer, result: Value, node: Node) -> Value:
    """What is too large for a small type becomes infinite or NaN there, as NumPy rounds it."""
    type = node.outputs[0].type
    assert isinstance(type, TensorType) and type.dtype is not None
    made: Value = op.Cast(result, to=type.dtype.code, saturate=0) if type.dtype in dtypes.FLOAT8 else result
    return made
