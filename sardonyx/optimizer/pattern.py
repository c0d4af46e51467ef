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
from collections.abc import Iterator, Sequence, Set
from typing import Any, Union

from sardonyx.ir import Value
from sardonyx.ops import schemas
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass, field

OpName = tuple[str, str]
"""Domain and name of an op."""


@dataclass(frozen=True)
class Name:
    """Any value, remembered under a name."""

    name: str
    optional: bool = False


@dataclass(frozen=True)
class Number:
    """A constant all of whose elements are this number."""

    value: float


@dataclass
class Call:
    """A node of one of some ops."""

    ops: tuple[OpName, ...]
    arguments: tuple[Term, ...]
    operands: dict[str, Any] = field(default_factory=dict)
    """Constraints by operand name: a literal, or a Name."""
    label: str | None = None
    outputs: tuple[str, ...] = ()
    open_ended: bool = False
    """Written with a final `...`: further operands may follow."""
    optional: bool = False
    """Written `Op?(x)`: the node may be missing."""

    @cached_property
    def begins(self) -> frozenset[OpName] | None:
        """The ops one of which has made what this stands for, None if that may be any."""
        if not self.optional:
            return frozenset(self.ops)
        bare = begins(self.arguments[0])
        return None if bare is None else bare | frozenset(self.ops)

    @cached_property
    def orders(self) -> list[Order]:
        """The arguments as they are written, and the other way round if they are two."""
        turned = [self.arguments[::-1]] if len(self.arguments) == 2 else []
        return [Order(terms) for terms in (self.arguments, *turned)]


class Order:
    """The arguments of a call in one order, sorted by what is to be done about them; each has its position before it."""

    def __init__(self, terms: Sequence[Term]):
        self.names = [(position, term) for position, term in enumerate(terms) if isinstance(term, Name)]
        self.others = [(position, term) for position, term in enumerate(terms) if not isinstance(term, Name)][::-1]
        """The last one first."""
        self.makers = [(position, ops) for position, term in enumerate(terms) if (ops := begins(term)) is not None]
        """Which ops must have made an operand."""

    def may_be(self, operands: Sequence[Value | None]) -> bool:
        """Whether the right ops have made some operands: most ways are dismissed by that, before anything is bound."""
        for position, makers in self.makers:
            value = operands[position]
            node = None if value is None else value.producer
            if node is None or (node.domain, node.op_type) not in makers:
                return False
        return True


@dataclass(frozen=True)
class Output:
    """What an earlier statement gave a name: an output of its call."""

    call: Call
    index: int


Term = Union[Name, Number, Call, Output]


def begins(term: Term) -> frozenset[OpName] | None:
    """The ops one of which has made a value that `term` fits, None if that may be any."""
    if isinstance(term, Output):
        return frozenset(term.call.ops)
    return term.begins if isinstance(term, Call) else None


class Pattern:
    """A pattern. What shows at a glance which ops it is about is read at once, the rest when somebody looks for it."""

    def __init__(self, text: str):
        self.text = text

    @cached_property
    def roots(self) -> list[OpName]:
        """The ops one of which is its root."""
        match = _ROOT.search(self.text)
        return [] if match is None else list(map(op_name, match[1].split("|")))

    @cached_property
    def needs(self) -> frozenset[OpName]:
        """Ops without which it cannot fit anywhere."""
        return frozenset(map(op_name, _NEEDED.findall(self.text)))

    @cached_property
    def _parsed(self) -> tuple[Call, frozenset[str]]:
        return _Parser(self.text).pattern()

    @property
    def root(self) -> Call:
        return self._parsed[0]

    @property
    def names(self) -> frozenset[str]:
        """All names that a match binds."""
        return self._parsed[1]

    def calls(self) -> Iterator[Call]:
        """All calls, the root first."""
        stack: list[Term] = [self.root]
        seen: set[int] = set()
        while stack:
            term = stack.pop()
            term = term.call if isinstance(term, Output) else term
            if isinstance(term, Call) and id(term) not in seen:
                seen.add(id(term))
                yield term
                stack.extend(term.arguments)

    @cached_property
    def depth(self) -> int:
        """How many nodes stand one behind the other."""
        return _depth(self.root)

    def may_have(self, sources: Set[OpName]) -> bool:
        """Whether the pattern can fit a node whose operands are made by these ops."""
        return not any(map(sources.isdisjoint, self._needed))

    @cached_property
    def _needed(self) -> list[frozenset[OpName]]:
        """For each operand of the root the ops one of which makes it, where not any may."""
        return [ops for _, ops in self.root.orders[0].makers]


def _depth(term: Term) -> int:
    if isinstance(term, Output):
        return _depth(term.call)
    return 1 + max(map(_depth, term.arguments), default=0) if isinstance(term, Call) else 0


class PatternError(ValueError):
    """A pattern that is not well formed, or names an op or operand that does not exist."""


_ROOT = re.compile(r"(?:\A|[;\n])\s*(?:[\w\s,]+=\s*)?(?:\w+:)?([\w.|]+)[?(<][^;\n]*[;\s]*\Z")
_NEEDED = re.compile(r"(?<![\w.|])([\w.]+)[(<]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r"\s*(\.\.\.|-?\d+\.\d*(?:e-?\d+)?|-?\d+(?:e-?\d+)?|[A-Za-z_][\w.]*|\"[^\"]*\"|[(),<>=?;|:\[\]\n])")


@functools.cache
def read(text: str) -> Pattern:
    """A pattern, whatever ops it names."""
    return Pattern(text)


@functools.cache
def parse(text: str) -> Pattern:
    """Parse a pattern; refuses ops and operands that no version of an op has."""
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
        self.outputs: dict[str, Output] = {}
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

    def pattern(self) -> tuple[Call, frozenset[str]]:
        """The root and all names."""
        while True:
            names = self._left_side()
            term = self.term()
            if not isinstance(term, Call):
                raise PatternError(f"a statement is a call in pattern {self.text!r}")
            term.outputs = tuple(names)
            for index, name in enumerate(names):
                self.outputs[name] = Output(term, index)
                self.names.add(name)
            if not self.peek():
                return term, frozenset(self.names)
            self.take(";")

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
        if token in self.outputs:
            return self.outputs[token]
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
        choices = [op_name(first)]
        while self.peek() == "|":
            self.take("|")
            choices.append(op_name(self.take()))
        optional = self.peek() == "?"
        if optional:
            self.take("?")
        operands = self._operands() if self.peek() == "<" else {}
        arguments, open_ended = self._arguments()
        if optional and len(arguments) != 1:
            raise PatternError(f"only a call of one operand may be missing, in pattern {self.text!r}")
        return Call(tuple(choices), arguments, operands, label, open_ended=open_ended, optional=optional)

    def _operands(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        self.take("<")
        while self.peek() != ">":
            name = self.take()
            self.take("=")
            attributes[name] = self._literal()
            if self.peek() == ",":
                self.take(",")
        self.take(">")
        return attributes

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


def op_name(spelled: str) -> OpName:
    """Domain and name of an op as patterns write it: the domain, a dot, the name."""
    domain, _, op = spelled.rpartition(".")
    return domain, op


def words(text: str) -> set[str]:
    """All words of a pattern's text, among them the names that it binds."""
    return set(_WORD.findall(text))
