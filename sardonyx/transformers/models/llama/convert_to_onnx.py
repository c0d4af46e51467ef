"""Llama and its kind of the transformers package as ONNX files: fused, of the precision that is asked for, compared with PyTorch.

`python -m sardonyx.transformers.models.llama.convert_to_onnx -m MODEL --output FOLDER --precision fp16`
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import onnx

from sardonyx.quantization import QuantType, quantize_dynamic, quantize_static
from sardonyx.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference
from sardonyx.transformers.benchmark_helper import Precision, prepare_environment, setup_logger
from sardonyx.transformers.conversion import compare
from sardonyx.transformers.convert_generation import kwargs_of, replace_mha_with_gqa
from sardonyx.transformers.decoders import Decoder
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.models.llama.llama_torch import setup_torch_model
from sardonyx.transformers.models.llama.quant_kv_dataloader import Batches, QuantKVDataLoader
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.optimizer import optimize_model

logger = logging.getLogger(__name__)

OPSET = 17
DECODER, LATER_STEP, MERGED = "decoder_model", "decoder_with_past_model", "decoder_merged_model"
"""Names in files: of the first step, of the others, and of both."""
SIZES = [(1, 8, 3), (2, 1, 5), (3, 4, 2), (1, 1, 1)]
"""(batch, length, past) of the inputs of comparisons."""
SIZES_WITHOUT_GAPS = [(1, 8, 1), (2, 1, 1), (1, 4, 1)]
"""The same for GroupQueryAttention, which knows no gaps before rows, and in onnxruntime one row where several words follow others."""
METHODS = "blockwise", "smooth_quant", "quantize_dynamic"


def get_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name", required=True, help="name or folder of the model")
    parser.add_argument(
        "-i", "--input", default=os.path.join("."), help="folder of the model, if the name is not to be fetched"
    )
    parser.add_argument("-o", "--output", default=os.path.join(".", "llama_onnx_models"), help="folder to write")
    parser.add_argument("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=list(Precision))
    parser.add_argument("-e", "--execution_provider", default="cpu", choices=["cpu"])
    parser.add_argument("-r", "--reexport", action="store_true", help="export again what is there")
    parser.add_argument("--use_gqa", action="store_true", help="GroupQueryAttention in place of MultiHeadAttention")
    parser.add_argument("--no_merged", action="store_true", help="a file for the first step, and one for the others")
    parser.add_argument("-q", "--quantization_method", default="", choices=["", *METHODS])
    parser.add_argument("--bits", type=int, default=4, help="of weights, with int4")
    parser.add_argument("--block_size", type=int, default=32, help="weights that share a scale, with int4")
    parser.add_argument("--int4_accuracy_level", type=int)
    parser.add_argument("--quantize_embedding_layer", action="store_true", help="with int8: words, too")
    parser.add_argument("--quantize_per_channel", action="store_true", help="with int8: a scale for each column")
    parser.add_argument("--quantize_reduce_range", action="store_true", help="with int8: weights of 7 bits")
    parser.add_argument("--smooth_quant_alpha", type=float, default=0.8, help="how far outliers move into weights, 0 to 1")
    parser.add_argument("--smooth_quant_dataset", default="NeelNanda/pile-10k", help="file of texts, or name of a dataset")
    parser.add_argument("--pad_max", type=int, default=196, help="words of each text")
    parser.add_argument("--calibration_sampling_size", type=int, default=8, help="texts that are looked at")
    parser.add_argument("--nc_workspace", default=os.path.join(".", "nc_workspace"), help="not used: nothing is left behind")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--cache_dir", default="./model_cache", help="where fetched models are kept")
    parser.add_argument("-d", "--use_dynamo_export", action="store_true", help="export by PyTorch's newer exporter")
    parser.add_argument("--optimize_optimum", action="store_true", help="--input is a file, which is fused and converted")
    parser.add_argument("--small_gpu", action="store_true", help="not used: nothing runs on a GPU")
    return parser.parse_args(argv)


def get_model_dynamic_axes(input_names: Sequence[str], output_names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Names of open sizes where there is no cache before."""
    return _axes((*input_names, *output_names), "sequence_length", "sequence_length")


def get_model_with_past_kv_dynamic_axes(input_names: Sequence[str], output_names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Names of open sizes of a step with one word."""
    axes = _axes((*input_names, *output_names), "", "past_sequence_length + 1")
    return {name: {axis: size for axis, size in sizes.items() if size} for name, sizes in axes.items()}


def get_merged_model_dynamic_axes(input_names: Sequence[str], output_names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Names of open sizes of a step with any number of words."""
    return _axes((*input_names, *output_names), "sequence_length", "total_sequence_length")


def _axes(names: Sequence[str], length: str, total: str) -> dict[str, dict[int, str]]:
    axes = {}
    for name in names:
        if name.startswith("past"):
            axes[name] = {0: "batch_size", 2: "past_sequence_length"}
        elif name.startswith("present"):
            axes[name] = {0: "batch_size", 2: total}
        elif name in ("input_ids", "position_ids", "attention_mask", "logits"):
            axes[name] = {0: "batch_size", 1: total if name == "attention_mask" else length}
        else:
            raise ValueError(f"{name!r} is no input or output of a decoder")
    return axes


def save_onnx_model(onnx_model: onnx.ModelProto, output_path: str, data_path: str) -> None:
    """Write a model with its weights in a file beside it, of that name."""
    onnx.save(
        onnx_model,
        output_path,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=os.path.basename(data_path),
        size_threshold=1024,
    )


def use_group_query_attention(config: Any, model_opt: OnnxModel, world_size: int = 1, window_size: int = -1) -> OnnxModel:
    """Let GroupQueryAttention take the place of MultiHeadAttention."""
    heads = config.num_attention_heads
    for node in model_opt.get_nodes_by_op_type("MultiHeadAttention"):
        if kwargs_of(node)["num_heads"] != heads:  # fused with groups of heads as rows, which a mask tells apart
            raise ValueError(
                f"{node.name}: {heads} heads share keys; GroupQueryAttention takes the place of heads with keys each"
            )
    replaced = replace_mha_with_gqa(model_opt, "attention_mask", config.num_key_value_heads, world_size, window_size)
    replaced.prune_graph()
    return replaced


def remove_existing_model(model_path: str) -> None:
    """Remove a model and the file of its weights."""
    for path in (model_path, f"{model_path}.data"):
        Path(path).unlink(missing_ok=True)


def remove_existing_files(output_path: str) -> None:
    """Remove all models of a folder."""
    for path in Path(output_path).iterdir():
        if path.name.endswith((".onnx", ".onnx.data")):
            path.unlink()


# --- export


def run_torchscript_separate_export(
    args: argparse.Namespace, l_config: Any, llama: Any, rank: int = 0, world_size: int = 1
) -> None:
    """Write a file of the first step, and one of the others; PyTorch traces."""
    _refuse_parts(world_size)
    Decoder(llama, with_past=False).export(_path(args, DECODER, "fp32", rank), OPSET, use_external_data_format=True)
    Decoder(llama).export(_path(args, LATER_STEP, "fp32", rank), OPSET, use_external_data_format=True)


def run_torchscript_merged_export(
    args: argparse.Namespace, l_config: Any, llama: Any, rank: int = 0, world_size: int = 1
) -> None:
    """Write a file of a step of any number of words, with a past that may be empty; PyTorch traces."""
    _refuse_parts(world_size)
    Decoder(llama).export(_path(args, MERGED, "fp32", rank), OPSET, use_external_data_format=True)


def run_dynamo_export(args: argparse.Namespace, l_config: Any, llama: Any, rank: int = 0, world_size: int = 1) -> None:
    """Write a file of a step of any number of words behind others, by the exporter of PyTorch that needs the package onnxscript."""
    _refuse_parts(world_size)
    if find_spec("onnxscript") is None:
        raise ImportError("PyTorch's newer exporter needs the package onnxscript: pip install onnxscript")
    Decoder(llama).export_by_dynamo(_path(args, LATER_STEP, "fp32", rank))


def _refuse_parts(world_size: int) -> None:
    if world_size > 1:
        raise NotImplementedError(f"a model is not split among processes here, world_size is {world_size}")


def _path(args: argparse.Namespace, kind: str, precision: str, rank: int = 0) -> str:
    """Where a file is written."""
    return os.path.join(args.output, f"rank_{rank}_{Path(args.model_name).name}_{kind}_{precision}.onnx")


# --- after the export


def optimize_export(
    args: argparse.Namespace,
    config: Any,
    input_path: str,
    output_path: str,
    remove_model: bool = True,
    world_size: int = 1,
    window_size: int = -1,
) -> None:
    """Write a model with its blocks fused, and the shapes of what is in it; the first one is removed unless that is not wanted."""
    options = FusionOptions("gpt2")
    fused = optimize_model(input_path, "gpt2", config.num_attention_heads, config.hidden_size, options)
    if args.use_gqa:
        fused = use_group_query_attention(config, fused, world_size, window_size)
    fused.model = SymbolicShapeInference.infer_shapes(fused.model, auto_merge=True)
    fused.save_model_to_file(output_path, use_external_data_format=True)
    logger.info("optimized: %s", output_path)
    if remove_model:
        remove_existing_model(input_path)


def optimize_optimum(config: Any, args: argparse.Namespace) -> None:
    """Fuse a file that optimum has exported, `args.input`, and write it in the precision that is wanted."""
    name = Path(args.model_name).name
    fused, final = (os.path.join(args.output, f"{name}{suffix}.onnx") for suffix in (".tmp", ""))
    window_size = getattr(config, "sliding_window", None) or -1
    optimize_export(args, config, args.input, fused, remove_model=False, window_size=window_size)
    model = OnnxModel(onnx.load(fused))
    if args.precision is Precision.FLOAT16:
        model.convert_float_to_float16(keep_io_types=False)
    model.save_model_to_file(final, use_external_data_format=True)
    remove_existing_model(fused)


def convert_to_float16(args: argparse.Namespace, old_paths: Sequence[str], rank: int = 0) -> list[str]:
    """Write those of the files that are there in float16, and remove them; gives the new path of each."""
    new_paths = [_path(args, _kind_of(path), "fp16", rank) for path in old_paths]
    for source, target in zip(old_paths, new_paths, strict=True):
        if not os.path.exists(source):
            continue
        model = OnnxModel(onnx.load(source))
        model.convert_float_to_float16(keep_io_types=False)
        model.save_model_to_file(target, use_external_data_format=True)
        remove_existing_model(source)
    return new_paths


def smooth_quant(
    args: argparse.Namespace,
    decoder_model_fp32_path: str,
    decoder_with_past_model_fp32_path: str,
    decoder_model_int8_path: str,
    decoder_with_past_model_int8_path: str,
) -> None:
    """Write both models with weights and activations of 8 bits, whose ranges texts tell, and remove the first ones."""
    _smooth(args, decoder_model_fp32_path, decoder_model_int8_path, "")
    _smooth(args, decoder_with_past_model_fp32_path, decoder_with_past_model_int8_path, decoder_model_fp32_path)
    for path in (decoder_model_fp32_path, decoder_with_past_model_fp32_path):
        remove_existing_model(path)


def _smooth(args: argparse.Namespace, source: str, target: str, first_step: str) -> None:
    batches = QuantKVDataLoader(args, first_step)
    quantize_static(
        source,
        target,
        Batches([inputs for inputs, _ in islice(batches, args.calibration_sampling_size)]),
        op_types_to_quantize=["MatMul", "Gather"],
        activation_type=QuantType.QUInt8,
        use_external_data_format=True,
        extra_options={
            "SmoothQuant": True,
            "SmoothQuantAlpha": args.smooth_quant_alpha,
            "SmoothQuantFolding": False,
            "MatMulConstBOnly": True,
            "OpTypesToExcludeOutputQuantization": ["MatMul"],
        },
    )


def _kind_of(path: str) -> str:
    """Which of the files it is, by its name."""
    for kind in (DECODER, LATER_STEP, MERGED):
        if f"_{kind}_" in os.path.basename(path):
            return kind
    raise ValueError(f"{path} is not named like a file of this converter: {DECODER}, {LATER_STEP} or {MERGED} is in such names")


# --- the program


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Write the files, and compare them with PyTorch; gives their paths."""
    arguments = get_args(argv)
    setup_logger(arguments.verbose)
    prepare_environment(arguments.cache_dir, arguments.output, use_gpu=False)
    if arguments.reexport:
        remove_existing_files(arguments.output)
    if arguments.optimize_optimum:
        config = transformers_package().AutoConfig.from_pretrained(arguments.model_name, cache_dir=arguments.cache_dir)
        optimize_optimum(config, arguments)
        return [os.path.join(arguments.output, f"{Path(arguments.model_name).name}.onnx")]
    arguments.original_model_name = arguments.model_name if arguments.input == "." else arguments.input
    config, model = setup_torch_model(arguments, arguments.original_model_name, False)
    paths = _convert(arguments, _export(arguments, config, model))
    logger.info("written: %s", ", ".join(paths))
    for path in paths:
        sizes = SIZES_WITHOUT_GAPS if arguments.use_gqa else SIZES
        compare(Decoder(model, with_past=_kind_of(path) != DECODER), path, arguments.precision, sizes, len(sizes))
    return paths


def _export(arguments: argparse.Namespace, config: Any, model: Any) -> list[str]:
    """Export and fuse; gives the paths."""
    if arguments.use_dynamo_export:
        export, kinds = run_dynamo_export, [LATER_STEP]
    elif arguments.no_merged:
        export, kinds = run_torchscript_separate_export, [DECODER, LATER_STEP]
    else:
        export, kinds = run_torchscript_merged_export, [MERGED]
    raw, fused = ([_path(arguments, kind, suffix) for kind in kinds] for suffix in ("fp32", "fp32_opt"))
    export(arguments, config, model)
    for source, target in zip(raw, fused, strict=True):
        optimize_export(arguments, config, source, target)
    return fused


def _convert(arguments: argparse.Namespace, fused: Sequence[str]) -> list[str]:
    """Bring the fused files into the precision that is wanted; gives the paths."""
    precision = arguments.precision
    if precision is Precision.FLOAT32:
        return list(fused)
    if precision is Precision.FLOAT16:
        return convert_to_float16(arguments, fused)
    final = [_path(arguments, _kind_of(path), str(precision)) for path in fused]
    if precision is Precision.INT8 and arguments.quantization_method == "smooth_quant":
        if len(fused) < 2:
            raise ValueError("smooth_quant looks at the first step and at the others, so it needs --no_merged")
        smooth_quant(arguments, *fused, *final)
        return final
    for source, target in zip(fused, final, strict=True):
        _quantize(source, target, arguments)
        remove_existing_model(source)
    return final


def _quantize(source: str, target: str, arguments: argparse.Namespace) -> None:
    """Write a model with weights of 8 bits, or of 4 in blocks."""
    if arguments.precision is Precision.INT4:
        options: Mapping[str, Any] = {"is_symmetric": True, "accuracy_level": arguments.int4_accuracy_level}
        quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=arguments.bits, block_size=arguments.block_size, **options)
        quantizer.process()
        quantizer.model.save_model_to_file(target, True)
        return
    if arguments.quantization_method != "quantize_dynamic":
        raise ValueError("with int8 --quantization_method is quantize_dynamic or smooth_quant")
    quantize_dynamic(
        source,
        target,
        op_types_to_quantize=["MatMul", "Gemm", *(["Gather"] if arguments.quantize_embedding_layer else [])],
        per_channel=arguments.quantize_per_channel,
        reduce_range=arguments.quantize_reduce_range,
        use_external_data_format=True,
        extra_options={"MatMulConstBOnly": True},
    )


if __name__ == "__main__":
    main()
