"""Derivatives of ops as graph builders, for ONNX's Gradient op: it is replaced by the nodes that compute it.

A derivative gets a builder, the node and the gradient of its first output, and returns the gradients of its inputs in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.errors import Fail, InferenceError
from sardonyx.ir import Graph, Node, TensorType, Value, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.entries import FunctionTable
from sardonyx.ops.operand import Operand
from sardonyx.ops.table import infer

derivatives = FunctionTable("derivatives")
"""Of a builder, a node and the gradient of its first output: the gradients of its inputs, None for those that have none."""
derivative = derivatives.register


@infer("Gradient", domain="ai.onnx.preview.training")
def infer_gradient(Inputs: list[Operand], xs: list[str]):
    if len(Inputs) < len(xs):
        raise InferenceError(f"xs names {len(xs)} tensors but there are {len(Inputs)} inputs")
    return [operand.type for operand in Inputs[: len(xs)]]


def expand_gradient(graph: Graph, node: Node) -> list[Node]:
    """Replace a Gradient node by nodes that compute it; returns the new nodes, whose values have no types yet."""
    names = [*node.attribute("xs", []), *node.attribute("zs", [])]
    values = {value.name: value for value in graph.values()}
    for name in (*names, node.attribute("y")):
        if name not in values:
            raise Fail(f"{node}: there is no value named {name!r} in its graph")
    op = Builder(graph, before=node, opsets=_opsets(graph), prefix=node.name or "gradient")
    independent = [values[name] for name in names]
    value_of = {value: node.inputs[index] for index, value in enumerate(independent)}
    nodes = _between(independent, values[node.attribute("y")])
    y = values[node.attribute("y")]
    if any(mine is not theirs for mine, theirs in value_of.items()):
        nodes, y, value_of = _copied(op, nodes, y, value_of)
    gradients = _backward(op, nodes, y)
    for index in range(len(node.attribute("xs", []))):
        target = value_of[independent[index]]
        assert target is not None
        gradient = gradients.get(target)
        if index < len(node.outputs):
            edit.replace_all_uses(node.outputs[index], gradient if gradient is not None else _filled(op, target, 0))
    graph.remove(node)
    return op.made


def _opsets(graph: Graph) -> dict[str, int]:
    return {node.domain: node.version for node in graph.nodes}


def _between(sources: Sequence[Value], y: Value) -> list[Node]:
    """The nodes on the way from `sources` to `y`, in order."""
    stop, stack = set(sources), [y]
    path: dict[Node, None] = {}
    while stack:
        value = stack.pop()
        if value in stop or value.producer is None or value.producer in path:
            continue
        path[value.producer] = None
        stack.extend(operand for operand in value.producer.inputs if operand is not None)
    graph = y.graph
    return [] if graph is None else [node for node in graph.nodes if node in path]


def _copied(
    op: Builder, nodes: Sequence[Node], y: Value, value_of: dict[Value, Value | None]
) -> tuple[list[Node], Value, dict[Value, Value | None]]:
    """The same nodes over other operands."""
    places: dict[Value, Value | None] = dict(value_of)
    copies = []
    for node in nodes:
        outputs = []
        for old in node.outputs:
            new = Value(op.unique(node.op_type))
            new.type = old.type
            places[old] = new
            outputs.append(new)
        inputs = [None if value is None else places.get(value, value) for value in node.inputs]
        copies.append(
            op.add(Node(node.op_type, inputs, outputs, dict(node.attributes), domain=node.domain, version=node.version))
        )
    top = places.get(y, y)
    assert top is not None
    return copies, top, value_of


def _backward(op: Builder, nodes: Sequence[Node], y: Value) -> dict[Value, Value]:
    """Gradients of `y` with respect to every value that it depends on."""
    gradients: dict[Value, Value] = {y: _filled(op, y, 1)}
    for node in reversed(nodes):
        gradient = gradients.get(node.outputs[0])
        if gradient is None:
            continue
        function = derivatives.function_of(node)
        if function is None:
            known = ", ".join(sorted(name for _, name in derivatives.operators()))
            raise Fail(f"Gradient: no derivative is known for {node}; known are {known}")
        for value, part in zip(node.inputs, function(op, node, gradient), strict=False):
            if value is not None and part is not None:
                fitted = _fitted(op, part, _shape(node.outputs[0]), value)
                gradients[value] = op.Add(gradients[value], fitted) if value in gradients else fitted
    return gradients


def _filled(op: Builder, like: Value, number: float) -> Value:
    """A tensor of the shape and type of another."""
    return op.ConstantOfShape(op.Shape(like), value=np.array([number], _numpy_type(like)))


def _numpy_type(value: Value) -> np.dtype:
    if not isinstance(value.type, TensorType) or value.type.dtype is None:
        raise Fail(f"Gradient: the type of {value.name!r} must be known")
    return value.type.dtype.numpy


def _shape(value: Value) -> tuple[object, ...] | None:
    return value.type.shape if isinstance(value.type, TensorType) else None


def _fitted(op: Builder, gradient: Value, result_shape: tuple[object, ...] | None, value: Value) -> Value:
    """Sum a gradient over the axes along which `value` was broadcast."""
    shape = _shape(value)
    if shape == result_shape or gradient.producer is None or gradient.producer.op_type == "MatMul":
        return gradient
    if shape is None or result_shape is None:
        raise Fail(f"Gradient: the rank of {value.name!r} must be known")
    lead = len(result_shape) - len(shape)
    if lead < 0:
        return gradient
    axes = [*range(lead), *(lead + i for i, size in enumerate(shape) if size == 1 and result_shape[lead + i] != 1)]
    if not axes:
        return gradient
    summed = op.ReduceSum(gradient, op.constant(np.array(axes, np.int64)), keepdims=1)
    return op.Reshape(summed, op.Shape(value))


@derivative("Add", "Sum", "Identity")
def _(op, node, gradient):
    return [gradient for _ in node.inputs]


@derivative("Shape", "Size", "ConstantOfShape")
def _(op, node, gradient):
    return []


@derivative("CastLike")
def _(op, node, gradient):
    return [op.CastLike(gradient, node.inputs[0])]


@derivative("Sub")
def _(op, node, gradient):
    return [gradient, op.Neg(gradient)]


@derivative("Mul")
def _(op, node, gradient):
    a, b = node.inputs
    return [op.Mul(gradient, b), op.Mul(gradient, a)]


@derivative("Div")
def _(op, node, gradient):
    a, b = node.inputs
    return [op.Div(gradient, b), op.Neg(op.Div(op.Mul(gradient, a), op.Mul(b, b)))]


@derivative("Neg")
def _(op, node, gradient):
    return [op.Neg(gradient)]


@derivative("Exp")
def _(op, node, gradient):
    return [op.Mul(gradient, node.outputs[0])]


@derivative("Log")
def _(op, node, gradient):
    return [op.Div(gradient, node.inputs[0])]


@derivative("Sqrt")
def _(op, node, gradient):
    root = node.outputs[0]
    return [op.Div(gradient, op.Add(root, root))]


@derivative("Tanh")
def _(op, node, gradient):
    y = node.outputs[0]
    return [op.Sub(gradient, op.Mul(gradient, op.Mul(y, y)))]


@derivative("Sigmoid")
def _(op, node, gradient):
    y = node.outputs[0]
    return [op.Mul(gradient, op.Sub(y, op.Mul(y, y)))]


@derivative("Relu")
def _(op, node, gradient):
    zero = op.constant(np.zeros((), _numpy_type(node.outputs[0])))
    return [op.Where(op.Greater(node.outputs[0], zero), gradient, zero)]


@derivative("Sin")
def _(op, node, gradient):
    return [op.Mul(gradient, op.Cos(node.inputs[0]))]


@derivative("Cos")
def _(op, node, gradient):
    return [op.Neg(op.Mul(gradient, op.Sin(node.inputs[0])))]


@derivative("Pow")
def _(op, node, gradient):
    x, exponent = node.inputs
    unit = op.CastLike(op.constant(np.float32(1)), exponent)
    by_base = op.Mul(gradient, op.Mul(op.CastLike(exponent, x), op.Pow(x, op.Sub(exponent, unit))))
    return [by_base, op.CastLike(op.Mul(gradient, op.Mul(node.outputs[0], op.Log(x))), exponent)]


@derivative("MatMul")
def _(op, node, gradient):
    a, b = node.inputs
    ranks = [_shape(value) for value in (a, b)]
    if any(shape is None or len(shape) != 2 for shape in ranks):
        raise Fail(f"Gradient: {node} must multiply two matrices")
    return [op.MatMul(gradient, op.Transpose(b, perm=[1, 0])), op.MatMul(op.Transpose(a, perm=[1, 0]), gradient)]


@derivative("Transpose")
def _(op, node, gradient):
    perm = node.attribute("perm")
    inverse = None if perm is None else [int(axis) for axis in np.argsort(perm)]
    return [op.Transpose(gradient, perm=inverse)]


@derivative("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def _(op, node, gradient):
    return [op.Reshape(gradient, op.Shape(node.inputs[0]))]


@derivative("ReduceSum", "ReduceMean")
def _(op, node, gradient):
    x = node.inputs[0]
    if not node.attribute("keepdims", 1):
        ones = _reduced_shape(op, node)
        gradient = op.Reshape(gradient, ones)
    spread = op.Expand(gradient, op.Shape(x))
    if node.op_type == "ReduceSum":
        return [spread]
    count = op.Div(op.Size(x), op.Size(node.outputs[0]))
    return [op.Div(spread, op.CastLike(count, spread))]


def _reduced_shape(op, node):
    """The shape of a reduction's result had it kept its axes."""
    shape = op.Shape(node.inputs[0])
    axes = node.inputs[1] if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if axes is None and node.attribute("axes") is not None:
        axes = op.constant(np.array(node.attribute("axes"), np.int64))
    if axes is None:
        return op.Div(shape, shape)
    return op.ScatterElements(shape, axes, op.Div(axes, axes), axis=0)
