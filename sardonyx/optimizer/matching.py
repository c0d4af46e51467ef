"""Finding a pattern in a graph: from a root node upwards, over commutative operands, with names bound once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx.ir import Node, Value
from sardonyx.ops import schemas
from sardonyx.ops.reading import constant, operand
from sardonyx.ops.table import facts_of
from sardonyx.optimizer.pattern import Call, Name, Number, OpName, Order, Output, Pattern, Term
from sardonyx.startup.records import dataclass, field


@dataclass
class Match:
    """Nodes of the graph that are an instance of a pattern, and what its names stand for."""

    root: Node
    bindings: dict[str, Any] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    _calls: dict[int, Node] = field(default_factory=dict)

    def bind(self, name: str, thing: Any) -> bool:
        """Remember what a name stands for; False if it stands for something else already."""
        if name not in self.bindings:
            self.bindings[name] = thing
            return True
        known = self.bindings[name]
        if isinstance(known, (Value, Node)) or isinstance(thing, (Value, Node)):
            return known is thing
        return _equal(known, thing)

    def sizes(self) -> tuple[int, int, int]:
        """How much has been found so far, for `forget`."""
        return len(self.bindings), len(self.nodes), len(self._calls)

    def forget(self, sizes: tuple[int, int, int]) -> None:
        """Go back to where so much had been found."""
        parts: tuple[dict[Any, Any], ...] = (self.bindings, self.nodes, self._calls)
        for part, size in zip(parts, sizes, strict=True):
            while len(part) > size:
                part.popitem()


def find(pattern: Pattern, root: Node) -> Match | None:
    """The first way in which `pattern` fits with its root at `root`."""
    return next(find_all(pattern, root), None)


def find_all(pattern: Pattern, root: Node) -> Iterator[Match]:
    """All ways in which `pattern` fits with its root at `root`: several where operands may change places.

    One object is handed out again and again, so a match holds until the next one is asked for. Nodes of one graph alone are matched:
    a rewrite never moves work from outside into a loop's body.
    """
    return _Search(root).solutions((pattern.root, root, ()))


def sources(node: Node) -> set[OpName]:
    """The ops that make a node's operands: most patterns cannot have these at their root, and need not be searched for."""
    producers = (value.producer for value in node.inputs if value is not None)
    return {(producer.domain, producer.op_type) for producer in producers if producer is not None}


_Goals = tuple[Any, ...]
"""What is still to be fitted: a term and what it shall stand for, or an order and operands, and further goals. Empty when all is done."""


class _Search:
    """Fits terms one by one; where there are several alternatives it tries each and forgets what the one before has bound."""

    def __init__(self, root: Node):
        self.match = Match(root)

    def solutions(self, goals: _Goals) -> Iterator[Match]:
        while goals:
            alternatives = self._alternatives(*goals)
            if len(alternatives) != 1:
                sizes = self.match.sizes()
                for alternative in alternatives:
                    yield from self.solutions(alternative)
                    self.match.forget(sizes)
                return
            goals = alternatives[0]
        yield self.match

    def _alternatives(self, term: Term | Order, actual: Any, rest: _Goals) -> list[_Goals]:
        """The goals that are left once `term` stands for a value, for each way in which it can; a call may be given its node."""
        if isinstance(term, Order):
            return self._operands(term, actual, rest)
        if isinstance(term, Name):
            return [rest] if self._named(term, actual) else []
        if isinstance(actual, Node):
            return self._call(term, actual, rest)  # type: ignore[arg-type]
        if isinstance(term, Number):
            return [rest] if actual is not None and is_number(actual, term.value) else []
        if isinstance(term, Output):
            node = _maker(actual, term.index)
            return [] if node is None else self._call(term.call, node, rest)
        node = _maker(actual)
        if term.optional:
            bare = (term.arguments[0], actual, rest)
            return [bare] if node is None else [(term, node, rest), bare]
        return [] if node is None else self._call(term, node, rest)

    def _operands(self, order: Order, operands: Sequence[Value | None], rest: _Goals) -> list[_Goals]:
        for position, name in order.names:
            if not self._named(name, operands[position]):
                return []
        for position, term in order.others:
            rest = (term, operands[position], rest)
        return [rest]

    def _named(self, term: Name, value: Value | None) -> bool:
        return (value is not None or term.optional) and (term.name == "_" or self.match.bind(term.name, value))

    def _call(self, call: Call, node: Node, rest: _Goals) -> list[_Goals]:
        match = self.match
        known = match._calls.get(id(call))
        if known is not None:
            return [rest] if known is node else []
        if (node.domain, node.op_type) not in call.ops or node.graph is not match.root.graph:
            return []
        match.nodes[node] = None
        match._calls[id(call)] = node
        if call.label is not None and not match.bind(call.label, node):
            return []
        for name, output in zip(call.outputs, node.outputs, strict=False):
            if not match.bind(name, output):
                return []
        if call.operands and not self._constraints(call, node):
            return []
        operands = self._positional(call, node)
        if len(operands) > len(call.arguments) and not call.open_ended:
            return []
        may_turn = len(operands) == 2 and facts_of(node).commutative
        operands += [None] * (len(call.arguments) - len(operands))
        orders = call.orders if may_turn else call.orders[:1]
        return [(order, operands, rest) for order in orders if order.may_be(operands)]

    def _constraints(self, call: Call, node: Node) -> bool:
        for name, wanted in call.operands.items():
            actual = operand(node, name)
            if isinstance(wanted, Name):
                if (actual is None and not wanted.optional) or not self.match.bind(wanted.name, actual):
                    return False
            elif not _equal(actual, wanted):
                return False
        return True

    def _positional(self, call: Call, node: Node) -> list[Value | None]:
        """The operands that stand between a call's brackets."""
        operands = list(node.inputs)
        while operands and operands[-1] is None:
            operands.pop()
        if call.operands:
            taken_by_name = _positions(node, call.operands)
            operands = [value for position, value in enumerate(operands) if position not in taken_by_name]
        return operands


def _maker(value: Value | None, index: int = 0) -> Node | None:
    """The node whose output number `index` a value is."""
    node = None if value is None else value.producer
    return node if node is not None and index < len(node.outputs) and node.outputs[index] is value else None


def _equal(actual: Any, wanted: Any) -> bool:
    if isinstance(actual, np.ndarray):
        actual = (
            actual.reshape(-1).tolist()
            if isinstance(wanted, list)
            else (actual.item() if actual.size == 1 else actual.tolist())
        )
    if isinstance(actual, list) and not isinstance(wanted, list):
        return len(actual) == 1 and actual[0] == wanted
    return bool(actual == wanted)


def _positions(node: Node, names: dict[str, Any]) -> set[int]:
    """Positions of inputs that a pattern names in its angle brackets."""
    if not names:
        return set()
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is None:
        return set()
    return {signature.operand_names.index(name) for name in names if name in signature.operand_names}


def is_number(value: Value, number: float, tolerance: float = 1e-6) -> bool:
    """Whether `value` is a constant all of whose elements are `number`, as exactly as its type can tell."""
    array = constant(value)
    if array is None or array.size == 0 or array.dtype == object:
        return False
    margin = tolerance * max(1.0, abs(number)) * _coarseness(array)
    if not abs(float(array.flat[0]) - number) <= margin:  # so most weights are dismissed without being read
        return False
    return bool(np.all(np.abs(array.astype(np.float64) - number) <= margin))


def _coarseness(array: np.ndarray) -> float:
    """Half precision spells a number with fewer digits."""
    return 1000.0 if array.dtype.itemsize == 2 and array.dtype.kind not in "iub" else 1.0
