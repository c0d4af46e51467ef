"""Parts of models of the transformers package that become ONNX files, and what PyTorch makes of their inputs.

`decoders` and `encoder_decoders` have the parts, the converters of `models` are programs around them.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import create_onnxruntime_session
from sardonyx.transformers.onnx_exporter import calling
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, torch_onnx_export

Feeds = Mapping[str, np.ndarray]


class Traced(ABC):
    """A part of a model: the names of its inputs and outputs, examples of inputs, and how PyTorch is called with them."""

    model: Any
    example_sizes: tuple[int, ...]
    """Sizes of the inputs with which the part is traced: all different, and none of them 1."""

    @property
    @abstractmethod
    def input_names(self) -> list[str]:
        """Names of the inputs in their order."""

    @property
    @abstractmethod
    def output_names(self) -> list[str]:
        """Names of the outputs in their order."""

    @abstractmethod
    def open_axes(self) -> dict[str, dict[int, str]]:
        """Names of the sizes that are open, by input or output and axis."""

    @abstractmethod
    def feeds(self, sizes: Sequence[int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random inputs of these sizes."""

    @abstractmethod
    def call(self, model: Any, **inputs: Any) -> Sequence[Any]:
        """The outputs of PyTorch, in the order of their names."""

    def call_in_order(self, *inputs: Any) -> Sequence[Any]:
        """The outputs of PyTorch for tensors in the order of the inputs."""
        return self.call(self.model, **dict(zip(self.input_names, inputs, strict=True)))

    def run(self, feeds: Feeds) -> list[np.ndarray]:
        """What PyTorch makes of inputs."""
        torch = loaded_torch()
        with torch.no_grad():
            outputs = self.call(self.model, **{name: torch.from_numpy(feeds[name]) for name in self.input_names})
        return [output.numpy() for output in outputs]

    def export(self, path: str | Path, opset: int, use_external_data_format: bool = False) -> None:
        """Write the part as a file, with its weights in one beside it if that is wanted."""
        if not use_external_data_format:
            self._export(path, opset)
            return
        with TemporaryDirectory() as folder:  # PyTorch writes a file for every weight of a large model
            raw = Path(folder, Path(path).name)
            self._export(raw, opset)
            OnnxModel.save(onnx.load(raw), str(path), save_as_external_data=True)

    def export_by_dynamo(self, path: str | Path) -> None:
        """Write the part by PyTorch's newer exporter, which chooses the opset; weights are in a file beside it."""
        torch = loaded_torch()
        module, examples = self._module_and_examples()
        axes = self.open_axes()
        # strict sums of names are no names for this exporter: it finds out itself which sizes belong together
        shapes = tuple(dict.fromkeys(axes.get(name, ()), torch.export.Dim.AUTO) for name in self.input_names)
        with torch.no_grad(), TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, about itself
            raw = Path(folder, "raw.onnx")
            torch.onnx.export(
                module,
                examples,
                str(raw),
                input_names=self.input_names,
                output_names=self.output_names,
                dynamic_shapes=(shapes,),  # the module takes them as one tuple
                dynamo=True,
                verbose=False,
            )
            model = onnx.load(raw)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        OnnxModel.save(model, str(path), save_as_external_data=True)

    def _module_and_examples(self) -> tuple[Any, tuple[Any, ...]]:
        torch = loaded_torch()
        feeds = self.feeds(self.example_sizes, np.random.default_rng(0))

        def forward(model: Any, *arguments: Any) -> tuple[Any, ...]:
            return tuple(self.call(model, **dict(zip(self.input_names, arguments, strict=True))))

        return calling(self.model, forward), tuple(torch.from_numpy(feeds[name]) for name in self.input_names)

    def _export(self, path: str | Path, opset: int) -> None:
        module, examples = self._module_and_examples()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with loaded_torch().no_grad():
            torch_onnx_export(
                module,
                examples,
                str(path),
                input_names=self.input_names,
                output_names=self.output_names,
                dynamic_axes=self.open_axes(),
                opset_version=opset,
            )

    def largest_difference(self, path: str | Path, cases: int, sizes: Sequence[Sequence[int]]) -> float:
        """How far the outputs of a file are from PyTorch's at most, over random inputs of these sizes."""
        session = create_onnxruntime_session(str(path), use_gpu=False)
        if session is None:
            raise RuntimeError(f"{path} cannot be opened")
        return self.difference_of(session, cases, sizes)

    def difference_of(self, session: InferenceSession, cases: int, sizes: Sequence[Sequence[int]]) -> float:
        """How far the outputs of a session are from PyTorch's at most, over random inputs of these sizes."""
        rng = np.random.default_rng(1)
        types = {value.name: np.float16 if "float16" in value.type else None for value in session.get_inputs()}
        largest = 0.0
        for case in range(cases):
            feeds = self.feeds(sizes[case % len(sizes)], rng)
            given = {name: feeds[name].astype(kind or feeds[name].dtype) for name, kind in types.items()}
            pairs = zip(session.run(self.output_names, given), self.run(feeds), strict=True)
            largest = max(largest, *(float(np.abs(got - wanted).max(initial=0)) for got, wanted in pairs))
        return largest


TOTAL_LENGTH = "past_sequence_length + sequence_length"
"""The name of the size of masks: a sum, so that optimizers see that masks are as long as keys."""


def causal_bias(mask: Any, length: Any, past: Any, dtype: Any) -> Any:
    """What is added to scores: `length` tokens see themselves and the `past` ones before them, as far as the mask has it.

    The package would make the same of the mask, by ways that cannot be traced.
    """
    torch = loaded_torch()
    rows = torch.arange(length) + past
    is_seen = (torch.arange(past + length)[None, :] <= rows[:, None])[None, None] & (mask[:, None, None, :] > 0)
    return torch.where(is_seen, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)
