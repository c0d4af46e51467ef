"""The grammar of ONNX's text form: text -> a tree of names and literals, which `text_link` makes a graph.

The grammar is that of the onnx package's parser, with three additions: quoted domains and attribute names, lists of tensors, graphs
and types, and decimal numbers for narrow floating-point types, whose integers are bit patterns.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.errors import InvalidArgument
from sardonyx.ir import dim
from sardonyx.ir.attribute import Kind
from sardonyx.ir.tensor import ExternalLocation, Tensor
from sardonyx.ir.text_literals import as_float32, make_array
from sardonyx.ir.types import (
    MapType,
    OpaqueType,
    OptionalType,
    SequenceType,
    Shape,
    SparseTensorType,
    TensorType,
    Type,
)
from sardonyx.startup.records import dataclass, field

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<number>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|-\s*(?:infinity|inf|nan)\b)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>=>|.)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE | re.ASCII,
)
TYPE_NAMES = {dtype.name: dtype for dtype in dtypes.ALL}
TYPE_CONSTRUCTORS = ("seq", "map", "optional", "sparse_tensor", "opaque")
FLOAT_WORDS = ("inf", "infinity", "nan")
KIND_NAMES = {kind.name.lower(): kind for kind in Kind}
LISTS = {
    Kind.FLOAT: Kind.FLOATS,
    Kind.INT: Kind.INTS,
    Kind.STRING: Kind.STRINGS,
    Kind.TENSOR: Kind.TENSORS,
    Kind.GRAPH: Kind.GRAPHS,
    Kind.TYPE_PROTO: Kind.TYPE_PROTOS,
}
MAX_DEPTH = 64
"""How deep types and graphs may nest."""
MAX_DIGITS = 400


@dataclass
class ExternalText:
    """A tensor whose data is elsewhere."""

    dtype: ElementType
    shape: tuple[int, ...]
    location: ExternalLocation


@dataclass
class ValueText:
    """A name with its type and, for an initializer, its data."""

    name: str
    type: Type | None = None
    data: Tensor | ExternalText | None = None


@dataclass
class AttributeText:
    """An attribute; in `value` a graph is a GraphText."""

    name: str
    kind: Kind
    value: Any
    reference: str | None = None


@dataclass
class NodeText:
    """A node; an operand or result that is left out has an empty name."""

    label: str
    outputs: list[str]
    domain: str
    op_type: str
    overload: str
    attributes: list[AttributeText]
    inputs: list[str]


@dataclass
class GraphText:
    """A graph; `infos` are initializers and types of inner values."""

    name: str
    inputs: list[ValueText]
    outputs: list[ValueText]
    infos: list[ValueText]
    nodes: list[NodeText]


@dataclass
class FunctionText:
    """A function with what its header says."""

    header: dict[str, Any]
    name: str
    required_attributes: list[str]
    default_attributes: list[AttributeText]
    graph: GraphText


@dataclass
class ModelText:
    """A model with what its header says."""

    header: dict[str, Any]
    graph: GraphText
    functions: list[FunctionText] = field(default_factory=list)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


class Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = [
            _Token(str(match.lastgroup), match.group(), match.start())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "space"
        ]
        self.tokens.append(_Token("end", "", len(text)))
        self.at = 0
        self.depth = 0

    # --- tokens

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def fail(self, expected: str) -> NoReturn:
        before = self.text[: self.next.start]
        line, column = before.count("\n") + 1, self.next.start - before.rfind("\n")
        next_text = self.next.text[:40] or "the end"
        raise InvalidArgument(f"ONNX text, line {line}, column {column}: expected {expected}, found {next_text!r}.")

    def is_mark(self, mark: str) -> bool:
        return self.next.kind == "mark" and self.next.text == mark

    def matches(self, mark: str) -> bool:
        is_there = self.is_mark(mark)
        self.at += is_there
        return is_there

    def expect(self, mark: str) -> None:
        if not self.matches(mark):
            self.fail(f"'{mark}'")

    def expect_end(self) -> None:
        if self.next.kind != "end":
            self.fail("the end")

    def word(self, what: str = "a name") -> str:
        if self.next.kind != "word":
            self.fail(what)
        return self.take().text

    def string(self) -> str:
        if self.next.kind != "string":
            self.fail("a quoted text")
        return re.sub(r"\\(.)", r"\1", self.take().text[1:-1], flags=re.DOTALL)

    def is_name(self) -> bool:
        return self.next.kind in ("word", "string")

    def name(self) -> str:
        return self.string() if self.next.kind == "string" else self.word()

    def integer(self) -> int:
        value = self.number()
        if not isinstance(value, int):
            self.at -= 1
            self.fail("a whole number")
        return value

    def number(self) -> int | float:
        if self.next.kind == "word" and self.next.text.lower() in FLOAT_WORDS:
            return float(self.take().text)
        if self.next.kind != "number":
            self.fail("a number")
        if len(self.next.text) > MAX_DIGITS:
            self.fail("a shorter number")
        text = self.take().text
        return int(text) if text.lstrip("-").isdigit() else float(re.sub(r"\s", "", text))

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"at most {MAX_DEPTH} levels of nesting")

    # --- types

    def is_type(self) -> bool:
        return self.next.kind == "word" and (self.next.text in TYPE_NAMES or self.next.text in TYPE_CONSTRUCTORS)

    def type(self) -> Type:
        self.enter()
        if not self.is_type():
            self.fail("a type")
        word = self.take().text
        result: Type
        if word in TYPE_NAMES:
            result = TensorType(TYPE_NAMES[word], self.shape())
        elif word == "opaque":
            result = self.opaque_type()
        else:
            self.expect("(")
            if word == "map":
                key = self.element_type()
                self.expect(",")
                result = MapType(key, self.type())
            elif word == "sparse_tensor":
                result = SparseTensorType(self.element_type(), self.shape())
            else:
                result = SequenceType(self.type()) if word == "seq" else OptionalType(self.type())
            self.expect(")")
        self.depth -= 1
        return result

    def element_type(self) -> ElementType:
        if self.next.text not in TYPE_NAMES:
            self.fail("an element type")
        return TYPE_NAMES[self.take().text]

    def shape(self) -> Shape | None:
        """No brackets are rank 0, empty ones an unknown rank."""
        if not self.matches("["):
            return ()
        if self.matches("]"):
            return None
        sizes: list[dim.Dim] = []
        while True:
            if self.matches("?"):
                sizes.append(dim.fresh())
            elif self.is_name():
                name = self.name()
                sizes.append(dim.symbol(name) if name else dim.fresh())
            else:
                size = self.integer()  # below 0 it is unknown, as in files
                sizes.append(size if size >= 0 else dim.fresh())
            if not self.matches(","):
                self.expect("]")
                return tuple(sizes)

    def opaque_type(self) -> OpaqueType:
        self.expect("(")
        parts = [self.qualified_name()] if not self.is_mark(")") else []
        if self.matches(","):
            parts.append(self.name())
        self.expect(")")
        domain, name = ["", "", *parts][-2:]
        return OpaqueType(domain, name)

    def qualified_name(self) -> str:
        parts = [self.name()]
        while self.matches("."):
            parts.append(self.name())
        return ".".join(parts)

    # --- tensors

    def tensor_data(self, type: Type | None, name: str) -> Tensor | ExternalText:
        """What stands in braces (the elements) or in brackets (where they are)."""
        if not isinstance(type, TensorType) or type.dtype is None or type.shape is None:
            self.fail("data after a tensor's type with all its sizes")
        shape = tuple(size if isinstance(size, int) else self.fail("data after a shape of numbers") for size in type.shape)
        if self.matches("["):
            return self.external_data(type.dtype, shape)
        self.expect("{")
        literals: list[Any] = []
        while not self.is_mark("}"):
            literals.append(self.string() if self.next.kind == "string" else self.number())
            if not self.matches(","):
                break
        try:
            array = make_array(literals, type.dtype, shape)
        except ValueError as error:
            self.fail(str(error))
        self.expect("}")
        return Tensor(type.dtype, shape, lambda: array, name=name)

    def external_data(self, dtype: ElementType, shape: tuple[int, ...]) -> ExternalText:
        entries = dict(self.pairs())
        try:
            offset, length = int(entries.get("offset", 0)), entries.get("length")
            location = ExternalLocation(entries.get("location", ""), offset, None if length is None else int(length))
        except ValueError:
            self.fail("offset and length that are numbers before this")
        return ExternalText(dtype, shape, location)

    def pairs(self) -> list[tuple[str, str]]:
        """Quoted keys and values up to the closing bracket."""
        values = []
        while not self.matches("]"):
            key = self.string()
            self.expect(":")
            values.append((key, self.string()))
            if not self.matches(","):
                self.expect("]")
                break
        return values

    # --- values

    def values(self, opening: str, closing: str) -> list[ValueText]:
        """A list of names, each perhaps with a type before and data behind."""
        values: list[ValueText] = []
        self.expect(opening)
        while not self.matches(closing):
            # `(float)` can only be an untyped value that is called like a type
            is_typed = self.is_type() and self.tokens[self.at + 1].text not in (",", closing)
            type = self.type() if is_typed else None
            value = ValueText(self.name(), type)
            if self.matches("="):
                value.data = self.tensor_data(type, value.name)
            values.append(value)
            if not self.matches(","):
                self.expect(closing)
                break
        return values

    def names(self) -> list[str]:
        """Names with commas between; nothing before a comma is a name left out, nothing after the last one is nothing."""
        infos = []
        while self.is_name() or self.is_mark(","):
            infos.append(self.name() if self.is_name() else "")
            if not self.matches(","):
                break
        return infos

    # --- attributes

    def attributes(self) -> list[AttributeText]:
        attributes: list[AttributeText] = []
        if self.matches("<"):
            while not self.matches(">"):
                attributes.append(self.attribute(self.name()))
                if not self.matches(","):
                    self.expect(">")
                    break
        return attributes

    def attribute(self, name: str) -> AttributeText:
        kind: Kind | None = None
        if self.matches(":"):
            if self.next.text not in KIND_NAMES:
                self.fail("the type of an attribute")
            kind = KIND_NAMES[self.take().text]
        self.expect("=")
        if self.matches("@"):
            return self.reference(name, kind)
        if not self.matches("["):
            actual_kind, value = self.attribute_value()
            return AttributeText(name, *self.checked(kind, actual_kind, value))
        values = []
        while not self.matches("]"):
            values.append(self.attribute_value())
            if not self.matches(","):
                self.expect("]")
                break
        return self.attribute_list(name, kind, values)

    def reference(self, name: str, kind: Kind | None) -> AttributeText:
        target = self.name()
        if kind is None:
            self.fail(f"a type for attribute '{name}' before this, since it refers to another")
        return AttributeText(name, kind, None, target)

    def attribute_list(self, name: str, kind: Kind | None, values: list[tuple[Kind, Any]]) -> AttributeText:
        if not values:
            if kind is None or kind not in {*LISTS.values(), Kind.SPARSE_TENSORS}:
                self.fail("a list type for an empty list before this")
            return AttributeText(name, kind, [])
        common_kind = Kind.FLOAT if any(kind_here is Kind.FLOAT for kind_here, _ in values) else values[0][0]
        checked = [self.checked(common_kind, kind_here, value)[1] for kind_here, value in values]
        if kind is Kind.FLOATS and common_kind is Kind.INT:
            return AttributeText(name, kind, [float(value) for value in checked])
        if kind not in (None, LISTS[common_kind]):
            self.fail(f"values of a {kind.name} attribute before this")
        return AttributeText(name, LISTS[common_kind], checked)

    def checked(self, kind: Kind | None, actual: Kind, value: Any) -> tuple[Kind, Any]:
        if kind is Kind.FLOAT and actual is Kind.INT:
            return kind, float(value)
        if kind not in (None, actual):
            self.fail(f"a value of type {kind.name} before this")
        return actual, value

    def attribute_value(self) -> tuple[Kind, Any]:
        if self.is_type():
            return self.tensor_or_type()
        if self.is_graph():
            return Kind.GRAPH, self.graph()
        if self.next.kind == "string":
            return Kind.STRING, self.string()
        value = self.number()
        if isinstance(value, float):
            return Kind.FLOAT, as_float32(value)
        if not -(2**63) <= value < 2**63:
            self.fail("a number of 64 bits before this")
        return Kind.INT, value

    def is_graph(self) -> bool:
        if self.next.kind == "string":
            return self.tokens[self.at + 1].text == "("
        return self.next.kind == "word" and self.next.text.lower() not in FLOAT_WORDS

    def tensor_or_type(self) -> tuple[Kind, Any]:
        type = self.type()
        if not (self.is_mark("{") or self.is_mark("=") or self.is_name()):
            return Kind.TYPE_PROTO, type
        name = self.name() if self.is_name() else ""
        self.matches("=")
        return Kind.TENSOR, self.tensor_data(type, name)

    # --- nodes, graphs, functions, models

    def node(self) -> NodeText:
        label = ""
        if self.matches("["):
            label = self.name() if self.is_name() else ""
            self.expect("]")
        outputs = self.names()
        self.expect("=")
        domain, _, op_type = self.qualified_name().rpartition(".")
        overload = self.name() if self.matches(":") else ""
        attributes = self.attributes()
        self.expect("(")
        inputs = self.names()
        self.expect(")")
        return NodeText(label, outputs, domain, op_type, overload, attributes or self.attributes(), inputs)

    def nodes(self) -> list[NodeText]:
        items = []
        self.expect("{")
        while not self.matches("}"):
            items.append(self.node())
        return items

    def graph(self) -> GraphText:
        self.enter()
        name = self.name()
        inputs = self.values("(", ")")
        self.expect("=>")
        outputs = self.values("(", ")")
        infos = self.values("<", ">") if self.is_mark("<") else []
        nodes = self.nodes()
        self.depth -= 1
        return GraphText(name, inputs, outputs, infos, nodes)

    def function(self) -> FunctionText:
        header = self.header() if self.is_mark("<") else {}
        name = self.name()
        required: list[str] = []
        defaults: list[AttributeText] = []
        if self.matches("<"):
            while not self.matches(">"):
                attribute = self.name()
                if self.is_mark(":") or self.is_mark("="):
                    defaults.append(self.attribute(attribute))
                else:
                    required.append(attribute)
                if not self.matches(","):
                    self.expect(">")
                    break
        inputs = self.values("(", ")")
        self.expect("=>")
        outputs = self.values("(", ")")
        infos = self.values("<", ">") if self.is_mark("<") else []
        return FunctionText(header, name, required, defaults, GraphText(name, inputs, outputs, infos, self.nodes()))

    def model(self) -> ModelText:
        header = self.header() if self.is_mark("<") else {}
        model = ModelText(header, self.graph())
        while self.next.kind != "end":
            model.functions.append(self.function())
        return model

    def header(self) -> dict[str, Any]:
        """What a model or function says of itself, by key."""
        header: dict[str, Any] = {}
        self.expect("<")
        while not self.matches(">"):
            key = self.word("a key")
            self.expect(":")
            header[key] = self.header_value()
            if not self.matches(","):
                self.expect(">")
                break
        return header

    def header_value(self) -> Any:
        if not self.matches("["):
            return self.string() if self.next.kind == "string" else self.integer()
        entries: dict[str, Any] = {}
        while not self.matches("]"):
            key = self.string()
            self.expect(":")
            entries[key] = self.string() if self.next.kind == "string" else self.integer()
            if not self.matches(","):
                self.expect("]")
                break
        return entries
