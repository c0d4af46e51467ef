"""LoRA adapters: files of parameters, which take the place of a model's inputs in the runs whose options name them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from sardonyx.formats import adapters
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.value import OrtValue


class AdapterFormat:
    """The content of an `.onnx_adapter` file, to be read or written."""

    def __init__(self, adapter: adapters.Adapter | None = None):
        self._adapter = adapter or adapters.Adapter()

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """The content of a file."""
        return AdapterFormat(adapters.read(file_path))

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write a file."""
        adapters.write(self._adapter, file_path)

    def get_format_version(self) -> int:
        """The version of the file format."""
        return self._adapter.format_version

    def set_adapter_version(self, adapter_version: int) -> None:
        """Say which version of the adapter this is."""
        self._adapter.adapter_version = arguments.integer(adapter_version, "set_adapter_version")

    def get_adapter_version(self) -> int:
        """Which version of the adapter this is."""
        return self._adapter.adapter_version

    def set_model_version(self, model_version: int) -> None:
        """Say for which version of the model it is."""
        self._adapter.model_version = arguments.integer(model_version, "set_model_version")

    def get_model_version(self) -> int:
        """For which version of the model it is."""
        return self._adapter.model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Have these parameters and no others, by the names of the model's inputs."""
        values = {name: value._ortvalue.numpy() for name, value in params.items()}
        if any(array.dtype == object for array in values.values()):
            raise RuntimeError("Creation of OrtValues is currently only supported from non-string numpy arrays")
        self._adapter.parameters = values

    def get_parameters(self) -> dict[str, OrtValue]:
        """The parameters by name."""
        return {name: OrtValue.ortvalue_from_numpy(array) for name, array in self._adapter.parameters.items()}

    # the original's raw class has these as properties

    format_version = property(get_format_version)
    adapter_version = property(get_adapter_version, set_adapter_version)
    model_version = property(get_model_version, set_model_version)
    parameters = property(get_parameters, set_parameters)


class LoraAdapter:
    """Parameters for `RunOptions.add_active_adapter`; none before `Load`."""

    def __init__(self) -> None:
        self._parameters: dict[str, np.ndarray] = {}

    def Load(self, path: str | os.PathLike[str]) -> None:  # noqa: N802 - the original's name
        """Read a file."""
        self._parameters = adapters.read(path).parameters
