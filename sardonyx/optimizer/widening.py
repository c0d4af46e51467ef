"""Nodes that work in float32 instead of float16, with Casts where float16 begins and ends. Whoever calls says which nodes."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Attribute, Graph, Kind, Model, Node, Tensor, TensorType, Type, Value, edit
from sardonyx.ops.table import facts_of

PREFIX = "InsertedPrecisionFreeCast_"
"""What the original calls the casts that it inserts, and the values that they make."""
CAST_SINCE = 6
"""Before this opset Cast named its type by a word."""

TYPE_ATTRIBUTES = ("dtype", "to")
"""Attributes that say which type an output has."""


def is_half(value: Value | None) -> bool:
    """Whether a value is a tensor of float16."""
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype is dtypes.float16


class Widening:
    """Changes nodes of a model. `fold` stores constants as float32 instead of casting them in each run."""

    def __init__(self, model: Model, fold: bool = True):
        self.opset = model.opsets[""]
        self.fold = fold
        self.names = edit.Names(model.graph)

    def widen(self, graph: Graph, nodes: Collection[Node]) -> None:
        """Let some nodes of a graph, in its order, have float32 for each float16; what others read stays as it was."""
        counterparts: dict[Value, Value] = {}
        back: list[Node] = []
        for node in nodes:
            self._widen(graph, node, counterparts, back)
        for cast in back:
            self._settle(graph, cast)
        for value in counterparts:
            if value.is_constant and value.graph is not None and not value.uses and not value.is_graph_output:
                value.graph.remove_initializer(value)

    def _widen(self, graph: Graph, node: Node, counterparts: dict[Value, Value], back: list[Node]) -> None:
        for position, value in enumerate(node.inputs):
            if value is not None and is_half(value):
                if value not in counterparts:
                    counterparts[value] = self._as_float(graph, node, value)
                node.set_input(position, counterparts[value])
        for name in TYPE_ATTRIBUTES:
            if node.attribute(name) == dtypes.float16.code:
                node.attributes[name] = Attribute(Kind.INT, dtypes.float32.code)
        for position, old in enumerate(node.outputs):
            if is_half(old) and old.name:
                new = self._new_value(old)
                edit.replace_output(node, position, new)
                cast = self._cast(new, old, dtypes.float16)
                graph.insert_after(node, cast)
                back.append(cast)
                counterparts[old] = new

    def _settle(self, graph: Graph, cast: Node) -> None:
        """Remove a cast back to float16 that nobody needs."""
        wide, half = cast.inputs[0], cast.outputs[0]
        for user, position in list(half.uses):
            if facts_of(user).is_blind(user):
                user.set_input(position, wide)
        if not half.uses and not half.is_graph_output:
            graph.remove(cast)

    def _as_float(self, graph: Graph, before: Node, value: Value) -> Value:
        if self.fold and value.is_constant:
            assert value.constant is not None
            tensor = value.constant
            wide = Tensor.computed(dtypes.float32, tensor.shape, lambda: tensor.peek().astype(np.float32))
            return graph.add_initializer(self.names.value(PREFIX + value.name), wide)
        cast = self._cast(value, self._new_value(value), dtypes.float32)
        graph.insert_before(before, cast)
        return cast.outputs[0]

    def _new_value(self, value: Value) -> Value:
        new = Value(self.names.value(PREFIX + value.name), _as_wide(value.type))
        new.declared = None if value.declared is None else _as_wide(value.declared)
        return new

    def _cast(self, source: Value, result: Value, to: dtypes.ElementType) -> Node:
        result.producer = None
        name = self.names.node(PREFIX + source.name.removeprefix(PREFIX))
        return Node("Cast", [source], [result], {"to": to.code}, version=self.opset, name=name)


def _as_wide(type: Type | None) -> TensorType:
    assert isinstance(type, TensorType)
    return TensorType(dtypes.float32, type.shape)
