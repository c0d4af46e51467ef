"""GPT-2 whose layers' keys and values are one tensor each: modules of PyTorch, their files, and runs of both side by side.

PyTorch and the transformers package are taken as the caller has loaded them.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.conversion import OPSET, Conversion
from sardonyx.transformers.float16 import convert_float_to_float16
from sardonyx.transformers.io_binding_helper import IOBindingHelper
from sardonyx.transformers.models.gpt2.stacked import Stacked, stacked_outputs
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.parity import percentiles
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package

logger = logging.getLogger(__name__)

PRETRAINED_GPT2_MODELS = ["distilgpt2", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]
DEFAULT_TOLERANCE = {Precision.FLOAT32: 0.0005, Precision.FLOAT16: 0.2, Precision.INT8: 3.0}
KEPT_IN_FLOAT = ("Add", "LayerNormalization", "SkipLayerNormalization", "FastGelu", "EmbedLayerNormalization")
"""Ops that stay in float32 where precisions are mixed."""


class _Wrapped:
    """A class of the transformers package with another `forward`: made, as a subclass, when the first module is."""

    base: ClassVar[str]
    _kinds: ClassVar[dict[str, Any]] = {}

    def __new__(cls, config: Any) -> Any:
        return cls._kind()(config)

    @classmethod
    def from_pretrained(cls, name: str, **options: Any) -> Any:
        """A module with the weights of a folder or of the hub."""
        return cls._kind().from_pretrained(name, **options)

    @classmethod
    def _kind(cls) -> Any:
        if cls.__name__ not in cls._kinds:
            base = getattr(transformers_package(), cls.base)

            def forward(self: Any, *inputs: Any, **named: Any) -> Any:
                return cls.compute(lambda **words: base.forward(self, **words), self, *inputs, **named)

            cls._kinds[cls.__name__] = type(cls.__name__, (base,), {"forward": forward, "__module__": __name__})
        return cls._kinds[cls.__name__]

    @staticmethod
    def compute(call: Callable[..., Any], module: Any, *inputs: Any, **named: Any) -> Any:
        """What the module gives for its inputs; `call` is the package's own `forward`."""
        raise NotImplementedError


class GPT2ModelNoPastState(_Wrapped):
    """Words to states, without keys and values."""

    base = "GPT2Model"

    @staticmethod
    def compute(call: Callable[..., Any], module: Any, input_ids: Any) -> Any:  # type: ignore[override]
        return call(input_ids=input_ids, use_cache=False, return_dict=False)


class MyGPT2Model(_Wrapped):
    """Words, places, mask and the past of each layer to states, and to the present of each layer."""

    base = "GPT2Model"

    @staticmethod
    def compute(
        call: Callable[..., Any], module: Any, input_ids: Any, position_ids: Any = None, attention_mask: Any = None, *past: Any
    ) -> Any:
        return stacked_outputs(call, module.dtype, input_ids, position_ids, attention_mask, past)


class MyGPT2LMHeadModel(MyGPT2Model):
    """The same to logits."""

    base = "GPT2LMHeadModel"


class MyGPT2LMHeadModel_NoPadding(_Wrapped):  # noqa: N801
    """The same where all rows are equally long, so that there is no mask."""

    base = "GPT2LMHeadModel"

    @staticmethod
    def compute(call: Callable[..., Any], module: Any, input_ids: Any, *past: Any) -> Any:  # type: ignore[override]
        return stacked_outputs(call, module.dtype, input_ids, None, None, past)


MODEL_CLASSES = {
    "GPT2LMHeadModel": (MyGPT2LMHeadModel, "logits", True),
    "GPT2LMHeadModel_NoPadding": (MyGPT2LMHeadModel_NoPadding, "logits", False),
    "GPT2Model": (MyGPT2Model, "last_state", True),
}


class Gpt2Inputs:
    """Tensors of one call."""

    def __init__(self, input_ids: Any, position_ids: Any, attention_mask: Any, past: Sequence[Any]):
        self.input_ids, self.position_ids, self.attention_mask, self.past = input_ids, position_ids, attention_mask, past

    def _words(self) -> list[Any]:
        return [value for value in (self.input_ids, self.position_ids, self.attention_mask) if value is not None]

    def to_list(self) -> list[Any]:
        """All that there are, the past of each layer at the end."""
        return [*self._words(), *(self.past or ())]

    def to_tuple(self) -> tuple[Any, ...]:
        """All that there are, the past as one list at the end."""
        return (*self._words(), *([] if self.past is None else [self.past]))

    def to_fp32(self) -> Gpt2Inputs:
        """The same with floats of 32 bits."""
        mask = self.attention_mask
        mask = mask.float() if mask is not None and mask.is_floating_point() else mask
        return Gpt2Inputs(self.input_ids, self.position_ids, mask, [tensor.float() for tensor in self.past])


class Gpt2Helper:
    """What programs around GPT-2 need."""

    # --- inputs and places for outputs

    @staticmethod
    def get_dummy_inputs(
        batch_size: int,
        past_sequence_length: int,
        sequence_length: int,
        num_attention_heads: int,
        hidden_size: int,
        num_layer: int,
        vocab_size: int,
        device: Any,
        float16: bool = False,
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = None,
        position_ids_dtype: Any = None,
        attention_mask_dtype: Any = None,
        left_side_padding: bool = True,
    ) -> Gpt2Inputs:
        """Random tensors of these sizes, with rows that are padded by random lengths; integers are int32 by default."""
        torch = loaded_torch()
        floats = torch.float16 if float16 else torch.float32
        shape = (2, batch_size, num_attention_heads, past_sequence_length, hidden_size // num_attention_heads)
        past = [torch.rand(shape, dtype=floats, device=device) * 2 - 1 for _ in range(num_layer)]
        words = torch.randint(0, vocab_size, (batch_size, sequence_length), dtype=input_ids_dtype or torch.int32, device=device)
        total = past_sequence_length + sequence_length
        mask = torch.ones((batch_size, total), dtype=attention_mask_dtype or torch.int32, device=device)
        for row in mask if has_attention_mask else ():
            padding = random.randint(0, total - 1)
            row[slice(0, padding) if left_side_padding else slice(total - padding, total)] = 0
        places = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, past_sequence_length:].to(position_ids_dtype or torch.int32)
        return Gpt2Inputs(words, places if has_position_ids else None, mask if has_attention_mask else None, past)

    @staticmethod
    def get_output_shapes(
        batch_size: int, past_sequence_length: int, sequence_length: int, config: Any, model_class: str = "GPT2LMHeadModel"
    ) -> dict[str, list[int]]:
        """The shape of each output."""
        name = MODEL_CLASSES[model_class][1]
        heads, width = config.num_attention_heads, config.hidden_size
        present = [2, batch_size, heads, past_sequence_length + sequence_length, width // heads]
        shapes = {name: [batch_size, sequence_length, config.vocab_size if name == "logits" else width]}
        return shapes | {f"present_{layer}": list(present) for layer in range(config.num_hidden_layers)}

    @staticmethod
    def get_output_buffers(output_shapes: Mapping[str, Sequence[int]], device: Any, is_float16: bool = False) -> dict[str, Any]:
        """Memory for outputs of these shapes or smaller."""
        torch = loaded_torch()
        kind = torch.float16 if is_float16 else torch.float32
        return {name: torch.empty(int(np.prod(shape)), dtype=kind, device=device) for name, shape in output_shapes.items()}

    @staticmethod
    def auto_increase_buffer_size(output_buffers: dict[str, Any], output_shapes: Mapping[str, Sequence[int]]) -> None:
        """Larger memory where an output has become larger."""
        for name, shape in output_shapes.items():
            size, buffer = int(np.prod(shape)), output_buffers[name]
            if size > buffer.nelement():
                output_buffers[name] = buffer.new_empty(size)

    # --- files

    @staticmethod
    def export_onnx(
        model: Any,
        device: Any,
        onnx_model_path: str,
        verbose: bool = False,
        use_external_data_format: bool = False,
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = None,
        position_ids_dtype: Any = None,
        attention_mask_dtype: Any = None,
    ) -> None:
        """Write a module of one of the classes here as a file."""
        name = "last_state" if "LMHead" not in type(model).__name__ else "logits"
        kinds = {"input_ids": input_ids_dtype, "position_ids": position_ids_dtype, "attention_mask": attention_mask_dtype}
        integers = {word: np.dtype(str(kind).removeprefix("torch.")) for word, kind in kinds.items() if kind is not None}
        part = Stacked(model, name, has_position_ids, has_attention_mask, integers)
        part.export(onnx_model_path, OPSET, use_external_data_format)

    @staticmethod
    def optimize_onnx(
        onnx_model_path: str,
        optimized_model_path: str,
        is_float16: bool,
        num_attention_heads: int,
        hidden_size: int,
        use_external_data_format: bool = False,
        auto_mixed_precision: bool = False,
        stage: int = 0,
        **kwargs: Any,
    ) -> OnnxModel:
        """Write a model with its blocks fused, in float16 if that is wanted; `kwargs` go to the conversion."""
        options = {"keep_io_types": False, **kwargs}
        if auto_mixed_precision:
            options = {"op_block_list": list(KEPT_IN_FLOAT), **options}
        precision = Precision.FLOAT16 if is_float16 else Precision.FLOAT32
        conversion = Conversion(
            "gpt2", num_attention_heads, hidden_size, True, precision, use_external_data_format, half_options=lambda _: options
        )
        return conversion.optimize(onnx_model_path, optimized_model_path)

    @staticmethod
    def auto_mixed_precision(onnx_model: OnnxModel, op_block_list: Sequence[str] = KEPT_IN_FLOAT) -> dict[str, Any]:
        """Compute in float16 except for some ops; gives the arguments of the conversion."""
        parameters: dict[str, Any] = {"keep_io_types": False, "op_block_list": list(op_block_list)}
        onnx_model.initialize(convert_float_to_float16(onnx_model.model, **parameters))
        onnx_model.prune_graph()
        return parameters

    @staticmethod
    def get_onnx_paths(
        output_dir: str,
        model_name_or_path: str,
        model_class: str = "GPT2LMHeadModel",
        has_past: bool = True,
        new_folder: bool = False,
        remove_existing: Sequence[str] = ("raw", "fp32", "fp16", "int8"),
    ) -> dict[str, str]:
        """Where files of each precision are written; with `new_folder` each in a folder of its own, which is emptied."""
        kind = "" if model_class == "GPT2LMHeadModel" else f"_{model_class}"
        stem = f"{Path(model_name_or_path).name}{kind}{'_past' if has_past else ''}"
        names = {"raw": stem, **{precision: f"{stem}_{precision}" for precision in ("fp32", "fp16", "int8")}}
        if not new_folder:
            return {precision: os.path.join(output_dir, f"{name}.onnx") for precision, name in names.items()}
        for precision, name in names.items():
            if precision in remove_existing:
                shutil.rmtree(os.path.join(output_dir, name), ignore_errors=True)
        return {precision: os.path.join(output_dir, name, f"{name}.onnx") for precision, name in names.items()}

    @staticmethod
    def torchscript(
        model: Any, config: Any, device: Any, has_position_ids: bool = True, has_attention_mask: bool = True
    ) -> Any:
        """The module as PyTorch traces it."""
        sizes = config.num_attention_heads, config.hidden_size, config.n_layer, config.vocab_size
        inputs = Gpt2Helper.get_dummy_inputs(1, 1, 1, *sizes, device, False, has_position_ids, has_attention_mask)
        return loaded_torch().jit.trace(model, inputs.to_list())

    # --- runs

    @staticmethod
    def pytorch_inference(model: Any, inputs: Gpt2Inputs, total_runs: int = 0) -> Any:
        """What PyTorch gives, and, if there are runs to measure, their average time in milliseconds."""
        tensors = inputs.to_fp32().to_list()
        with loaded_torch().no_grad():
            return _measured(lambda: model(*tensors), total_runs)

    @staticmethod
    def onnxruntime_inference(ort_session: Any, inputs: Gpt2Inputs, total_runs: int = 0) -> Any:
        """What a session gives, and the time as above."""
        tensors = {"input_ids": inputs.input_ids, "position_ids": inputs.position_ids, "attention_mask": inputs.attention_mask}
        tensors |= {f"past_{layer}": tensor for layer, tensor in enumerate(inputs.past or ())}
        feeds = {name: np.ascontiguousarray(tensor.cpu().numpy()) for name, tensor in tensors.items() if tensor is not None}
        return _measured(lambda: ort_session.run(None, feeds), total_runs)

    @staticmethod
    def prepare_io_binding(*arguments: Any) -> Any:
        """As `IOBindingHelper` has it."""
        return IOBindingHelper.prepare_io_binding(*arguments)

    @staticmethod
    def get_outputs_from_io_binding_buffer(
        ort_session: Any, output_buffers: Any, output_shapes: Any, return_numpy: bool = True
    ) -> list[np.ndarray]:
        """As `IOBindingHelper` has it."""
        return IOBindingHelper.get_outputs_from_io_binding_buffer(ort_session, output_buffers, output_shapes, return_numpy)

    @staticmethod
    def onnxruntime_inference_with_binded_io(
        ort_session: Any,
        inputs: Gpt2Inputs,
        output_buffers: Mapping[str, Any],
        output_shapes: Mapping[str, Sequence[int]],
        total_runs: int = 0,
        return_numpy: bool = True,
        include_copy_output_latency: bool = False,
    ) -> Any:
        """What a session gives in bound memory, and the time as above."""
        words = inputs.input_ids, inputs.position_ids, inputs.attention_mask, inputs.past
        binding = IOBindingHelper.prepare_io_binding(ort_session, *words, output_buffers, output_shapes)

        def copied() -> list[np.ndarray]:
            return IOBindingHelper.get_outputs_from_io_binding_buffer(ort_session, output_buffers, output_shapes, return_numpy)

        def run() -> Any:
            ort_session.run_with_iobinding(binding)
            return copied() if include_copy_output_latency else None

        measured = _measured(run, total_runs)
        return copied() if total_runs == 0 else (copied(), measured[1])

    # --- comparisons

    @staticmethod
    def diff_outputs(torch_outputs: Any, ort_outputs: Sequence[np.ndarray], relative: bool = False) -> float:
        """How far the first output is from PyTorch's at most."""
        wanted = torch_outputs[0].cpu().numpy()
        difference = np.abs(wanted - ort_outputs[0])
        return float(np.max(difference / (np.abs(wanted) + 1e-6) if relative else difference))

    @staticmethod
    def compare_outputs(
        torch_outputs: Any, ort_outputs: Sequence[np.ndarray], rtol: float = 1e-03, atol: float = 1e-03, **kwargs: Any
    ) -> bool:
        """Whether all outputs are near PyTorch's."""
        pairs = zip(ort_outputs, _flat(torch_outputs), strict=True)
        are_close = [np.allclose(got, wanted, rtol=rtol, atol=atol) for got, wanted in pairs]
        if not all(are_close):
            logger.info("Outputs %s are not close to PyTorch's", [place for place, close in enumerate(are_close) if not close])
        return all(are_close)

    @staticmethod
    def compare_outputs_v2(
        torch_outputs: Any, ort_outputs: Sequence[np.ndarray], atol: float = 1e-06
    ) -> tuple[bool, float, int, list[str], bool]:
        """Whether all outputs are near PyTorch's, the largest difference and its output, a line about each, and whether the largest
        element of the first stands in the same place.
        """
        messages, largest, close = [], [], True
        for got, wanted in zip(ort_outputs, _flat(torch_outputs), strict=True):
            difference = np.abs(got.astype(np.float32) - wanted)
            place = np.unravel_index(difference.argmax(), difference.shape)
            index = tuple(map(int, place))
            messages.append(f"diff={difference[place]:.9f} index={index} ort={got[place]:.9f} torch={wanted[place]:.9f}")
            largest.append(float(difference[place]))
            close = close and np.allclose(got, wanted, atol=atol, rtol=0)
        first, wanted = ort_outputs[0], _flat(torch_outputs)[0]
        return close, max(largest), int(np.argmax(largest)), messages, bool(first.argmax() == wanted.argmax())

    @staticmethod
    def test_parity(
        ort_session: Any,
        model: Any,
        device: Any,
        is_float16: bool = False,
        rtol: float = 5e-4,
        atol: float = 5e-4,
        test_cases_per_run: int = 10000,
        total_runs: int = 1,
        use_io_binding: bool = True,
        model_class: str = "GPT2LMHeadModel",
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = None,
        position_ids_dtype: Any = None,
        attention_mask_dtype: Any = None,
        stage: int = 0,
        verbose: bool = False,
        enable_pickle_output: bool = False,
    ) -> dict[str, Any]:
        """Compare both on random inputs: percentiles of differences, and the share of cases that are near."""
        words = has_position_ids, has_attention_mask, input_ids_dtype, position_ids_dtype, attention_mask_dtype
        differences, near, same_top = [], [], []
        for _ in range(test_cases_per_run * total_runs):
            sizes = random.randint(1, 8), 0 if stage == 1 else random.randint(0, 4), random.randint(1, 2)
            inputs = _inputs(model.config, sizes, device, is_float16, words)
            wanted = Gpt2Helper.pytorch_inference(model, inputs)
            got = _run(ort_session, inputs, sizes, model, (device, is_float16, model_class), 0, use_io_binding)
            is_close, difference, _, messages, is_top = Gpt2Helper.compare_outputs_v2(wanted, got, atol)
            differences.append(difference)
            near.append(is_close)
            same_top.append(is_top)
            if verbose and not is_close:
                logger.info("batch, past and length %s: %s", sizes, "; ".join(messages))
        nan_rate = float(np.isnan(differences).mean())
        runs = [same_top[run * test_cases_per_run :][:test_cases_per_run] for run in range(total_runs)]
        shares = percentiles(differences)
        return {f"max_diff_percentile_{share}": f"{number:.5f}" for share, number in shares.items()} | {
            "top1_match_rate": statistics.fmean(same_top),
            "top1_match_rate_per_run": [statistics.fmean(run) for run in runs],
            "diff_pass_rate": statistics.fmean(near),
            "nan_rate": nan_rate,
        }

    @staticmethod
    def test_performance(
        ort_session: Any,
        model: Any,
        device: Any,
        is_float16: bool = False,
        total_runs: int = 100,
        use_io_binding: bool = True,
        model_class: str = "GPT2LMHeadModel",
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = None,
        position_ids_dtype: Any = None,
        attention_mask_dtype: Any = None,
        batch_size: int = 8,
        sequence_length: int = 1,
        past_sequence_length: int = 32,
    ) -> float:
        """The average time of a run in milliseconds."""
        words = has_position_ids, has_attention_mask, input_ids_dtype, position_ids_dtype, attention_mask_dtype
        sizes = batch_size, past_sequence_length, sequence_length
        inputs = _inputs(model.config, sizes, device, is_float16, words)
        how = device, is_float16, model_class
        return float(_run(ort_session, inputs, sizes, model, how, max(total_runs, 1), use_io_binding)[1])


def _inputs(
    config: Any, sizes: tuple[int, int, int], device: Any, is_float16: bool, words: tuple[bool, bool, Any, Any, Any]
) -> Gpt2Inputs:
    model = config.num_attention_heads, config.hidden_size, config.n_layer, config.vocab_size
    return Gpt2Helper.get_dummy_inputs(*sizes, *model, device, is_float16, *words)


def _run(
    session: Any,
    inputs: Gpt2Inputs,
    sizes: tuple[int, int, int],
    model: Any,
    how: tuple[Any, bool, str],
    runs: int,
    is_bound: bool,
) -> Any:
    if not is_bound:
        return Gpt2Helper.onnxruntime_inference(session, inputs, runs)
    device, is_float16, model_class = how
    shapes = Gpt2Helper.get_output_shapes(*sizes, model.config, model_class)
    buffers = Gpt2Helper.get_output_buffers(shapes, device, is_float16)
    return Gpt2Helper.onnxruntime_inference_with_binded_io(session, inputs, buffers, shapes, runs)


def _flat(torch_outputs: Any) -> list[np.ndarray]:
    """PyTorch's first output and the present of each layer as arrays."""
    return [tensor.float().cpu().numpy() for tensor in (torch_outputs[0], *torch_outputs[1])]


def _measured(run: Callable[[], Any], total_runs: int) -> Any:
    """What a run gives; with runs to measure, their average time in milliseconds beside it."""
    result = run()
    if total_runs == 0:
        return result
    start = time.perf_counter()
    for _ in range(total_runs):
        result = run()
    return result, (time.perf_counter() - start) * 1000 / total_runs
