"""Sequences whose tensors are known before the first run: what reads them reads the tensors themselves.

Exporters cut a tensor into a sequence to take its parts, collect tensors to join them, and pack a tensor into an optional value to ask
whether it is there.
"""

from __future__ import annotations

import numpy as np

from sardonyx.errors import CODED
from sardonyx.ir import Graph, Node, OptionalType, Value, edit
from sardonyx.ops.reading import constant, input_named, operand
from sardonyx.optimizer.passes.building import TypingBuilder
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import rank_of, shape_of

Part = tuple[Node, int]
"""What a node that cuts a tensor makes, and which of it."""

MAX_PARTS = 256
"""A tensor that is cut into more parts stays a sequence."""


def resolve_sequences(graph: Graph, rewriting: Rewriting) -> bool:
    """Put tensors in place of what reads them out of sequences."""
    resolution = _Resolution(rewriting)
    changed = False
    for node in list(graph.nodes):
        result = None if node.domain else resolution.result_of(node)
        if result is not None:
            edit.replace_all_uses(node.outputs[0], result)
            rewriting.journal.add("SequenceResolution", node)
            graph.remove(node)
            changed = True
    return changed


class _Resolution:
    """What is known of the sequences of a model while a graph is gone through."""

    def __init__(self, rewriting: Rewriting):
        self.rewriting = rewriting
        self.parts: dict[Node, list[Value]] = {}
        """The parts that tensors were cut into."""

    def result_of(self, node: Node) -> Value | None:
        """What takes the place of a node that reads a sequence or an optional value; None if it stays."""
        read = {
            "SequenceAt": self._at,
            "SequenceLength": self._length,
            "ConcatFromSequence": self._joined,
            "OptionalGetElement": self._content,
            "OptionalHasElement": self._is_there,
        }.get(node.op_type)
        return None if read is None else read(node)

    def _build(self, node: Node) -> TypingBuilder:
        assert node.graph is not None
        prefix = f"{node.name or node.op_type}/tensors"
        return TypingBuilder(node.graph, node, self.rewriting.model.opsets, prefix, self.rewriting.driver)

    # --- what is in a sequence

    def tensors(self, value: Value | None) -> list[Value | Part] | None:
        """The tensors in a sequence, in order; None if only a run tells."""
        node = None if value is None else value.producer
        if node is None or node.domain:
            return None
        if node.op_type == "SequenceConstruct":
            return [tensor for tensor in node.inputs if tensor is not None]
        if node.op_type == "SequenceEmpty":
            return []
        if node.op_type == "Identity":
            return self.tensors(node.inputs[0])
        if node.op_type in ("SequenceInsert", "SequenceErase"):
            return self._changed(node)
        lengths = _lengths(node) if node.op_type == "SplitToSequence" else None
        return None if lengths is None else [(node, number) for number in range(len(lengths))]

    def _changed(self, node: Node) -> list[Value | Part] | None:
        tensors = self.tensors(node.inputs[0])
        if tensors is None:
            return None
        is_insertion = node.op_type == "SequenceInsert"
        place = _place(node, len(tensors), len(tensors) + is_insertion, default=len(tensors) if is_insertion else -1)
        if place is None:
            return None
        inserted = [tensor for tensor in node.inputs[1:2] if is_insertion and tensor is not None]
        return [*tensors[:place], *inserted, *tensors[place + (not is_insertion) :]]

    def _value(self, tensor: Value | Part) -> Value:
        """A tensor, which is cut out of another one if need be."""
        if isinstance(tensor, Value):
            return tensor
        node, number = tensor
        if node not in self.parts:
            self.parts[node] = self._cut(node)
        return self.parts[node][number]

    def _cut(self, node: Node) -> list[Value]:
        lengths, value = _lengths(node), node.inputs[0]
        assert lengths is not None and value is not None
        op, axis = self._build(node), int(operand(node, "axis"))
        parts = [value] if len(lengths) == 1 else op.Split(value, outputs=len(lengths), axis=axis, split=lengths)
        has_axis = input_named(node, "split") is not None or operand(node, "keepdims") != 0
        return parts if has_axis else [op.Squeeze(part, axes=[axis]) for part in parts]

    # --- what is read

    def _at(self, node: Node) -> Value | None:
        tensors = self.tensors(node.inputs[0])
        place = None if tensors is None else _place(node, len(tensors), len(tensors))
        return None if tensors is None or place is None else self._value(tensors[place])

    def _length(self, node: Node) -> Value | None:
        tensors = self.tensors(node.inputs[0])
        return None if tensors is None else self._build(node).constant(np.int64(len(tensors)))

    def _joined(self, node: Node) -> Value | None:
        found = self.tensors(node.inputs[0])
        if not found or rank_of(node.outputs[0]) is None:
            return None
        tensors, op, axis = [self._value(tensor) for tensor in found], self._build(node), int(operand(node, "axis"))
        try:
            if operand(node, "new_axis"):
                tensors = [op.Unsqueeze(tensor, axes=[axis]) for tensor in tensors]
            joined: Value = op.Concat(*tensors, axis=axis)
        except CODED:  # shapes that do not go together are an error of the run
            op.undo()
            return None
        return joined

    # --- optional values

    def _content(self, node: Node) -> Value | None:
        value = node.inputs[0]
        if value is None or not isinstance(value.type, OptionalType):
            return value
        packing = value.producer
        is_packed = packing is not None and packing.op_type == "Optional" and not packing.domain and packing.inputs
        return packing.inputs[0] if is_packed and packing is not None else None

    def _is_there(self, node: Node) -> Value | None:
        value = node.inputs[0] if node.inputs else None
        if value is None or not isinstance(value.type, OptionalType):
            return self._build(node).constant(np.bool_(value is not None))
        packing = value.producer
        if packing is None or packing.op_type != "Optional" or packing.domain:
            return None
        return self._build(node).constant(np.bool_(any(one is not None for one in packing.inputs)))


def _place(node: Node, count: int, end: int, default: int | None = None) -> int | None:
    """The position that a node names, counted from the front; None if it is not known or out of range, which is an error of the run."""
    value = input_named(node, "position")
    content = None if value is None else constant(value)
    if value is None:
        place = default
    else:
        place = int(content.item()) if content is not None and content.size == 1 else None
    if place is None or not -count <= place < end:
        return None
    return place + count if place < 0 else place


def _lengths(node: Node) -> list[int] | None:
    """Into parts of which lengths a tensor is cut; None if that is not known, or wrong, or if there are none or too many."""
    value, split = node.inputs[0], input_named(node, "split")
    shape = None if value is None else shape_of(value)
    size = None if not shape else shape[int(operand(node, "axis"))]
    content = None if split is None else constant(split)
    if not isinstance(size, int) or not 0 < size <= MAX_PARTS or (split is not None and content is None):
        return None
    if content is None:
        return [1] * size
    if content.ndim:
        lengths = [int(length) for length in content.tolist()]
        return lengths if sum(lengths) == size and min(lengths) >= 0 and len(lengths) <= MAX_PARTS else None
    length = int(content)
    return [min(length, size - start) for start in range(0, size, length)] if length > 0 else None
