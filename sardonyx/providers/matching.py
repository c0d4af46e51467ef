"""Kernel matching as onnxruntime does it: by op, version and the types behind type strings, with no hashes of definitions.

What a type string ("T") means for an op, a resolver says: `SchemaResolver` reads the op's signature, `StoredResolver` a table that came
with the model, so that a model which brings one needs no signatures. `ExecutionProvider.find_kernel` asks a resolver for the
types of a node; `KernelDefinitions` holds what the original's own kernels say they take, and follows its version rule.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from sardonyx.errors import Fail
from sardonyx.ir import Model, Node, Type
from sardonyx.ops import checking, schemas
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.ops.schemas import NHWC_DOMAIN, normal_domain
from sardonyx.ops.signatures import Signature
from sardonyx.startup.records import dataclass, field

OPEN = NEWEST
NOTHING: Mapping[str, str] = MappingProxyType({})


class Side(enum.IntEnum):
    """Where an argument stands; the numbers are those of stored tables."""

    INPUT = 0
    OUTPUT = 1


class Argument(NamedTuple):
    """A formal parameter of an op. A variadic one is its first value."""

    side: Side
    position: int


class OpId(NamedTuple):
    """One version of an op, in text `domain:op_type:since_version`."""

    domain: str
    name: str
    since_version: int

    @classmethod
    def parse(cls, text: str) -> OpId:
        parts = text.split(":")
        if len(parts) != 3 or not parts[2].removeprefix("-").isdigit():
            raise Fail(f"Invalid operator identifier {text!r}, it must read domain:op_type:since_version")
        return cls(normal_domain(parts[0]), parts[1], int(parts[2]))

    def __str__(self) -> str:
        return f"{self.domain}:{self.name}:{self.since_version}"


Arguments = Mapping[str, Sequence[Argument]]
"""The arguments behind each type string of an op, in the order in which they are looked at."""


class Resolver(Protocol):
    """Knows the type strings of ops."""

    def arguments(self, op: OpId) -> Arguments:
        """All type strings of an op version; raises `Fail` for an op that it does not know."""
        ...


def arguments_of(signature: Signature) -> dict[str, list[Argument]]:
    """What a signature says: the key is a type constraint's name, or for a parameter of a fixed type the parameter's own name."""
    arguments: dict[str, list[Argument]] = {}
    fixed: dict[str, str] = {}
    for side, parameters in ((Side.INPUT, signature.inputs), (Side.OUTPUT, signature.outputs)):
        for index, parameter in enumerate(parameters):
            key = parameter.type_string
            if key not in signature.constraints:
                key = parameter.name
                if fixed.setdefault(key, parameter.type_string) != parameter.type_string:
                    raise Fail(
                        f"{signature}: two parameters named {key!r} have the types {fixed[key]} and {parameter.type_string}"
                    )
            arguments.setdefault(key, []).append(Argument(side, index))
    return arguments


class SchemaResolver:
    """Type strings from signatures, looked up once per op version."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Signature, Arguments]] = {}
        """By identity: two sessions may give the same op version different signatures."""

    def of(self, signature: Signature) -> Arguments:
        known = self._known.get(id(signature))
        if known is None:
            known = self._known[id(signature)] = signature, arguments_of(signature)
        return known[1]

    def arguments(self, op: OpId) -> Arguments:
        signature = schemas.versions(op.domain, op.name).get(op.since_version)
        if signature is None:
            raise Fail(f"no signature is known for {op}")
        return self.of(signature)


@dataclass
class StoredResolver:
    """Type strings from a table, `{":Add:14": {"T": [[0, 0], [0, 1], [1, 0]]}}`; what `more` adds never replaces what is there."""

    table: dict[OpId, Arguments] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Mapping[str, Iterable[Sequence[int]]]]) -> StoredResolver:
        resolver = cls()
        resolver.merge(stored)
        return resolver

    def merge(self, more: Mapping[str, Mapping[str, Iterable[Sequence[int]]]]) -> None:
        for text, strings in more.items():
            self.table.setdefault(
                OpId.parse(text),
                {key: [Argument(Side(side), position) for side, position in pairs] for key, pairs in strings.items()},
            )

    def find(self, op: OpId) -> Arguments | None:
        # ops moved to another layout are resolved as the ops that they come from
        domains = (op.domain, "", "com.microsoft") if op.domain == NHWC_DOMAIN else (op.domain,)
        tables = (self.table.get(op._replace(domain=domain)) for domain in domains)
        return next((arguments for arguments in tables if arguments is not None), None)

    def arguments(self, op: OpId) -> Arguments:
        arguments = self.find(op)
        if arguments is None:
            raise Fail(f"Failed to find op_id: {op}, the stored table of type strings has no entry for it")
        return arguments


def resolver_of(model: Model) -> StoredResolver | None:
    """The type strings that came with a model, which must have all of its ops; None if the signatures are to be asked.

    Ops that rewrites of the layout make need not be stored: what the original adds to each table for them is added here too.
    """
    if model.stored_types is None:
        return None
    resolver = StoredResolver.of(model.stored_types)
    resolver.merge(_built_in())
    for op in dict.fromkeys(op_id(node) for node in model.graph.all_nodes()):
        resolver.arguments(op)
    return resolver


def op_id(node: Node) -> OpId:
    """The op version that a node applies."""
    return OpId(normal_domain(node.domain), node.op_type, checking.signature_of(node).since_version)


def _built_in() -> dict[str, dict[str, list[tuple[int, int]]]]:
    same = "T=00,10"
    quantize, dequantize = "T1=00,01 T2=02,10", "T1=00,02 T2=01,10"
    table = (
        (":DequantizeLinear", "10 13", "T=00,02 x_scale=01 y=10"),
        (":DequantizeLinear", "19 21", dequantize),
        (":DequantizeLinear", "23 24 25", "T1=00,02 T2=01 T3=10"),
        (":QuantizeLinear", "10 13", "T1=00 T2=02,10 y_scale=01"),
        (":QuantizeLinear", "19 21", quantize),
        (":QuantizeLinear", "23 24 25", "T1=00 T2=01 T3=02,10"),
        (":Identity", "1 13", same),
        (":Identity", "14 16 19 21 23 24 25", "V=00,10"),
        (":Squeeze", "1 11", same),
        (":Squeeze", "13 21 23 24 25", f"{same} axes=01"),
        (":Unsqueeze", "1 11", same),
        (":Unsqueeze", "13 21 23 24 25", f"{same} axes=01"),
        (":Transpose", "1 13 21 23 24 25", same),
        (":Gather", "1 11 13", f"{same} Tind=01"),
        ("com.microsoft:DequantizeLinear", "1", dequantize),
        ("com.microsoft:QuantizeLinear", "1", quantize),
        ("com.microsoft:NhwcFusedConv", "1", "T=00,01,02,03,10"),
        ("com.microsoft:NhwcMaxPool", "1", same),
        ("com.microsoft:QLinearConv", "1", "T1=00,02 T2=03,05 T3=07,10 T4=08 w_scale=04 x_scale=01 y_scale=06"),
    )
    return {f"{op}:{version}": _parsed(strings) for op, versions, strings in table for version in versions.split()}


def _parsed(strings: str) -> dict[str, list[tuple[int, int]]]:
    """Type strings from a line such as `T=00,10 axes=01`: of each argument its side and its position."""
    parts = (part.split("=") for part in strings.split())
    return {key: [(int(text[0]), int(text[1])) for text in arguments.split(",")] for key, arguments in parts}


def first_type(node: Node, arguments: Sequence[Argument]) -> Type | None:
    """The type of the first of these arguments that the node has; None if it has none, or if its type is unknown."""
    for side, position in arguments:
        values = node.inputs if side is Side.INPUT else node.outputs
        value = values[position] if position < len(values) else None
        if value is not None and (side is Side.INPUT or value.name):  # an output without a name is not wanted
            return value.type
    return None


# --- definitions that are data


@dataclass(frozen=True)
class KernelDefinition(Entry):
    """What a kernel of the original says it computes. `constraints` lists the types behind each type string."""

    constraints: Mapping[str, frozenset[str]]

    @property
    def last(self) -> int:
        """An open end covers its start alone: a later version of the op may mean something else."""
        return self.since if self.until == OPEN else self.until

    def covers(self, since_version: int) -> bool:
        return self.since <= since_version <= self.last

    def takes(self, node: Node, arguments: Arguments, instead: Mapping[str, str]) -> bool:
        """Whether the node's types fit; of each constraint only the first argument that exists is looked at.

        `instead` names types that stand for others.
        """
        for key, allowed in self.constraints.items():
            if key not in arguments:
                raise Fail(f"{self}: {key!r} is not a type string of {node.op_id}")
            type = first_type(node, arguments[key])
            if type is not None and instead.get(str(type), str(type)) not in allowed:
                return False
        return True

    def overlaps(self, other: Entry) -> bool:
        assert isinstance(other, KernelDefinition)
        shared = self.constraints.keys() & other.constraints.keys()
        meets = max(self.since, other.since) <= min(self.last, other.last)
        return meets and all(self.constraints[key] & other.constraints[key] for key in shared)


class KernelDefinitions(Table[KernelDefinition]):
    """The definitions of one provider of the original."""

    def find_for(
        self,
        node: Node,
        resolver: Resolver | None = None,
        since_version: int | None = None,
        instead: Mapping[str, str] = NOTHING,
    ) -> KernelDefinition | None:
        """The definition that computes `node`; without a `since_version` the signature tells from when its op version dates."""
        known = self.candidates(node.domain, node.op_type)
        if not known:
            return None
        since = checking.signature_of(node).since_version if since_version is None else since_version
        fitting = [definition for definition in known if definition.covers(since)]
        if not fitting:
            return None
        arguments = (resolver or SCHEMAS).arguments(OpId(normal_domain(node.domain), node.op_type, since))
        return next((definition for definition in fitting if definition.takes(node, arguments, instead)), None)


SCHEMAS = SchemaResolver()
