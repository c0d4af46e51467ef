"""The text form of rewrite rules' patterns, parsed into a small tree.

A pattern is ONNX's text form with calls nested: `Transpose<perm=outer>(Transpose<perm=inner>(x))`.

- A free name stands for any value; the same name twice for the same value. `b?` may also be absent. `_` is any value, unnamed.
- A number stands for a constant whose elements all have that value.
- `<name=…>` constrains or binds an operand by its name in the spec, given as attribute or as constant input: a literal constrains, a
  name binds, `name?` binds None where the node does not have it.
- `Relu|Tanh(x)` is one of several ops; `act:Relu|Tanh(x)` hands the matched node to the rule as `act`. `Cast?(x)` is the op or its
  bare operand.
- Several statements describe what is used more than once: `mean = ReduceMean(x); d = Sub(x, mean); Mul(d, d)`. The last is the root; a
  tuple on the left names several outputs: `a, b = Split(x)`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from sardonyx import ops
from sardonyx.ops import schemas

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)
"""Two operands of these may stand in either order."""


@dataclass(frozen=True)
class Name:
    """Any value, remembered under a name; a name that a statement defined is that statement's output."""

    name: str
    optional: bool = False


@dataclass(frozen=True)
class Number:
    """A constant all of whose elements are this number."""

    value: float


@dataclass
class Call:
    """A node of one of some ops."""

    ops: tuple[tuple[str, str], ...]
    """(domain, op) pairs."""
    arguments: tuple[Term, ...]
    operands: dict[str, Any] = field(default_factory=dict)
    """Constraints by operand name: a literal, or a Name."""
    label: str | None = None
    outputs: tuple[str, ...] = ()
    open_ended: bool = False
    """Written with a final `...`: further operands may follow."""
    optional: bool = False
    """Written `Op?(x)`: the node may be missing."""


Term = Union[Name, Number, Call]


@dataclass
class Pattern:
    """A parsed pattern: its root and all names that a match binds."""

    text: str
    root: Call
    definitions: dict[str, tuple[Call, int]]
    names: frozenset[str]

    def calls(self) -> Iterator[Call]:
        """All calls, the root first."""
        stack: list[Term] = [self.root, *(call for call, _ in self.definitions.values())]
        seen: set[int] = set()
        while stack:
            term = stack.pop()
            if isinstance(term, Call) and id(term) not in seen:
                seen.add(id(term))
                yield term
                stack.extend(term.arguments)


class PatternError(ValueError):
    """A pattern that is not well formed, or names an op or operand that does not exist."""


_TOKEN = re.compile(r"\s*(\.\.\.|-?\d+\.\d*(?:e-?\d+)?|-?\d+(?:e-?\d+)?|[A-Za-z_][\w.]*|\"[^\"]*\"|[(),<>=?;|:\[\]\n])")


@functools.cache
def read(text: str) -> Pattern:
    """Parse a pattern, whatever ops it names."""
    return _Parser(text).pattern()


@functools.cache
def parse(text: str) -> Pattern:
    """Parse a pattern; refuses ops and operands that no version of an op has."""
    ops.load_families()
    pattern = read(text)
    for call in pattern.calls():
        _check_ops(call, text)
    return pattern


def _check_ops(call: Call, text: str) -> None:
    for domain, op in call.ops:
        history = schemas.versions(domain, op)
        if not history:
            raise PatternError(f"there is no op {domain + '::' if domain else ''}{op} in pattern {text!r}")
        operands = {name for signature in history.values() for name in (*signature.attributes, *signature.operand_names)}
        unknown = [name for name in call.operands if name not in operands]
        if unknown:
            raise PatternError(f"{op} has no operand {unknown[0]!r} in pattern {text!r}")


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens = self._tokens(text)
        self.at = 0
        self.definitions: dict[str, tuple[Call, int]] = {}
        self.names: set[str] = set()

    @staticmethod
    def _tokens(text: str) -> list[str]:
        tokens, at = [], 0
        text = re.sub(r"\s*[\n;]\s*", ";", text.strip().strip(";"))
        while at < len(text):
            matched = _TOKEN.match(text, at)
            if matched is None:
                raise PatternError(f"unexpected {text[at:]!r} in pattern {text!r}")
            tokens.append(matched[1])
            at = matched.end()
        return tokens

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if not token or (wanted is not None and token != wanted):
            raise PatternError(f"expected {wanted or 'more'}, found {token or 'the end'!r} in pattern {self.text!r}")
        self.at += 1
        return token

    def pattern(self) -> Pattern:
        root: Call | None = None
        while True:
            names = self._left_side()
            term = self.term()
            if not isinstance(term, Call):
                raise PatternError(f"a statement is a call in pattern {self.text!r}")
            root = term
            term.outputs = tuple(names)
            for index, name in enumerate(names):
                self.definitions[name] = (term, index)
                self.names.add(name)
            if not self.peek():
                break
            self.take(";")
        return Pattern(self.text, root, self.definitions, frozenset(self.names))

    def _left_side(self) -> list[str]:
        end = self.at
        while self.tokens[end].isidentifier() and end + 1 < len(self.tokens) and self.tokens[end + 1] == ",":
            end += 2
        if end + 1 >= len(self.tokens) or self.tokens[end + 1] != "=":
            return []
        names = self.tokens[self.at : end + 1 : 2]
        self.at = end + 2
        return names

    def term(self) -> Term:
        token = self.take()
        if _is_number(token):
            return Number(float(token))
        if self.peek() in ("(", "<", "|", ":") or (self.peek() == "?" and self.peek(1) in ("(", "<")):
            return self.call(token)
        optional = self.peek() == "?"
        if optional:
            self.take("?")
        if token != "_":
            self.names.add(token)
        return Name(token, optional)

    def call(self, first: str) -> Call:
        label = None
        if self.peek() == ":":
            self.take(":")
            label, first = first, self.take()
            self.names.add(label)
        choices = [_op(first)]
        while self.peek() == "|":
            self.take("|")
            choices.append(_op(self.take()))
        optional = self.peek() == "?"
        if optional:
            self.take("?")
        operands = self._operands() if self.peek() == "<" else {}
        arguments, open_ended = self._arguments()
        if optional and len(arguments) != 1:
            raise PatternError(f"only a call of one operand may be missing, in pattern {self.text!r}")
        return Call(tuple(choices), arguments, operands, label, open_ended=open_ended, optional=optional)

    def _operands(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.take("<")
        while self.peek() != ">":
            name = self.take()
            self.take("=")
            found[name] = self._literal()
            if self.peek() == ",":
                self.take(",")
        self.take(">")
        return found

    def _literal(self) -> Any:
        token = self.take()
        if token == "[":
            items = []
            while self.peek() != "]":
                items.append(self._literal())
                if self.peek() == ",":
                    self.take(",")
            self.take("]")
            return items
        if token.startswith('"'):
            return token[1:-1]
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        if _is_number(token):
            return float(token)
        optional = self.peek() == "?"
        if optional:
            self.take("?")
        self.names.add(token)
        return Name(token, optional)

    def _arguments(self) -> tuple[tuple[Term, ...], bool]:
        self.take("(")
        terms: list[Term] = []
        open_ended = False
        while self.peek() != ")":
            if self.peek() == "...":
                self.take("...")
                open_ended = True
            else:
                terms.append(self.term())
            if self.peek() == ",":
                self.take(",")
        self.take(")")
        return tuple(terms), open_ended


def _is_number(token: str) -> bool:
    return token.lstrip("-")[:1].isdigit()


def _op(spelled: str) -> tuple[str, str]:
    domain, _, op = spelled.rpartition(".")
    return domain, op


def operand_names(patterns: Sequence[Pattern]) -> frozenset[str]:
    """All names that some patterns bind."""
    return frozenset(name for pattern in patterns for name in pattern.names)
