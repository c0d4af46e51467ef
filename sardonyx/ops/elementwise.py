"""Type and shape inference of the ops that go element by element, and their arithmetic on sizes that are not numbers yet."""

from __future__ import annotations

import functools

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.facts import (
    Operands,
    always,
    blind,
    bound_to_type,
    exact,
    from_operand,
    never,
    never_below_zero,
    with_all_operands,
)
from sardonyx.ops.operand import Known, is_symbolic, settled
from sardonyx.ops.shapes import broadcast, merge_shapes, same_as
from sardonyx.ops.table import infer

of_each = functools.partial(infer, elementwise=Operands.FIRST, takes_any_data=always)
"""Registers ops of one tensor, element by element, that take all numbers there are."""
of_pairs = functools.partial(infer, elementwise=Operands.ALL, takes_any_data=always)
"""The same of several tensors."""

of_each("Reciprocal", "Not", "BitwiseNot")(same_as("X"))
of_each("Ceil", "Floor", "Round", precision=exact)(same_as("X"))
of_each("IsInf", precision=bound_to_type)(same_as("X"))  # what is finite may overflow when it is rounded
of_each("IsNaN", precision=blind)(same_as("X"))
of_each("LeakyRelu", "Elu", "Selu", "Celu", "HardSwish", "Swish", "Mish", "Gelu")(same_as("X"))
of_each("Sqrt", "Sigmoid", "HardSigmoid", "Softplus", non_negative=never_below_zero)(same_as("X"))
of_each("Relu", non_negative=never_below_zero, precision=exact)(same_as("X"))
of_each("ThresholdedRelu", non_negative=from_operand("alpha"))(same_as("X"))
of_each("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh")(same_as("input"))
of_each("Erf", "Log", "Shrink", "Softsign")(same_as("input"))
of_each("Sign", precision=exact)(same_as("input"))
of_each("Exp", non_negative=never_below_zero)(same_as("input"))


@of_pairs("PRelu", since=7)
def prelu(X, slope):
    """The text wants a slope that broadcasts to X; other runtimes and the reference broadcast both."""
    return broadcast(X.shape, slope.shape)


infer("PRelu", until=6)(same_as("X"))


@of_each("Identity", reshapes=True, moves=True)
def identity(input):
    return input


@of_each("Neg", precision=exact)
def neg(X):
    return _with_sizes(X.shape, np.negative, X)


@of_each("Abs", non_negative=never_below_zero, precision=exact)
def abs(X):
    return _with_sizes(X.shape, _each(lambda size: size if dim.is_nonnegative(size) else None), X)


def _with_sizes(shape, function, *operands):
    """The shape, and the content that `function` gives where the operands hold integers some of which are symbolic.

    Content without symbols is the driver's business: it runs the kernel.
    """
    values = [operand.value for operand in operands]
    if any(value is None for value in values) or not any(is_symbolic(value) for value in values):
        return shape
    try:
        value = np.asarray(function(*values))
    except (ArithmeticError, TypeError, ValueError):  # sizes and other numbers mixed, or a division by zero: not known
        return shape
    return Known(shape, value if None not in value.reshape(-1).tolist() else None)


def _each(function):
    """A function of sizes as one of arrays; None is what it does not know."""

    def of_arrays(*values):
        # of arrays of rank 0 NumPy makes what the function gives, not an array
        return np.asarray(np.frompyfunc(function, len(values), 1)(*(value.astype(object) for value in values)), object)

    return of_arrays


def _is_zero(size):
    if isinstance(size, int):
        return size == 0
    return False if dim.is_positive(size) or dim.is_positive(-size) else None


def _is_positive(size):
    if isinstance(size, int):
        return size > 0
    return True if dim.is_positive(size) else False if dim.is_nonnegative(-size) else None


def _negated(decided):
    return None if decided is None else not decided


def _of_two(function):
    def infer_two(A, B):
        return _with_sizes(broadcast(A.shape, B.shape), function, A, B)

    return infer_two


def _divides_floats(node):
    """Integers cannot be divided by zero."""
    return all(value is None or getattr(value.type, "dtype", None) in dtypes.FLOATS for value in node.inputs)


of_pairs("Add", since=7, commutative=True, non_negative=with_all_operands)(_of_two(np.add))
of_pairs("Sub", since=7)(_of_two(np.subtract))
of_pairs("Mul", since=7, commutative=True, non_negative=with_all_operands)(_of_two(np.multiply))
# sizes are not negative, so rounding down and toward zero agree
of_pairs("Div", since=7, takes_any_data=_divides_floats)(_of_two(np.floor_divide))
of_pairs("Mod", since=7, takes_any_data=never)(_of_two(np.mod))
of_pairs("Equal", since=7, commutative=True, precision=exact)(_of_two(_each(lambda a, b: _is_zero(a - b))))
of_pairs("Greater", since=7, precision=exact)(_of_two(_each(lambda a, b: _is_positive(a - b))))
of_pairs("Less", since=7, precision=exact)(_of_two(_each(lambda a, b: _is_positive(b - a))))
of_pairs("GreaterOrEqual", since=7, precision=exact)(_of_two(_each(lambda a, b: _negated(_is_positive(b - a)))))
of_pairs("LessOrEqual", since=7, precision=exact)(_of_two(_each(lambda a, b: _negated(_is_positive(a - b)))))


@of_pairs("And", "Or", "Xor", since=7, commutative=True)
@of_pairs("BitwiseAnd", "BitwiseOr", "BitwiseXor", commutative=True)
def multidirectional(A, B):
    return broadcast(A.shape, B.shape)


@of_pairs("Add", "Mul", until=6, commutative=True, non_negative=with_all_operands)
@of_pairs("And", "Or", "Xor", until=6, commutative=True)
@of_pairs("Equal", until=6, commutative=True, precision=exact)
@of_pairs("Sub", until=6)
@of_pairs("Greater", "Less", until=6, precision=exact)
@of_pairs("Div", until=6, takes_any_data=_divides_floats)
def unidirectional(A, B, broadcast, axis):
    """Up to opset 6 the first operand's shape was the result's."""
    if not broadcast:
        return merge_shapes(A.shape, B.shape, "without broadcast=1 A and B have one shape")
    # behind the last axis there is room for a scalar
    if axis is not None and A.rank is not None and not -A.rank <= axis <= A.rank:
        raise InferenceError(f"axis {axis} is outside [{-A.rank}, {A.rank}]")
    return A.shape


@of_pairs("Pow", since=7, takes_any_data=never)
@of_pairs("BitShift")
def of_X_and_Y(X, Y):
    return broadcast(X.shape, Y.shape)


@of_pairs("Pow", until=6, takes_any_data=never)
def pow_unidirectional(X, Y, broadcast, axis):
    return unidirectional(X, Y, broadcast, axis)


@infer("SwiGLU")
def swi_glu(A, B):
    return merge_shapes(A.shape, B.shape, "A and B have one shape")


@of_pairs("Max", commutative=True, non_negative=with_all_operands, precision=exact)
def max(data_0):
    return _with_sizes(_of_all(data_0), _each(dim.maximum), *data_0)


@of_pairs("Min", commutative=True, precision=exact)
def min(data_0):
    return _with_sizes(_of_all(data_0), _each(dim.minimum), *data_0)


@of_pairs("Sum", commutative=True, non_negative=with_all_operands)
@of_pairs("Mean")
def sum(data_0):
    return _of_all(data_0)


def _of_all(operands):
    return broadcast(*(operand.shape for operand in operands))


@of_each("Clip", non_negative=from_operand("min"), precision=exact)
def clip(input, min, max):
    bounds = [(function, bound) for function, bound in ((dim.maximum, min), (dim.minimum, max)) if bound is not None]
    for name, bound in (("min", min), ("max", max)):
        if bound is not None:
            bound.require_one(name)
    result = input.shape
    if input.value is not None and is_symbolic(input.value) and all(bound.item is not None for _, bound in bounds):
        value = input.value
        for function, bound in bounds:
            value = _each(lambda size, limit, function=function: function(size, limit))(value, bound.value.reshape(()))
        result = Known(input.shape, value)
    return result


@of_pairs("Where", precision=exact)
def where(condition, X, Y):
    shape = broadcast(condition.shape, X.shape, Y.shape)
    return shape if condition.value is None else _with_sizes(shape, np.where, condition, X, Y)


def _reads_no_text(node):
    """Not every text is a number."""
    return getattr(node.inputs[0].type, "dtype", dtypes.string) is not dtypes.string


@of_each("Cast", takes_any_data=_reads_no_text)
def cast(input, to):
    dtype = _element_type(to)
    value = input.value if input.value is not None and is_symbolic(input.value) and dtype in dtypes.INTS else None
    return Known(TensorType(dtype, input.shape), None if value is None else settled(value, dtype))


def _element_type(to):
    """The type that `to` names: by number, or in opset 1 by the spelling of TensorProto."""
    try:
        return dtypes.from_name(to.lower()) if isinstance(to, str) else dtypes.from_code(to)
    except KeyError:
        raise InferenceError(f"there is no element type {to!r} to convert to") from None


@of_each("CastLike", takes_any_data=_reads_no_text, precision=bound_to_type)
def cast_like(input, target_type):
    return TensorType(target_type.dtype, input.shape)


@infer("BitCast", precision=bound_to_type)
def bit_cast(input, to):
    dtype = _element_type(to)
    if input.dtype is not None and input.dtype.bits != dtype.bits:
        raise InferenceError(f"{input.dtype} has {input.dtype.bits} bits and {dtype} has {dtype.bits}")
    return TensorType(dtype, input.shape)
