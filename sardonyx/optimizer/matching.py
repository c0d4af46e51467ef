"""Finding a pattern in a graph: from a root node upwards, over commutative operands, with names bound once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.ir import Node, Tensor, Value
from sardonyx.ops import schemas
from sardonyx.optimizer.pattern import COMMUTATIVE, Call, Name, Number, Pattern, Term


@dataclass
class Match:
    """Nodes of the graph that are an instance of a pattern, and what its names stand for."""

    root: Node
    bindings: dict[str, Any] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    _calls: dict[int, Node] = field(default_factory=dict)

    def copy(self) -> Match:
        return Match(self.root, dict(self.bindings), dict(self.nodes), dict(self._calls))


def find(pattern: Pattern, root: Node) -> Match | None:
    """The first way in which `pattern` fits with its root at `root`."""
    return next(find_all(pattern, root), None)


def find_all(pattern: Pattern, root: Node) -> Iterator[Match]:
    """All ways in which `pattern` fits with its root at `root`: several where operands may change places.

    Nodes of one graph alone are matched: a rewrite never moves work from outside into a loop's body.
    """
    if _may_be(pattern.root, root, pattern):
        yield from _Matcher(pattern).call(pattern.root, root, Match(root))


def _may_be(call: Call, node: Node, pattern: Pattern) -> bool:
    """Whether ops and constants are there at all, in whichever order: most nodes are dismissed by this, without binding anything."""
    if (node.domain, node.op_type) not in call.ops:
        return False
    for term in call.arguments:
        if isinstance(term, Name) and term.name not in pattern.definitions:
            continue
        for value in node.inputs:
            if _term_may_be(term, value, pattern):
                break
        else:
            return False
    return True


def _term_may_be(term: Term, value: Value | None, pattern: Pattern) -> bool:
    if value is None:
        return False
    if isinstance(term, Number):
        return value.constant is not None or value.known is not None
    if isinstance(term, Name):
        if term.name not in pattern.definitions:
            return True
        term = pattern.definitions[term.name][0]
    if value.producer is not None and _may_be(term, value.producer, pattern):
        return True
    return term.optional and _term_may_be(term.arguments[0], value, pattern)


class _Matcher:
    def __init__(self, pattern: Pattern):
        self.pattern = pattern

    def call(self, call: Call, node: Node, match: Match) -> Iterator[Match]:
        """All ways in which `call` fits `node`, on top of what `match` has bound."""
        known = match._calls.get(id(call))
        if known is not None:
            if known is node:
                yield match
            return
        if (node.domain, node.op_type) not in call.ops or node.graph is not match.root.graph:
            return
        found = match.copy()
        found.nodes[node] = None
        found._calls[id(call)] = node
        if call.label is not None and not _bind(found, call.label, node):
            return
        for index, name in enumerate(call.outputs):
            if index < len(node.outputs) and not _bind(found, name, node.outputs[index]):
                return
        if self._operands(call, node, found):
            yield from self._arguments(call, node, found)

    def _operands(self, call: Call, node: Node, match: Match) -> bool:
        for name, wanted in call.operands.items():
            given = operand(node, name)
            if isinstance(wanted, Name):
                if (given is None and not wanted.optional) or not _bind(match, wanted.name, given):
                    return False
            elif not _equal(given, wanted):
                return False
        return True

    def _arguments(self, call: Call, node: Node, match: Match) -> Iterator[Match]:
        given = list(node.inputs)
        while given and given[-1] is None:
            given.pop()
        taken_by_name = _positions(node, call.operands)
        given = [value for position, value in enumerate(given) if position not in taken_by_name]
        if len(given) > len(call.arguments) and not call.open_ended:
            return
        orders = [call.arguments]
        if len(call.arguments) == len(given) == 2 and not node.domain and node.op_type in COMMUTATIVE:
            orders.append(call.arguments[::-1])
        for order in orders:
            yield from self._each(order, given, 0, match)

    def _each(self, terms: tuple[Term, ...], given: list[Value | None], index: int, match: Match) -> Iterator[Match]:
        if index == len(terms):
            yield match
            return
        value = given[index] if index < len(given) else None
        for found in self._term(terms[index], value, match):
            yield from self._each(terms, given, index + 1, found)

    def _term(self, term: Term, value: Value | None, match: Match) -> Iterator[Match]:
        if isinstance(term, Number):
            if value is not None and is_number(value, term.value):
                yield match
        elif isinstance(term, Call):
            if value is not None and value.producer is not None and value is value.producer.outputs[0]:
                yield from self.call(term, value.producer, match)
            if term.optional:
                yield from self._term(term.arguments[0], value, match)
        elif term.name in self.pattern.definitions:
            yield from self._defined(term.name, value, match)
        elif value is not None or term.optional:
            found = match.copy()
            if term.name == "_" or _bind(found, term.name, value):
                yield found

    def _defined(self, name: str, value: Value | None, match: Match) -> Iterator[Match]:
        call, index = self.pattern.definitions[name]
        if value is None or value.producer is None:
            return
        if index < len(value.producer.outputs) and value.producer.outputs[index] is value:
            yield from self.call(call, value.producer, match)


def _bind(match: Match, name: str, thing: Any) -> bool:
    """Remember what a name stands for; False if it stands for something else already."""
    if name not in match.bindings:
        match.bindings[name] = thing
        return True
    known = match.bindings[name]
    if isinstance(known, (Value, Node)) or isinstance(thing, (Value, Node)):
        return known is thing
    return _equal(known, thing)


def _equal(given: Any, wanted: Any) -> bool:
    if isinstance(given, np.ndarray):
        given = (
            given.reshape(-1).tolist() if isinstance(wanted, list) else (given.item() if given.size == 1 else given.tolist())
        )
    if isinstance(given, list) and not isinstance(wanted, list):
        return len(given) == 1 and given[0] == wanted
    return bool(given == wanted)


def operand(node: Node, name: str) -> Any:
    """An operand by its name: an attribute's value or its default, or the content of a constant input. None if there is none."""
    if name in node.attributes:
        value = node.attributes[name].value
        return value.numpy() if isinstance(value, Tensor) else value
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is None:
        return None
    if name in signature.attributes:
        return signature.attributes[name].default
    if name in signature.operand_names:
        position = signature.operand_names.index(name)
        value = node.inputs[position] if position < len(node.inputs) else None
        found = None if value is None else constant(value)
        return None if found is None else found.tolist()
    return None


def _positions(node: Node, names: dict[str, Any]) -> set[int]:
    """Positions of inputs that a pattern names in its angle brackets."""
    if not names:
        return set()
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is None:
        return set()
    return {signature.operand_names.index(name) for name in names if name in signature.operand_names}


def constant(value: Value) -> np.ndarray | None:
    """The content of a value that is the same in every run, None if it is not or if nobody knows."""
    if value.is_constant and value.constant is not None:
        return value.constant.numpy()
    if value.known is not None and value.known.dtype != object:
        return value.known
    return None


def is_number(value: Value, number: float, tolerance: float = 1e-6) -> bool:
    """Whether `value` is a constant all of whose elements are `number`, as exactly as its type can tell."""
    array = constant(value)
    if array is None or array.size == 0 or array.dtype == object:
        return False
    return bool(np.all(np.abs(array.astype(np.float64) - number) <= tolerance * max(1.0, abs(number)) * _coarseness(array)))


def _coarseness(array: np.ndarray) -> float:
    """Half precision spells a number with fewer digits."""
    return 1000.0 if array.dtype.itemsize == 2 and array.dtype.kind not in "iub" else 1.0
