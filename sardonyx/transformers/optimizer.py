"""Optimized copies of transformer models: `optimize_model`, and `python -m sardonyx.transformers.optimizer --input A --output B`.

There is one optimizer: options choose among the stages of the one that sessions run.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.runtime.saving.files import HARDWARE_BOUND
from sardonyx.settings import OPTIMIZED_MODEL_EXTERNAL_FILE, OPTIMIZED_MODEL_EXTERNAL_MIN_SIZE
from sardonyx.tools.fusing import optimized
from sardonyx.tools.onnx_model_utils import LEVELS
from sardonyx.transformers.fused_model import FusedModel
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.onnx_model_bart import BartOnnxModel
from sardonyx.transformers.onnx_model_bert import BertOnnxModel
from sardonyx.transformers.onnx_model_bert_keras import BertOnnxModelKeras
from sardonyx.transformers.onnx_model_bert_tf import BertOnnxModelTF
from sardonyx.transformers.onnx_model_clip import ClipOnnxModel
from sardonyx.transformers.onnx_model_conformer import ConformerOnnxModel
from sardonyx.transformers.onnx_model_gpt2 import Gpt2OnnxModel
from sardonyx.transformers.onnx_model_mmdit import MmditOnnxModel
from sardonyx.transformers.onnx_model_phi import PhiOnnxModel
from sardonyx.transformers.onnx_model_sam2 import Sam2OnnxModel
from sardonyx.transformers.onnx_model_t5 import T5OnnxModel
from sardonyx.transformers.onnx_model_tnlr import TnlrOnnxModel
from sardonyx.transformers.onnx_model_unet import UnetOnnxModel
from sardonyx.transformers.onnx_model_vae import VaeOnnxModel

logger = logging.getLogger(__name__)

MODEL_TYPES: dict[str, tuple[type[FusedModel], str, int]] = {
    "bart": (BartOnnxModel, "pytorch", 1),
    "bert": (BertOnnxModel, "pytorch", 1),
    "bert_tf": (BertOnnxModelTF, "tf2onnx", 0),
    "bert_keras": (BertOnnxModelKeras, "keras2onnx", 0),
    "clip": (ClipOnnxModel, "pytorch", 1),
    "conformer": (ConformerOnnxModel, "pytorch", 1),
    "gpt2": (Gpt2OnnxModel, "pytorch", 1),
    "gpt2_tf": (Gpt2OnnxModel, "tf2onnx", 0),
    "gpt_neox": (BertOnnxModel, "pytorch", 0),
    "mmdit": (MmditOnnxModel, "pytorch", 1),
    "phi": (PhiOnnxModel, "pytorch", 0),
    "qwen3": (Gpt2OnnxModel, "pytorch", 0),
    "sam2": (Sam2OnnxModel, "pytorch", 1),
    "swin": (BertOnnxModel, "pytorch", 1),
    "t5": (T5OnnxModel, "pytorch", 2),
    "tnlr": (TnlrOnnxModel, "pytorch", 1),
    "unet": (UnetOnnxModel, "pytorch", 1),
    "vae": (VaeOnnxModel, "pytorch", 1),
    "vit": (BertOnnxModel, "pytorch", 1),
}
"""The class of a type of model, who exports such models, and the level that is used where none is named."""
SESSION_LEVELS = {0: Level.DISABLE_ALL, 1: Level.BASIC, 2: Level.EXTENDED, 3: Level.LAYOUT, 99: Level.ALL}
OPT_LEVELS = (0, 1, 2, 99)


def optimize_by_onnxruntime(
    onnx_model: str | ModelProto | None = None,
    use_gpu: bool = False,
    optimized_model_path: str | None = None,
    opt_level: int | None = 99,
    disabled_optimizers: Collection[str] = (),
    verbose: bool = False,
    save_as_external_data: bool = False,
    external_data_filename: str = "",
    external_data_file_threshold: int = 1024,
    *,
    provider: str | None = None,
    **deprecated_kwargs: Any,
) -> str:
    """Write a model as a session of a level has it; the path of the file."""
    level = 99 if opt_level is None else opt_level
    assert level in (1, 2, 3, 99)
    source = onnx_model if onnx_model is not None else deprecated_kwargs["onnx_model_path"]
    if optimized_model_path is None:
        name = Path(source).with_suffix("") if isinstance(source, (str, os.PathLike)) else Path("optimized")
        optimized_model_path = f"{name}_o{level}_cpu.onnx"
    options = SessionOptions()
    options.graph_optimization_level = list(LEVELS.values())[min(level, 4)]
    options.optimized_model_filepath = str(optimized_model_path)
    if save_as_external_data:
        name_of_data = external_data_filename or f"{Path(optimized_model_path).name}.data"
        options.add_session_config_entry(OPTIMIZED_MODEL_EXTERNAL_FILE, name_of_data)
        options.add_session_config_entry(OPTIMIZED_MODEL_EXTERNAL_MIN_SIZE, str(external_data_file_threshold))
    disabled = [*disabled_optimizers, *HARDWARE_BOUND]
    InferenceSession(source, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    return str(optimized_model_path)


def optimize_by_fusion(
    model: ModelProto,
    model_type: str = "bert",
    num_heads: int = 0,
    hidden_size: int = 0,
    optimization_options: FusionOptions | None = None,
) -> OnnxModel:
    """Fuse the blocks of a model; one of an unknown type stays as it is."""
    if model_type not in MODEL_TYPES:
        logger.warning("The model type %s is unknown, and nothing is fused. There are %s.", model_type, ", ".join(MODEL_TYPES))
        return OnnxModel(model)
    made = MODEL_TYPES[model_type][0](model, num_heads, hidden_size)
    made.optimize(optimization_options or FusionOptions(model_type))
    made.topological_sort()
    made.model.producer_name = "sardonyx"
    return made


def optimize_model(
    input: str | ModelProto,
    model_type: str = "bert",
    num_heads: int = 0,
    hidden_size: int = 0,
    optimization_options: FusionOptions | None = None,
    opt_level: int | None = None,
    use_gpu: bool = False,
    only_onnxruntime: bool = False,
    verbose: bool = False,
    *,
    provider: str | None = None,
) -> OnnxModel:
    """An optimized copy of a model.

    `num_heads` and `hidden_size` are found in the graph. With `only_onnxruntime` it is what a session of `opt_level` has; else what
    the options leave is fused, and levels above 0 make no difference.
    """
    assert opt_level is None or opt_level in OPT_LEVELS
    model = onnx.load(os.fspath(input)) if isinstance(input, (str, os.PathLike)) else _copied(input)
    if not only_onnxruntime:
        return optimize_by_fusion(model, model_type, num_heads, hidden_size, optimization_options)
    kind, _, default_level = MODEL_TYPES.get(model_type, (FusedModel, "", 1))
    level = SESSION_LEVELS[default_level if opt_level is None else opt_level]
    return kind(optimized(model, level), num_heads, hidden_size)


def _copied(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def get_fusion_statistics(optimized_model_path: str) -> dict[str, int]:
    """How many fused nodes a file has."""
    return BertOnnxModel(onnx.load(optimized_model_path, load_external_data=False)).get_fused_operator_statistics()


def _parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuse the blocks of a transformer model.")
    parser.add_argument("--input", required=True, help="path of the model")
    parser.add_argument("--output", required=True, help="path of the new model")
    parser.add_argument("--model_type", type=str.lower, default="bert", choices=list(MODEL_TYPES), help="type of model")
    parser.add_argument("--num_heads", type=int, default=0, help="accepted: the graph tells")
    parser.add_argument("--hidden_size", type=int, default=0, help="accepted: the graph tells")
    parser.add_argument("--input_int32", action="store_true", help="inputs of integers become int32")
    parser.add_argument("--float16", action="store_true", help="compute in float16; inputs and outputs keep their types")
    FusionOptions.add_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="say more")
    parser.add_argument("--use_gpu", action="store_true", help="accepted for compatibility")
    parser.add_argument("--provider", default=None, help="accepted for compatibility")
    parser.add_argument("--only_onnxruntime", action="store_true", help="what a session of the level has")
    parser.add_argument("--opt_level", type=int, choices=OPT_LEVELS, default=None, help="level of --only_onnxruntime")
    parser.add_argument("--use_external_data_format", action="store_true", help="weights go into a file beside the model")
    parser.add_argument("--disable_symbolic_shape_infer", action="store_true", help="let onnx infer types for float16")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse_arguments(arguments)
    made = optimize_model(
        options.input,
        options.model_type,
        options.num_heads,
        options.hidden_size,
        FusionOptions.parse(options),
        options.opt_level,
        only_onnxruntime=options.only_onnxruntime,
    )
    if options.float16:
        made.convert_float_to_float16(not options.disable_symbolic_shape_infer, keep_io_types=True)
    if options.input_int32 and isinstance(made, BertOnnxModel):
        made.change_graph_inputs_to_int32()
    made.save_model_to_file(options.output, options.use_external_data_format)


if __name__ == "__main__":
    main()
