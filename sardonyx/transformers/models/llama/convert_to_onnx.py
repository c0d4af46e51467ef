"""Llama and its kind of the transformers package as ONNX files: fused, of the precision that is asked for, compared with PyTorch.

`python -m sardonyx.transformers.models.llama.convert_to_onnx -m MODEL --output FOLDER --precision fp16`
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from sardonyx.quantization import quantize_dynamic
from sardonyx.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from sardonyx.transformers.benchmark_helper import Precision, prepare_environment, setup_logger
from sardonyx.transformers.conversion import Conversion, compare
from sardonyx.transformers.convert_generation import replace_mha_with_gqa
from sardonyx.transformers.decoders import Decoder
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.onnx_model import OnnxModel

logger = logging.getLogger(__name__)

OPSET = 17
SIZES = [(1, 8, 3), (2, 1, 5), (3, 4, 2), (1, 1, 1)]
"""(batch, length, past) of the inputs of comparisons."""
SIZES_WITHOUT_GAPS = [(1, 8, 1), (2, 1, 1), (1, 4, 1)]
"""The same for GroupQueryAttention, which knows no gaps before rows, and in onnxruntime one row where several words follow others."""
MERGED = {"decoder_merged_model": True}
SEPARATE = {"decoder_model": False, "decoder_with_past_model": True}
"""What is written: the names of files, and whether the decoder takes a cache."""


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
    parser.add_argument("-q", "--quantization_method", default="", choices=["", "blockwise", "quantize_dynamic"])
    parser.add_argument("--bits", type=int, default=4, help="of weights, with int4")
    parser.add_argument("--block_size", type=int, default=32, help="weights that share a scale, with int4")
    parser.add_argument("--int4_accuracy_level", type=int)
    parser.add_argument("--quantize_embedding_layer", action="store_true", help="with int8: words, too")
    parser.add_argument("--quantize_per_channel", action="store_true", help="with int8: a scale for each column")
    parser.add_argument("--quantize_reduce_range", action="store_true", help="with int8: weights of 7 bits")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--cache_dir", default="./model_cache", help="where fetched models are kept")
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


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Write the files, and compare them with PyTorch; gives their paths."""
    arguments = get_args(argv)
    setup_logger(arguments.verbose)
    prepare_environment(arguments.cache_dir, arguments.output, use_gpu=False)
    if arguments.reexport:
        remove_existing_files(arguments.output)
    location = arguments.model_name if arguments.input == "." else arguments.input
    loader = transformers_package().AutoModelForCausalLM
    model = loader.from_pretrained(location, cache_dir=arguments.cache_dir, attn_implementation="eager").float().eval()
    paths = []
    for name, with_past in (SEPARATE if arguments.no_merged else MERGED).items():
        decoder = Decoder(model, with_past)
        paths.append(_write(decoder, f"rank_0_{Path(arguments.model_name).name}_{name}", arguments))
        sizes = SIZES_WITHOUT_GAPS if arguments.use_gqa else SIZES
        compare(decoder, paths[-1], arguments.precision, sizes, len(sizes))
    logger.info("written: %s", ", ".join(paths))
    return paths


def _write(decoder: Decoder, stem: str, arguments: argparse.Namespace) -> str:
    """Export, fuse, convert; gives the path of the last file, which alone stays."""
    config = decoder.model.config
    is_half = arguments.precision is Precision.FLOAT16
    conversion = Conversion(
        "gpt2",
        config.num_attention_heads,
        config.hidden_size,
        precision=Precision.FLOAT16 if is_half else Precision.FLOAT32,
        use_external_data_format=True,
        half_options=lambda model: {"keep_io_types": False},
    )
    raw, fused = (Path(arguments.output, f"{stem}_fp32{suffix}.onnx") for suffix in ("", "_opt"))
    final = Path(arguments.output, f"{stem}_{arguments.precision}{'_opt' * (arguments.precision is Precision.FLOAT32)}.onnx")
    decoder.export(raw, OPSET, use_external_data_format=True)
    optimized = str(final if is_half else fused)
    conversion.optimize(raw, optimized)
    if arguments.use_gqa:
        grouped = use_group_query_attention(config, OnnxModel(onnx.load(optimized)))
        grouped.save_model_to_file(optimized, use_external_data_format=True)
    remove_existing_model(str(raw))
    if arguments.precision in (Precision.INT8, Precision.INT4):
        _quantize(fused, final, arguments)
        remove_existing_model(str(fused))
    return str(final)


def _quantize(source: Path, target: Path, arguments: argparse.Namespace) -> None:
    """Write a model with weights of 8 bits, or of 4 in blocks."""
    if arguments.precision is Precision.INT4:
        options: Mapping[str, Any] = {"is_symmetric": True, "accuracy_level": arguments.int4_accuracy_level}
        quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=arguments.bits, block_size=arguments.block_size, **options)
        quantizer.process()
        quantizer.model.save_model_to_file(str(target), True)
        return
    if arguments.quantization_method != "quantize_dynamic":
        raise ValueError("with int8 weights are quantized by --quantization_method quantize_dynamic")
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
