"""Attention fusion: the ops that exporters write for softmax(scale · Q Kᵀ + bias) V become one MultiHeadAttention or Attention,
or, where scores are capped, GroupQueryAttention.

The pass looks at every Softmax. What it computes with is read in `attention_scores`, how heads are laid out in `attention_heads`, what
is added in `attention_masks` and `attention_bias`; here they are put together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Attribute, Graph, Node, Value, edit
from sardonyx.ir.dim import Dim, floordiv
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import operand
from sardonyx.optimizer.passes.attention_bias import BiasMaker, Scores, covers_all
from sardonyx.optimizer.passes.attention_heads import Heads, Joined, Past, joined_output, past_of, size_of
from sardonyx.optimizer.passes.attention_masks import always_sees_a_key, causal_offset_of
from sardonyx.optimizer.passes.attention_scores import Core, Factor, Shift, Unfit, find_core, types_agree
from sardonyx.optimizer.passes.building import TypingBuilder, replace_value
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import dtype_of, has_one_output, shape_of
from sardonyx.startup.records import dataclass

NAME = "AttentionFusion"
ENDLESS = 2**63 - 1
STANDARD_SINCE = 23
"""The opset that brought Attention to ONNX."""


def fuse_attention(graph: Graph, rewriting: Rewriting) -> bool:
    """Make one op of each attention in `graph`."""
    fuser = _Fuser(graph, rewriting)
    changed = False
    for node in list(graph.nodes):
        if node.op_type == "Softmax" and not node.domain:
            changed = fuser.fuse(node) or changed
        elif node.op_type == "Attention" and not node.domain:
            changed = fuser.join_heads(node) or changed
    if changed:
        edit.topological_sort(graph)
        edit.remove_unused(graph)
    return changed


class _Fuser:
    def __init__(self, graph: Graph, rewriting: Rewriting):
        self.graph = graph
        self.rewriting = rewriting
        self.biases = BiasMaker()
        self._number_nodes()

    def _number_nodes(self) -> None:
        self.position = {node: number for number, node in enumerate(self.graph.nodes)}

    def fuse(self, softmax: Node) -> bool:
        try:
            core = find_core(softmax)
            return core is not None and self._fuse(core)
        except Unfit as reason:
            self.rewriting.journal.add(NAME, softmax, str(reason))
            return False

    def _fuse(self, core: Core) -> bool:
        attention = _described(core)
        masks = [step for step in core.steps if not isinstance(step, Factor)]
        others = [step.value if isinstance(step, Shift) else step.condition for step in masks]
        pasts = self._pasts(attention.key, attention.value, [core.query, *others])
        op = self._builder(core.softmax, before=core.output.producer)
        try:
            pairs = _Emitter(op, attention, self.biases, pasts).emit()
        except Unfit:
            self.biases.forget(op)
            op.undo()
            raise
        self._replace(core.softmax, pairs, pasts)
        for shape in core.shapes:
            self._ask_operands(shape, core)
        return True

    def _ask_operands(self, shape: Node, core: Core) -> None:
        """Let queries and keys tell the shape of scores that are not there any more."""
        op = self._builder(core.softmax, before=shape)
        queries, keys = op.Shape(core.query), op.Shape(core.key)
        rows = op.Slice(queries, starts=[-2], ends=[-1], axes=[0])
        axis = -1 if core.key_is_transposed else -2
        columns = op.Slice(keys, starts=[axis], ends=[axis + 1 or ENDLESS], axes=[0])
        leading = _leading(op, op.Slice(queries, starts=[0], ends=[-2], axes=[0]), core, shape.inputs[0])
        replace_value(shape.outputs[0], op.Concat(*leading, rows, columns, axis=0))

    def join_heads(self, node: Node) -> bool:
        """Let an Attention that the model has take heads side by side and its past, not heads apart, joined with it and repeated."""
        attention = _of_standard(node)
        if attention is None:
            return False
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        others = [attention.query.value, *([] if mask is None else [mask])]
        pasts = [] if operand(node, "is_causal") else self._pasts(attention.key, attention.value, others)
        operands = [past.new for past in pasts] or [attention.key, attention.value]
        if any(heads.merged is None for heads in (attention.query, *operands)):
            return False
        op = self._builder(node, before=node)
        heads = {"q_num_heads": attention.heads, "kv_num_heads": attention.heads // attention.groups}
        inputs = [*(heads.as_merged(op)[0] for heads in (attention.query, *operands)), mask, *(past.past for past in pasts)]
        attributes = {**node.attributes, **{name: Attribute.of(count) for name, count in heads.items()}}
        outputs = [op.unique("Attention") for _ in range(1 + len(pasts))]
        result, *presents = op.add(Node("Attention", inputs, outputs, attributes, version=node.version)).outputs
        pairs = zip((past.both for past in pasts), presents, strict=True)
        self._replace(node, [*pairs, (attention.joined.value, result)], pasts)
        return True

    def _builder(self, node: Node, before: Node | None) -> TypingBuilder:
        opsets = {**self.rewriting.model.opsets, "": node.version}
        return TypingBuilder(self.graph, before, opsets, node.name or "attention", self.rewriting.driver)

    def _replace(self, node: Node, pairs: Sequence[tuple[Value, Value]], pasts: Sequence[Past]) -> None:
        self.rewriting.journal.add(NAME, node)
        is_moved = any(len(past.both.uses) > 1 for past in pasts)
        for old, new in pairs:
            replace_value(old, new)
        if is_moved:  # a user of keys or values may stand before the op that makes them now
            edit.topological_sort(self.graph)
            self._number_nodes()

    def _pasts(self, key: Heads, value: Heads, others: Sequence[Value]) -> list[Past]:
        """Keys and values whose past the op can join with the new ones itself; `others` are what it takes besides."""
        pasts = [past_of(heads, self.graph) for heads in (key, value)]
        caches = [past for past in pasts if past is not None and past.new.head_count == key.head_count]
        if len(caches) != 2:
            return []
        sources = [*others, *(past.past for past in caches), *(past.new.value for past in caches)]
        joins = {past.both.producer for past in caches}
        shapes = [(past, node) for past in caches for node in past.both.users if self._tells_shape(node)]
        if self._any_depends_on(sources, joins, besides=[node for _, node in shapes]):
            return []
        if self._any_depends_on(sources, joins):  # masks that are cut to as many columns as there are keys
            for past, shape in shapes:
                self._ask_parts(shape, past)
        return caches

    def _tells_shape(self, node: Node) -> bool:
        return node.op_type == "Shape" and not node.domain and node.graph is self.graph

    def _ask_parts(self, shape: Node, past: Past) -> None:
        """Let the past and what is new tell the shape of both, so that it is known before they are joined."""
        op = self._builder(shape, before=past.both.producer)
        old, new = op.Shape(past.past), op.Shape(past.new.value)
        lengths = [op.Slice(sizes, starts=[2], ends=[3], axes=[0]) for sizes in (old, new)]
        leading, last = op.Slice(old, starts=[0], ends=[2], axes=[0]), op.Slice(old, starts=[3], ends=[4], axes=[0])
        whole = op.Concat(leading, op.Add(*lengths), last, axis=0)
        start, end = (operand(shape, name) for name in ("start", "end"))
        if start or end is not None:
            whole = op.Slice(whole, starts=[start or 0], ends=[ENDLESS if end is None else end], axes=[0])
        replace_value(shape.outputs[0], whole)

    def _any_depends_on(self, values: Sequence[Value], nodes: Set[Node | None], besides: Sequence[Node] = ()) -> bool:
        """Whether some values need the result of some nodes, other than by way of those `besides`.

        If so, these cannot be part of an op that takes the values.
        """
        first = min(self.position.get(node, 0) for node in nodes if node is not None)
        pending = [value.producer for value in values]
        seen = {*besides}
        while pending:
            node = pending.pop()
            if node in nodes and node is not None:
                return True
            if node is None or node in seen or self.position.get(node, first) < first:
                continue
            seen.add(node)
            pending.extend(value.producer for value in edit.operands(node))
        return False


# --- what there is


@dataclass
class _Attention:
    """An attention whose operands are known as heads."""

    core: Core
    query: Heads
    key: Heads
    value: Heads
    scores: Scores
    groups: int
    """How many query heads share a key head."""
    joined: Joined | None


def _described(core: Core) -> _Attention:
    shapes = [shape_of(value) for value in (core.query, core.key, core.value)]
    query, key, value = shapes
    element = dtype_of(core.query)
    if query is None or key is None or value is None or element is None or not len(query) == len(key) == len(value):
        raise Unfit("the shapes of query, key and value are not known")
    if not types_agree(core):
        raise Unfit("query, key and value have several element types")
    if core.key_is_transposed:
        key = (*key[:-2], key[-1], key[-2])
    if not query[0] == key[0] == value[0]:
        raise Unfit("query, key and value may be of different batches")
    # exporters often do not know that there are as many keys as values; what has not is an error in the product with the values
    if isinstance(key[-2], int) and isinstance(value[-2], int) and key[-2] != value[-2]:
        raise Unfit(f"there are {key[-2]} keys and {value[-2]} values")
    joined = joined_output(core.output)
    if len(query) == 4:
        return _with_heads(core, None, Scores(element, query[0], _whole(query[1]), query[2], key[2]), joined)
    heads, batch = _joined_heads(core, joined)
    return _with_heads(core, heads, Scores(element, batch, heads, query[1], key[1]), joined if heads != 1 else None)


def _leading(op: Builder, sizes: Value, core: Core, scores: Value | None) -> list[Value]:
    """The sizes of batch and heads: they may be one axis of the query and two of the scores, or the other way round."""
    shape, rank = (scores and shape_of(scores)) or (), len(shape_of(core.query) or ())
    if len(shape) > rank:
        heads = op.constant([_whole(shape[1])])
        return [op.Div(sizes, heads), heads]
    return [op.ReduceProd(sizes, keepdims=1)] if len(shape) < rank else [sizes]


def _whole(size: Dim) -> int:
    if not isinstance(size, int):
        raise Unfit("the number of heads is not known")
    return size


def _joined_heads(core: Core, joined: Joined | None) -> tuple[int, Dim]:
    """How many heads and batches there are where they are one axis; without a hint, each is a batch of its own."""
    count = None if joined is None else size_of(joined.heads)
    rows = (shape_of(core.query) or ())[0]
    if isinstance(count, int) and floordiv(rows, count) * count == rows:
        return count, floordiv(rows, count)
    return 1, rows


def _with_heads(core: Core, heads: int | None, scores: Scores, joined: Joined | None) -> _Attention:
    query = Heads(core.query, heads=heads, factors=True)
    key = Heads(core.key, heads=heads, is_transposed=core.key_is_transposed, factors=True)
    value = Heads(core.value, heads=heads)
    groups = _groups(key, scores.heads)
    if query.group != 1 or groups is None or groups != _groups(value, scores.heads):
        raise Unfit("query, key and value have heads of different numbers")
    return _Attention(core, query, key, value, scores, groups, joined)


def _groups(operand: Heads, heads: int) -> int | None:
    """How many query heads share a head of a key or value."""
    if not operand.has_known_heads:
        return 1
    count = operand.head_count
    if not isinstance(count, int) or count == 0 or heads % count or operand.group not in (1, heads // count):
        return None
    return heads // count


@dataclass
class _Standard:
    """The operands of an Attention of ONNX whose heads stand apart, and the one place where its result is used."""

    query: Heads
    key: Heads
    value: Heads
    heads: int
    groups: int
    joined: Joined


def _of_standard(node: Node) -> _Standard | None:
    query, key, value = node.inputs[:3]
    shape = None if query is None else shape_of(query)
    if query is None or key is None or value is None or shape is None or len(shape) != 4 or not has_one_output(node):
        return None
    joined = joined_output(node.outputs[0])
    if any(operand is not None for operand in node.inputs[4:]) or joined is None or joined.is_flat or joined.is_turned:
        return None
    if not isinstance(shape[1], int) or _is_used_on_the_way(node.outputs[0], joined.value):
        return None
    queries, keys, values = Heads(query), Heads(key), Heads(value)
    groups = _groups(keys, shape[1])
    if queries.group != 1 or groups is None or groups != _groups(values, shape[1]):
        return None
    return _Standard(queries, keys, values, shape[1], groups, joined)


# --- what comes of it


class _Emitter:
    """Builds the op of one attention."""

    def __init__(self, op: Builder, attention: _Attention, biases: BiasMaker, pasts: Sequence[Past]):
        self.op = op
        self.attention = attention
        self.biases = biases
        self.pasts = pasts
        self.core = attention.core
        self.scores = attention.scores
        self.factor = math.prod(step.number for step in self.core.steps if isinstance(step, Factor))
        self.sees_a_key = always_sees_a_key(self.core.steps, self.scores.element)
        self.bias: Value | None = None

    def emit(self) -> list[tuple[Value, Value]]:
        """Old values and what stands in their place."""
        if self.core.cap:
            result, *presents = self._capped()
        elif self._wants_standard():
            result, *presents = self._standard()
        elif self.scores.element is dtypes.float64:
            raise Unfit("MultiHeadAttention takes no float64")
        else:
            result, *presents = self._multi_head() if self.attention.groups == 1 else self._grouped()
            result = self._without_blind_rows(result)
        olds = [past.both for past in self.pasts]
        return [*zip(olds, presents, strict=True), *self._outputs(result)]

    def _wants_standard(self) -> bool:
        """ONNX's Attention makes zeros of rows without a key, MultiHeadAttention NaN, as a Softmax without guard does."""
        if self.op.opsets[""] < STANDARD_SINCE or not (self.core.is_guarded or self.sees_a_key):
            return False
        return self.attention.groups > 1 or self.scores.element is dtypes.float64 or not self.sees_a_key

    def _capped(self) -> list[Value]:
        """MultiHeadAttention caps nothing. Where GroupQueryAttention could take a past, onnxruntime's takes one batch of it only."""
        scores = self.scores
        if not self.pasts and scores.queries == scores.keys and scores.element is not dtypes.float64 and self.sees_a_key:
            return self._group_query()
        if self.op.opsets[""] >= STANDARD_SINCE and (self.core.is_guarded or self.sees_a_key):
            return self._standard()
        raise Unfit("before opset 23 scores are capped only where there are as many queries as keys, and each sees one")

    # --- the ops; each gives its result as (batch, queries, heads·size), then the new past

    def _multi_head(self) -> list[Value]:
        query = self._take(self.attention.query.as_merged(self.op))
        is_causal = self._is_causal()
        self.bias = None if is_causal else self._bias(query, 1)
        return self._attend(query, self.scores.heads, self.bias, unidirectional=1 if is_causal else None)

    def _grouped(self) -> list[Value]:
        """Query heads that share a key head are more queries of that head, so keys and values need not be repeated for them."""
        op, groups, query = self.op, self.attention.groups, self.attention.query
        heads = self.scores.heads // groups
        size, width = (_whole(size_of(operand.size)) for operand in (query, self.attention.value))
        if query.merged is not None:
            value = self._take(query.as_merged(op))
            rows = op.Transpose(op.Reshape(value, op.constant([0, 0, heads, groups, size])), perm=[0, 3, 1, 2, 4])
            self.bias = self._bias(value, 1)
        else:
            value = self._take(query.as_apart(op))
            rows = op.Transpose(op.Reshape(value, op.constant([0, heads, groups, -1, size])), perm=[0, 2, 3, 1, 4])
            self.bias = self._bias(value, 2)
        bias = None if self.bias is None else self.biases.stacked(op, self.bias, groups)
        result, *presents = self._attend(op.Reshape(rows, op.constant([0, -1, heads * size])), heads, bias)
        rows = op.Transpose(op.Reshape(result, op.constant([0, groups, -1, heads, width])), perm=[0, 2, 3, 1, 4])
        return [op.Reshape(rows, op.constant([0, 0, self.scores.heads * width])), *presents]

    def _attend(self, query: Value, heads: int, bias: Value | None, **attributes: int | None) -> list[Value]:
        operands = self.attention.key, self.attention.value
        is_merged = bool(self.pasts) or all(operand.merged is not None for operand in operands)
        key, value = self._keys_and_values(is_merged)
        return self._with_presents(
            "MultiHeadAttention",
            [query, key, value, None, None, bias],
            domain="com.microsoft",
            num_heads=heads,
            scale=self.factor,
            **attributes,
        )

    def _standard(self) -> list[Value]:
        query = self._take(self.attention.query.as_merged(self.op))
        is_causal = self._is_causal()
        self.bias = None if is_causal else self._bias(query, 1)
        key, value = self._keys_and_values(is_merged=True)
        return self._with_presents(
            "Attention",
            [query, key, value, self.bias],
            q_num_heads=self.scores.heads,
            kv_num_heads=self.scores.heads // self.attention.groups,
            scale=self.factor,
            is_causal=1 if is_causal else None,
            softcap=self.core.cap or None,
        )

    def _group_query(self) -> list[Value]:
        op = self.op
        if size_of(self.attention.query.size) != size_of(self.attention.value.size):
            raise Unfit("GroupQueryAttention wants values as wide as queries")
        query = self._take(self.attention.query.as_merged(op))
        is_causal = self._is_causal()
        self.bias = None if is_causal else self._bias(query, 1)
        key, value = self._keys_and_values(is_merged=True)
        shape = op.Shape(query)
        total = op.Cast(op.Gather(shape, op.constant(1), axis=0), to=dtypes.int32.code)
        batch = op.Slice(shape, starts=[0], ends=[1], axes=[0])
        lengths = op.Expand(op.Sub(total, op.constant(np.array(1, np.int32))), batch)
        operands = [query, key, value, None, None, lengths, total]
        rotation = [None, None, None]  # cosines, sines, positions
        return self._with_presents(
            "GroupQueryAttention",
            operands if self.bias is None else [*operands, *rotation, self.bias],
            domain="com.microsoft",
            num_heads=self.scores.heads,
            kv_num_heads=self.scores.heads // self.attention.groups,
            scale=self.factor,
            softcap=self.core.cap,
            causal=None if is_causal else 0,
        )

    def _with_presents(self, op_type: str, operands: list[Value | None], **attributes: Any) -> list[Value]:
        operands += [past.past for past in self.pasts]
        results = self.op.node(op_type, *operands, outputs=1 + len(self.pasts), **attributes)
        return results if self.pasts else [results]

    # --- operands

    def _take(self, operand: tuple[Value, float]) -> Value:
        value, factor = operand
        self.factor *= factor
        return value

    def _keys_and_values(self, is_merged: bool) -> list[Value]:
        operands = self.attention.key, self.attention.value
        if self.pasts:
            self.factor *= math.prod(past.factor for past in self.pasts)
            operands = self.pasts[0].new, self.pasts[1].new
        return [self._take(heads.as_merged(self.op) if is_merged else heads.as_apart(self.op)) for heads in operands]

    def _bias(self, query: Value, axis: int) -> Value | None:
        return self.biases.make(self.op, self.core.steps, self.scores, query, axis)

    def _is_causal(self) -> bool:
        """Whether the op's own mask, which hides keys behind the query's own position, is all that there is."""
        length = (shape_of(self.pasts[0].past) or ())[2] if self.pasts else 0
        offset = causal_offset_of(self.core.steps)
        return offset is not None and offset == length and covers_all(self.core.steps, self.scores)

    # --- results

    def _without_blind_rows(self, result: Value) -> Value:
        """Zeros for queries that see no key, where the graph has a guard that makes them."""
        if not self.core.is_guarded or self.sees_a_key or self.bias is None:
            return result
        zero = self.op.constant(np.array(0, self.scores.element.numpy))
        return self.op.Where(self.biases.blind_rows(self.op, self.bias), zero, result)

    def _outputs(self, result: Value) -> list[tuple[Value, Value]]:
        joined = self.attention.joined
        pairs = []
        if joined is not None:
            pairs.append((joined.value, self._like(joined, result)))
        if joined is None or _is_used_on_the_way(self.core.output, joined.value):
            pairs.append((self.core.output, self._apart(result)))
        return pairs

    def _like(self, joined: Joined, result: Value) -> Value:
        if joined.is_turned:
            result = self.op.Transpose(result, perm=[1, 0, 2])
        if joined.is_flat:
            result = self.op.Reshape(result, self.op.constant([-1, self._width() * self.scores.heads]))
        return result

    def _width(self) -> int:
        return _whole(size_of(self.attention.value.size))

    def _apart(self, result: Value) -> Value:
        """The result in the layout of the product that it replaces."""
        op = self.op
        is_joined = len(shape_of(self.core.output) or ()) == 3
        if is_joined and self.scores.heads == 1:
            return result
        apart = op.Transpose(op.Reshape(result, op.constant([0, 0, self.scores.heads, self._width()])), perm=[0, 2, 1, 3])
        if not is_joined:
            return apart
        matrix = op.Slice(op.Shape(apart), starts=[2], ends=[4], axes=[0])
        return op.Reshape(apart, op.Concat(op.constant([-1]), matrix, axis=0))


def _is_used_on_the_way(first: Value, last: Value) -> bool:
    """Whether somebody else uses `first`, or what is made from it before it becomes `last`."""
    value = last
    while value is not first:
        assert value.producer is not None and value.producer.inputs[0] is not None
        value = value.producer.inputs[0]
        if len(value.uses) > 1 or value.is_graph_output:
            return True
    return False
