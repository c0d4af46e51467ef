"""Rotary position embeddings: x·cos + turned(x)·sin, which exporters write with Slice, Neg and Concat, becomes RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from sardonyx.ir import Attribute, Graph, Node, Value, edit
from sardonyx.ir.types import Shape
from sardonyx.ops.builder import Builder
from sardonyx.ops.facts import Operands
from sardonyx.ops.reading import constant, operand
from sardonyx.ops.table import facts_of
from sardonyx.optimizer import matching
from sardonyx.optimizer.axes import part_of
from sardonyx.optimizer.passes.attention_heads import Heads
from sardonyx.optimizer.passes.attention_scores import Unfit
from sardonyx.optimizer.passes.building import TypingBuilder, replace_value
from sardonyx.optimizer.pattern import read
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import dtype_of, rank_of, scalar, shape_of
from sardonyx.startup.records import dataclass, field

NAME = "RotaryEmbeddingFusion"
PATTERN = read("Add(Mul(x, cos), Mul(turned:Concat(Neg(high), low), sin))")

MAX_DEPTH = 16


def fuse_rotary_embeddings(graph: Graph, rewriting: Rewriting) -> bool:
    """Make one op of each rotation of pairs by their positions' angles."""
    tables = _Tables()
    changed = False
    for node in list(graph.nodes):
        if node.op_type == "RotaryEmbedding":
            changed = _join_heads(node, graph, rewriting) or changed
        elif node.op_type == "Add" and not node.domain:
            rotation = next(_rotations(node), None)
            changed = (rotation is not None and _fuse(rotation, tables, graph, rewriting)) or changed
    if changed:
        edit.topological_sort(graph)
        edit.remove_unused(graph)
    return changed


# --- what there is


@dataclass(frozen=True)
class Rotation:
    """`output` is x with the first `width` features of each head turned; cos and sin are those of the angles."""

    x: Value
    cos: Value
    sin: Value
    width: int
    output: Value


def _rotations(add: Node) -> Iterator[Rotation]:
    for match in matching.find_all(PATTERN, add):
        names = match.bindings
        width = _turned_width(names["x"], names["high"], names["low"], names["turned"])
        if width is not None:
            yield _of_all_features(Rotation(names["x"], names["cos"], names["sin"], width, add.outputs[0]))


def _turned_width(x: Value, high: Value, low: Value, concat: Node) -> int | None:
    """How many features x has, if the second half of them and the first have changed places."""
    first, second, rank = part_of(low), part_of(high), rank_of(x)
    if first is None or second is None or rank is None or not (first.source is second.source is x):
        return None
    if any(axis % rank != rank - 1 for axis in (first.axis, second.axis, operand(concat, "axis"))):
        return None
    half = first.size // 2
    is_halved = (first.start, first.length, second.start, second.length) == (0, half, half, half)
    return first.size if is_halved and first.size == 2 * half else None


def _of_all_features(rotation: Rotation) -> Rotation:
    """Where only the first features are turned and the others put behind them again: all of them."""
    turned, output = part_of(rotation.x), rotation.output
    join = output.users[0] if len(output.uses) == 1 else None
    if turned is None or turned.start or join is None or join.op_type != "Concat" or len(join.inputs) != 2:
        return rotation
    if join.graph is not output.graph or join.inputs[0] is not output:
        return rotation
    rest = None if join.inputs[1] is None else part_of(join.inputs[1])
    rank = rank_of(turned.source) or 0
    if rest is None or rest.source is not turned.source or operand(join, "axis") % rank != rank - 1:
        return rotation
    if {turned.axis, rest.axis} != {rank - 1} or (rest.start, rest.length) != (turned.length, turned.size - turned.length):
        return rotation
    return Rotation(rest.source, rotation.cos, rotation.sin, rotation.width, join.outputs[0])


# --- what comes of it


def _fuse(rotation: Rotation, tables: _Tables, graph: Graph, rewriting: Rewriting) -> bool:
    node = rotation.output.producer
    assert node is not None
    op = TypingBuilder(graph, node, {**rewriting.model.opsets, "": node.version}, node.name or "rotary", rewriting.driver)
    try:
        result = _emitted(op, rotation, tables)
    except Unfit as reason:
        tables.forget(op)
        op.undo()
        rewriting.journal.add(NAME, node, str(reason))
        return False
    rewriting.journal.add(NAME, node)
    replace_value(rotation.output, result)
    return True


def _emitted(op: Builder, rotation: Rotation, tables: _Tables) -> Value:
    shape = shape_of(rotation.x)
    if shape is None or len(shape) != 4 or len({dtype_of(value) for value in (rotation.x, rotation.cos, rotation.sin)}) != 1:
        raise Unfit("x has not four axes, or another element type than its angles")
    heads_axis = _heads_axis(shape, rotation)
    heads, size = shape[heads_axis], shape[3]
    if not isinstance(heads, int) or not isinstance(size, int):
        raise Unfit("the number or size of heads is not known")
    cos, sin = (tables.halves(op, value, rotation.width) for value in (rotation.cos, rotation.sin))
    positions = tables.positions(op, rotation.cos, heads_axis)
    part = rotation.width if rotation.width != size else None

    def rotated(x: Value) -> Value:
        rotated: Value = op.node(
            "RotaryEmbedding", x, positions, cos, sin, domain="com.microsoft", num_heads=heads, rotary_embedding_dim=part
        )
        return rotated

    whole, apart = op.constant([0, 0, heads * size]), op.constant([0, 0, heads, size])
    if heads_axis == 2:
        return op.Reshape(rotated(op.Reshape(rotation.x, whole)), apart)  # type: ignore[no-any-return]
    operand = Heads(rotation.x)
    if operand.merged is None:
        return rotated(rotation.x)
    merged, _ = operand.as_merged(op)
    return op.Transpose(op.Reshape(rotated(merged), apart), perm=[0, 2, 1, 3])  # type: ignore[no-any-return]


def _join_heads(node: Node, graph: Graph, rewriting: Rewriting) -> bool:
    """Let an op that the model has turn heads where they stand side by side, before they are taken apart."""
    x = node.inputs[0]
    shape = None if x is None else shape_of(x)
    if x is None or shape is None or len(shape) != 4 or not all(isinstance(size, int) for size in (shape[1], shape[3])):
        return False
    heads = Heads(x)
    if heads.merged is None or heads.merged.index is not None or heads.merged.is_turned:
        return False
    op = TypingBuilder(
        graph, node, {**rewriting.model.opsets, node.domain: node.version}, node.name or "rotary", rewriting.driver
    )
    merged, _ = heads.as_merged(op)
    attributes = {**node.attributes, "num_heads": Attribute.of(shape[1])}
    turned = Node(
        node.op_type,
        [merged, *node.inputs[1:]],
        [op.unique(node.op_type)],
        attributes,
        domain=node.domain,
        version=node.version,
    )
    op.add(turned)
    apart = op.Reshape(turned.outputs[0], op.constant([0, 0, shape[1], shape[3]]))
    replace_value(node.outputs[0], op.Transpose(apart, perm=[0, 2, 1, 3]))
    rewriting.journal.add(NAME, node)
    return True


def _heads_axis(shape: Shape, rotation: Rotation) -> int:
    """1 if x is (batch, heads, length, size), 2 if it is (batch, length, heads, size): angles are the same for all heads."""
    angles = {_in_four_axes(value) for value in (rotation.cos, rotation.sin)}
    if len(angles) == 1:
        batch, *middle, width = angles.pop()
        for axis, length in ((1, 2), (2, 1)):
            if (
                batch in (1, shape[0])
                and middle[axis - 1] == 1
                and middle[length - 1] == shape[length]
                and width == rotation.width
            ):
                return axis
    raise Unfit("the angles are not one for each position")


def _in_four_axes(value: Value) -> Shape:
    shape = shape_of(value)
    return () if shape is None else (1,) * (4 - len(shape)) + shape


@dataclass
class _Tables:
    """Angles and positions as RotaryEmbedding takes them, each made once: all layers share them."""

    made: dict[Hashable, Value] = field(default_factory=dict)

    def halves(self, op: Builder, angles: Value, width: int) -> Value:
        """Cosines or sines of (batch·length, width/2): one for each pair, where the graph has one for each feature."""
        if not _has_equal_halves(angles, MAX_DEPTH):
            raise Unfit("the two features of a pair may be turned by different angles")
        key = angles, width
        if key not in self.made:
            last = (rank_of(angles) or 1) - 1
            half = op.Slice(angles, starts=[0], ends=[width // 2], axes=[last])
            self.made[key] = op.Reshape(half, op.constant([-1, width // 2]))
        return self.made[key]

    def positions(self, op: Builder, angles: Value, heads_axis: int) -> Value:
        """Rows of the tables: where they are the same for all batches, counted from 0, else as (batch, length)."""
        batch = _in_four_axes(angles)[0]
        key: Hashable = "first" if batch == 1 else (angles, "positions")
        if key not in self.made:
            self.made[key] = op.constant([0]) if batch == 1 else self._numbered(op, angles, heads_axis)
        return self.made[key]

    def _numbered(self, op: Builder, angles: Value, heads_axis: int) -> Value:
        sizes = op.Shape(op.Squeeze(angles, axes=[heads_axis]))
        rows = op.Slice(sizes, starts=[0], ends=[2], axes=[0])
        count = op.ReduceProd(rows, keepdims=0)
        numbers = op.Range(op.constant(np.array(0)), count, op.constant(np.array(1)))
        return op.Reshape(numbers, rows)  # type: ignore[no-any-return]

    def forget(self, op: Builder) -> None:
        """Drop what was made in an attempt that came to nothing."""
        lost = {id(value) for value in (*op.constants, *(output for node in op.made for output in node.outputs))}
        self.made = {key: value for key, value in self.made.items() if id(value) not in lost}


def _has_equal_halves(value: Value, depth: int) -> bool:
    """Whether the second half of the last axis certainly is the same as the first."""
    array = constant(value)
    if array is not None and array.dtype != object:
        half = array.shape[-1] // 2 if array.ndim else 0
        return half > 0 and bool(np.array_equal(array[..., :half], array[..., half:]))
    node = value.producer
    if node is None or node.domain or depth == 0 or node.inputs[0] is None:
        return False
    rank = rank_of(value) or 1
    if node.op_type == "Concat":
        is_last = operand(node, "axis") % rank == rank - 1
        return is_last and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    elementwise = facts_of(node).elementwise
    if elementwise is Operands.ALL:
        return all(_is_alike(operand, depth - 1) for operand in node.inputs if operand is not None)
    if elementwise is Operands.FIRST or _keeps_features(node, value):
        return _has_equal_halves(node.inputs[0], depth - 1)
    return False


def _is_alike(value: Value, depth: int) -> bool:
    shape = shape_of(value)
    is_single = scalar(value) is not None or shape == () or (shape is not None and shape[-1] == 1)
    return is_single or _has_equal_halves(value, depth)


def _keeps_features(node: Node, value: Value) -> bool:
    """Whether the last axis of a node's result is that of its operand."""
    assert node.inputs[0] is not None
    before, after = shape_of(node.inputs[0]), shape_of(value)
    if before is None or after is None or not before or not after or before[-1] != after[-1] or after[-1] == 1:
        return False
    if node.op_type in ("Unsqueeze", "Squeeze", "Expand", "Reshape"):
        return True
    if node.op_type == "Transpose":
        return bool((operand(node, "perm") or [0])[-1] == len(before) - 1)
    if node.op_type == "Gather":
        return bool(operand(node, "axis") % len(before) != len(before) - 1)
    part = part_of(value)
    return part is not None and part.axis != len(before) - 1
