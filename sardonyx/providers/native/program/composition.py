"""Ops that are lowered as other ops. A function writes the nodes that compute the same, and the lowerer lowers those.

    @compose("BiasSplitGelu", domain="com.microsoft")
    def bias_split_gelu(op: Composer, X: Value, bias: Value) -> Value:
        left, right = op.Split(op.Add(X, bias), outputs=2, axis=2, num_outputs=2)
        return op.Mul(left, op.Gelu(right))

The function is given the node's operands by their names in the spec, attributes with the defaults of the node's version. The nodes are in
no graph of the model: partition, messages and the way back to NumPy know the composed node alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import CODED, InferenceError
from sardonyx.ir import Dim, Graph, Model, Node, TensorType, Value, edit
from sardonyx.ops import checking
from sardonyx.ops.builder import Builder
from sardonyx.ops.entries import NEWEST
from sardonyx.ops.inference import Driver
from sardonyx.ops.reading import attribute_value
from sardonyx.providers.native.program.known import is_symbolic
from sardonyx.providers.native.program.scalars import find_scalar
from sardonyx.providers.native.program.table import Claims, lower, lowering_of
from sardonyx.providers.native.program.values import dims, is_plain
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.parameters import Parameters

if TYPE_CHECKING:
    from sardonyx.providers.native.program.lowering import Lowerer

Compose = Callable[..., Any]
"""Takes a `Composer` and operands by name; returns the value of the first output, or those of all."""


class Composer(Builder):
    """Writes the nodes. Each gets its types at once, so that what follows may depend on them."""

    def __init__(self, node: Node):
        super().__init__(Graph(node.name), prefix=f"{node.name or node.op_type}/composed")
        self._driver = Driver(Model(self.graph, {}))
        self.equal_sizes: list[tuple[Dim, Dim]] = []

    def add(self, node: Node) -> Node:
        super().add(node)
        self._driver.node(node)
        return node

    def require(self, left: Dim, right: Dim) -> None:
        """Leave runs in which two sizes differ to NumPy, which says what is wrong."""
        if isinstance(left, int) and isinstance(right, int) and left != right:
            raise CannotCompile(f"the sizes {left} and {right} differ", quiet=True)
        self.equal_sizes.append((left, right))

    def require_shape(self, value: Value, shape: Sequence[Dim]) -> None:
        if len(dims(value)) != len(shape):
            raise CannotCompile(f"{value.name} has {len(dims(value))} axes instead of {len(shape)}", quiet=True)
        for found, wanted in zip(dims(value), shape):
            self.require(found, wanted)

    def sizes(self, *sizes: Dim) -> Value:
        """Sizes as a tensor that other nodes take for a shape: numbers, or what the shapes of a run tell."""
        content = np.empty(len(sizes), object)
        content[:] = sizes
        value = Value(self.unique("sizes"), TensorType(dtypes.int64, (len(sizes),)))
        value.known = content
        return value

    def counted(self, count: Dim, first: int = 0) -> Value:
        """So many whole numbers, each one more than that before it."""
        made: Value = self.Range(self.constant(first), self.reshape(self.sizes(count + first)), self.constant(1))
        return made

    def number(self, value: float, like: Value) -> Value:
        """A scalar of another value's element type."""
        assert isinstance(like.type, TensorType) and like.type.dtype is not None
        return self.constant(np.asarray(value).astype(like.type.dtype.numpy))

    def reshape(self, value: Value, *shape: Dim) -> Value:
        made: Value = self.Reshape(value, self.sizes(*shape), allowzero=1)
        return made

    def cast(self, value: Value, like: Value) -> Value:
        """A value in another's element type."""
        assert isinstance(like.type, TensorType) and like.type.dtype is not None
        return self.cast_to(value, like.type.dtype)

    def cast_to(self, value: Value, dtype: dtypes.ElementType) -> Value:
        if isinstance(value.type, TensorType) and value.type.dtype is dtype:
            return value
        made: Value = self.Cast(value, to=dtype.code)
        return made


class Composition:
    """The nodes that stand for one node, and the values that stand for its outputs."""

    def __init__(self, node: Node, function: Compose, widen: bool):
        self.node = node
        op = Composer(node)
        try:
            made = function(op, **_operands(op, node, function, widen))
            results = made if isinstance(made, (list, tuple)) else [made]
            self.outputs = [(output, op.cast(result, output)) for output, result in zip(node.outputs, results) if output.name]
            """Those that are wanted, each with the value that stands for it."""
        except (*CODED, InferenceError) as error:
            edit.discard(op.made)
            raise CannotCompile(str(error), quiet=True) from error
        except Exception:
            edit.discard(op.made)
            raise
        self.nodes: Sequence[Node] = op.made
        self.equal_sizes = op.equal_sizes

    def discard(self) -> None:
        """Give up the uses of the node's operands."""
        edit.discard(self.nodes)


def _operands(op: Composer, node: Node, function: Compose, widen: bool) -> dict[str, Any]:
    """What a function asks for by name: operands, None where one is absent, attributes, and `node` itself."""
    signature = checking.signature_of(node)
    found: dict[str, Any] = {"node": node}
    for name, definition in signature.attributes.items():
        given = node.attributes.get(name)
        found[name] = attribute_value(given.value) if given is not None else definition.default
    names = signature.operand_names
    found |= {name: node.inputs[index] if index < len(node.inputs) else None for index, name in enumerate(names)}
    if signature.inputs and signature.inputs[-1].variadic:
        found[names[-1]] = list(node.inputs[len(names) - 1 :])
    wanted = {name: found.get(name) for name in Parameters.of(function).positional[1:]}
    for name, value in wanted.items():
        if value is None and function.__annotations__.get(name) == "Value":
            raise CannotCompile(f"the input {name} is missing", quiet=True)
    return {name: _widened(op, value) for name, value in wanted.items()} if widen else wanted


def _widened(op: Composer, operand: Any) -> Any:
    """An operand of a narrow float type in float32, or several of them."""
    if isinstance(operand, list):
        return [_widened(op, one) for one in operand]
    if not isinstance(operand, Value) or not isinstance(operand.type, TensorType) or operand.type.dtype not in dtypes.HALVES:
        return operand
    return op.cast_to(operand, dtypes.float32)


def compose(
    *ops: str, domain: str = "", claims: Claims | None = None, since: int = 1, until: int = NEWEST, widen: bool = False
) -> Callable[[Compose], Compose]:
    """Register what composes `ops`. Of the nodes that `claims` takes those are lowered whose parts all have native code.

    With `widen`, operands of narrow float types come in float32. Results are rounded to the types of the outputs in any case.
    """

    def register(function: Compose) -> Compose:
        def is_possible(node: Node) -> bool:
            return (claims is None or claims(node)) and _is_native(node, function, widen)

        def lower_parts(lowerer: Lowerer, node: Node) -> None:
            lowerer.lower_as(Composition(node, function, widen))

        lower(*ops, domain=domain, claims=is_possible, since=since, until=until, composed=True)(lower_parts)
        return function

    return register


def _is_native(node: Node, function: Compose, widen: bool) -> bool:
    try:
        composition = Composition(node, function, widen)
    except CannotCompile:
        return False
    try:
        return all(map(_has_code, composition.nodes))
    finally:
        composition.discard()


def _has_code(node: Node) -> bool:
    if not all(map(is_plain, (*node.inputs, *node.outputs))):
        return False
    return is_symbolic(node) or find_scalar(node) is not None or lowering_of(node, _version(node)) is not None


def _version(node: Node) -> int:
    return checking.signature_of(node).since_version
