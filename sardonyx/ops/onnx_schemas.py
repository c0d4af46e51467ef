"""What the `onnx` package says of the standard's ops: the only place where its schemas are touched.

`schemas` asks for versions newer than our own table, `functions` for bodies. `python -m sardonyx.ops.onnx_schemas` writes the table,
`standard.txt`, from the package that is installed.
"""

from __future__ import annotations

import functools
import string
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sardonyx.ir.attribute import Kind
from sardonyx.ops import signatures, standard
from sardonyx.ops.signatures import AttributeDef, Parameter, Signature

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")


def newest_opset(domain: str) -> int:
    """The newest opset of a standard domain; raises ImportError where there is no such package."""
    import onnx.defs

    known = onnx.defs.C.schema_version_map().get(domain)
    return known[1] if known else 0


def operators(domain: str) -> list[str]:
    """Names of all ops of a domain."""
    import onnx.defs

    return sorted({schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == domain})


@functools.cache
def history(domain: str, name: str) -> Mapping[int, Any]:
    """The package's own schema objects of one op, the newest first; all of them at once would take their time."""
    import onnx.defs

    schema_of: dict[int, Any] = {}
    version = 2**31 - 1
    while version > 0 and onnx.defs.has(name, version, domain):
        schema = onnx.defs.get_schema(name, version, domain)
        schema_of[schema.since_version] = schema
        version = schema.since_version - 1
    return schema_of


def versions(domain: str, name: str) -> Mapping[int, Signature]:
    """The signatures of an op by since_version, the oldest first."""
    schemas = history(domain, name)
    return {since: _signature(schemas[since], schemas[max(schemas)]) for since in sorted(schemas)}


def schema_of(signature: Signature) -> Any:
    """The package's own schema object; None if it has none."""
    return history(signature.domain, signature.name).get(signature.since_version)


def _signature(schema: Any, newest: Any) -> Signature:
    constraints = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    return Signature(
        domain=schema.domain,
        name=schema.name,
        since_version=schema.since_version,
        inputs=tuple(_parameter(formal, constraints) for formal in schema.inputs),
        outputs=tuple(_parameter(formal, constraints) for formal in schema.outputs),
        attributes={name: _attribute(schema.attributes[name]) for name in sorted(schema.attributes)},
        constraints=constraints,
        deprecated=schema.deprecated,
        has_function=schema.has_function or schema.has_context_dependent_function,
        deterministic=schema.name not in standard.NON_DETERMINISTIC,
        operand_names=_operand_names(schema, newest),
    )


def _parameter(formal: Any, constraints: Mapping[str, frozenset[str]]) -> Parameter:
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


def _attribute(attribute: Any) -> AttributeDef:
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


# --- the table


def table_text() -> str:
    """The content of `standard.txt`."""
    import onnx

    signatures = {
        domain: [signature for name in operators(domain) for signature in versions(domain, name).values()] for domain in DOMAINS
    }
    keys = _keys(types for ops in signatures.values() for signature in ops for types in signature.constraints.values())
    lines = [f"# written by `python -m sardonyx.ops.onnx_schemas` from onnx {onnx.__version__}"]
    lines += [f"types\t{key}\t{'|'.join(_sorted(types))}" for types, key in keys.items()]
    for domain, ops in signatures.items():
        lines += [f"domain\t{domain or standard.DEFAULT_DOMAIN}", *(_line(signature, keys) for signature in ops)]
    return "\n".join(lines) + "\n"


def _keys(sets: Iterable[frozenset[str]]) -> dict[frozenset[str], str]:
    """A short name for each set of types: how many there are, and a letter; so new sets hardly ever rename old ones."""
    by_size: dict[int, list[frozenset[str]]] = defaultdict(list)
    for types in sorted(set(sets), key=lambda types: (len(types), _sorted(types))):
        by_size[len(types)].append(types)
    letters = string.ascii_letters
    return {types: f"{size}{letters[position]}" for size, same in by_size.items() for position, types in enumerate(same)}


def _sorted(types: Iterable[str]) -> list[str]:
    return sorted(map(signatures.short_type, types))


def _line(signature: Signature, keys: Mapping[frozenset[str], str]) -> str:
    constraints = " ".join(f"{name}={keys[types]}" for name, types in signature.constraints.items())
    fields = [signature.name, str(signature.since_version), signatures.to_text(signature), constraints]
    fields += ["function"] * signature.has_function + ["deprecated"] * signature.deprecated
    if signature.operand_names != tuple(parameter.name for parameter in signature.inputs):
        fields.append(f"operands={' '.join(signature.operand_names)}")
    return "\t".join(fields)


if __name__ == "__main__":
    standard.PATH.write_text(table_text(), encoding="utf-8")
