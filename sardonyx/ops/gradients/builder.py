"""What gradients write nodes with: a builder whose values have types at once, and the few steps that many gradients share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.ir import Attribute, Dim, Graph, Node, OptionalType, SequenceType, Shape, TensorType, Value
from sardonyx.ops import schemas
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant
from sardonyx.ops.signatures import Signature

CONTRIB = "com.microsoft"
ALLOWZERO = 14
"""The opset from which on Reshape has this attribute."""


class UnknownType(Fail):
    """A gradient, or the body of an op of training, cannot be written, because the model does not say what a value is."""


class TypedBuilder(Builder):
    """Adds nodes to a graph and infers their types."""

    def __init__(
        self,
        graph: Graph,
        infer: Callable[[Node], None],
        before: Node | None = None,
        opsets: Mapping[str, int] | None = None,
        prefix: str = "gradient",
    ):
        super().__init__(graph, before, opsets, prefix)
        self.infer = infer

    def add(self, node: Node) -> Node:
        super().add(node)
        self.infer(node)
        return node

    def node(self, op_type: str, *inputs: Value | None, domain: str = "", **keywords: Any) -> Any:
        """As in the base; an op that the opset does not have yet is taken from the newest one."""
        if schemas.find(domain, op_type, self.opsets.get(domain, 1)) is not None:
            return super().node(op_type, *inputs, domain=domain, **keywords)
        opsets, self.opsets = self.opsets, {}
        try:
            return super().node(op_type, *inputs, domain=domain, **keywords)
        finally:
            self.opsets = opsets

    def _sorted(
        self, signature: Signature, inputs: list[Value | None], operands: Mapping[str, Any]
    ) -> tuple[list[Value | None], dict[str, Attribute]]:
        """A constant stands for an attribute where the op's version has one."""
        contents = {
            name: self._content(signature, name, given) if name in signature.attributes and isinstance(given, Value) else given
            for name, given in operands.items()
        }
        return super()._sorted(signature, inputs, contents)

    def _content(self, signature: Signature, name: str, value: Value) -> list[int]:
        numbers = self.numbers(value)
        if numbers is None:
            raise Fail(f"{signature}: {name} is an attribute, {value.name!r} is no constant; use a later opset")
        return numbers

    def contrib(self, op_type: str, *inputs: Value | None, **keywords: Any) -> Any:
        """A node of com.microsoft."""
        return self.node(op_type, *inputs, domain=CONTRIB, **keywords)

    def result(self, node: Node, position: int) -> Value:
        """An output of a node of the forward graph, which is asked for from now on if it was not before."""
        for _ in range(len(node.outputs), position + 1):
            node.append_output(Value(""))
        value = node.outputs[position]
        if not value.name:
            value.name = self.unique(node.op_type)
            self.infer(node)
        return value

    # --- what is known of a value

    def dtype(self, value: Value) -> ElementType:
        if not isinstance(value.type, TensorType) or value.type.dtype is None:
            raise UnknownType(f"the type of {value.name!r} is not known")
        return value.type.dtype

    def shape(self, value: Value) -> Shape:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        if shape is None:
            raise UnknownType(f"the rank of {value.name!r} is not known")
        return shape

    def rank(self, value: Value) -> int:
        return len(self.shape(value))

    def numbers(self, value: Value | None) -> list[int] | None:
        """The whole numbers of a value that is the same in every run; None if it is not."""
        content = None if value is None else constant(value)
        return None if content is None else [int(item) for item in content.reshape(-1)]

    # --- small pieces

    def number(self, content: float, like: Value) -> Value:
        """A constant scalar of the type of another value."""
        return self.constant(np.array(content, self.dtype(like).numpy))

    def scaled(self, value: Value, factor: float) -> Value:
        return value if factor == 1 else self.Mul(value, self.number(factor, value))

    def filled(self, content: float, like: Value) -> Value:
        """A tensor of the shape and type of another."""
        return self.ConstantOfShape(self.Shape(like), value=np.array([content], self.dtype(like).numpy))

    def zeros(self, like: Value) -> Value:
        return self.filled(0, like)

    def cast(self, value: Value, like: Value) -> Value:
        dtype = self.dtype(like)
        return value if self.dtype(value) is dtype else self.Cast(value, to=dtype.code)

    def floats(self, mask: Value, like: Value) -> Value:
        """A mask as zeros and ones of another value's type."""
        return self.Cast(mask, to=self.dtype(like).code)

    def where(self, mask: Value, gradient: Value) -> Value:
        """A gradient where a mask is true, and zero elsewhere."""
        return self.Where(mask, gradient, self.number(0, gradient))

    def shaped(self, gradient: Value, like: Value) -> Value:
        """The same elements in the shape of another value."""
        if gradient.type == like.type:
            return gradient
        has_elements = all(isinstance(size, int) and size > 0 for size in self.shape(like))
        return (self.Reshape if has_elements else self.in_shape)(gradient, self.Shape(like))

    def in_shape(self, value: Value, shape: Value) -> Value:
        """The elements in a shape of which a run may say that it has none: a 0 is no size to be kept, where the opset can say so."""
        can_say_so = self.opsets.get("", ALLOWZERO) >= ALLOWZERO
        return self.Reshape(value, shape, **{"allowzero": 1} if can_say_so else {})

    def of_shape(self, value: Value, expected: Value) -> Value:
        """A value that a run refuses if it has another shape."""
        # no tensor has a size of -2, so Reshape refuses it
        sizes = self.Where(self.Equal(self.Shape(value), expected), expected, self.constant(np.array(-2, np.int64)))
        checked = self.in_shape(value, sizes)
        checked.type = value.type
        return checked

    def size(self, value: Value, like: Value) -> Value:
        """The number of a value's elements, in the type of another."""
        return self.cast(self.Size(value), like)

    # --- broadcasting

    def fitted(self, gradient: Value, like: Value) -> Value:
        """Sum a gradient over the axes along which `like` was broadcast."""
        have, want = self.shape(gradient), self.shape(like)
        lead = len(have) - len(want)
        pairs = list(zip(have[lead:], want, strict=True)) if lead >= 0 else []
        if lead < 0 or any(map(_is_open, pairs)):
            return self._fitted_in_the_run(gradient, like)
        inner = [lead + axis for axis, (mine, theirs) in enumerate(pairs) if mine != theirs]
        if inner:
            gradient = self.ReduceSum(gradient, axes=[*range(lead), *inner], keepdims=1)
            return self.Squeeze(gradient, axes=list(range(lead))) if lead else gradient
        return self.ReduceSum(gradient, axes=list(range(lead)), keepdims=0) if lead else gradient

    def _fitted_in_the_run(self, gradient: Value, like: Value) -> Value:
        """The same where only a run shows which axes were broadcast."""
        shape = self.Shape(like)
        axes, _ = self.contrib("BroadcastGradientArgs", shape, self.Shape(gradient), outputs=2)
        return self.in_shape(self.ReduceSum(gradient, axes, keepdims=1, noop_with_empty_axes=1), shape)


def _is_open(pair: tuple[Dim, Dim]) -> bool:
    """Whether a size may or may not have been broadcast to another."""
    mine, theirs = pair
    return mine != theirs and theirs != 1


def is_differentiable(value: Value) -> bool:
    """Whether a value's type carries gradients. One whose type nobody knows may."""
    type = value.type
    while isinstance(type, (SequenceType, OptionalType)):
        type = type.element
    if type is None:
        return True
    return isinstance(type, TensorType) and (type.dtype is None or type.dtype in dtypes.FLOATS)
