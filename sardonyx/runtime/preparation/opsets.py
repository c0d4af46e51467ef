"""Nodes brought to the opsets that their model imports: `expand`, `portable` and `saving` come here.

Bodies of ops and functions are written for opsets of their own. A session takes nodes of several versions side by side; a file has
one version for all. Between two versions of an op a node may change where its meaning stays, that is, where the same kernels compute
both; an operand that was an attribute then becomes a constant input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sardonyx.errors import Fail, InvalidGraph
from sardonyx.ir import Attribute, Kind, Node, Value
from sardonyx.ops import checking, schemas
from sardonyx.ops.builder import Builder
from sardonyx.ops.signatures import Signature
from sardonyx.providers.cpu.table import cpu
from sardonyx.startup.records import dataclass, field

Opsets = Mapping[str, int]


@dataclass(frozen=True)
class _Rewritten:
    """What a node looks like in another version of its op."""

    version: int
    inputs: dict[int, Value | None]
    attributes: dict[str, Attribute]
    constants: dict[int, Any] = field(default_factory=dict)
    """Inputs, by their positions, that were attributes."""


def align(nodes: Iterable[Node], opsets: Opsets) -> None:
    """Bring nodes, and those of graphs inside them, to some opsets; what has another meaning there stays as it is."""
    for node in list(_with_inner(nodes)):
        rewritten = _rewritten(node, opsets)
        if rewritten is not None:
            _write(node, rewritten)


def can_align(nodes: Iterable[Node], opsets: Opsets) -> bool:
    """Whether all of some nodes have the same meaning in these opsets."""
    return all(_rewritten(node, opsets) is not None for node in _with_inner(nodes))


def is_aligned(nodes: Iterable[Node], opsets: Opsets) -> bool:
    """Whether nodes mean the same to a reader who knows these opsets alone."""
    for node in nodes:
        old, new = (schemas.find(node.domain, node.op_type, version) for version in (node.version, _wanted(node, opsets)))
        if old is not None and (new is None or old.since_version != new.since_version):
            return False
    return True


def _with_inner(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for graph in node.subgraphs:
            yield from graph.all_nodes()


def _wanted(node: Node, opsets: Opsets) -> int:
    return opsets.get(node.domain, node.version)


def _rewritten(node: Node, opsets: Opsets) -> _Rewritten | None:
    """A node as it is written in the opset wanted; None if that means something else or is not possible."""
    version = _wanted(node, opsets)
    old, new = (schemas.find(node.domain, node.op_type, opset) for opset in (node.version, version))
    if old is None or (new is not None and old.since_version == new.since_version):
        return _Rewritten(version, dict(enumerate(node.inputs)), dict(node.attributes))
    if new is None or new.deprecated or not _mean_the_same(old, new):
        return None
    rewritten = _by_names(node, old, new, version)
    return rewritten if rewritten is not None and _fits(node, rewritten, new) else None


def _mean_the_same(old: Signature, new: Signature) -> bool:
    """Whether the same kernels compute both, which do not ask for the version."""
    kernels = cpu.candidates(old.domain, old.name)
    before, after = ([kernel for kernel in kernels if kernel.covers(signature.since_version)] for signature in (old, new))
    return bool(before) and before == after and not any("domain_version" in kernel.parameters for kernel in before)


def _by_names(node: Node, old: Signature, new: Signature, version: int) -> _Rewritten | None:
    """Operands by their names at the places where the new version has them."""
    rewritten = _Rewritten(version, {}, {})
    for position, value in enumerate(node.inputs):
        name = old.operand_names[min(position, len(old.operand_names) - 1)]
        if name not in new.operand_names:
            return None
        behind = max(0, position - len(old.operand_names) + 1)  # further operands of a variadic one
        rewritten.inputs[new.operand_names.index(name) + behind] = value
    for name, attribute in _spelled_out(node, old).items():
        default = new.attributes[name].default if name in new.attributes else None
        if name in new.attributes:
            if name in node.attributes or attribute.value != default:
                rewritten.attributes[name] = attribute
        elif name in new.operand_names and attribute.reference is None:
            rewritten.constants[new.operand_names.index(name)] = attribute.value
        else:
            return None
    return rewritten


def _spelled_out(node: Node, signature: Signature) -> dict[str, Attribute]:
    """The attributes of a node, those that it leaves to their defaults included."""
    defaults = {
        name: Attribute(definition.kind, definition.default)
        for name, definition in signature.attributes.items()
        if definition.default is not None and definition.kind not in (Kind.GRAPH, Kind.TENSOR)
    }
    return {**defaults, **node.attributes}


def _fits(node: Node, rewritten: _Rewritten, signature: Signature) -> bool:
    """Whether the new version takes what it would be given."""
    positions = [*(position for position, value in rewritten.inputs.items() if value is not None), *rewritten.constants]
    if any(position not in positions for position in range(signature.min_inputs) if not signature.input_at(position).optional):
        return False
    if len(node.outputs) > signature.max_outputs or max(positions, default=-1) >= signature.max_inputs:
        return False
    types = [
        value.type if (value := rewritten.inputs.get(position)) is not None else None for position in range(_length(rewritten))
    ]
    try:
        checking.bind_types(node, signature, types)
    except (Fail, InvalidGraph):
        return False
    return True


def _length(rewritten: _Rewritten) -> int:
    return max((*rewritten.inputs, *rewritten.constants), default=-1) + 1


def _write(node: Node, rewritten: _Rewritten) -> None:
    assert node.graph is not None
    node.version = rewritten.version
    node.attributes.clear()
    node.attributes.update(rewritten.attributes)
    if not rewritten.constants and list(rewritten.inputs.values()) == list(node.inputs):
        return
    build = Builder(node.graph, prefix=node.name or node.op_type)
    constants = {position: build.constant(content) for position, content in rewritten.constants.items()}
    node.resize_inputs(_length(rewritten))
    for position in range(_length(rewritten)):
        node.set_input(position, constants.get(position, rewritten.inputs.get(position)))
