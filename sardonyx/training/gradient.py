"""The training graph: a forward graph with a loss, and behind it the gradients of parameters, each added to a buffer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import Fail
from sardonyx.ir import Model, Node, TensorType, Value, dim, edit
from sardonyx.ops.gradients.backward import Backward
from sardonyx.ops.gradients.builder import CONTRIB, TypedBuilder
from sardonyx.runtime.preparation.expand import Expansion

SMALLEST_OPSET = 12
"""Before it losses and training forms of ops are missing."""
RESET = "lazy_reset_grad"


def add_gradients(model: Model, loss: str, trained: Sequence[str]) -> None:
    """Let a model whose types are known return, behind its own outputs, a flag for each trained input.

    Each gradient is added to a further input, `<name>_grad.accumulation.buffer`, or overwrites it if `lazy_reset_grad` is true.
    """
    if model.opsets.get("", 0) < SMALLEST_OPSET:
        raise Fail(
            f"Training needs opset {SMALLEST_OPSET} or later, the model has {model.opsets.get('', 0)}. Convert it first."
        )
    model.opsets.setdefault(CONTRIB, 1)
    graph = model.graph
    values = {value.name: value for value in graph.values()}
    for name in trained:
        if name not in values or not values[name].is_input:
            raise Fail(f"there is no parameter {name!r} in the model")
        if getattr(values[name].type, "dtype", None) not in dtypes.FLOATS:
            raise Fail(f"the parameter {name!r} must be a floating-point tensor to be trained, it is {values[name].type}")
    expansion = Expansion(model, aligned=True)
    op = TypedBuilder(graph, expansion.infer, opsets=model.opsets)
    seed = _seed(op, loss, values.get(loss))
    found = Backward(op, [values[name] for name in trained], expansion.expand).run(list(graph.nodes), {values[loss]: seed})
    parts = {name: _called(op, values[name], found.get(values[name]), loss) for name in trained}
    _accumulate(op, parts)
    edit.remove_unused(graph)


def _seed(op: TypedBuilder, name: str, loss: Value | None) -> Value:
    """The gradient of the loss by itself; refuses what is no single floating-point number."""
    if loss is None:
        raise Fail(f"there is no value named {name!r} in the model, which was to be its loss")
    if not isinstance(loss.type, TensorType) or loss.type.dtype not in dtypes.FLOATS:
        raise Fail(f"the loss {name!r} must be a floating-point tensor, it is {loss.type}")
    shape = op.shape(loss)
    if dim.product(shape) != 1:
        raise Fail(f"the loss {name!r} must be one number, its shape is {list(shape)}; reduce it to a mean or a sum")
    seed = op.constant(np.ones([1] * len(shape), loss.type.dtype.numpy))
    _rename(op, seed, f"{name}_grad")
    return seed


def _rename(op: TypedBuilder, value: Value, name: str) -> None:
    if value.name in op.graph.initializers:
        op.graph.initializers = {name if known is value else key: known for key, known in op.graph.initializers.items()}
    value.name = name


def _called(op: TypedBuilder, parameter: Value, gradient: Value | None, loss: str) -> Value:
    """A parameter's gradient under a name of its own."""
    name = f"{parameter.name}_grad"
    if gradient is None:
        raise Fail(f"the loss {loss!r} does not depend on {parameter.name!r}: freeze it, or leave it out of requires_grad")
    if gradient.producer is None or gradient.name.endswith("_grad"):
        gradient = op.Identity(gradient)
    gradient.name = name
    return gradient


def _accumulate(op: TypedBuilder, gradients: dict[str, Value]) -> None:
    graph = op.graph
    buffers = {
        name: graph.add_input(Value(f"{gradient.name}.accumulation.buffer", gradient.type))
        for name, gradient in gradients.items()
    }
    reset = graph.add_input(Value(RESET, TensorType(dtypes.bool_, (1,))))
    for number, (name, gradient) in enumerate(gradients.items(), start=1):
        flag = Value(f"{gradient.name}.accumulation.out")
        node = Node(
            "InPlaceAccumulatorV2",
            [buffers[name], gradient, reset],
            [flag],
            domain=CONTRIB,
            version=1,
            name=f"GradientAccumulator{number}",
        )
        op.add(node)
        graph.outputs.append(flag)
