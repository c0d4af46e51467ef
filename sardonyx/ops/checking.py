"""Whether a node fits its op's signature: counts, attributes, types. Raises with the words that onnxruntime's users know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx import dtypes
from sardonyx.errors import Fail, InvalidGraph
from sardonyx.ir import (
    Kind,
    MapType,
    Node,
    OpaqueType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    Type,
    described,
)
from sardonyx.ops import schemas
from sardonyx.ops.signatures import Parameter, Signature
from sardonyx.ops.words import check_words


def signature_of(node: Node) -> Signature:
    """The signature that holds for a node; raises if its op is unknown in its domain and version."""
    signature = schemas.find(node.domain, node.op_type, node.version)
    if signature is not None:
        return signature
    if node.domain in schemas.STANDARD_DOMAINS:
        known = schemas.versions(node.domain, node.op_type)
        hint = f"; it exists from version {min(known)} on" if known else ""
        reason = f"Error No Op registered for {node.op_type} with domain_version of {node.version}{hint}"
        raise InvalidGraph(f"This is an invalid model. In Node, {context(node)} , {reason}")
    raise Fail(f"Fatal error: {node.domain}:{node.op_type}({node.version}) is not a registered function/op (node {node})")


def context(node: Node) -> str:
    """A node as the original prints it: ("name", Op, "domain", version) : (inputs) -> (outputs)."""
    inputs = "".join(f'"{v.name}": {v.type or "unknown"},' if v is not None else '"",' for v in node.inputs)
    outputs = "".join(f'"{v.name}": {v.type or "unknown"},' for v in node.outputs)
    return f'("{node.name}", {node.op_type}, "{node.domain}", {node.version}) : ({inputs}) -> ({outputs})'


def check_node(node: Node, signature: Signature) -> None:
    """Refuse a wrong number of inputs or outputs and wrong attributes."""
    check_counts(node, signature)
    check_attributes(node, signature)
    check_words(node)


def _invalid(node: Node, reason: str) -> InvalidGraph:
    return InvalidGraph(f"This is an invalid model. In Node, {context(node)} , Error {reason}")


def check_counts(node: Node, signature: Signature) -> None:
    _check_count(node, signature, "input", len(node.inputs), signature.min_inputs, signature.max_inputs)
    _check_count(node, signature, "output", len(node.outputs), signature.min_outputs, signature.max_outputs)
    for position, value in enumerate(node.inputs):
        if value is None and not signature.input_at(position).optional:
            name = signature.input_at(position).name
            raise _invalid(node, f"Required input '{name}' at position {position} is missing.")


def _check_count(node: Node, signature: Signature, side: str, count: int, low: int, high: int) -> None:
    if not low <= count <= high:
        label = f"{signature.domain}::{signature.name}:{signature.since_version}"
        raise _invalid(node, f"Node with schema({label}) has {side} size {count} not in range [min={low}, max={high}].")


UNCHECKED = "__"
"""How names of attributes begin that tools keep for themselves; the checkers of onnx and onnxruntime pass over them."""


def check_attributes(node: Node, signature: Signature) -> None:
    for name, definition in signature.attributes.items():
        if definition.required and name not in node.attributes:
            raise _invalid(node, f"Required attribute '{name}' is missing.")
    for name, attribute in node.attributes.items():
        known = signature.attributes.get(name)
        if known is None and name.startswith(UNCHECKED):
            continue
        if known is None:
            raise _invalid(node, f"Unrecognized attribute: {name} for operator {node.op_type}")
        if attribute.reference is None and attribute.kind != known.kind and not _empty_list_fits(attribute.value, known.kind):
            raise _invalid(
                node,
                f"Mismatched attribute type in '{node.name} : {name}'. Expected: '{known.kind.name}', actual: '{attribute.kind.name}'",
            )


def _empty_list_fits(value: object, kind: Kind) -> bool:
    """An empty list carries no kind in ONNX's text form."""
    return value == [] and kind.name.endswith("S")


def bind_types(node: Node, signature: Signature, types: Sequence[Type | None]) -> dict[str, Type]:
    """The type behind each type constraint's name, from the inputs; refuses types that the op does not take."""
    bound: dict[str, Type] = {}
    for position, type in enumerate(types):
        if type is None or not _has_element_type(type):
            continue
        parameter, text = signature.input_at(position), schema_string(type)
        if text not in parameter.types and not isinstance(type, OpaqueType):
            raise _not_allowed(node, parameter, position, type)
        name = parameter.type_string
        if name in signature.constraints and not (parameter.variadic and not parameter.homogeneous):
            other = bound.setdefault(name, type)
            if other is not type and schema_string(other) != text and not _compares_floats(signature, other, type):
                raise Fail(
                    f"Type Error: Type parameter ({name}) of Optype ({node.op_type}) bound to different types "
                    f"({other} and {type} in node ({node.name or node.outputs[0].name})."
                )
    return bound


def _compares_floats(signature: Signature, a: Type, b: Type) -> bool:
    """Whether an op only compares operands of two float types, so that its result's type does not depend on which is meant.

    The standard's own body of Attention does so with float16 and float32.
    """
    floats = all(isinstance(type, TensorType) and type.dtype in dtypes.FLOATS for type in (a, b))
    return floats and all(output.types == {"tensor(bool)"} for output in signature.outputs)


def _not_allowed(node: Node, parameter: Parameter, position: int, type: Type) -> InvalidGraph:
    return InvalidGraph(
        f"This is an invalid model. Type Error: Type '{type}' of input parameter ({node.inputs[position].name}) "  # type: ignore[union-attr]
        f"of operator ({node.op_type}) in node ({node.name or node.outputs[0].name}) is invalid; "
        f"'{parameter.name}' takes {', '.join(sorted(parameter.types))}."
    )


def _has_element_type(type: Type) -> bool:
    if isinstance(type, (TensorType, SparseTensorType)):
        return type.dtype is not None
    return _has_element_type(type.element) if isinstance(type, (SequenceType, OptionalType)) else True


def schema_string(type: Type) -> str:
    """A type as the onnx package's schemas spell it; they name a map's values by their element type."""
    if isinstance(type, TensorType):
        return str(type)
    match type:
        case MapType(key, TensorType(dtype, _)):
            return f"map({key}, {dtype})"
        case SequenceType(element):
            return f"seq({schema_string(element)})"
        case OptionalType(element):
            return f"optional({schema_string(element)})"
    return str(type)


def type_from_string(text: str) -> Type:
    """The type that a schema's type string means, with no shape."""
    head, _, rest = text.partition("(")
    inner = rest[:-1]
    match head:
        case "tensor":
            return TensorType(dtypes.from_name(inner))
        case "sparse_tensor":
            return SparseTensorType(dtypes.from_name(inner))
        case "seq":
            return SequenceType(type_from_string(inner))
        case "optional":
            return OptionalType(type_from_string(inner))
        case "map":
            key, value = (part.strip() for part in inner.split(",", 1))
            return MapType(dtypes.from_name(key), type_from_string(value if "(" in value else f"tensor({value})"))
    raise ValueError(f"not a type string: {text!r}")


def element_types(bound: Mapping[str, Type]) -> dict[str, dtypes.ElementType | None]:
    """Element types behind the constraints, None for what is not a tensor: what kernel matching looks at."""
    return {name: getattr(type, "dtype", None) for name, type in bound.items()}


def describe_inputs(node: Node) -> str:
    """The node's operands with their types, for messages."""
    return ", ".join(f"{v.name}: {described(v.type)}" if v is not None else "-" for v in node.inputs)
