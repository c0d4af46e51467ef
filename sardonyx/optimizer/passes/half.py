"""float16 that is computed in float32, as onnxruntime does on CPUs: between nodes nothing is rounded to float16.

Nodes that compute come first. Nodes that only move or compare numbers follow where that saves a Cast, and so do the model's own Casts
from and to float16. A group of connected nodes stays in float16 if widening it would spare no rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

from sardonyx import dtypes
from sardonyx.ir import Graph, Kind, Node, TensorType, Value
from sardonyx.ops import schemas
from sardonyx.ops.signatures import Parameter, Signature
from sardonyx.ops.table import facts_of
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.rules.quantize_parameters import is_dequantize, is_quantize
from sardonyx.optimizer.values import is_float
from sardonyx.optimizer.widening import CAST_SINCE, Widening, is_half

DOMAINS = frozenset({"", "com.microsoft"})

TYPE_ATTRIBUTES = frozenset({"dtype", "output_dtype", "softmax_precision", "stash_type", "to"})
"""Attributes that name a type which the node computes in or gives."""

SMALL = 1024
"""Constants of up to so many elements do not keep the ops that move them in float16; larger ones, such as embeddings, do."""


def compute_in_float32(graph: Graph, rewriting: Rewriting) -> bool:
    """Let connected nodes of float16 work in float32, with Casts where float16 begins and ends (CastFloat16Transformer)."""
    if rewriting.model.opsets.get("", 0) < CAST_SINCE:
        return False
    nodes = [node for node in graph.nodes if any(map(is_half, (*node.inputs, *node.outputs)))]
    wide = _Choice(graph, nodes).made() if nodes else set()
    if not wide:
        return False
    ordered = [node for node in nodes if node in wide]
    Widening(rewriting.model).widen(graph, ordered)
    for node in ordered:
        rewriting.journal.add("CastFloat16Transformer", node)
    return True


# --- what may be widened


def may_widen(node: Node) -> bool:
    """Whether a node means the same with float32 for each float16 of its operands and results, and its op version takes that."""
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is None or node.domain not in DOMAINS or not signature.deterministic or any(True for _ in node.subgraphs):
        return False
    if (
        facts_of(node).is_bound_to_type(node)
        or is_quantize(node)
        or is_dequantize(node)
        or _fixes_half(node)
        or _has_past(node, signature)
    ):
        return False
    operands = list(_arguments(node, signature))
    return all(isinstance(value.type, TensorType) and value.type.dtype for _, value in operands) and _is_free(node, signature)


def _arguments(node: Node, signature: Signature) -> Iterator[tuple[Parameter, Value]]:
    for position, value in enumerate(node.inputs):
        if value is not None:
            yield signature.input_at(position), value
    for position, output in enumerate(node.outputs):
        if output.name:
            yield signature.output_at(position), output


def _fixes_half(node: Node) -> bool:
    """Whether an attribute names float16, or holds numbers of it."""
    for name, attribute in node.attributes.items():
        if name in TYPE_ATTRIBUTES and attribute.value == dtypes.float16.code:
            return True
        if attribute.kind is Kind.TENSOR and attribute.value is not None and attribute.value.dtype is dtypes.float16:
            return True
    return False


def _has_past(node: Node, signature: Signature) -> bool:
    """Whether attention reads keys and values of earlier runs: to cast them all would cost more than one new token."""
    names = [signature.input_at(position).name for position, value in enumerate(node.inputs) if value is not None]
    return any(name.startswith("past_") and name != "past_sequence_length" for name in names)


def _is_free(node: Node, signature: Signature) -> bool:
    """Whether inputs decide on each float16 among the outputs, and the op takes float32 in its place."""
    parameters = [signature.input_at(position) for position, value in enumerate(node.inputs) if is_half(value)]
    bound = {parameter.type_string for parameter in parameters}
    results = [signature.output_at(position) for position, value in enumerate(node.outputs) if value.name and is_half(value)]
    if not all("tensor(float)" in parameter.types for parameter in (*parameters, *results)):
        return False
    mixed = {parameter.type_string for parameter, value in _arguments(node, signature) if not is_half(value)}
    return bool(parameters) and all(parameter.type_string in bound for parameter in results) and not bound & mixed


def _is_cast(node: Node) -> bool:
    return node.op_type == "Cast" and not node.domain and node.version >= CAST_SINCE


def _is_unit(node: Node) -> bool:
    """Whether a node stands beside QuantizeLinear or DequantizeLinear, with which it may be one unit."""
    readers = (user for output in node.outputs for user in output.users)
    makers = (value.producer for value in node.inputs if value is not None and value.producer is not None)
    return any(map(is_quantize, readers)) or any(map(is_dequantize, makers))


def _rounds(node: Node) -> bool:
    facts = facts_of(node)
    return not facts.is_exact(node) and not facts.is_blind(node)


# --- what is widened


class _Choice:
    """Chooses among the nodes of a graph that have float16."""

    def __init__(self, graph: Graph, nodes: list[Node]):
        self.graph = graph
        widened = [node for node in nodes if not _is_cast(node) and may_widen(node)]
        self.computing = {node for node in widened if _rounds(node) and not _is_unit(node)}
        self.followers = [node for node in widened if facts_of(node).is_exact(node)]
        self.casts = [
            node for node in nodes if _is_cast(node) and len({is_half(node.inputs[0]), is_half(node.outputs[0])}) == 2
        ]
        self.wide = set(self.computing)

    def made(self) -> set[Node]:
        """The nodes to widen."""
        while self._grow():
            pass
        return {node for group in self._groups() if self._spares_rounding(group) for node in group}

    def _grow(self) -> bool:
        before = len(self.wide)
        for node in (*self.followers, *reversed(self.followers)):
            if node not in self.wide and (self._gets_floats(node) or self._feeds_floats(node)):
                self.wide.add(node)
        for cast in self.casts:
            if self._gets_floats(cast) if is_half(cast.inputs[0]) else self._rounds_for_nobody(cast):
                self.wide.add(cast)
        return len(self.wide) > before

    def _gets_floats(self, node: Node) -> bool:
        """Whether all float16 that a node reads will be float32."""
        halves = [value for value in node.inputs if value is not None and is_half(value)]
        return any(value.producer in self.wide for value in halves) and all(
            value.producer in self.wide or _is_small_constant(value) for value in halves
        )

    def _feeds_floats(self, node: Node) -> bool:
        """Whether all readers of a node work in float32, and some of what it reads is float32 or was."""
        makers = [
            value.producer for value in node.inputs if value is not None and is_half(value) and value.producer is not None
        ]
        if not any(maker in self.wide or _is_float_cast(maker) for maker in makers):
            return False
        return all(self._is_read_wide(output) for output in node.outputs if is_half(output) and output.name)

    def _rounds_for_nobody(self, cast: Node) -> bool:
        """Whether all readers of a Cast to float16 work in float32; where one is a Cast, the model wants the rounding."""
        result = cast.outputs[0]
        return self._is_read_wide(result) and not any(map(_is_cast, result.users))

    def _is_read_wide(self, value: Value) -> bool:
        readers = value.users
        if value.is_graph_output or not any(reader in self.wide for reader in readers):
            return False
        return all(reader in self.wide or facts_of(reader).is_blind(reader) for reader in readers)

    def _groups(self) -> Iterator[set[Node]]:
        """Widened nodes that float16 values connect."""
        rest = set(self.wide)
        while rest:
            start = rest.pop()
            group, pending = {start}, [start]
            while pending:
                node = pending.pop()
                makers = [value.producer for value in node.inputs if value is not None and is_half(value)]
                readers = [user for value in node.outputs if is_half(value) for user in value.users]
                near = {other for other in (*makers, *readers) if other in rest}
                rest -= near
                group |= near
                pending += near
            yield group

    def _spares_rounding(self, group: set[Node]) -> bool:
        """Whether a group computes more than once, or meets a Cast of the model from or to another float."""
        computing = len(group & self.computing)
        return computing > 1 or (computing == 1 and any(map(_is_float_cast, group)))


def _is_float_cast(node: Node) -> bool:
    """Whether a node is a Cast between floats."""
    return _is_cast(node) and node.inputs[0] is not None and is_float(node.inputs[0]) and is_float(node.outputs[0])


def _is_small_constant(value: Value) -> bool:
    if value.producer is not None:
        return value.producer.op_type == "Constant" and not value.producer.domain
    return value.is_constant and value.constant is not None and value.constant.size <= SMALL
