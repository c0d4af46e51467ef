"""Whisper of the transformers package as ONNX files, fused and of another precision if asked, and compared with PyTorch.

`python -m sardonyx.transformers.models.whisper.convert_to_onnx -m openai/whisper-tiny -o --no_beam_search_op`
"""

from __future__ import annotations

import argparse
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sardonyx.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from sardonyx.quantization.weight_only.configs import KQuantWeightOnlyQuantConfig
from sardonyx.transformers.benchmark_helper import Precision, prepare_environment, setup_logger
from sardonyx.transformers.conversion import compare
from sardonyx.transformers.convert_generation import refuse_search
from sardonyx.transformers.encoder_decoders import SIZES
from sardonyx.transformers.models.whisper.whisper_helper import PRETRAINED_WHISPER_MODELS, WhisperHelper

logger = logging.getLogger(__name__)

PROVIDERS = {"cpu": "CPUExecutionProvider"}
BLOCK_SIZE = 32
SENSITIVE = ("/self_attn/", "/encoder_attn/", "/fc2/")
"""Parts of the names of products whose weights have 8 bits in a layer that counts much."""
SEARCH_FLAGS = (
    ("-v", "--use_vocab_mask"),
    ("-u", "--use_prefix_vocab_mask"),
    ("-f", "--use_forced_decoder_ids"),
    ("-l", "--use_logits_processor"),
    ("--collect_cross_qk",),
    ("--extra_decoding_ids",),
    ("-t", "--use_temperature"),
    ("--output_sequence_scores",),
    ("--output_scores",),
    ("--output_no_speech_probs",),
    ("--use_decoder_masked_mha",),
)
"""Arguments of a search, which is not built here."""


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name_or_path", default=PRETRAINED_WHISPER_MODELS[0], help="name or folder of the model")
    parser.add_argument("--model_impl", default="hf", choices=["hf", "openai"], help="whose model it is")
    parser.add_argument("--cache_dir", default=os.path.join(".", "cache_models"), help="where fetched models are kept")
    parser.add_argument("--output", default=os.path.join(".", "onnx_models"), help="folder to write")
    parser.add_argument("-o", "--optimize_onnx", action="store_true", help="fuse blocks")
    parser.add_argument("--use_gpu", action="store_true", help="accepted; there are no GPUs here")
    parser.add_argument("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=list(Precision))
    parser.add_argument("--use_int64_inputs", action="store_true", help="words as int64, not int32")
    parser.add_argument("-r", "--provider", default="cpu", choices=list(PROVIDERS))
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("-e", "--use_external_data_format", action="store_true", help="weights in a file of their own")
    parser.add_argument("-w", "--overwrite", action="store_true", help="export again what is there")
    parser.add_argument("--separate_encoder_and_decoder_init", action="store_true", help="the encoder in a file of its own")
    parser.add_argument("--no_beam_search_op", action="store_true", help="build no search around the parts")
    parser.add_argument("--no_repeat_ngram_size", type=int, default=0, help="of a search")
    parser.add_argument("--output_cross_qk", action="store_true", help="times of words; not computed here")
    parser.add_argument("--cross_qk_onnx_model", help="of a search")
    for names in SEARCH_FLAGS:
        parser.add_argument(*names, action="store_true", help="of a search")
    parser.add_argument("--accuracy_level", type=int, default=0, help="of products of 4 bits")
    parser.add_argument("--quantize_symmetric", action="store_true", help="with int4 and int8: without zero points")
    parser.add_argument("--quant_method", default="k_quant", choices=["k_quant", "k_quant_mixed"])
    arguments = parser.parse_args(argv)
    arguments.collect_cross_qk = arguments.collect_cross_qk or arguments.output_cross_qk
    return arguments


def get_sensitive_node_names(matmul_nodes: Sequence[str], encoder_layers: int, decoder_layers: int) -> list[str]:
    """Products that need 8 bits where others have 4: the last one, and those of layers at both ends and of each third between."""
    layers = {"encoder": _sensitive_layers(encoder_layers), "decoder": _sensitive_layers(decoder_layers)}
    return [name for name in matmul_nodes if _is_sensitive(name, layers)]


def _is_sensitive(name: str, layers: dict[str, set[int]]) -> bool:
    if "proj_out" in name:
        return True
    layer = re.search(r"layers\.(\d+)", name)
    if layer is None:  # keys and values of the sound, computed once
        return "k_proj" in name or "v_proj" in name
    half = next((half for half in layers if f"/{half}/" in name), None)
    return half is not None and int(layer[1]) in layers[half] and any(part in name for part in SENSITIVE)


def _sensitive_layers(count: int) -> set[int]:
    eighth = count / 8
    return {layer for layer in range(count) if not eighth <= layer < 7 * eighth or (layer - round(eighth)) % 3 == 2}


def make_quant_algo_config(
    precision: Precision,
    quant_method: str,
    matmul_nodes: Sequence[str] | None = None,
    encoder_layers: int = 0,
    decoder_layers: int = 0,
) -> KQuantWeightOnlyQuantConfig:
    """How weights become integers: all of 8 bits, all of 4, or those of 8 that need them."""
    wide: Sequence[str] = ()
    if precision is Precision.INT8:
        wide = matmul_nodes or ()
    elif quant_method == "k_quant_mixed":
        wide = get_sensitive_node_names(matmul_nodes or (), encoder_layers, decoder_layers)
    return KQuantWeightOnlyQuantConfig(customized_weight_config={name: {"bits": 8} for name in wide})


def export_onnx_models(
    model_name_or_path: str,
    model_impl: str,
    cache_dir: str | None,
    output_dir: str,
    use_gpu: bool,
    use_external_data_format: bool,
    optimize_onnx: bool,
    precision: Precision,
    verbose: bool,
    use_forced_decoder_ids: bool = False,
    merge_encoder_and_decoder_init: bool = True,
    no_beam_search_op: bool = False,
    use_decoder_masked_mha: bool = False,
    output_qk: bool = False,
    overwrite: bool = False,
    use_int32_inputs: bool = True,
    accuracy_level: int = 0,
    quantize_symmetric: bool = False,
    provider: str = "cpu",
    quant_method: str = "k_quant",
) -> list[str]:
    """Write the parts of a model, and compare them with PyTorch; gives the paths of the files."""
    asked = merge_encoder_and_decoder_init, no_beam_search_op, output_qk
    parts = WhisperHelper.load_model(model_name_or_path, model_impl, cache_dir, None, None, *asked)
    paths = []
    for name, loaded in parts.items():
        part = loaded.with_integers(np.int32 if use_int32_inputs else np.int64)
        config = part.model.config
        path = WhisperHelper.get_onnx_path(output_dir, model_name_or_path, f"_{name}")
        if overwrite or not Path(path).exists():
            external = use_external_data_format
            WhisperHelper.export_onnx(part, path, provider, verbose, external, use_int32_inputs=use_int32_inputs)
        if optimize_onnx or precision is not Precision.FLOAT32:
            target = WhisperHelper.get_onnx_path(output_dir, model_name_or_path, f"_{name}_{precision}")
            sizes = config.encoder_attention_heads, config.d_model, config.decoder_layers
            WhisperHelper.optimize_onnx(path, target, precision is Precision.FLOAT16, *sizes, use_external_data_format)
            path = target
        if precision in (Precision.INT8, Precision.INT4):
            options = {"is_symmetric": quantize_symmetric, "accuracy_level": accuracy_level or 4}
            _quantize(path, precision, quant_method, config, use_external_data_format, options)
        compare(part, path, precision, SIZES, len(SIZES))
        paths.append(path)
    return paths


def _quantize(
    path: str, precision: Precision, method: str, config: Any, use_external_data_format: bool, options: dict[str, Any]
) -> None:
    """Give the products of a file weights of 4 or 8 bits."""
    model = onnx.load(path)
    names = [node.name for node in model.graph.node if node.op_type == "MatMul"]
    algorithm = make_quant_algo_config(precision, method, names, config.encoder_layers, config.decoder_layers)
    quantizer = MatMulNBitsQuantizer(model, block_size=BLOCK_SIZE, algo_config=algorithm, **options)
    quantizer.process()
    quantizer.model.save_model_to_file(path, use_external_data_format)


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Run the program; gives the paths of the files."""
    arguments = parse_arguments(argv)
    setup_logger(arguments.verbose)
    folder = os.path.dirname(arguments.output) if arguments.output.endswith(".onnx") else arguments.output
    prepare_environment(arguments.cache_dir, folder, arguments.use_gpu)
    paths = export_onnx_models(
        arguments.model_name_or_path,
        arguments.model_impl,
        arguments.cache_dir,
        folder,
        arguments.use_gpu,
        arguments.use_external_data_format,
        arguments.optimize_onnx,
        arguments.precision,
        arguments.verbose,
        arguments.use_forced_decoder_ids,
        not arguments.separate_encoder_and_decoder_init,
        arguments.no_beam_search_op,
        arguments.use_decoder_masked_mha,
        arguments.output_cross_qk,
        arguments.overwrite,
        not arguments.use_int64_inputs,
        arguments.accuracy_level,
        arguments.quantize_symmetric,
        arguments.provider,
        arguments.quant_method,
    )
    if not arguments.no_beam_search_op:
        refuse_search(paths, "--no_beam_search_op")
    separate = arguments.separate_encoder_and_decoder_init
    encoder, decoder = (next(path for path in paths if f"_{name}" in Path(path).stem) for name in ("encoder", "decoder"))
    asked = arguments.model_name_or_path, arguments.provider, separate, arguments.use_decoder_masked_mha, False
    WhisperHelper.save_processing(*asked, encoder, decoder, folder, arguments.cache_dir)
    logger.info("written: %s", ", ".join(paths))
    return paths


if __name__ == "__main__":
    main()
