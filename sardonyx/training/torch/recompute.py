"""What backward of a traced graph computes again, by a configuration of onnxruntime's memory optimizer; the backend calls it.

What autograd would keep crosses from forward to backward, less what the configuration names. `training/recompute.py` does the same for
models in files, and explains the texts.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import default_partition
from torch.utils.checkpoint import CheckpointPolicy

from sardonyx.startup.records import dataclass
from sardonyx.training.recompute import DEAR, LARGEST, chosen_of, read_config

logger = logging.getLogger("sardonyx.training")

NAMES = {
    "_log_softmax": "LogSoftmax",
    "_softmax": "Softmax",
    "_to_copy": "Cast",
    "_unsafe_view": "Reshape",
    "addmm": "Gemm",
    "bmm": "MatMul",
    "cat": "Concat",
    "clamp": "Clip",
    "embedding": "Gather",
    "eq": "Equal",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "leaky_relu": "LeakyRelu",
    "logical_not": "Not",
    "lt": "Less",
    "mm": "MatMul",
    "native_layer_norm": "LayerNormalization",
    "permute": "Transpose",
    "rsub": "Sub",
    "select": "Gather",
    "t": "Transpose",
    "view": "Reshape",
}
"""ONNX's names of ATen ops, where they are not the same word."""

ALIASES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


@dataclass(frozen=True)
class Candidate:
    """A value that would be kept, and the nodes that would compute it again, in order."""

    value: fx.Node
    nodes: Sequence[fx.Node]
    is_compromise: bool

    @property
    def name(self) -> str:
        """As configurations call it."""
        return "".join(f"{name}+" for name in map(name_of, self.nodes) if name)


def partition(joint: fx.GraphModule, arguments: Sequence[Any], keywords: Mapping[str, Any], config: str) -> Any:
    """Cut a graph into forward and backward; backward computes again what a configuration names."""
    forward, backward = default_partition(joint, *arguments, **keywords)
    found = candidates(joint, forward, keywords["num_fwd_outputs"])
    counted = Counter(candidate.name for candidate in found)
    logger.info(
        "backward could compute again: %s", ", ".join(f"{name}:{count}" for name, count in counted.items()) or "nothing"
    )
    wanted = read_config(config)
    unknown = [name for name in wanted if name not in counted]
    if unknown:
        there = ", ".join(counted) or "none"
        warnings.warn(
            f"a graph has no subgraph {unknown[0]!r} that backward could compute again; there are {there}", stacklevel=2
        )
    chosen = chosen_of(found, wanted)
    if not chosen:
        return forward, backward
    again = {node for candidate in chosen for node in candidate.nodes}
    for node in joint.graph.nodes:
        if _named_by(node) in again and node.meta.get("recompute") is None:
            node.meta |= {"recompute": CheckpointPolicy.MUST_RECOMPUTE, "ac_graph_id": 0}
    return default_partition(joint, *arguments, **keywords)


def name_of(node: fx.Node) -> str:
    """What ONNX calls an op; nothing for one result of several."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return ""
    packet = node.target.overloadpacket.__name__
    return NAMES.get(packet) or "".join(part.capitalize() for part in packet.split("_"))


def candidates(joint: fx.GraphModule, forward: fx.GraphModule, outputs: int) -> list[Candidate]:
    """The values that wait for backward and can be computed again from others that do, or from inputs, in the order of forward."""
    (results,) = forward.graph.output_node().args
    names = {result.name for result in results[outputs:] if isinstance(result, fx.Node)}
    nodes = list(joint.graph.nodes)
    order = {node: position for position, node in enumerate(nodes)}
    kept = {_named_by(node) for node in nodes if node.op == "placeholder" or node.name in names}
    found = []
    for node in nodes:
        if node.op == "call_function" and node in kept and isinstance(node.meta.get("val"), torch.Tensor):
            inside, borders = _walk_up(node, kept)
            is_fair = 2 * sum(map(_bytes, borders)) <= _bytes(node)
            if any(map(name_of, inside)) and is_fair:
                found.append(Candidate(node, sorted(inside, key=order.__getitem__), bool(borders)))
    return found


def _named_by(node: fx.Node) -> fx.Node:
    """The value of which a node is another name."""
    while node.target in ALIASES:
        node = node.args[0]  # type: ignore[assignment]
    return node


def _walk_up(value: fx.Node, kept: Collection[fx.Node]) -> tuple[set[fx.Node], set[fx.Node]]:
    """The nodes that compute a value from kept ones, and the values that these nodes need besides."""
    inside: set[fx.Node] = set()
    borders: set[fx.Node] = set()
    stack = [value]
    while stack:
        node = _named_by(stack.pop())
        if node in inside or (node in kept and node is not value):
            continue
        if not _may_run_again(node):
            if node is value:
                return set(), set()
            borders.add(node)
            continue
        inside.add(node)
        if len(inside) > LARGEST:
            return set(), set()
        stack.extend(node.all_input_nodes)
    return inside, borders


def _may_run_again(node: fx.Node) -> bool:
    if node.meta.get("recompute") is not None:  # a checkpoint has decided
        return False
    is_part = node.op == "call_function" and not isinstance(node.target, torch._ops.OpOverload)
    return (is_part and isinstance(node.meta.get("val"), torch.Tensor)) or name_of(node) in DEAR


def _bytes(node: fx.Node) -> int:
    """Of a size that runs tell, what torch has seen of it."""
    values = node.meta.get("val")
    values = values if isinstance(values, (tuple, list)) else [values]
    return sum(_size(value) * value.element_size() for value in values if isinstance(value, torch.Tensor))


def _size(tensor: torch.Tensor) -> int:
    count = tensor.numel()
    hint = getattr(getattr(count, "node", None), "hint", None)
    return int(hint) if hint is not None else int(count) if isinstance(count, int) else 0
