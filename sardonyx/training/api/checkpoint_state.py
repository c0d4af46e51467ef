"""The state of a training: parameters with their gradients, moments of the optimizer, properties. Module and Optimizer share it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.formats import checkpoints
from sardonyx.formats.checkpoints import Checkpoint, Group
from sardonyx.training.api.refusals import as_runtime_errors


class Parameter:
    """One parameter. Its data may be replaced by an array of the same type and shape."""

    def __init__(self, name: str, data: np.ndarray, requires_grad: bool):
        self._name = name
        self._data = data
        self._requires_grad = requires_grad
        self._grad: np.ndarray | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @property
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, value: np.ndarray) -> None:
        value = np.asarray(value)
        if value.dtype != self._data.dtype:
            expected, given = (dtypes.from_numpy(array.dtype) for array in (self._data, value))
            raise RuntimeError(f"Parameter data type mismatch. Expected: {expected}, Got: {given}")
        if value.shape != self._data.shape:
            raise RuntimeError(
                f"Parameter data shape mismatch. Expected: {_braced(self._data.shape)}, Got: {_braced(value.shape)}"
            )
        self._data = np.array(value, order="C")

    @property
    def grad(self) -> np.ndarray | None:
        """What the steps since the last reset add up to; None before the first one."""
        return self._grad

    def __repr__(self) -> str:
        return f"Parameter(name={self._name}, requires_grad={self._requires_grad})"


def _braced(shape: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"


class Parameters:
    """All parameters by name; iteration gives pairs in the order of names."""

    def __init__(self, parameters: dict[str, Parameter]):
        self._parameters = dict(sorted(parameters.items()))

    def __getitem__(self, name: str) -> Parameter:
        if name not in self._parameters:
            raise KeyError(f"Parameter {name} not found.")
        return self._parameters[name]

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        self[name].data = value

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        return iter(list(self._parameters.items()))

    def __repr__(self) -> str:
        return repr(list(self._parameters.values()))


class Properties:
    """Numbers and texts that are saved with the parameters; iteration gives pairs in the order of names."""

    def __init__(self, properties: dict[str, int | float | str]):
        self._properties = properties

    def __getitem__(self, name: str) -> int | float | str:
        if name not in self._properties:
            raise KeyError(f"Property {name} not found.")
        return self._properties[name]

    def __setitem__(self, name: str, value: int | float | str) -> None:
        if isinstance(value, (bool, int, np.integer)):
            self._properties[name] = int(value)
        elif isinstance(value, (float, np.floating)):
            self._properties[name] = float(np.float32(value))  # as the file keeps it
        elif isinstance(value, str):
            self._properties[name] = value
        else:
            raise TypeError(f"Property {name} must be an int, a float or a str, not {type(value)}.")

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __len__(self) -> int:
        return len(self._properties)

    def __iter__(self) -> Iterator[tuple[str, int | float | str]]:
        return iter(sorted(self._properties.items()))

    def __repr__(self) -> str:
        return repr(dict(self))


class CheckpointState:
    """Made by `load_checkpoint`."""

    def __init__(self, state: Checkpoint):
        if not isinstance(state, Checkpoint):
            raise TypeError(f"Invalid argument for CheckpointState received {type(state)}")
        parameters = {name: Parameter(name, data, True) for name, data in state.trained.items()}
        parameters |= {name: Parameter(name, data, False) for name, data in state.frozen.items()}
        self._parameters = Parameters(parameters)
        self._properties = Properties(state.properties)
        self._groups: dict[str, Group] = state.groups or {}
        self._is_nominal = state.is_nominal

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: str | os.PathLike[str]) -> CheckpointState:
        """The state in a file."""
        with as_runtime_errors():
            return cls(checkpoints.read(checkpoint_uri))

    @classmethod
    def save_checkpoint(
        cls, state: CheckpointState, checkpoint_uri: str | os.PathLike[str], include_optimizer_state: bool = False
    ) -> None:
        """Write a state; with the moments and steps of its optimizer if training shall go on from there."""
        if not isinstance(state, CheckpointState):
            raise TypeError(f"save_checkpoint takes a CheckpointState, not {type(state)}")
        with as_runtime_errors():
            checkpoints.write(state._as_checkpoint(include_optimizer_state), checkpoint_uri)

    @property
    def parameters(self) -> Parameters:
        return self._parameters

    @property
    def properties(self) -> Properties:
        return self._properties

    def _as_checkpoint(self, with_optimizer: bool) -> Checkpoint:
        def arrays(requires_grad: bool) -> dict[str, np.ndarray]:
            return {name: entry.data for name, entry in self._parameters if entry.requires_grad is requires_grad}

        properties: Any = dict(self._properties)
        groups = self._groups if with_optimizer else {}
        return Checkpoint(arrays(True), arrays(False), self._is_nominal, groups, properties)
