"""Normalization over the last axes, written out in many ways: LayerNormalization and RMSNormalization with scale and bias."""

from __future__ import annotations

from itertools import product

import numpy as np

from sardonyx.ir import Node, Value
from sardonyx.ir.types import Shape
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, operand
from sardonyx.optimizer.rewrite import Answer, Skip, rule, skip
from sardonyx.optimizer.values import CONTRIB_TYPES, dtype_of, has_one_output, is_float, rank_of, same_shape, scalar, shape_of

FIRST_LAYER_NORMALIZATION = 17
FIRST_RMS_NORMALIZATION = 23

ROOTS = ("Sqrt({})", "Pow({}, 0.5)")
QUOTIENTS = ("Div({0}, Cast?({1}))", "Mul({0}, Cast?(Reciprocal({1})))", "Mul({0}, Cast?(Div(1, {1})))")


SCALED_FIRST = ("Mul({0}, Mul(Reciprocal({1}), scale))", "Mul({0}, Mul(Div(1, {1}), scale))", "Mul({0}, Div(scale, {1}))")
"""Spellings in which the scale is divided before the tensor is multiplied by it."""


def _roots(squares: tuple[str, ...]) -> list[str]:
    means = [f"Add(ReduceMean<axes=over, keepdims=1>({square}), epsilon)" for square in squares]
    return [root.format(mean) for root, mean in product(ROOTS, means)]


def _normalized(numerator: str, squares: tuple[str, ...]) -> list[str]:
    """Spellings of `numerator` over the root of the mean of `squares`."""
    return [quotient.format(numerator, root) for quotient, root in product(QUOTIENTS, _roots(squares))]


def _scaled(numerator: str, squares: tuple[str, ...]) -> list[str]:
    """The same times a scale."""
    late = [f"Mul(Cast?({core}), scale)" for core in _normalized(numerator, squares)]
    return late + [quotient.format(numerator, root) for quotient, root in product(SCALED_FIRST, _roots(squares))]


CENTRED = "Sub(x, ReduceMean<axes=axes, keepdims=1>(x))"
DEVIATIONS = (f"Pow(Cast?({CENTRED}), 2)", f"Mul({CENTRED}, {CENTRED})")
STANDARDIZED = _normalized(CENTRED, DEVIATIONS)
"""(x - mean) / √(mean of (x - mean)² + epsilon). Each part may stand in the graph once or several times."""

SCALED = _scaled(CENTRED, DEVIATIONS)
SCALED_BY_RMS = _scaled("x", ("Pow(x, 2)", "Mul(x, x)"))
"""x / √(mean of x² + epsilon) * scale"""


# --- LayerNormalization ---------------------------------------------------------------------------------------------


@rule(*SCALED, name="LayerNormFusion")
def layer_normalization(
    op: Builder, x: Value, axes: list[int], over: list[int], epsilon: Value, scale: Value, root: Node
) -> Answer:
    """A standardized tensor times a scale; a bias joins by `add_bias`."""
    if root.version < FIRST_LAYER_NORMALIZATION:
        return skip(f"LayerNormalization came with opset {FIRST_LAYER_NORMALIZATION}")
    return _layer_normalization(op, x, axes, over, epsilon, scale)


@rule(*SCALED, name="LayerNormFusion")
def old_layer_normalization(
    op: Builder, x: Value, axes: list[int], over: list[int], epsilon: Value, scale: Value, root: Node
) -> Answer:
    """For older opsets LayerNormalization is what onnxruntime has under this name in ONNX's own domain."""
    return _layer_normalization(op, x, axes, over, epsilon, scale)


def _layer_normalization(op: Builder, x: Value, axes: list[int], over: list[int], epsilon: Value, scale: Value) -> Answer:
    first = _first_axis(x, axes, over)
    number = scalar(epsilon)
    if first is None or number is None:
        return skip("it is not over the last axes, or epsilon is not constant")
    source = _in_type_of(x, scale)
    if source is None:
        return skip(f"the scale is {dtype_of(scale)}, the tensor {dtype_of(x)}")
    fitted = _parameter(op, scale, shape_of(x)[first:])  # type: ignore[index]
    if isinstance(fitted, Skip):
        return fitted
    return op.LayerNormalization(source, fitted, axis=first - rank_of(x), epsilon=number)  # type: ignore[operator]


@rule(*STANDARDIZED, name="LayerNormFusion")
def without_scale(op: Builder, x: Value, axes: list[int], over: list[int], epsilon: Value, root: Node) -> Answer:
    """A standardized tensor that nothing scales, or something that is no parameter: a scale of ones."""
    first, element, number = _first_axis(x, axes, over), dtype_of(x), scalar(epsilon)
    if first is None or element is None or number is None or root.version < FIRST_LAYER_NORMALIZATION:
        return skip("it is not over the last axes, epsilon is not constant, or the opset lacks LayerNormalization")
    shape = shape_of(x)[first:]  # type: ignore[index]
    if not all(isinstance(size, int) for size in shape) or dtype_of(root.outputs[0]) is not element:
        return skip("the normalized shape is not known, or the type changes")
    if _is_scaled(root.outputs[0], shape):
        return skip("a scale follows")
    ones = op.constant(np.ones(shape, element.numpy))  # type: ignore[arg-type]
    return op.LayerNormalization(x, ones, axis=first - rank_of(x), epsilon=number)  # type: ignore[operator]


def _is_scaled(value: Value, shape: Shape) -> bool:
    """Whether a product with a parameter follows, perhaps after a cast."""
    for user in value.users:
        others = [operand for operand in user.inputs if operand is not None and operand is not value]
        if user.op_type == "Cast" and _is_scaled(user.outputs[0], shape):
            return True
        if user.op_type == "Mul" and others and (shape_of(others[0]) == shape or constant(others[0]) is not None):
            return True
    return False


@rule("Add(norm:LayerNormalization(x, scale), bias)", name="LayerNormFusion")
def add_bias(op: Builder, norm: Node, x: Value, scale: Value, bias: Value) -> Answer:
    """LayerNormalization adds a bias itself."""
    shape = shape_of(x)
    if shape is None or not has_one_output(norm):
        return skip("its rank is not known, or its statistics are used")
    fitted = _parameter(op, bias, shape[operand(norm, "axis") % len(shape) :])
    if isinstance(fitted, Skip):
        return fitted
    attributes = {name: attribute.value for name, attribute in norm.attributes.items()}
    return op.LayerNormalization(x, scale, fitted, **attributes)


def _first_axis(x: Value, axes: list[int], over: list[int]) -> int | None:
    """Where the normalized axes begin, if both lists name the same ones and they are the last."""
    rank = rank_of(x)
    if rank is None or not is_float(x):
        return None
    named = sorted(axis % rank for axis in axes)
    if not named or named != list(range(named[0], rank)) or named != sorted(axis % rank for axis in over):
        return None
    return named[0]


def _in_type_of(x: Value, scale: Value) -> Value | None:
    """`x`, or what it was before it was cast for the sake of precision, in the type that the scale has."""
    if dtype_of(x) is dtype_of(scale):
        return x
    cast = x.producer
    source = cast.inputs[0] if cast is not None and cast.op_type == "Cast" else None
    return source if source is not None and is_float(source) and dtype_of(source) is dtype_of(scale) else None


def _parameter(op: Builder, value: Value, shape: Shape) -> Value | Skip:
    """A scale or bias of exactly the normalized shape; a constant is brought into it."""
    if shape_of(value) == shape:
        return value
    array = constant(value)
    if array is None or not array.ndim or not all(isinstance(size, int) for size in shape):
        return skip("scale or bias do not have the normalized shape")
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    try:
        return op.constant(np.ascontiguousarray(np.broadcast_to(array, shape)))  # type: ignore[arg-type]
    except ValueError:
        return skip("scale or bias do not have the normalized shape")


# --- root mean square -----------------------------------------------------------------------------------------------


@rule(*SCALED_BY_RMS, name="SimplifiedLayerNormFusion")
def rms_normalization(op: Builder, x: Value, over: list[int], epsilon: Value, scale: Value, root: Node) -> Answer:
    """A tensor over its root mean square, times a scale."""
    first, number = _first_axis(x, over, over), scalar(epsilon)
    if first is None or number is None:
        return skip("it is not over the last axes, or epsilon is not constant")
    source = _in_type_of(x, scale)
    if source is None:
        return skip(f"the scale is {dtype_of(scale)}, the tensor {dtype_of(x)}")
    fitted = _parameter(op, scale, shape_of(x)[first:])  # type: ignore[index]
    if isinstance(fitted, Skip):
        return fitted
    name = "RMSNormalization" if root.version >= FIRST_RMS_NORMALIZATION else "SimplifiedLayerNormalization"
    return op.node(name, source, fitted, axis=first - rank_of(x), epsilon=number)  # type: ignore[operator]


# --- with a residual ------------------------------------------------------------------------------------------------

CONTRIB = "com.microsoft"


@rule("s = Add(a, b); y = norm:LayerNormalization(s, scale, bias?)", keep=("s",), name="SkipLayerNormFusion")
def skip_layer_normalization(op: Builder, norm: Node, a: Value, b: Value, s: Value, scale: Value, bias: Value | None) -> Answer:
    """Two tensors are added while they are normalized; their sum is there for others too."""
    return _with_skip(op, "SkipLayerNormalization", norm, a, b, s, [scale, bias])


@rule(
    "s = Add(a, b); y = norm:RMSNormalization|SimplifiedLayerNormalization(s, scale)", keep=("s",), name="SkipLayerNormFusion"
)
def skip_rms_normalization(op: Builder, norm: Node, a: Value, b: Value, s: Value, scale: Value) -> Answer:
    """The same over the root mean square."""
    return _with_skip(op, "SkipSimplifiedLayerNormalization", norm, a, b, s, [scale])


def _with_skip(op: Builder, name: str, norm: Node, a: Value, b: Value, s: Value, parameters: list[Value | None]) -> Answer:
    rank = rank_of(s)
    if rank not in (2, 3) or operand(norm, "axis") not in (-1, rank - 1) or not has_one_output(norm):
        return skip("it is not over the last of two or three axes alone")
    if not same_shape(a, b) or dtype_of(a) not in CONTRIB_TYPES or dtype_of(norm.outputs[0]) is not dtype_of(a):
        return skip("the tensors may differ in shape or type")
    if any(value is not None and (rank_of(value) != 1 or not _is_fixed(value)) for value in parameters):
        return skip("scale or bias are not vectors that are there from the beginning")
    is_used = s.is_graph_output or any(user is not norm for user in s.users)
    y, _, _, total = _skip_node(op, name, [a, b, *parameters], operand(norm, "epsilon"), is_used)
    return {"y": y, "s": total} if is_used else y


def _is_fixed(value: Value) -> bool:
    """Whether a value is given, or computed from given ones at once: then it does not depend on the sum."""
    node = value.producer
    return node is None or all(operand is None or operand.producer is None for operand in node.inputs)


def _skip_node(op: Builder, name: str, inputs: list[Value | None], epsilon: float, with_sum: bool) -> list[Value]:
    """The node with four outputs; those that nobody wants have no name."""
    while inputs[-1] is None:
        inputs.pop()
    outputs: list[Value] = op.node(name, *inputs, domain=CONTRIB, outputs=4, epsilon=epsilon)
    for output in outputs[1 : 3 if with_sum else 4]:
        output.name = ""
    return outputs


@rule(
    "com.microsoft.SkipLayerNormalization(Add(x, offset), skipped, scale, bias?)",
    "com.microsoft.SkipLayerNormalization(skipped, Add(x, offset), scale, bias?)",
    "com.microsoft.SkipSimplifiedLayerNormalization(Add(x, offset), skipped, scale)",
    "com.microsoft.SkipSimplifiedLayerNormalization(skipped, Add(x, offset), scale)",
    name="BiasSkipLayerNormFusion",
)
def bias_before_skip(
    op: Builder, x: Value, offset: Value, skipped: Value, scale: Value, root: Node, bias: Value | None = None
) -> Answer:
    """A bias is added together with the residual."""
    if shape_of(offset) != shape_of(scale) or not same_shape(x, skipped):
        return skip("what is added is not a bias along the last axis")
    with_sum = len(root.outputs) > 3 and bool(root.outputs[3].name)
    parameters = [scale, offset] if "Simplified" in root.op_type else [scale, bias, offset]
    outputs = _skip_node(op, root.op_type, [x, skipped, *parameters], operand(root, "epsilon"), with_sum)
    return [outputs[0], None, None, outputs[3] if with_sum else None]
