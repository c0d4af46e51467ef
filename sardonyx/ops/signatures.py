"""What one version of an op takes and gives, as a value and as a line of text.

`schemas` keeps signatures by op and version; contrib ops, custom ops and the table of the standard's ops are written in the text form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir.attribute import Kind
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass


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
    operand_names: tuple[str, ...] = ()
    """Names of the inputs in the op's newest version: what kernels and inference functions call them."""

    @cached_property
    def min_inputs(self) -> int:
        return _least(self.inputs)

    @cached_property
    def max_inputs(self) -> int:
        return 2**31 - 1 if self.inputs and self.inputs[-1].variadic else len(self.inputs)

    @cached_property
    def min_outputs(self) -> int:
        return _least(self.outputs)

    @cached_property
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


# --- the text form

_ATTRIBUTE_KINDS = {
    "float": Kind.FLOAT,
    "int": Kind.INT,
    "string": Kind.STRING,
    "tensor": Kind.TENSOR,
    "graph": Kind.GRAPH,
    "floats": Kind.FLOATS,
    "ints": Kind.INTS,
    "strings": Kind.STRINGS,
    "sparse_tensor": Kind.SPARSE_TENSOR,
    "type_proto": Kind.TYPE_PROTO,
}
_KIND_NAMES = {kind: name for name, kind in _ATTRIBUTE_KINDS.items()}


def parse(domain: str, name: str, since_version: int, text: str, **constraints: Iterable[ElementType | str]) -> Signature:
    """The signature that a line of text means.

    `text` reads `(X: T, bias: T?, *more: T, *, alpha: float = 1.0, axis: int, mode: string?) -> (Y: T, mask: bool?)`: `?` marks
    optional, a star before a name variadic (two stars: of types that may differ; with `?`: of which there may be none, with `??`: of
    which any may be left out), a lone star begins the attributes. Types are constraint names or type strings; an element type's name
    alone means a tensor of it.
    """
    return parse_with(domain, name, since_version, text, {key: types_of(types) for key, types in constraints.items()})


def types_of(types: Iterable[ElementType | str]) -> frozenset[str]:
    """Type strings of a constraint."""
    return frozenset(map(_type_string, types))


def _type_string(type: ElementType | str) -> str:
    return f"tensor({type.name})" if isinstance(type, ElementType) else type


def parse_with(domain: str, name: str, since: int, text: str, constraints: Mapping[str, frozenset[str]]) -> Signature:
    """`parse` with constraints that are sets of type strings already."""
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
    matched = re.fullmatch(r"(\*{0,2})([\w.]+)\s*:\s*([\w().,]+?)(\?{0,2})", item)
    if matched is None:
        raise ValueError(f"not a parameter: {item!r}")
    stars, name, type_name, mark = matched.groups()
    if type_name not in constraints and re.fullmatch(r"\w+", type_name):
        type_name = _type_string(dtypes.from_name(type_name))
    types = constraints.get(type_name, frozenset({type_name}))
    if stars:
        arity = 0 if mark else 1
        return Parameter(name, type_name, types, mark == "??", variadic=True, homogeneous=stars == "*", min_arity=arity)
    return Parameter(name, type_name, types, optional=bool(mark))


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


def to_text(signature: Signature) -> str:
    """The text that `parse` reads, without what stands outside it: constraints, flags, names of operands."""
    inputs = [_parameter_text(parameter) for parameter in signature.inputs]
    attributes = [_attribute_text(attribute) for attribute in signature.attributes.values()]
    outputs = [_parameter_text(parameter) for parameter in signature.outputs]
    return f"({', '.join([*inputs, *(['*', *attributes] if attributes else [])])}) -> ({', '.join(outputs)})"


def _parameter_text(parameter: Parameter) -> str:
    stars = ("*" if parameter.homogeneous else "**") if parameter.variadic else ""
    mark = "?" if parameter.optional else ""
    mark += "?" if parameter.variadic and parameter.min_arity == 0 else ""
    return f"{stars}{parameter.name}: {short_type(parameter.type_string)}{mark}"


def short_type(type_string: str) -> str:
    """A type as the text form has it: of a tensor the element type alone."""
    matched = re.fullmatch(r"tensor\((\w+)\)", type_string)
    return matched[1] if matched else type_string


def full_type(text: str) -> str:
    """The type string that `short_type` shortened."""
    return f"tensor({text})" if text.isalnum() else text


def _attribute_text(attribute: AttributeDef) -> str:
    text = f"{attribute.name}: {_KIND_NAMES[attribute.kind]}"
    if attribute.default is not None:
        return f"{text} = {attribute.default!r}"
    return text if attribute.required else f"{text}?"
