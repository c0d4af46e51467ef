"""What the modules of Whisper have in common: names, inputs, their files, and comparisons of both."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.conversion import OPSET, compare
from sardonyx.transformers.encoder_decoders import SIZES, Part
from sardonyx.transformers.models.whisper.whisper_inputs import get_model_dynamic_axes
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.torch_modules import TorchModule
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

CASES = 2
"""Comparisons of an exported file."""


class WhisperModule(TorchModule):
    """A part of a model of the transformers package."""

    def __init__(self, config: Any, model: Any, model_impl: str = "hf", no_beam_search_op: bool = False):
        super().__init__()
        if model_impl != "hf":
            raise NotImplementedError(f"models of {model_impl!r} are not taken; load the model by the transformers package")
        self.config, self.model = config, model
        self.model_impl, self.no_beam_search_op = model_impl, no_beam_search_op

    @property
    def part(self) -> Part:
        """What becomes a file."""
        raise NotImplementedError

    @property
    def device(self) -> Any:
        """Where the weights are."""
        return self.model.device

    def input_names(self) -> list[str]:
        """Names of the inputs of the file."""
        return self.part.input_names

    def output_names(self) -> list[str]:
        """Names of the outputs of the file."""
        return self.part.output_names

    def dynamic_axes(self, input_names: Sequence[str], output_names: Sequence[str]) -> dict[str, dict[int, str]]:
        """The open sizes of inputs and outputs."""
        return get_model_dynamic_axes(self.config, input_names, output_names)

    def sample_inputs(self, use_fp16_inputs: bool, use_int32_inputs: bool) -> dict[str, Any]:
        """Random tensors by the names of the arguments of `forward`."""
        raise NotImplementedError

    def inputs(self, use_fp16_inputs: bool, use_int32_inputs: bool, return_dict: bool = False) -> Any:
        """Random tensors for `forward`, by their names or in their order."""
        samples = self.sample_inputs(use_fp16_inputs, use_int32_inputs)
        return samples if return_dict else tuple(samples.values())

    def write(
        self,
        onnx_model_path: str,
        provider: str,
        use_external_data_format: bool,
        use_fp16_inputs: bool,
        use_int32_inputs: bool,
    ) -> None:
        """Write the part, in float16 if it is to take that, and compare it with the module."""
        part = self._float32_part(use_int32_inputs)
        part.export(onnx_model_path, OPSET, use_external_data_format)
        if use_fp16_inputs:
            model = OnnxModel(onnx.load(onnx_model_path))
            model.convert_float_to_float16(keep_io_types=False)
            model.save_model_to_file(onnx_model_path, use_external_data_format)
        self.compare(onnx_model_path, use_fp16_inputs, use_int32_inputs)

    def compare(self, onnx_model_path: str, use_fp16_inputs: bool, use_int32_inputs: bool) -> float:
        """How far the outputs of a file are from those of the module at most, with a warning where that is too far."""
        precision = Precision.FLOAT16 if use_fp16_inputs else Precision.FLOAT32
        return compare(self._float32_part(use_int32_inputs), onnx_model_path, precision, SIZES, CASES)

    def _float32_part(self, use_int32_inputs: bool) -> Part:
        """The part with weights of float32, which is the measure of files of float16."""
        part = self.part.with_integers(np.int32 if use_int32_inputs else np.int64)
        if part.model.dtype is loaded_torch().float32:
            return part
        return part.with_model(copy.deepcopy(part.model).float())
