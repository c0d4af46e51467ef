"""`get_all_operator_schema`: the signatures of all ops that sessions know, as the original's compiled module shows them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sardonyx import ops
from sardonyx.ir import Kind
from sardonyx.ops import schemas
from sardonyx.ops.signatures import AttributeDef, Parameter, Signature
from sardonyx.ops.table import find_inference, inferences

_DOCUMENTED = frozenset(schemas.STANDARD_DOMAINS)


class FormalParameterOption(enum.IntEnum):
    """How many operands a parameter stands for."""

    Single = 0
    Optional = 1
    Variadic = 2


class SupportType(enum.IntEnum):
    """Whether an op is there to stay."""

    COMMON = 0
    EXPERIMENTAL = 1


@dataclass(frozen=True)
class FormalParameter:
    """An input or output of an op."""

    name: str
    types: frozenset[str]
    typeStr: str  # noqa: N815 - the original's spelling
    description: str
    option: FormalParameterOption
    isHomogeneous: bool  # noqa: N815


@dataclass(frozen=True)
class Attribute:
    """An attribute of an op."""

    name: str
    description: str
    type: Kind
    required: bool


@dataclass(frozen=True)
class TypeConstraintParam:
    """What types a type parameter stands for."""

    type_param_str: str
    description: str
    allowed_type_strs: Sequence[str]


class OpSchema:
    """One version of one op. Descriptions come from the onnx package, of ops that it knows."""

    FormalParameter = FormalParameter
    FormalParameterOption = FormalParameterOption
    Attribute = Attribute
    AttrType = Kind
    TypeConstraintParam = TypeConstraintParam
    SupportType = SupportType

    file, line = "", 0
    """Where the original defines it in C++."""
    support_level = SupportType.COMMON

    def __init__(self, signature: Signature):
        self._signature = signature
        self.name, self.domain, self.since_version = signature.name, signature.domain, signature.since_version
        self.deprecated = signature.deprecated
        self.min_input, self.max_input = signature.min_inputs, signature.max_inputs
        self.min_output, self.max_output = signature.min_outputs, signature.max_outputs

    @property
    def doc(self) -> str:
        """What the op does."""
        if self.domain not in _DOCUMENTED:
            return ""
        from onnx import defs

        try:
            return str(defs.get_schema(self.name, self.since_version, self.domain).doc or "")
        except defs.SchemaError:
            return ""

    @property
    def inputs(self) -> list[Any]:
        return [_parameter(parameter) for parameter in self._signature.inputs]

    @property
    def outputs(self) -> list[Any]:
        return [_parameter(parameter) for parameter in self._signature.outputs]

    @property
    def attributes(self) -> Mapping[str, Any]:
        return {name: _attribute(attribute) for name, attribute in self._signature.attributes.items()}

    @property
    def type_constraints(self) -> list[Any]:
        return [TypeConstraintParam(name, "", sorted(types)) for name, types in self._signature.constraints.items()]

    @property
    def has_type_and_shape_inference_function(self) -> bool:
        return find_inference(self._signature) is not None

    @staticmethod
    def is_infinite(number: int) -> bool:
        """Whether a count of operands has no bound."""
        return number == 2**31 - 1

    def __repr__(self) -> str:
        return f"<OpSchema {self._signature}>"


def _parameter(parameter: Parameter) -> FormalParameter:
    option = FormalParameterOption.Optional if parameter.optional else FormalParameterOption.Single
    if parameter.variadic:
        option = FormalParameterOption.Variadic
    return FormalParameter(
        parameter.name, parameter.types, parameter.type_string, "", option, parameter.homogeneous or not parameter.variadic
    )


def _attribute(attribute: AttributeDef) -> Attribute:
    return Attribute(attribute.name, "", attribute.kind, attribute.required)


def all_signatures() -> list[Signature]:
    """Every version of every op that we know, by domain and name."""
    ops.load_families()
    domains = {*schemas.STANDARD_DOMAINS, *(schemas.normal_domain(entry.domain) for entry in inferences)}
    return [
        signature
        for domain in sorted(domains)
        for name in sorted(schemas.operators(domain))
        for _, signature in sorted(schemas.versions(domain, name).items())
    ]


def get_all_operator_schema() -> list[OpSchema]:
    """The schemas of all versions of all ops."""
    return [OpSchema(signature) for signature in all_signatures()]
