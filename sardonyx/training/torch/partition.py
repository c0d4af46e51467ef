"""Graphs with ops that are not supported: the parts between them are compiled, and torch computes the rest."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from sardonyx import errors, formats
from sardonyx.training.torch.aten.table import lowering_of
from sardonyx.training.torch.graphs import NotLowered, is_size, lower_graph
from sardonyx.training.torch.options import Options
from sardonyx.training.torch.running import Runner
from sardonyx.training.torch.types import ELEMENT_TYPES

_warned: set[str] = set()
"""Ops of which users have been told."""


class _Supported(OperatorSupportBase):  # type: ignore[misc]
    """Which nodes are compiled: all but those that were refused."""

    def __init__(self, refused: Mapping[fx.Node, str]):
        self.refused = refused

    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        return node.op == "call_function" and node not in self.refused


def refusals(module: fx.GraphModule) -> dict[fx.Node, str]:
    """The nodes that cannot be compiled, with the reasons, as far as the nodes alone tell."""
    refused: dict[fx.Node, str] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or is_size(node):
            continue
        if node.target is operator.getitem:
            if node.args[0] in refused:
                refused[node] = refused[node.args[0]]
        elif lowering_of(node.target) is None:
            refused[node] = "it has no lowering"
        elif foreign := _foreign_type(node):
            refused[node] = foreign
    return refused


def _foreign_type(node: fx.Node) -> str:
    """Why a node's operands or results cannot be computed on here."""
    tensors: list[Any] = []
    for operand in (node, *node.all_input_nodes):
        value = operand.meta.get("val")
        tensors += value if isinstance(value, (tuple, list)) else [value]
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            if tensor.dtype not in ELEMENT_TYPES:
                return f"tensors of {tensor.dtype} are left to torch"
            if tensor.device.type != "cpu":
                return f"tensors on {tensor.device} are left to torch"
            if tensor.layout is not torch.strided:
                return "sparse tensors are left to torch"
    return ""


def compile_graph(module: fx.GraphModule, options: Options, name: str) -> Any:
    """What runs a graph: a Runner, or a module of torch in which parts of the graph are Runners."""
    refused = refusals(module)
    while not refused:
        try:
            return _runner(module, options, name)
        except NotLowered as error:
            refused[error.node] = error.reason
    return _split(module, refused, options, name)


def _runner(module: fx.GraphModule, options: Options, name: str) -> Runner:
    lowered = lower_graph(module, name)
    if options.save_models:
        formats.save(lowered.model, f"{options.save_models}_{name}.onnx")
    return Runner(lowered, options)


def _split(module: fx.GraphModule, refused: dict[fx.Node, str], options: Options, name: str) -> Any:
    """Compile the parts of a graph between the nodes that are refused. A part may refuse further ones; then all begins anew."""
    while True:
        tell(refused, options, name)
        try:
            return _compiled_parts(module, refused, options, name)
        except NotLowered as error:
            original = next(node for node in module.graph.nodes if node.name == error.node.name)
            refused[original] = error.reason
            for user in original.users:
                if user.target is operator.getitem:
                    refused[user] = error.reason


def _compiled_parts(module: fx.GraphModule, refused: dict[fx.Node, str], options: Options, name: str) -> Any:
    copied = fx.GraphModule(module, fx.Graph())
    nodes: dict[fx.Node, fx.Node] = {}
    copied.graph.output(copied.graph.graph_copy(module.graph, nodes))
    for old, new in nodes.items():
        new.meta = dict(old.meta)
    support = _Supported({nodes[node]: reason for node, reason in refused.items()})
    partitioner = CapabilityBasedPartitioner(copied, support, allows_single_node_partition=True)
    whole = partitioner.fuse_partitions(partitioner.propose_partitions())
    for number, (part_name, part) in enumerate(list(whole.named_children())):
        if isinstance(part, fx.GraphModule):
            setattr(whole, part_name, _Part(_runner(part, options, f"{name}.{number}")))
    whole.recompile()
    return whole


class _Part(torch.nn.Module):  # type: ignore[misc]
    """A compiled part inside of a graph that torch runs."""

    def __init__(self, runner: Runner):
        super().__init__()
        self.runner = runner

    def forward(self, *inputs: Any) -> Any:
        results = self.runner(list(inputs))
        return results[0] if len(results) == 1 else tuple(results)


def tell(refused: Mapping[fx.Node, str], options: Options, name: str) -> None:
    """Warn of each op once in a process, or refuse, as the options say."""
    for node, reason in refused.items():
        if node.target is operator.getitem:
            continue
        text = f"{node.target} ({reason}) in the graph {name!r}"
        if options.fallback == "error":
            raise errors.NotImplemented(
                f"backend 'sardonyx' does not support {text}; option fallback='warn' leaves it to torch"
            )
        if str(node.target) not in _warned:
            _warned.add(str(node.target))
            warnings.warn(f"backend 'sardonyx' does not support {text}: torch computes it", stacklevel=2)
