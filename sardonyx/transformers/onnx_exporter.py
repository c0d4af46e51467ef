"""Export of models of the transformers package: example inputs, names of files, checks, optimization. PyTorch itself exports."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sardonyx.transformers.benchmark_helper import ConfigModifier, OptimizerInfo, Precision, create_onnxruntime_session
from sardonyx.transformers.convert_tf_models_to_pytorch import tf2pt_pipeline
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.huggingface_models import MODEL_CLASSES
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.onnx_model_bert import BertOnnxModel
from sardonyx.transformers.optimizer import get_fusion_statistics, optimize_by_onnxruntime, optimize_model
from sardonyx.transformers.quantize_helper import QuantizeHelper
from sardonyx.transformers.tensorflow_models import member_of_hub, tensorflow_package, tf2onnx_package
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, torch_onnx_export
from sardonyx.transformers.torch_onnx_export_helper import (
    transformers_package as transformers_package,  # converters import it here
)

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
        if precision is Precision.INT8:
            QuantizeHelper.quantize_onnx_model(path, path, use_external_data_format)
        onnx_model_path = path
    elif optimize_info is OptimizerInfo.BYORT:
        path = add_filename_suffix(onnx_model_path, "_ort")
        optimize_onnx_model_by_ort(onnx_model_path, path, use_gpu, overwrite, model_fusion_statistics)
        onnx_model_path = path
    if validate_onnx and precision is not Precision.INT8:  # whose results are others
        is_valid = validate_onnx_model(onnx_model_path, example_inputs, example_outputs_flatten, use_gpu, is_half, output_names)
    return onnx_model_path, is_valid, getattr(config, "vocab_size", 0)


# --- models of the transformers package


def modelclass_dispatcher(model_name: str, custom_model_class: str | None) -> str:
    """The class that loads a model: the one that is given, or the one that its name tells."""
    if custom_model_class is not None:
        if custom_model_class not in MODEL_CLASSES:
            raise ValueError(f"{custom_model_class} is none of the classes {', '.join(MODEL_CLASSES)}")
        return custom_model_class
    if model_name.endswith("-squad"):
        return "AutoModelForQuestionAnswering"
    if model_name.endswith("-mprc"):
        return "AutoModelForSequenceClassification"
    return "AutoModelForCausalLM" if "gpt2" in model_name else "AutoModel"


def load_pretrained_model(
    model_name: str, config: Any, cache_dir: str | None, custom_model_class: str | None, is_tf_model: bool = False
) -> Any:
    """A model by its name or folder."""
    hub, name = transformers_package(), modelclass_dispatcher(model_name, custom_model_class)
    loader = member_of_hub(hub, f"TF{name}") if is_tf_model else getattr(hub, name)
    return loader.from_pretrained(model_name, config=config, cache_dir=cache_dir)


def load_pt_model(
    model_name: str,
    model_class: str | None,
    cache_dir: str | None,
    config_modifier: ConfigModifier,
    attention: str | None = "eager",
) -> tuple[Any, Any]:
    """(configuration, module), which gives tuples and keeps no cache; with `attention` "eager" it can be traced."""
    config = _plain_config(model_name, cache_dir, config_modifier)
    if attention is not None:
        config._attn_implementation = attention
    return config, load_pretrained_model(model_name, config, cache_dir, model_class).eval()


def _plain_config(model_name: str, cache_dir: str | None, config_modifier: ConfigModifier) -> Any:
    """The configuration of a model that gives tuples and keeps no cache."""
    config = transformers_package().AutoConfig.from_pretrained(model_name, cache_dir=cache_dir)
    config.return_dict = False
    config.use_cache = False
    config_modifier.modify(config)
    return config


def load_tf_model(
    model_name: str, model_class: str | None, cache_dir: str | None, config_modifier: ConfigModifier
) -> tuple[Any, Any]:
    """(configuration, model of TensorFlow), as `load_pt_model` has them."""
    config = _plain_config(model_name, cache_dir, config_modifier)
    return config, load_pretrained_model(model_name, config, cache_dir, model_class, is_tf_model=True)


def load_pt_model_from_tf(model_name: str) -> tuple[Any, Any]:
    """(configuration, module) of a checkpoint that TensorFlow wrote, which is fetched."""
    return tf2pt_pipeline(model_name)


def export_onnx_model_from_pt(
    model_name: str,
    opset_version: int,
    use_external_data_format: bool,
    model_type: str,
    model_class: str | None,
    config_modifier: ConfigModifier,
    cache_dir: str | None,
    onnx_dir: str,
    input_names: Sequence[str],
    use_gpu: bool,
    precision: Precision,
    optimizer_info: OptimizerInfo,
    validate_onnx: bool,
    use_raw_attention_mask: bool,
    overwrite: bool,
    model_fusion_statistics: Statistics,
    fusion_options: FusionOptions | None,
) -> tuple[str, bool, int, int | None]:
    """Export a model by its name, and optimize it; gives (path, whether its outputs are right, vocabulary, longest input)."""
    config, model = load_pt_model(model_name, model_class, cache_dir, config_modifier)
    torch = loaded_torch()
    arrays = create_onnxruntime_input(getattr(config, "vocab_size", 0), 1, 8, input_names, config)
    inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.no_grad():
        outputs = update_flatten_list(flatten(model(**inputs)), [])
    count = len(input_names)
    path = get_onnx_file_path(onnx_dir, model_name, count, False, use_gpu, precision, False, use_external_data_format)
    if overwrite or not os.path.exists(path):
        axes, names = _open_axes(config, inputs, outputs)
        export_with_names(model, inputs, path, names, axes, opset_version)
    fixed = model_name, use_external_data_format, model_type, onnx_dir, input_names, use_gpu, precision, optimizer_info
    checks = validate_onnx, use_raw_attention_mask, overwrite, config, model_fusion_statistics, path, arrays, outputs
    return *validate_and_optimize_onnx(*fixed, *checks, None, fusion_options), getattr(config, "max_position_embeddings", None)


def export_onnx_model_from_tf(
    model_name: str,
    opset_version: int,
    use_external_data_format: bool,
    model_type: str,
    model_class: str | None,
    config_modifier: ConfigModifier,
    cache_dir: str | None,
    onnx_dir: str,
    input_names: Sequence[str],
    use_gpu: bool,
    precision: Precision,
    optimizer_info: OptimizerInfo,
    validate_onnx: bool,
    use_raw_attention_mask: bool,
    overwrite: bool,
    model_fusion_statistics: Statistics,
    fusion_options: FusionOptions | None,
) -> tuple[str, bool, int, int | None]:
    """The same for a model of TensorFlow, which tf2onnx exports."""
    config, model = load_tf_model(model_name, model_class, cache_dir, config_modifier)
    arrays = create_onnxruntime_input(getattr(config, "vocab_size", 0), 1, 8, input_names, config, np.int32)
    outputs = update_flatten_list(model(arrays, training=False), [])
    count = len(input_names)
    path = get_onnx_file_path(onnx_dir, f"{model_name}_tf", count, False, use_gpu, precision, False, use_external_data_format)
    if overwrite or not os.path.exists(path):
        _export_tf(model, arrays, path, opset_version, use_external_data_format)
    fixed = f"{model_name}_tf", use_external_data_format, model_type, onnx_dir, input_names, use_gpu, precision, optimizer_info
    checks = validate_onnx, use_raw_attention_mask, overwrite, config, model_fusion_statistics, path, arrays, outputs
    return *validate_and_optimize_onnx(*fixed, *checks, None, fusion_options), getattr(config, "max_position_embeddings", None)


def _export_tf(model: Any, arrays: Mapping[str, np.ndarray], path: str, opset: int, is_large: bool) -> None:
    """Write a model of TensorFlow as a file, which is called with these names, in this order."""
    tensorflow = tensorflow_package()

    def call(*inputs: Any) -> list[Any]:
        return update_flatten_list(model(dict(zip(arrays, inputs, strict=True)), training=False), [])

    shapes = {name: [None, None] if array.ndim == 2 else [None, *array.shape[1:]] for name, array in arrays.items()}
    inputs = [tensorflow.TensorSpec(shape, arrays[name].dtype, name=name) for name, shape in shapes.items()]
    function = tensorflow.function(call, input_signature=inputs)
    handlers: dict[str, Any] = {"Erfc": (_export_erfc, [])}
    exported, _ = tf2onnx_package().convert.from_function(function, inputs, opset=opset, custom_op_handlers=handlers)
    OnnxModel.save(exported, path, save_as_external_data=is_large)


def _export_erfc(context: Any, node: Any, name: str, _arguments: Any) -> None:
    """What tf2onnx makes of an op that TensorFlow's own optimizer puts into Gelu, and that ONNX lacks."""
    outputs = list(node.output)
    shapes, kinds = [context.get_shape(output) for output in outputs], [context.get_dtype(output) for output in outputs]
    context.remove_node(node.name)
    one = context.make_const(f"{name}_one", np.ones((), onnx.helper.tensor_dtype_to_np_dtype(kinds[0])))
    erf = context.make_node("Erf", list(node.input), shapes=shapes, dtypes=kinds)
    context.make_node("Sub", [one.output[0], erf.output[0]], name=name, outputs=outputs, shapes=shapes, dtypes=kinds)


def _open_axes(config: Any, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> tuple[dict[str, dict[int, str]], list[str]]:
    if config.model_type not in IMAGE_MODELS:
        return build_dynamic_axes(inputs, outputs)
    names = [f"output_{number + 1}" for number in range(len(outputs))]
    return {name: {0: "batch_size"} for name in (*inputs, *names)}, names


def export_with_names(
    model: Any, inputs: Mapping[str, Any], path: str, output_names: Sequence[str], axes: Mapping[str, Any], opset_version: int
) -> None:
    """Export a module that is called with these names, in this order."""
    module = called_with_names(model, list(inputs))
    torch_onnx_export(
        module,
        tuple(inputs.values()),
        path,
        input_names=list(inputs),
        output_names=list(output_names),
        dynamic_axes=axes,
        opset_version=opset_version,
    )


def called_with_names(model: Any, names: Sequence[str]) -> Any:
    """A module of PyTorch that hands its arguments on under these names: exporters know positions alone."""
    return calling(model, lambda module, *arguments: module(**dict(zip(names, arguments, strict=True))))


def calling(model: Any, forward: Callable[..., Any]) -> Any:
    """A module of PyTorch around another, which is handed to a function with the arguments."""
    torch = loaded_torch()

    class Calling(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *arguments: Any) -> Any:
            return forward(self.model, *arguments)

    return Calling().eval()


# --- what PyTorch once could not export

_TORCH_FUNCTIONS: dict[str, Any] = {}


def triu_onnx(x: Any, diagonal: int = 0, out: Any = None) -> Any:
    """The upper triangle of a square matrix, of ops that every exporter knows."""
    if out is not None or x.dim() != 2 or x.size(0) != x.size(1):
        raise ValueError(f"expected one square matrix and no place for the result, got shape {list(x.shape)}")
    torch = loaded_torch()
    places = torch.arange(x.size(0))
    return torch.where(places[None, :] - places[:, None] >= diagonal, x, torch.zeros_like(x))


def replace_torch_functions() -> None:
    """Let PyTorch use what can be exported, until `restore_torch_functions`."""
    torch = loaded_torch()
    _TORCH_FUNCTIONS.setdefault("triu", torch.triu)
    torch.triu = triu_onnx  # type: ignore[attr-defined]


def restore_torch_functions() -> None:
    """Give PyTorch its own functions back."""
    for name, function in _TORCH_FUNCTIONS.items():
        setattr(loaded_torch(), name, function)
