"""Blocks that make whole models: a forward model, or a training model with its eval model."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any

import onnx

from sardonyx.formats.onnx.writer import write_model
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.prepare import prepare
from sardonyx.runtime.preparation.recipe import Recipe
from sardonyx.training.gradient import add_gradients
from sardonyx.training.onnxblock.blocks import Block
from sardonyx.training.onnxblock.current import current


class ForwardBlock(Block):
    """The current model with what `build` added, and the results of `build` as its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self._model: onnx.ModelProto | None = None

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.base = current().model
        output = self.build(*args, **kwargs)
        _set_outputs(self.base, output)
        self._model = self.base
        return output

    def to_model_proto(self) -> onnx.ModelProto:
        if self._model is None:
            raise RuntimeError("Please build the forward models first before trying to retrieve it.")
        return self._model


class TrainingBlock(Block):
    """The current model with a loss: `build` returns its name first, then those of further outputs."""

    def __init__(self) -> None:
        super().__init__()
        self._requires_grad: dict[str, bool] = {}
        self._parameters: tuple[list[onnx.TensorProto], list[onnx.TensorProto]] | None = None
        self._training_model: onnx.ModelProto | None = None
        self._eval_model: onnx.ModelProto | None = None

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any: ...

    def requires_grad(self, argument_name: str, value: bool = True) -> None:
        """Say of an initializer that it is trained, or with False that it is a parameter that stays."""
        self._requires_grad[argument_name] = value

    def parameters(self) -> tuple[list[onnx.TensorProto], list[onnx.TensorProto]]:
        """The initializers that are trained, and those that stay."""
        if self._parameters is None:
            raise RuntimeError("Please build the training model first before trying to retrieve the parameters.")
        return self._parameters

    def to_model_proto(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """The training model and the eval model."""
        if self._training_model is None or self._eval_model is None:
            raise RuntimeError("Please build the training and eval models first before trying to retrieve them.")
        return self._training_model, self._eval_model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.base = current().model
        output = self.build(*args, **kwargs)
        names = _set_outputs(self.base, output)
        self._parameters = self._taken_out(current().path)
        self._training_model = _training_model(self.base, names[0], [tensor.name for tensor in self._parameters[0]])
        self._eval_model = _eval_model(self.base)
        return output

    def _taken_out(self, path: str | None) -> tuple[list[onnx.TensorProto], list[onnx.TensorProto]]:
        """Make inputs of the initializers that are parameters."""
        graph = self.base.graph
        known = {tensor.name for tensor in graph.initializer}
        for name, trains in self._requires_grad.items():
            if name not in known and trains:
                raise RuntimeError(f"Node arg {name} is not found in the graph.")
        taken = [tensor for tensor in graph.initializer if tensor.name in self._requires_grad]
        for tensor in taken:
            _load_external(tensor, path)
        declared = {value.name for value in graph.input}
        graph.input.extend(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            for tensor in taken
            if tensor.name not in declared
        )
        left = [tensor for tensor in graph.initializer if tensor.name not in self._requires_grad]
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in taken]
        kept = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in left]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        return (
            [tensor for tensor in copies if self._requires_grad[tensor.name]],
            [tensor for tensor in copies if not self._requires_grad[tensor.name]],
        )


def _load_external(tensor: onnx.TensorProto, path: str | None) -> None:
    if onnx.external_data_helper.uses_external_data(tensor):
        onnx.external_data_helper.load_external_data_for_tensor(tensor, os.path.dirname(path or ""))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _set_outputs(model: onnx.ModelProto, output: Any) -> list[str]:
    """Let these be the outputs of a model; their types are inferred where it does not declare them."""
    names = [output] if isinstance(output, str) else list(output)
    graph = model.graph
    declared = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
    made = {name for node in graph.node for name in node.output}
    for name in names:
        if name not in made and name not in declared:
            raise LookupError(f"The provided name {name} is not a graph value info or a graph output.")
    kept = [onnx.ValueInfoProto.FromString(declared[name].SerializeToString()) for name in names if name in declared]
    known = {value.name: value for value in kept}
    del graph.output[:]
    graph.output.extend(known.get(name) or onnx.ValueInfoProto(name=name) for name in names)
    if len(known) < len(names):
        inferred = _inferred(model)
        for value in graph.output:
            if value.name not in known:
                value.CopyFrom(inferred[value.name])
    return names


def _inferred(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The outputs with the types that inference finds."""
    written = write_model(prepare(Recipe(model, SessionOptions()), "infer").model)
    return {value.name: value for value in written.graph.output}


def _training_model(model: onnx.ModelProto, loss: str, trained: list[str]) -> onnx.ModelProto:
    prepared = prepare(Recipe(model, SessionOptions()), "infer").model
    add_gradients(prepared, loss, trained)
    return write_model(prepared)


def _eval_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without dropout, and with batch norm in the form of inference."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        if node.op_type == "Dropout" and len(node.input) > 2:
            del node.input[2:]
        if node.op_type == "BatchNormalization":
            kept = [attribute for attribute in node.attribute if attribute.name != "training_mode"]
            del node.attribute[:], node.output[1:]
            node.attribute.extend(kept)
    return result
