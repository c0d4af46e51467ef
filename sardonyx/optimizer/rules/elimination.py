"""Nodes that do nothing, or nothing that the node after them does not do: removed at the basic level."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import Node, Value
from sardonyx.ir.dim import Dim
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, operand
from sardonyx.optimizer.rewrite import Answer, rule, skip
from sardonyx.optimizer.values import (
    FIRST_BROADCASTING,
    broadcasts_into,
    dtype_of,
    has_one_output,
    is_exactly,
    is_float,
    shape_fits,
    shape_of,
    size_of,
    sizes_in,
)

ENDLESS = 2**31 - 1
"""A slice that ends here or later ends where the axis does."""


def can_stand_for(value: Value, root: Node) -> bool:
    """Whether `value` may take the place of a node's first output without an Identity in between."""
    if not root.outputs[0].is_graph_output:
        return True
    return value.producer is not None and value.graph is root.graph and not value.is_graph_output


def unless_output(value: Value, root: Node) -> Answer:
    """`value` in the place of the root, if it can stand there."""
    return (
        value
        if can_stand_for(value, root)
        else skip("an output of the graph cannot be its input, its constant, or another output")
    )


@rule("Identity(x)", name="EliminateIdentity")
def eliminate_identity(x: Value, root: Node) -> Answer:
    """A value is its own copy."""
    return unless_output(x, root)


@rule("Dropout(data, ratio?, training_mode?)", name="EliminateDropout")
def eliminate_dropout(data: Value, root: Node) -> Answer:
    """Nothing is dropped when a model is used, as long as it does not say that it trains."""
    if not has_one_output(root):
        return skip("its mask is used")
    if operand(root, "is_test") == 0:
        return skip("up to opset 6 it drops unless is_test is set")
    training = root.inputs[2] if len(root.inputs) > 2 else None
    if training is not None and not is_exactly(training, 0) and not _never_drops(root):
        return skip("training_mode may be set")
    return unless_output(data, root)


def _never_drops(node: Node) -> bool:
    ratio = node.inputs[1] if len(node.inputs) > 1 else None
    return ratio is not None and is_exactly(ratio, 0)


# --- arithmetic -----------------------------------------------------------------------------------------------------


@rule("Add|Sub(x, zero)", name="NoopElimination")
def eliminate_zero(x: Value, zero: Value, root: Node) -> Answer:
    """x + 0 and x - 0 are x."""
    return _eliminate_neutral(x, zero, 0, root)


@rule("Mul|Div(x, one)", name="NoopElimination")
def eliminate_one(x: Value, one: Value, root: Node) -> Answer:
    """x * 1 and x / 1 are x."""
    return _eliminate_neutral(x, one, 1, root)


def _eliminate_neutral(x: Value, neutral: Value, number: int, root: Node) -> Answer:
    if size_of(neutral) != 1 or not is_exactly(neutral, number):
        # a whole vector of ones may be the scale of a normalization, which is recognized by it
        return skip(f"the operand is not {number}")
    if not broadcasts_into(neutral, x):
        return skip("the constant may enlarge the result")
    return unless_output(x, root)


@rule("Concat|Sum|Max|Min|Mean(x)", name="NoopElimination")
def eliminate_single_operand(x: Value, root: Node) -> Answer:
    """One tensor alone is joined, summed or compared with nothing."""
    return unless_output(x, root)


@rule("Mul(Div(one, a), b)", name="DivMulFusion")
def divide_instead(op: Builder, one: Value, a: Value, b: Value, root: Node) -> Answer:
    """(1 / a) * b is b / a."""
    if not is_exactly(one, 1) or not is_float(a):
        return skip("no reciprocal of floats")
    if not broadcasts_into(one, a):
        return skip("the constant may enlarge the result")
    return op.Div(b, a)


@rule("inverse = Not(condition); Where(inverse, x, y)", name="NotWhereFusion", keep=("inverse",))
def swap_where(op: Builder, condition: Value, x: Value, y: Value) -> Answer:
    """Choosing by the opposite is choosing the other."""
    return op.Where(condition, y, x)


# --- casts ----------------------------------------------------------------------------------------------------------


@rule("Cast(x)", name="CastElimination")
def eliminate_cast(x: Value, root: Node) -> Answer:
    """A cast to the type that a value has."""
    if dtype_of(x) is not _target(root):
        return skip("the type changes")
    return unless_output(x, root)


@rule("inner = first:Cast(x); Cast(inner)", name="CastElimination", keep=("inner",))
def skip_exact_cast(op: Builder, x: Value, inner: Value, root: Node) -> Answer:
    """A cast that loses nothing need not come before another one."""
    source, between = dtype_of(x), dtype_of(inner)
    if source is None or between is None or not is_exact(source, between) or _target(root) is dtypes.string:
        return skip(f"a cast from {source} to {between} may change what follows")
    return _recast(op, x, root)


@rule("Cast(Cast(x))", name="CastChainElimination")
def merge_float_casts(op: Builder, x: Value, root: Node) -> Answer:
    """Casts between floats become one, as if the numbers had never been rounded in between."""
    inner = root.inputs[0]
    assert inner is not None
    if not all(is_float(value) for value in (x, inner, root.outputs[0])):
        return skip("not all types are floats")
    return _recast(op, x, root)


@rule("Cast(add:Add(Cast(x), zero))", name="CastElimination")
def eliminate_copied_truth(op: Builder, add: Node, x: Value, zero: Value, root: Node) -> Answer:
    """A truth value plus 0 is a copy of it, which has the larger one of their shapes."""
    if dtype_of(x) is not dtypes.bool_ or _target(root) is not dtypes.bool_ or not is_exactly(zero, 0):
        return skip("something else than 0 is added to a truth value")
    if broadcasts_into(zero, x):
        return unless_output(x, root)
    if add.version < FIRST_BROADCASTING:
        return skip("its version broadcasts otherwise")
    return op.Or(x, op.constant(np.zeros(shape_of(zero), np.bool_)))  # type: ignore[arg-type]


def _target(cast: Node) -> ElementType:
    to = operand(cast, "to")
    return _SPELLED[to] if isinstance(to, str) else dtypes.from_code(to)


_SPELLED = {element.name.upper(): element for element in dtypes.ALL}
"""Opset 1 spells types out."""


def _recast(op: Builder, x: Value, root: Node) -> Answer:
    if dtype_of(x) is _target(root):
        return unless_output(x, root)
    extra = {name: attribute.value for name, attribute in root.attributes.items()}
    return op.Cast(x, **extra)


_EXACT_FLOATS = {
    dtypes.float16: {dtypes.float32, dtypes.float64},
    dtypes.bfloat16: {dtypes.float32, dtypes.float64},
    dtypes.float32: {dtypes.float64},
}


def is_exact(source: ElementType, target: ElementType) -> bool:
    """Whether `target` holds every value of `source`, so that whatever follows sees the same number."""
    if source in _EXACT_FLOATS:
        return target in _EXACT_FLOATS[source]
    if source is dtypes.bool_:
        return target in dtypes.INTS
    if source in dtypes.UNSIGNED:
        return (target in dtypes.UNSIGNED or target in dtypes.SIGNED) and target.bits > source.bits
    return source in dtypes.SIGNED and target in dtypes.SIGNED and target.bits > source.bits


@rule("inner = Cast(x); Shape<start=start?, end=end?>(inner)", name="PreShapeNodeElimination", keep=("inner",))
def shape_before_cast(op: Builder, x: Value, start: int | None, end: int | None) -> Answer:
    """A cast does not change a shape."""
    return op.Shape(x, end=end) if start in (None, 0) else op.Shape(x, start=start, end=end)


# --- shapes ---------------------------------------------------------------------------------------------------------


@rule("Slice(data, starts?, ends?, axes?, steps?)", name="EliminateSlice")
def eliminate_slice(data: Value, root: Node) -> Answer:
    """A slice that takes all of every axis."""
    shape = shape_of(data)
    starts, ends = _listed(root, "starts"), _listed(root, "ends")
    if shape is None or starts is None or ends is None:
        return skip("its bounds are not known")
    axes = _listed(root, "axes", list(range(len(starts))))
    steps = _listed(root, "steps", [1] * len(starts))
    if axes is None or steps is None:
        return skip("its bounds are not known")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step != 1 or not _takes_all(start, end, shape[int(axis)]):  # type: ignore[arg-type]
            return skip("it takes a part")
    return unless_output(data, root)


def _listed(node: Node, name: str, absent: list[Dim] | None = None) -> list[Dim] | None:
    """An operand as sizes, `absent` where the node leaves it out."""
    if name in node.attributes:
        return list(node.attributes[name].value)
    position = {"starts": 1, "ends": 2, "axes": 3, "steps": 4}[name]
    value = node.inputs[position] if position < len(node.inputs) else None
    return absent if value is None else sizes_in(value)


def _takes_all(start: Dim, end: Dim, size: Dim) -> bool:
    if start != 0 and not (isinstance(start, int) and isinstance(size, int) and start <= -size):
        return False
    if isinstance(end, int):
        return end >= ENDLESS or (isinstance(size, int) and end >= size)
    return end == size


@rule("Unsqueeze<axes=axes>(data)", name="UnsqueezeElimination")
def unsqueeze_constant(op: Builder, data: Value, axes: list[int], root: Node) -> Answer:
    """A constant is stored in the shape in which it is used."""
    array = constant(data) if data.is_constant else None
    if array is None:
        return skip("the data is not constant")
    rank = array.ndim + len(axes)
    return unless_output(op.constant(np.expand_dims(array, tuple(axis % rank for axis in axes))), root)


@rule("Expand(input, shape)", name="ExpandElimination")
def eliminate_expand(input: Value, shape: Value, root: Node) -> Answer:
    """Expanding to the shape that is there."""
    wanted, sizes = sizes_in(shape), shape_of(input)
    if wanted is None or sizes is None or not shape_fits(tuple(wanted), sizes):
        return skip("it may enlarge the tensor")
    return unless_output(input, root)


@rule("Tile(input, repeats)", name="ExpandElimination")
def eliminate_tile(input: Value, repeats: Value, root: Node) -> Answer:
    """Repeating once."""
    counts = sizes_in(repeats)
    return unless_output(input, root) if counts is not None and all(count == 1 for count in counts) else skip("it repeats")


# --- activations ----------------------------------------------------------------------------------------------------


@rule("Clip(Relu(x), low?, high?)", name="FuseReluClip")
def clip_without_relu(op: Builder, x: Value, low: Value | None, high: Value | None, root: Node) -> Answer:
    """Relu before Clip only raises the lower bound to zero."""
    element, bound = dtype_of(x), operand(root, "min") if low is None else constant(low)
    if element is None or (low is not None and bound is None):
        return skip("the lower bound is not constant")
    lowest = np.maximum(np.asarray(0 if bound is None else bound).astype(element.numpy), element.numpy.type(0))
    if np.isnan(lowest.astype(np.float64)).any():
        return skip("the lower bound is NaN")
    return op.Clip(x, min=lowest, max=operand(root, "max") if high is None else high)
