"""Models in files that give the gradients of a module of torch besides its results. `training.experimental` shows it to users."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from sardonyx import formats
from sardonyx.errors import Fail
from sardonyx.training.torch.backend import decompositions
from sardonyx.training.torch.graphs import Lowered, NotLowered, lower_graph

BATCH = "batch_size"


def export_gradient_graph(
    model: torch.nn.Module,
    loss_fn: Callable[[Any, Any], Any],
    example_input: torch.Tensor,
    example_labels: torch.Tensor,
    gradient_graph_path: str | os.PathLike[str],
    opset_version: int = 12,
) -> None:
    """Write a model with the inputs `input`, `labels` and all parameters, and the outputs `output`, `loss` and `<parameter>_grad`.

    The first axis of the first two is open. The model is of the newest opset that the package writes, if `opset_version` is lower.
    """
    parameters = dict(model.named_parameters())
    trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
    if not trained:
        raise Fail("there is no parameter of which a gradient could be given: none requires one")
    examples = {"input": example_input, "labels": example_labels, **parameters}
    traced = _traced(model, loss_fn, examples, trained)
    try:
        lowered = lower_graph(traced, "gradient_graph")
    except NotLowered as error:
        raise Fail(f"the module has an op that cannot be exported: {error}") from error
    if lowered.draws:
        raise Fail("the module draws random numbers, which a file cannot have in torch's order; call eval() before")
    _name(lowered, list(examples), ["output", "loss", *(f"{name}_grad" for name in trained)])
    formats.save(lowered.model, os.fspath(gradient_graph_path))


def _traced(
    model: torch.nn.Module, loss_fn: Any, examples: Mapping[str, torch.Tensor], trained: Sequence[str]
) -> fx.GraphModule:
    """Forward, loss and gradients as one graph of ATen ops, in which one size is a symbol."""
    names = list(examples)[2:]

    def step(features: Any, labels: Any, *values: Any) -> tuple[torch.Tensor, ...]:
        given = dict(zip(names, values))
        output = torch.func.functional_call(model, given, (features,))
        loss = loss_fn(output, labels)
        gradients = torch.autograd.grad(loss, [given[name] for name in trained], allow_unused=True)
        unused = [name for name, gradient in zip(trained, gradients) if gradient is None]
        if unused:
            raise Fail(f"the loss does not depend on the parameter {unused[0]!r}")
        # copies are no views, and lie in memory as files have it
        return tuple(result.detach().clone(memory_format=torch.contiguous_format) for result in (output, loss, *gradients))

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = [_fake(mode, name, tensor) for name, tensor in examples.items()]
    with mode, torch.enable_grad():
        traced = make_fx(step, decomposition_table=decompositions())(*fakes)
    with mode, torch.no_grad():  # what it changes in place becomes results of their own
        return make_fx(torch.func.functionalize(traced), decomposition_table=decompositions())(*fakes)


def _fake(mode: FakeTensorMode, name: str, tensor: torch.Tensor) -> torch.Tensor:
    is_open = name in ("input", "labels") and tensor.dim() > 0
    sizes = [DimDynamic.DYNAMIC if is_open and axis == 0 else DimDynamic.STATIC for axis in range(tensor.dim())]
    plain = tensor.detach().contiguous()
    fake = mode.from_tensor(plain, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))
    return fake.requires_grad_(tensor.requires_grad)


def _name(lowered: Lowered, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give inputs and outputs their names, and the open size its own."""
    graph = lowered.model.graph
    for value, fed in zip(graph.inputs, lowered.feeds):
        value.name = inputs[fed.position]
    if any(kind != "output" for kind, _ in lowered.results):
        raise Fail("a result of the module is no tensor that a model can compute")
    results = [graph.outputs[which] for _, which in lowered.results]
    for value, name in zip(results, outputs):
        value.name = name
    graph.outputs[:] = results
