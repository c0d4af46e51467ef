"""Artifacts as sessions. A training model accumulates gradients in place; what runs here returns them, and the module adds them up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import formats, settings
from sardonyx.errors import Fail, NoSuchFile
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Model, Node, Value
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.training.recompute import recompute

BUFFER = "_grad.accumulation.buffer"
RESET = "lazy_reset_grad"
ACCUMULATOR = "InPlaceAccumulatorV2"
STATISTICS = {"BatchNormInternal": (3, 4), "BatchNormalization": (3, 4)}
"""Ops that update running statistics: the positions of these among the inputs. Among the outputs they stand at 1 and 2."""


def load(path: str | os.PathLike[str]) -> Model:
    if not os.path.exists(path):
        raise NoSuchFile(f"Load model from {os.fspath(path)} failed. File doesn't exist")
    return formats.load(path)


def trained_names(model: Model) -> list[str]:
    """The parameters that a training model has gradients of."""
    return [value.name.removesuffix(BUFFER) for value in model.graph.inputs if value.name.endswith(BUFFER)]


def session_of(model: Model, options: SessionOptions | None = None) -> InferenceSession:
    return InferenceSession(write_model(model).SerializeToString(), options)


class Program:
    """One model whose parameters are inputs."""

    def __init__(self, model: Model, parameters: Sequence[str], options: SessionOptions | None = None):
        names = [value.name for value in model.graph.inputs if not value.is_constant]
        self.input_count = len(names)
        known = {*parameters, RESET, *(f"{name}{BUFFER}" for name in parameters)}
        self.inputs = [name for name in names if name not in known]
        """The inputs that a step is given."""
        self.parameters = [name for name in names if name in set(parameters)]
        self.outputs = [value.name for value in model.graph.outputs]
        self.session = session_of(model, options)

    def run(self, inputs: Sequence[Any], parameters: Mapping[str, np.ndarray]) -> list[Any]:
        if len(inputs) != len(self.inputs):
            given = self.input_count - len(self.inputs) + len(inputs)
            raise RuntimeError(
                f"feed names has {self.input_count} elements, but feed has {given} elements. "
                f"The inputs are {self.inputs}, {len(inputs)} were given."
            )
        feeds = dict(zip(self.inputs, inputs, strict=True)) | {name: parameters[name] for name in self.parameters}
        return self.session.run(None, feeds)


class TrainingProgram(Program):
    """A training model: its outputs are those of the user, then gradients, then running statistics."""

    def __init__(self, model: Model, parameters: Sequence[str], options: SessionOptions | None = None):
        inputs = [value.name for value in model.graph.inputs if not value.is_constant]
        self.gradients = _return_gradients(model)
        """The parameters whose gradients come back, in the order of the outputs."""
        self.statistics = _return_statistics(model, set(parameters))
        """The parameters that are running statistics, likewise."""
        if options is not None:
            keys = settings.MEMORY_OPTIMIZER_CONFIG, settings.MEMORY_PROBE_CONFIG
            recompute(model, *(_entry(options, key) for key in keys))
        super().__init__(model, parameters, options)
        self.input_count = len(inputs)
        extra = len(self.gradients) + len(self.statistics)
        self.outputs = self.outputs[: len(self.outputs) - extra]


def _entry(options: SessionOptions, key: settings.Setting) -> str:
    try:
        return options.get_session_config_entry(key)
    except RuntimeError:  # nobody has set it
        return key.default


def _return_gradients(model: Model) -> list[str]:
    """Let gradients be outputs in place of the flags of their accumulators."""
    graph, names = model.graph, []
    nodes = [node for node in graph.nodes if node.op_type == ACCUMULATOR]
    flags = {node.outputs[0] for node in nodes}
    graph.outputs = [value for value in graph.outputs if value not in flags]
    for node in nodes:
        buffer, gradient = node.inputs[0], node.inputs[1]
        if buffer is None or gradient is None or not buffer.name.endswith(BUFFER):
            raise Fail(f"{node}: it must add to an input whose name ends in {BUFFER!r}")
        names.append(buffer.name.removesuffix(BUFFER))
        graph.remove(node)
        _return(model, gradient, f"{names[-1]}_grad.returned")
    used = {value for value in graph.inputs if value.uses or value in graph.outputs}
    graph.inputs = [value for value in graph.inputs if value in used or not _is_of_accumulators(value.name)]
    return names


def _is_of_accumulators(name: str) -> bool:
    return name == RESET or name.endswith(BUFFER)


def _return_statistics(model: Model, parameters: set[str]) -> list[str]:
    names = []
    for node in [node for node in model.graph.nodes if node.op_type in STATISTICS and node.attribute("training_mode")]:
        for output, position in enumerate(STATISTICS[node.op_type], start=1):
            old = node.inputs[position]
            if old is not None and old.name in parameters:
                _return(model, _output(node, output), f"{old.name}.returned")
                names.append(old.name)
    return names


def _output(node: Node, position: int) -> Value:
    for _ in range(len(node.outputs), position + 1):
        node.append_output(Value(f"{node.outputs[0].name}.statistics_{len(node.outputs)}"))
    value = node.outputs[position]
    value.name = value.name or f"{node.outputs[0].name}.statistics_{position}"
    return value


def _return(model: Model, value: Value, name: str) -> None:
    """A copy of a value as one more output: the value itself may be an output or an input already."""
    version = model.opsets.get("", 1)
    identity = model.graph.append(Node("Identity", [value], [name], version=version, name=name))
    identity.outputs[0].type = identity.outputs[0].declared = value.type
    model.graph.outputs.append(identity.outputs[0])
