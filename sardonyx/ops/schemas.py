"""Signatures of ops by version: inputs, outputs, attributes, type constraints.

The standard domains are read from the `onnx` package, the only place where its schemas are touched; other domains come from
`define`, whose signature is a line of text. Type and shape inference, partition and kernel matching ask `find`.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir.attribute import Kind

STANDARD_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")
NHWC_DOMAIN = "com.ms.internal.nhwc"
"""Ops of the default domain whose first input and output have their channels last; the signatures are the same."""


@dataclass(frozen=True)
class Parameter:
    """A formal input or output. `type_string` is a constraint's name ("T") or a type ("tensor(int64)")."""

    name: str
    type_string: str
    types: frozenset[str]
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True
    min_arity: int = 1


@dataclass(frozen=True)
class AttributeDef:
    """A formal attribute. `default` is None where there is none."""

    name: str
    kind: Kind
    required: bool = False
    default: Any = None


@dataclass(frozen=True)
class Signature:
    """One version of one op."""

    domain: str
    name: str
    since_version: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, AttributeDef]
    constraints: Mapping[str, frozenset[str]]
    deprecated: bool = False
    has_function: bool = False
    deterministic: bool = True
    operand_names: tuple[str, ...] = field(default=())
    """Names of the inputs in the op's newest version: what kernels and inference functions call them."""

    @property
    def min_inputs(self) -> int:
        return _least(self.inputs)

    @property
    def max_inputs(self) -> int:
        return 2**31 - 1 if self.inputs and self.inputs[-1].variadic else len(self.inputs)

    @property
    def min_outputs(self) -> int:
        return _least(self.outputs)

    @property
    def max_outputs(self) -> int:
        return 2**31 - 1 if self.outputs and self.outputs[-1].variadic else len(self.outputs)

    def input_at(self, index: int) -> Parameter:
        """The formal parameter of actual input `index`."""
        return self.inputs[min(index, len(self.inputs) - 1)]

    def output_at(self, index: int) -> Parameter:
        """The formal parameter of actual output `index`."""
        return self.outputs[min(index, len(self.outputs) - 1)]

    def __str__(self) -> str:
        return f"{self.domain or 'ai.onnx'}:{self.name}:{self.since_version}"


def _least(parameters: tuple[Parameter, ...]) -> int:
    """How many arguments there must be, optional ones before a required one included."""
    required = 0
    for position, parameter in enumerate(parameters):
        if parameter.variadic:
            required = max(required, position + parameter.min_arity)
        elif not parameter.optional:
            required = position + 1
    return required


def normal_domain(domain: str) -> str:
    """The default domain has two spellings; we use the empty one."""
    return "" if domain == "ai.onnx" else domain


_defined: dict[tuple[str, str], dict[int, Signature]] = {}
_session: ContextVar[Mapping[tuple[str, str], Mapping[int, Signature]]] = ContextVar("_session", default=MappingProxyType({}))
"""Signatures that only the session knows which is being prepared in this thread."""
_lock = threading.Lock()


def find(domain: str, name: str, version: int) -> Signature | None:
    """The signature of op `name` in force at opset `version`, or None if there is none."""
    found, newest = None, -1
    for since, signature in versions(normal_domain(domain), name).items():
        if newest < since <= version:
            found, newest = signature, since
    return found


def versions(domain: str, name: str) -> Mapping[int, Signature]:
    """All signatures of an op by since_version, empty if nobody knows it."""
    if domain == NHWC_DOMAIN:
        return {since: replace(signature, domain=domain) for since, signature in versions("", name).items()}
    local = _session.get().get((domain, name))
    own = _defined.get((domain, name))
    if own is None:
        known = _standard_versions(domain, name) if domain in STANDARD_DOMAINS else {}
    else:
        known = _with_standard(domain, name) if (domain, name) in EXTENDED else own
    return known if local is None else {**known, **local}


EXTENDED = frozenset({("", "LayerNormalization")})
"""Standard ops of which onnxruntime has versions of its own, before the first standard one."""


@functools.cache
def _with_standard(domain: str, name: str) -> Mapping[int, Signature]:
    return {**_defined[domain, name], **_standard_versions(domain, name)}


def newest_version(domain: str) -> int | None:
    """The highest opset of `domain` that we know, None for an unknown domain."""
    domain = normal_domain(domain)
    own = [since for (other, _), history in _defined.items() if other == domain for since in history]
    standard = _newest_standard(domain) if domain in STANDARD_DOMAINS else None
    return max([*own, *([standard] if standard else [])], default=None)


def operators(domain: str) -> list[str]:
    """Names of all ops of a domain."""
    standard = _standard_operators(domain) if domain in STANDARD_DOMAINS else frozenset()
    return sorted(standard | {name for (other, name) in _defined if other == domain})


# --- from the onnx package ------------------------------------------------------------------------------------------


@functools.cache
def _standard_operators(domain: str) -> frozenset[str]:
    import onnx.defs

    return frozenset(schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain)


@functools.cache
def _newest_standard(domain: str) -> int:
    import onnx.defs

    if not domain:
        return onnx.defs.onnx_opset_version()
    return max(since for name in _standard_operators(domain) for since in _standard_history(domain, name))


@functools.cache
def _standard_history(domain: str, name: str) -> Mapping[int, Any]:
    """The onnx package's own schema objects of one op, the newest first; all of them at once would take their time."""
    import onnx.defs

    history: dict[int, Any] = {}
    version = 2**31 - 1
    while version > 0 and onnx.defs.has(name, version, domain):
        schema = onnx.defs.get_schema(name, version, domain)
        history[schema.since_version] = schema
        version = schema.since_version - 1
    return history


@functools.cache
def _standard_versions(domain: str, name: str) -> Mapping[int, Signature]:
    history = _standard_history(domain, name)
    if not history:
        return {}
    newest = history[max(history)]
    return {since: _from_schema(schema, newest) for since, schema in sorted(history.items())}


def standard_schema(signature: Signature) -> Any:
    """The onnx package's own schema object, for function bodies."""
    return _standard_history(signature.domain, signature.name)[signature.since_version]


def _from_schema(schema: Any, newest: Any) -> Signature:
    constraints = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    return Signature(
        domain=schema.domain,
        name=schema.name,
        since_version=schema.since_version,
        inputs=tuple(_from_formal(formal, constraints) for formal in schema.inputs),
        outputs=tuple(_from_formal(formal, constraints) for formal in schema.outputs),
        attributes={a.name: _from_attribute(a) for a in schema.attributes.values()},
        constraints=constraints,
        deprecated=schema.deprecated,
        has_function=schema.has_function or schema.has_context_dependent_function,
        deterministic=schema.name not in NON_DETERMINISTIC,
        operand_names=_operand_names(schema, newest),
    )


NON_DETERMINISTIC = frozenset(
    ("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial", "Bernoulli", "Dropout")
)


def _from_formal(formal: Any, constraints: Mapping[str, frozenset[str]]) -> Parameter:
    """A constraint's own list is preferred: it spells maps as `map(int64, float)`, the parameter's as `map(int64,tensor(float))`."""
    option = formal.option.name
    return Parameter(
        name=formal.name,
        type_string=formal.type_str,
        types=constraints.get(formal.type_str, frozenset(formal.types)),
        optional=option == "Optional",
        variadic=option == "Variadic",
        homogeneous=formal.is_homogeneous,
        min_arity=formal.min_arity,
    )


def _from_attribute(attribute: Any) -> AttributeDef:
    kind = Kind(int(attribute.type.value))
    return AttributeDef(attribute.name, kind, attribute.required, _default(attribute.default_value))


def _default(proto: Any) -> Any:
    match proto.type:
        case Kind.FLOAT:
            return proto.f
        case Kind.INT:
            return proto.i
        case Kind.STRING:
            return proto.s.decode()
        case Kind.FLOATS:
            return list(proto.floats)
        case Kind.INTS:
            return list(proto.ints)
        case Kind.STRINGS:
            return [text.decode() for text in proto.strings]
        case Kind.TENSOR:
            # LabelEncoder's default_tensor is declared as an undefined tensor, that is: none
            return None
    return None


def _operand_names(schema: Any, newest: Any) -> tuple[str, ...]:
    """A name that the newest version still knows stays; another one is what stands in its place today."""
    # what stands in a place today may be another input of the old version (Scan 8): then the old name stays too
    known = {formal.name for formal in newest.inputs} | set(newest.attributes)
    own = {formal.name for formal in schema.inputs}
    return tuple(
        formal.name
        if formal.name in known or position >= len(newest.inputs) or newest.inputs[position].name in own
        else newest.inputs[position].name
        for position, formal in enumerate(schema.inputs)
    )


# --- from text ------------------------------------------------------------------------------------------------------

_ATTRIBUTE_KINDS = {
    "float": Kind.FLOAT,
    "int": Kind.INT,
    "string": Kind.STRING,
    "tensor": Kind.TENSOR,
    "graph": Kind.GRAPH,
    "floats": Kind.FLOATS,
    "ints": Kind.INTS,
    "strings": Kind.STRINGS,
}


def define(domain: str, name: str, since_version: int, text: str, **constraints: Iterable[ElementType | str]) -> Signature:
    """Make an op known whose signature the onnx package lacks.

    `text` reads `(X: T, bias: T?, *more: T, *, alpha: float = 1.0, axis: int, mode: string?) -> (Y: T, mask: bool?)`: `?` marks
    optional, a star before a name variadic (two stars: of types that may differ), a lone star begins the attributes. Types are
    constraint names or type strings; an element type's name alone means a tensor of it.
    """
    signature = parse(domain, name, since_version, text, **constraints)
    add(signature)
    return signature


def parse(domain: str, name: str, since_version: int, text: str, **constraints: Iterable[ElementType | str]) -> Signature:
    """The signature that a line of text means, as `define` explains it; nobody else gets to know it."""
    parsed = {key: frozenset(_type_string(t) for t in types) for key, types in constraints.items()}
    return _parse_signature(domain, name, since_version, text, parsed)


def add(signature: Signature) -> None:
    """Make a signature known to everybody."""
    with _lock:
        history = _defined.setdefault((signature.domain, signature.name), {})
        if history.get(signature.since_version, signature) != signature:
            raise ValueError(f"{signature} is defined twice")
        history[signature.since_version] = signature


def undefine(domain: str, name: str, since_version: int | None = None) -> None:
    """Forget what `define` added, all versions or one; for tests and for custom ops that are withdrawn."""
    with _lock:
        history = _defined.get((domain, name), {})
        for since in list(history) if since_version is None else [since_version]:
            history.pop(since, None)
        if not history:
            _defined.pop((domain, name), None)


@contextlib.contextmanager
def also_known(signatures: Iterable[Signature]) -> Iterator[None]:
    """Let this thread find signatures that nobody else knows: those of a session's custom ops, while it prepares its model."""
    table: dict[tuple[str, str], dict[int, Signature]] = {key: dict(found) for key, found in _session.get().items()}
    for signature in signatures:
        table.setdefault((signature.domain, signature.name), {})[signature.since_version] = signature
    token = _session.set(table)
    try:
        yield
    finally:
        _session.reset(token)


def _type_string(given: ElementType | str) -> str:
    return f"tensor({given.name})" if isinstance(given, ElementType) else given


def _parse_signature(domain: str, name: str, since: int, text: str, constraints: dict[str, frozenset[str]]) -> Signature:
    matched = re.fullmatch(r"\s*\((.*)\)\s*->\s*\((.*)\)\s*", text, re.DOTALL)
    if matched is None:
        raise ValueError(f"{domain}:{name}: a signature reads '(inputs, *, attributes) -> (outputs)', not {text!r}")
    inputs, attributes, in_attributes = [], {}, False
    for item in _split(matched[1]):
        if item == "*":
            in_attributes = True
        elif in_attributes:
            attribute = _parse_attribute(item)
            attributes[attribute.name] = attribute
        else:
            inputs.append(_parse_parameter(item, constraints))
    outputs = [_parse_parameter(item, constraints) for item in _split(matched[2])]
    names = tuple(parameter.name for parameter in inputs)
    return Signature(domain, name, since, tuple(inputs), tuple(outputs), attributes, constraints, operand_names=names)


def _split(text: str) -> list[str]:
    """Cut at commas outside brackets and quotes."""
    return [part.strip() for part in re.findall(r"(?:\([^()]*\)|\[[^\]]*\]|'[^']*'|[^,(\['])+", text) if part.strip()]


def _parse_parameter(item: str, constraints: Mapping[str, frozenset[str]]) -> Parameter:
    matched = re.fullmatch(r"(\*{0,2})(\w+)\s*:\s*([\w().,]+?)(\??)", item)
    if matched is None:
        raise ValueError(f"not a parameter: {item!r}")
    stars, name, type_name, optional = matched.groups()
    if type_name not in constraints and re.fullmatch(r"\w+", type_name):
        type_name = _type_string(dtypes.from_name(type_name))
    types = constraints.get(type_name, frozenset({type_name}))
    return Parameter(name, type_name, types, optional=bool(optional), variadic=bool(stars), homogeneous=stars != "**")


def _parse_attribute(item: str) -> AttributeDef:
    matched = re.fullmatch(r"(\w+)\s*:\s*(\w+)(\??)(?:\s*=\s*(.+))?", item, re.DOTALL)
    if matched is None or matched[2] not in _ATTRIBUTE_KINDS:
        raise ValueError(f"not an attribute: {item!r}")
    name, kind_name, optional, default = matched.groups()
    kind = _ATTRIBUTE_KINDS[kind_name]
    if default is None:
        return AttributeDef(name, kind, required=not optional)
    import ast

    value = ast.literal_eval(default)
    return AttributeDef(name, kind, default=float(value) if kind is Kind.FLOAT else value)
