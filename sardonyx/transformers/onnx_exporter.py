"""What surrounds the export of a transformer model: example inputs, names of files, checks, optimization. PyTorch itself exports."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.transformers.benchmark_helper import OptimizerInfo, Precision, create_onnxruntime_session
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.onnx_model_bert import BertOnnxModel
from sardonyx.transformers.optimizer import get_fusion_statistics, optimize_by_onnxruntime, optimize_model

logger = logging.getLogger(__name__)
IMAGE_MODELS = ("vit", "swin")
Statistics = dict[str, Mapping[str, int]]


def create_onnxruntime_input(
    vocab_size: int, batch_size: int, sequence_length: int, input_names: Sequence[str], config: Any, data_type: Any = np.int64
) -> dict[str, np.ndarray]:
    """Random inputs for a model with this configuration of the transformers package."""
    if config.model_type in IMAGE_MODELS:
        return {"pixel_values": np.random.rand(batch_size, 3, config.image_size, config.image_size).astype(np.float32)}
    shape = batch_size, sequence_length
    words = np.random.randint(0, vocab_size - 1, shape, dtype=data_type)
    optional = {"attention_mask": np.ones(shape, data_type), "token_type_ids": np.zeros(shape, data_type)}
    inputs = {"input_ids": words, **filter_inputs(optional, input_names)}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = words
    return inputs


def filter_inputs(inputs: Mapping[str, Any], input_names: Iterable[str]) -> dict[str, Any]:
    """Those of the inputs that are asked for, in this order."""
    return {name: inputs[name] for name in input_names if name in inputs}


def flatten(inputs: Any) -> list[Any]:
    """Lists of lists with one level more: `update_flatten_list` takes them apart."""
    return [[flatten(item) for item in inputs] if isinstance(inputs, (list, tuple)) else inputs]


def update_flatten_list(inputs: Iterable[Any], res_list: list[Any]) -> list[Any]:
    """Append what is no list or tuple, at any depth."""
    for item in inputs:
        if isinstance(item, (list, tuple)):
            update_flatten_list(item, res_list)
        else:
            res_list.append(item)
    return res_list


def build_dynamic_axes(
    example_inputs: Mapping[str, Any], outputs_flatten: Sequence[Any]
) -> tuple[dict[str, dict[int, str]], list[str]]:
    """Names of open axes for an export, and names of outputs: axes as long as the words are `seq_len`."""
    length = example_inputs["input_ids"].shape[-1]
    axes = {name: {0: "batch_size", 1: "seq_len"} for name in example_inputs}
    names = [f"output_{number + 1}" for number in range(len(outputs_flatten))]
    for name, output in zip(names, outputs_flatten, strict=True):
        axes[name] = {0: "batch_size"} | {axis: "seq_len" for axis, size in enumerate(output.shape) if size == length}
    return axes, names


def validate_onnx_model(
    onnx_model_path: str,
    example_inputs: Mapping[str, Any],
    example_outputs_flatten: Sequence[Any],
    use_gpu: bool,
    fp16: bool,
    output_names: Sequence[str] | None = None,
) -> bool:
    """Whether a model gives about the outputs that it was exported with."""
    session = create_onnxruntime_session(onnx_model_path, use_gpu, enable_all_optimization=False)
    if session is None:
        return False
    feeds = {name: np.asarray(array) for name, array in example_inputs.items()}
    results = session.run(output_names, filter_inputs(feeds, [value.name for value in session.get_inputs()]))
    tolerance = 1e-2 if fp16 else 1e-4
    for number, (got, wanted) in enumerate(zip(results, example_outputs_flatten, strict=False)):
        expected = np.asarray(wanted)
        if got.shape != expected.shape or not np.allclose(got, expected, rtol=tolerance, atol=tolerance):
            logger.error("output %d of %s differs from that of the exported model", number, onnx_model_path)
            return False
    return True


def get_onnx_file_path(
    onnx_dir: str,
    model_name: str,
    input_count: int,
    optimized_by_script: bool,
    use_gpu: bool,
    precision: Precision,
    optimized_by_onnxruntime: bool,
    use_external_data: bool,
) -> str:
    """Where a model is written, by what was done to it; one with a file of weights has a folder of its own."""
    name = f"{re.sub('[^a-zA-Z0-9_]', '_', model_name)}_{input_count}"
    if optimized_by_script:
        name += f"_{precision}_{'gpu' if use_gpu else 'cpu'}"
    if optimized_by_onnxruntime:
        name += "_ort"
    folder = Path(onnx_dir, name) if use_external_data and not optimized_by_onnxruntime else Path(onnx_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / f"{name}.onnx")


def add_filename_suffix(file_path: str, suffix: str) -> str:
    """The path with something before the ending of the name."""
    path = Path(file_path)
    return str(path.with_name(f"{path.stem}{suffix}{path.suffix}"))


def optimize_onnx_model_by_ort(
    onnx_model_path: str, ort_model_path: str, use_gpu: bool, overwrite: bool, model_fusion_statistics: Statistics
) -> None:
    """Write a model as a session has it, and note how much is fused."""
    if overwrite or not os.path.exists(ort_model_path):
        optimize_by_onnxruntime(onnx_model_path, use_gpu, ort_model_path, 99)
        model_fusion_statistics[ort_model_path] = get_fusion_statistics(ort_model_path)


def optimize_onnx_model(
    onnx_model_path: str,
    optimized_model_path: str,
    model_type: str,
    num_attention_heads: int,
    hidden_size: int,
    use_gpu: bool,
    precision: Precision,
    use_raw_attention_mask: bool,
    overwrite: bool,
    model_fusion_statistics: Statistics,
    use_external_data_format: bool,
    optimization_options: FusionOptions | None = None,
) -> None:
    """Write a model with its blocks fused, in float16 if that is the precision, and note how much is fused."""
    if not overwrite and os.path.exists(optimized_model_path):
        return
    options = optimization_options or FusionOptions(model_type)
    options.use_raw_attention_mask(use_raw_attention_mask)
    optimized = optimize_model(onnx_model_path, model_type, num_attention_heads, hidden_size, options, use_gpu=use_gpu)
    if isinstance(optimized, BertOnnxModel):
        model_fusion_statistics[optimized_model_path] = optimized.get_fused_operator_statistics()
    if precision is Precision.FLOAT16:
        optimized.convert_float_to_float16(keep_io_types=True)
    optimized.save_model_to_file(optimized_model_path, use_external_data_format)


def validate_and_optimize_onnx(
    model_name: str,
    use_external_data_format: bool,
    model_type: str,
    onnx_dir: str,
    input_names: Sequence[str],
    use_gpu: bool,
    precision: Precision,
    optimize_info: OptimizerInfo,
    validate_onnx: bool,
    use_raw_attention_mask: bool,
    overwrite: bool,
    config: Any,
    model_fusion_statistics: Statistics,
    onnx_model_path: str,
    example_inputs: Mapping[str, Any],
    example_outputs_flatten: Sequence[Any],
    output_names: Sequence[str] | None,
    fusion_options: FusionOptions | None,
) -> tuple[str, bool, int]:
    """(path of the model to be used, whether it gives the right outputs, size of its vocabulary)."""
    is_half = precision is Precision.FLOAT16
    is_valid = True
    if optimize_info is OptimizerInfo.BYSCRIPT:
        path = get_onnx_file_path(
            onnx_dir, model_name, len(input_names), True, use_gpu, precision, False, use_external_data_format
        )
        heads, width = getattr(config, "num_attention_heads", 0), getattr(config, "hidden_size", 0)
        sizes = model_type, heads, width, use_gpu, precision
        rest = use_raw_attention_mask, overwrite, model_fusion_statistics, use_external_data_format, fusion_options
        optimize_onnx_model(onnx_model_path, path, *sizes, *rest)
        onnx_model_path = path
    elif optimize_info is OptimizerInfo.BYORT:
        path = add_filename_suffix(onnx_model_path, "_ort")
        optimize_onnx_model_by_ort(onnx_model_path, path, use_gpu, overwrite, model_fusion_statistics)
        onnx_model_path = path
    if validate_onnx:
        is_valid = validate_onnx_model(onnx_model_path, example_inputs, example_outputs_flatten, use_gpu, is_half, output_names)
    return onnx_model_path, is_valid, getattr(config, "vocab_size", 0)
