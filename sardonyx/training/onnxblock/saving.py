"""Parameters between models and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence

import onnx

from sardonyx.formats import checkpoints
from sardonyx.formats.checkpoints import Arrays, Checkpoint
from sardonyx.training.api.refusals import as_runtime_errors

Tensors = Sequence[onnx.TensorProto]


def save_checkpoint(
    parameters: tuple[Tensors, Tensors], path_to_checkpoint: str | os.PathLike[str], nominal_checkpoint: bool = False
) -> None:
    """Write parameters, trained and frozen ones; a nominal checkpoint has their names alone."""
    if parameters is None:
        raise RuntimeError("No checkpoint parameters provided.")
    trained, frozen = (_arrays(tensors) for tensors in parameters)
    with as_runtime_errors():
        checkpoints.write(Checkpoint(trained, frozen, nominal_checkpoint), path_to_checkpoint)


def _arrays(tensors: Tensors) -> Arrays:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}


def load_checkpoint_to_model(path_to_checkpoint: str | os.PathLike[str], model: onnx.ModelProto) -> None:
    """Put the parameters of a checkpoint into a model's initializers of the same names."""
    with as_runtime_errors():
        checkpoint = checkpoints.read(path_to_checkpoint)
    if checkpoint.is_nominal:
        raise RuntimeError(f"{os.fspath(path_to_checkpoint)} is a nominal checkpoint, it has no data to load.")
    arrays = {**checkpoint.trained, **checkpoint.frozen}
    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(onnx.numpy_helper.from_array(arrays[tensor.name], tensor.name))
