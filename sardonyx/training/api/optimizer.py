"""An optimizer model over the state of a module: each step turns gradients into new parameters."""

from __future__ import annotations

import os

import numpy as np

from sardonyx.dtypes import float32
from sardonyx.errors import Fail
from sardonyx.formats.checkpoints import Group
from sardonyx.ir import Model, Node, SequenceType, TensorType, Value
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.training.api.checkpoint_state import Parameter
from sardonyx.training.api.module import Module
from sardonyx.training.api.programs import load, session_of
from sardonyx.training.api.refusals import as_runtime_errors

GROUP = "group0"
FIRST_RATE = 0.001
LARGEST_RATE = float(np.finfo(np.float32).max)
MAX_STEPS = 1 << 62
RESULTS = {
    "AdamWOptimizer": ("params", "first_order_moments", "second_order_moments"),
    "SGDOptimizerV2": ("params",),
}
"""Of each optimizer, the sequences that it updates, in the order of its outputs behind the flag."""
MOMENTS = {"first_order_moments": "momentum0", "second_order_moments": "momentum1"}
SAVED = {"AdamWOptimizer": ("momentum0", "momentum1"), "SGDOptimizerV2": ("momentum0",)}
"""The moments that a checkpoint has of each; SGD's is never used."""


class Optimizer:
    """Updates the parameters of a module that require gradients, all in one group."""

    def __init__(self, optimizer_uri: str | os.PathLike[str], module: Module):
        self._module = module
        self._rate = float(np.float32(FIRST_RATE))
        with as_runtime_errors():
            model = load(optimizer_uri)
            node = _optimizer_of(model)
            _return_updates(model, node)
            self._session = session_of(model, _quiet())
        self._updated = RESULTS[node.op_type]
        self._inputs = [value.name for value in self._session.get_inputs()]
        trained = {parameter.name: parameter for _, parameter in module._state.parameters if parameter.requires_grad}
        self._parameters = list(trained.values())
        self._group = module._state._groups.setdefault(GROUP, Group())
        self._begin(SAVED[node.op_type])

    def _begin(self, names: tuple[str, ...]) -> None:
        """Moments that the state does not have begin at zero."""
        if not 0 <= self._group.step < MAX_STEPS:
            raise RuntimeError(f"The checkpoint has taken {self._group.step} steps, expected 0 to {MAX_STEPS - 1}.")
        for parameter in self._parameters:
            moments = self._group.moments.setdefault(parameter.name, {})
            for name in names:
                known = moments.setdefault(name, np.zeros_like(parameter.data))
                if known.shape != parameter.data.shape:
                    raise RuntimeError(
                        f"The checkpoint has {name} of {parameter.name!r} in another shape: "
                        f"{list(known.shape)}, expected {list(parameter.data.shape)}."
                    )
                if known.dtype != parameter.data.dtype:
                    raise RuntimeError(
                        f"The checkpoint has {name} of {parameter.name!r} in another type: {known.dtype}, expected {parameter.data.dtype}."
                    )

    @property
    def _step_count(self) -> int:
        return self._group.step

    def step(self) -> None:
        """Update the parameters by their gradients."""
        missing = next((parameter for parameter in self._parameters if parameter.grad is None), None)
        if missing is not None:
            raise RuntimeError(f"Parameter {missing.name!r} has no gradient yet. Call the module in training mode first.")
        with as_runtime_errors():
            results = self._session.run(None, {name: self._feed(name) for name in self._inputs})
        if bool(results[0].reshape(-1)[0]):
            self._group.step += 1
            for name, arrays in zip(self._updated, results[1:], strict=True):
                self._store(name, arrays)

    def _feed(self, name: str) -> object:
        match name:
            case "learning_rate":
                return np.array([self._rate], np.float32)
            case "step":
                return np.array([self._group.step + 1], np.int64)
            case "params":
                return [parameter.data for parameter in self._parameters]
            case "gradients":
                return [parameter.grad for parameter in self._parameters]
        return [self._group.moments[parameter.name][MOMENTS[name]] for parameter in self._parameters]

    def _store(self, name: str, arrays: list[np.ndarray]) -> None:
        for parameter, array in zip(self._parameters, arrays, strict=True):
            if name == "params":
                _replace(parameter, array)
            else:
                self._group.moments[parameter.name][MOMENTS[name]] = array

    def set_learning_rate(self, learning_rate: float) -> None:
        if not abs(learning_rate) <= LARGEST_RATE:
            raise ValueError(f"the learning rate must be a finite number of float32, not {learning_rate}")
        self._rate = float(np.float32(learning_rate))

    def get_learning_rate(self) -> float:
        return self._rate


def _quiet() -> SessionOptions:
    """NumPy computes all of an optimizer, which sessions would warn of."""
    options = SessionOptions()
    options.log_severity_level = 3
    return options


def _replace(parameter: Parameter, array: np.ndarray) -> None:
    parameter._data = array


def _optimizer_of(model: Model) -> Node:
    nodes = [node for node in model.graph.nodes if node.op_type in RESULTS]
    if len({node.op_type for node in nodes}) != 1:
        raise RuntimeError(f"Only support one type of optimizer algorithm, but got: {len({node.op_type for node in nodes})}")
    known = {"learning_rate", "step", "params", "gradients", *MOMENTS}
    unknown = next((value.name for value in model.graph.inputs if value.name not in known), None)
    if unknown is not None or len(nodes) > 1:
        raise Fail(f"{nodes[0]}: an optimizer model has one optimizer and the inputs {sorted(known)}, not {unknown!r}")
    return nodes[0]


def _return_updates(model: Model, node: Node) -> None:
    """Let the updated sequences be outputs."""
    sequence = SequenceType(TensorType(float32))
    for name in RESULTS[node.op_type]:
        value = Value(f"{name}.updated", sequence)
        node.append_output(value)
        model.graph.outputs.append(value)
