"""The torch.compile backend "sardonyx". torch finds it by the entry point of the package."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo import config as dynamo_config
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

from sardonyx.training.torch import recompute
from sardonyx.training.torch.aten.table import supported_ops
from sardonyx.training.torch.options import Options
from sardonyx.training.torch.partition import compile_graph
from sardonyx.training.torch.recurrent import RECURRENT_OPS, keep_layers_whole

PARTITIONS = {"min_cut": min_cut_rematerialization_partition, "default": default_partition}
SMALLEST_BUDGET = 1e-9
"""With 0 torch keeps inputs alone, whatever nodes say."""

dynamo_config.allow_rnn = True  # dynamo would leave all that surrounds recurrent layers to eager torch

_numbers = itertools.count()


def sardonyx(module: fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any) -> Callable[..., Any]:
    """Compile a graph that dynamo has found, with its gradients."""
    options = Options.read(keywords.pop("options", None) or keywords)
    number = next(_numbers)
    keep_layers_whole(module)
    compiler = aot_autograd(
        fw_compiler=functools.partial(_compile, options=options, name=f"forward_{number}"),
        bw_compiler=functools.partial(_compile, options=options, name=f"backward_{number}"),
        inference_compiler=functools.partial(_compile, options=options, name=f"inference_{number}"),
        decompositions=decompositions(),
        partition_fn=functools.partial(_partition, options),
    )
    return compiler(module, example_inputs)


def _partition(options: Options, joint: fx.GraphModule, *arguments: Any, **keywords: Any) -> Any:
    """Cut a graph into forward and backward; a budget decides what is kept between them."""
    from torch._functorch import config

    moves_statistics = _moves_statistics(joint)
    budget = 1.0 if moves_statistics else float(options.memory_budget)
    must_keep = _keep_what_must_be_kept(joint)
    if options.recompute and not moves_statistics:
        return recompute.partition(joint, arguments, keywords, options.recompute)
    if must_keep:
        budget = max(budget, SMALLEST_BUDGET)
    partition = PARTITIONS[options.partition]
    with config.patch(activation_memory_budget=budget):
        halves = partition(joint, *arguments, **keywords)
    if not _keeps_tuples(halves[0]):
        return halves
    with config.patch(activation_memory_budget=1.0):
        return partition(joint, *arguments, **keywords)


def _keeps_tuples(forward: fx.GraphModule) -> bool:
    """Whether an op with several results would be kept as it is, as torch's budget has it where nothing else is to be weighed."""
    (results,) = forward.graph.output_node().args
    return any(isinstance(result, fx.Node) and isinstance(result.meta.get("val"), (tuple, list)) for result in results)


def _keep_what_must_be_kept(joint: fx.GraphModule) -> bool:
    """Let no random op be computed again, for it would draw other numbers, nor a recurrent layer, of whose time torch knows nothing.

    Whether there are any. Checkpoints see to their own.
    """
    kept = [node for node in joint.graph.nodes if _is_drawing(node.target) or node.target in RECURRENT_OPS]
    for node in kept:
        node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
    return bool(kept)


def _is_drawing(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _moves_statistics(joint: fx.GraphModule) -> bool:
    """Whether a batch norm changes its running statistics. It cannot be computed again: in backward these are other ones."""
    moving = ("aten._native_batch_norm_legit_functional.default", "aten._batch_norm_with_update_functional.default")
    return any(str(node.target) in moving for node in joint.graph.nodes)


def _compile(module: fx.GraphModule, example_inputs: Sequence[Any], options: Options, name: str) -> Any:
    from functorch.compile import make_boxed_func

    compiled = compile_graph(module, options, name)
    return make_boxed_func(compiled) if isinstance(compiled, torch.nn.Module) else compiled


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """How torch writes ops in others, for those that we have no lowering for.

    Attention is never taken apart: torch does that with forward alone, and backward would not be that of what was computed.
    """
    from torch._decomp import core_aten_decompositions

    ours = set(supported_ops())
    whole = "scaled_dot_product"
    return {
        op: function
        for op, function in core_aten_decompositions().items()
        if isinstance(op, torch._ops.OpOverload)
        and not {op.overloadpacket.__name__, f"{op.overloadpacket.__name__}.{op._overloadname}"} & ours
        and whole not in op.overloadpacket.__name__
    }
