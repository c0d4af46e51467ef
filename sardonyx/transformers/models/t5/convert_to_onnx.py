"""T5 and mT5 of the transformers package as ONNX files, fused and of another precision if asked, and compared with PyTorch.

`python -m sardonyx.transformers.models.t5.convert_to_onnx -m t5-small -o`
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from sardonyx.transformers.benchmark_helper import (
    Precision,
    create_onnxruntime_session,
    prepare_environment,
    setup_logger,
)
from sardonyx.transformers.conversion import TOLERANCES
from sardonyx.transformers.models.t5.t5_helper import PRETRAINED_T5_MODELS, T5Helper

logger = logging.getLogger(__name__)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name_or_path", default=PRETRAINED_T5_MODELS[0], help="name or folder of the model")
    parser.add_argument("--model_type", default="t5", choices=["t5", "mt5"])
    parser.add_argument("--cache_dir", default=os.path.join(".", "cache_models"), help="where fetched models are kept")
    parser.add_argument("--output", default=os.path.join(".", "onnx_models"), help="folder to write")
    parser.add_argument("-o", "--optimize_onnx", action="store_true", help="fuse blocks")
    parser.add_argument("--use_gpu", action="store_true", help="accepted; there are no GPUs here")
    parser.add_argument("-p", "--precision", default="fp32", choices=["fp32", "fp16"])
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("-e", "--use_external_data_format", action="store_true", help="weights in a file of their own")
    parser.add_argument(
        "-s", "--use_decoder_start_token", action="store_true", help="the first word of the decoder is no input"
    )
    parser.add_argument("-w", "--overwrite", action="store_true", help="export again what is there")
    parser.add_argument("--disable_auto_mixed_precision", action="store_true", help="with fp16: leave nothing in float32")
    parser.add_argument("--force_fp16_io", action="store_true", help="with fp16: inputs and outputs are float16")
    parser.add_argument("--use_int64_inputs", action="store_true", help="words and masks as int64, not int32")
    parser.add_argument("--state_dict_path", default="", help="a file of weights to load into the model")
    parser.add_argument(
        "--encoder_decoder_init", action="store_true", help="the encoder and the decoder's first step in one file"
    )
    return parser.parse_args(argv)


def export_onnx_models(
    model_name_or_path: str,
    cache_dir: str | None,
    output_dir: str,
    use_gpu: bool = False,
    use_external_data_format: bool = False,
    optimize_onnx: bool = False,
    precision: str = "fp32",
    verbose: bool = False,
    use_decoder_start_token: bool = False,
    overwrite: bool = False,
    disable_auto_mixed_precision: bool = False,
    use_int32_inputs: bool = True,
    model_type: str = "t5",
    state_dict_path: str = "",
    encoder_decoder_init: bool = False,
    force_fp16_io: bool = False,
    shape_infer_before_optimization: bool = False,
) -> list[str]:
    """Write the parts of a model, and compare them with PyTorch; gives the paths of the files."""
    wanted = Precision(precision)
    if wanted not in (Precision.FLOAT32, Precision.FLOAT16):
        raise ValueError(f"the precision is {precision!r}; fp32 and fp16 are known")
    parts = T5Helper.load_model(model_name_or_path, cache_dir, None, model_type, state_dict_path, encoder_decoder_init)
    paths = []
    for name, part in parts.items():
        path = T5Helper.get_onnx_path(output_dir, model_name_or_path, f"_{name}")
        if overwrite or not Path(path).exists():
            first_word_is_input = not use_decoder_start_token
            T5Helper.export_onnx(part, None, path, verbose, use_external_data_format, first_word_is_input, use_int32_inputs)
        if optimize_onnx or wanted is not Precision.FLOAT32:
            config = part.model.config
            target = T5Helper.get_onnx_path(output_dir, model_name_or_path, f"_{name}_{precision}")
            sizes = wanted is Precision.FLOAT16, config.num_heads, config.hidden_size, use_external_data_format
            T5Helper.optimize_onnx(path, target, *sizes, not disable_auto_mixed_precision, use_gpu, force_fp16_io)
            path = target
        session = create_onnxruntime_session(path, use_gpu=False, verbose=verbose)
        difference = T5Helper.verify_onnx(part, session, None, use_int32_inputs)
        logger.info("%s: outputs differ by up to %g from PyTorch's", path, difference)
        if difference > TOLERANCES[wanted]:
            logger.warning("%s: outputs differ by up to %g from PyTorch's, which is much", path, difference)
        paths.append(path)
    return paths


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Run the program."""
    arguments = parse_arguments(argv)
    setup_logger(arguments.verbose)
    folder = os.path.dirname(arguments.output) if arguments.output.endswith(".onnx") else arguments.output
    prepare_environment(arguments.cache_dir, folder, arguments.use_gpu)
    paths = export_onnx_models(
        arguments.model_name_or_path,
        arguments.cache_dir,
        folder,
        arguments.use_gpu,
        arguments.use_external_data_format,
        arguments.optimize_onnx,
        arguments.precision,
        arguments.verbose,
        arguments.use_decoder_start_token,
        arguments.overwrite,
        arguments.disable_auto_mixed_precision,
        not arguments.use_int64_inputs,
        arguments.model_type,
        arguments.state_dict_path,
        arguments.encoder_decoder_init,
        arguments.force_fp16_io,
    )
    logger.info("written: %s", ", ".join(paths))
    return paths


if __name__ == "__main__":
    main()
