"""A model in training: each call in training mode computes the loss and adds to the gradients of the state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes, formats
from sardonyx.ir import Model, Tensor, Value, edit
from sardonyx.runtime.api.memory_report import MemoryReport
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.value import OrtValue
from sardonyx.training.api.checkpoint_state import CheckpointState, Parameter
from sardonyx.training.api.programs import Program, TrainingProgram, load, trained_names
from sardonyx.training.api.refusals import as_runtime_errors

Path = str | os.PathLike[str]


class Module:
    """A training model and an eval model over one state. It begins in training mode."""

    def __init__(
        self,
        train_model_uri: Path,
        state: CheckpointState,
        eval_model_uri: Path | None = None,
        device: str = "cpu",
        session_options: SessionOptions | None = None,
    ):
        if device.partition(":")[0] != "cpu":
            raise Exception(f"Unsupported device type: {device}")
        self.training = True
        self._state = state
        self._eval_model_uri = eval_model_uri
        with as_runtime_errors():
            model = load(train_model_uri)
            self._shapes = _check(model, state)
            names = [name for name, _ in state.parameters]
            self._train = TrainingProgram(model, names, session_options)
            self._eval = None if eval_model_uri is None else Program(load(eval_model_uri), names, session_options)
        self._resets = True

    # --- steps

    def __call__(self, *user_inputs: Any) -> Any:
        """The loss and further outputs: arrays if any input is an array, OrtValues otherwise."""
        as_values = bool(user_inputs) and not any(isinstance(given, np.ndarray) for given in user_inputs)
        inputs = [given.numpy() if isinstance(given, OrtValue) else given for given in user_inputs]
        with as_runtime_errors():
            outputs = self._train_step(inputs) if self.training else self._eval_step(inputs)
        results = [OrtValue.ortvalue_from_numpy(output) if as_values else output for output in outputs]
        return results[0] if len(results) == 1 else tuple(results)

    def _train_step(self, inputs: Sequence[Any]) -> list[Any]:
        self._check_complete("TrainStep")
        results = self._train.run(inputs, self._data())
        count, gradients = len(self._train.outputs), self._train.gradients
        parameters = self._state.parameters
        for name, gradient in zip(gradients, results[count:], strict=False):
            _accumulate(parameters[name], gradient, self._resets)
        for name, value in zip(self._train.statistics, results[count + len(gradients) :], strict=True):
            parameters[name].data = value
        self._resets = False
        return results[:count]

    def _eval_step(self, inputs: Sequence[Any]) -> list[Any]:
        if self._eval is None:
            raise RuntimeError("Eval model was not provided. Give Module an eval_model_uri to evaluate.")
        self._check_complete("EvalStep")
        return self._eval.run(inputs, self._data())

    def _check_complete(self, step: str) -> None:
        if self._state._is_nominal:
            raise RuntimeError(f"Cannot perform {step} with a nominal state. Please load the model parameters first.")

    def _data(self) -> dict[str, np.ndarray]:
        return {name: parameter.data for name, parameter in self._state.parameters}

    # --- modes

    def train(self, mode: bool = True) -> Module:
        self.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def lazy_reset_grad(self) -> None:
        """Let the next step overwrite the gradients."""
        self._resets = True

    def input_names(self) -> list[str]:
        return list(self._current().inputs)

    def output_names(self) -> list[str]:
        return list(self._current().outputs)

    def _current(self) -> Program:
        if not self.training and self._eval is None:
            raise RuntimeError("Eval model was not provided. Give Module an eval_model_uri to evaluate.")
        return self._train if self.training or self._eval is None else self._eval

    def memory_plan(self) -> MemoryReport:
        """Where the values of a step lie and how much memory that takes; in training mode by forward and backward, with what crosses."""
        return self._current().session.memory_plan()

    # --- all parameters as one vector

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """How many elements the parameters have."""
        return sum(int(np.prod(self._shapes[name])) for name in self._names(trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = False) -> OrtValue:
        """A copy of the parameters, one behind the other in the order of the model."""
        self._check_complete("get_contiguous_parameters")
        parts = [self._state.parameters[name].data.reshape(-1) for name in self._names(trainable_only)]
        return OrtValue.ortvalue_from_numpy(np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32))

    def copy_buffer_to_parameters(self, buffer: OrtValue, trainable_only: bool = True) -> None:
        """The way back. It completes a nominal state."""
        if not isinstance(buffer, OrtValue):
            raise TypeError(f"copy_buffer_to_parameters takes an OrtValue, not {type(buffer)}")
        values, names = buffer.numpy().reshape(-1), self._names(trainable_only)
        if values.dtype != np.float32:
            raise RuntimeError(f"The buffer must be of float, not {dtypes.from_numpy(values.dtype)}.")
        expected = self.get_parameters_size(trainable_only)
        if len(values) != expected:
            raise RuntimeError(f"The buffer has {len(values)} elements, the parameters have {expected}.")
        start = 0
        for name in names:
            shape = self._shapes[name]
            end, parameter = start + int(np.prod(shape)), self._state.parameters[name]
            parameter._data = np.array(values[start:end].reshape(shape), parameter.data.dtype)
            start = end
        self._state._is_nominal &= len(names) < len(self._state.parameters)

    def _names(self, trainable_only: bool) -> list[str]:
        parameters = self._state.parameters
        return [name for name in self._shapes if parameters[name].requires_grad or not trainable_only]

    # --- what is left when training is over

    def export_model_for_inferencing(self, inference_model_uri: Path, graph_output_names: Sequence[str]) -> None:
        """Write the eval model as far as these outputs need it, with the parameters as they are now."""
        if self._eval_model_uri is None:
            raise RuntimeError("Eval model was not provided. Cannot export a model for inferencing.")
        self._check_complete("export_model_for_inferencing")
        with as_runtime_errors():
            model = load(self._eval_model_uri)
            _cut(model, graph_output_names)
            _fix(model, self._data())
            formats.save(model, inference_model_uri)


def _accumulate(parameter: Parameter, gradient: np.ndarray, resets: bool) -> None:
    if resets or parameter._grad is None:
        parameter._grad = gradient
    else:
        parameter._grad = parameter._grad + gradient


def _check(model: Model, state: CheckpointState) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters in the order of the model; refuses a state of another model."""
    inputs = {value.name: value for value in model.graph.inputs}
    for name, _ in state.parameters:
        if name not in inputs:
            raise RuntimeError(f"The checkpoint is of another model: this one has no parameter {name!r}.")
    for name in trained_names(model):
        if name not in state.parameters:
            raise RuntimeError(f"The checkpoint is of another model: it has no parameter {name!r}, which this one trains.")
    return {name: _checked_shape(value, state) for name, value in inputs.items() if name in state.parameters}


def _checked_shape(value: Value, state: CheckpointState) -> tuple[int, ...]:
    """The shape of a parameter, which must be that of the model, as must its type."""
    data, declared = state.parameters[value.name].data, getattr(value.type, "shape", None)
    expected, given = getattr(value.type, "dtype", None), dtypes.from_numpy(data.dtype)
    if expected is not None and given is not expected:
        raise RuntimeError(
            f"The checkpoint is of another model: parameter {value.name!r} is {given} there and {expected} here."
        )
    if declared is None or state._is_nominal:
        return data.shape if declared is None else tuple(declared)
    if tuple(declared) != data.shape:
        raise RuntimeError(
            f"The checkpoint is of another model: parameter {value.name!r} is {list(data.shape)} there and {list(declared)} here."
        )
    return data.shape


def _cut(model: Model, names: Sequence[str]) -> None:
    graph = model.graph
    values = {value.name: value for value in graph.values()}
    for name in names:
        if name not in values:
            raise RuntimeError(
                f"Expected graph output for inference graph {name} could not be found. Please regenerate the eval graph."
            )
    graph.outputs = [values[name] for name in names]
    edit.remove_unused(graph)
    graph.inputs = [value for value in graph.inputs if value.uses or value in graph.outputs]


def _fix(model: Model, parameters: dict[str, np.ndarray]) -> None:
    """Make constants of the inputs that are parameters."""
    graph = model.graph
    for value in [value for value in graph.inputs if value.name in parameters]:
        graph.inputs.remove(value)
        value.is_input = False
        value.constant = Tensor.of(parameters[value.name], value.name)
        graph.initializers[value.name] = value
