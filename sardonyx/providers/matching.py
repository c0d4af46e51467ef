"""Kernel matching as onnxruntime does it: by op, version and the types behind type strings, with no hashes of definitions.

What a type string ("T") means for an op, a resolver says: `SchemaResolver` reads the op's signature, `StoredResolver` a table that came
with the model, so that a model which brings one needs no signatures. `ExecutionProvider.find_kernel` asks a resolver for the
types of a node; `KernelRegistry` holds definitions that are given as data and follows the original's version rule to the letter.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sardonyx.errors import Fail
from sardonyx.ir import Model, Node, Type
from sardonyx.ops import checking
from sardonyx.ops.schemas import NHWC_DOMAIN, normal_domain
from sardonyx.ops.signatures import Signature
from sardonyx.records import dataclass, field

OPEN = 2**31 - 1
"""The end of a range of versions that has none."""


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
    found: dict[str, list[Argument]] = {}
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
            found.setdefault(key, []).append(Argument(side, index))
    return found


class SchemaResolver:
    """Type strings from signatures, looked up once per op version."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Signature, Arguments]] = {}
        """By identity: two sessions may give the same op version different signatures."""

    def of(self, signature: Signature) -> Arguments:
        found = self._known.get(id(signature))
        if found is None:
            found = self._known[id(signature)] = signature, arguments_of(signature)
        return found[1]

    def arguments(self, op: OpId) -> Arguments:
        from sardonyx.ops import schemas

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
        found = (self.table.get(op._replace(domain=domain)) for domain in domains)
        return next((arguments for arguments in found if arguments is not None), None)

    def arguments(self, op: OpId) -> Arguments:
        found = self.find(op)
        if found is None:
            raise Fail(f"Failed to find op_id: {op}, the stored table of type strings has no entry for it")
        return found


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
class KernelDefinition:
    """What a kernel says it computes. `constraints` lists the types behind each type string; `make` is whatever its owner needs."""

    name: str
    domain: str
    since: int
    until: int = OPEN
    provider: str = "CPUExecutionProvider"
    constraints: Mapping[str, frozenset[str]] = field(default_factory=dict)
    make: Any = None

    def covers(self, since_version: int) -> bool:
        """An open end covers its start alone: a later version of the op may mean something else."""
        return self.since == since_version or (self.until != OPEN and self.since <= since_version <= self.until)

    def takes(self, node: Node, arguments: Arguments) -> bool:
        """Whether the node's types fit; of each constraint only the first argument that exists is looked at."""
        for key, allowed in self.constraints.items():
            if key not in arguments:
                raise Fail(f"{self}: {key!r} is not a type string of {node.op_id}")
            found = first_type(node, arguments[key])
            if found is not None and str(found) not in allowed:
                return False
        return True

    def overlaps(self, other: KernelDefinition) -> bool:
        """Whether some node could match both."""
        if (self.name, self.domain, self.provider) != (other.name, other.domain, other.provider):
            return False
        mine, theirs = ((one.since, one.since if one.until == OPEN else one.until) for one in (self, other))
        if max(mine[0], theirs[0]) > min(mine[1], theirs[1]):
            return False
        shared = self.constraints.keys() & other.constraints.keys()
        return all(self.constraints[key] & other.constraints[key] for key in shared)

    def __str__(self) -> str:
        until = "" if self.until == OPEN else self.until
        return f"{self.domain or 'ai.onnx'}:{self.name}[{self.since}…{until}] of {self.provider}"


class KernelRegistry:
    """Definitions in the order in which they came; the first that fits wins."""

    def __init__(self, definitions: Iterable[KernelDefinition] = ()):
        self._definitions: dict[tuple[str, str], list[KernelDefinition]] = {}
        for definition in definitions:
            self.add(definition)

    def add(self, definition: KernelDefinition) -> None:
        known = self._definitions.setdefault((normal_domain(definition.domain), definition.name), [])
        clash = next((other for other in known if definition.overlaps(other)), None)
        if clash is not None:
            raise Fail(f"{definition} conflicts with {clash}, which is registered already")
        known.append(definition)

    def find(self, node: Node, since_version: int, provider: str, resolver: Resolver) -> KernelDefinition | None:
        """The definition that computes `node`, an op whose version dates from `since_version`, on `provider`."""
        domain = normal_domain(node.domain)
        fitting = [
            one
            for one in self._definitions.get((domain, node.op_type), ())
            if one.provider == provider and one.covers(since_version)
        ]
        if not fitting:
            return None
        arguments = resolver.arguments(OpId(domain, node.op_type, since_version))
        return next((one for one in fitting if one.takes(node, arguments)), None)

    def __iter__(self) -> Iterator[KernelDefinition]:
        return (one for definitions in self._definitions.values() for one in definitions)


def find_definition(
    node: Node,
    provider: str,
    own: KernelRegistry,
    custom: Sequence[KernelRegistry] = (),
    resolver: Resolver | None = None,
    since_version: int | None = None,
) -> KernelDefinition | None:
    """Search custom registries, the one added last first, then the provider's own. Without a `since_version` the signature tells it."""
    since = checking.signature_of(node).since_version if since_version is None else since_version
    for registry in (*reversed(custom), own):
        found = registry.find(node, since, provider, resolver or SCHEMAS)
        if found is not None:
            return found
    return None


SCHEMAS = SchemaResolver()
