"""BART of the transformers package as two ONNX files: the encoder with the decoder's first step, and the decoder's other steps.

`python -m sardonyx.transformers.models.bart.export -m MODEL -o FOLDER --no_chain --no_inference`
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sardonyx.transformers.benchmark_helper import Precision, setup_logger
from sardonyx.transformers.conversion import Conversion, compare
from sardonyx.transformers.convert_generation import refuse_search
from sardonyx.transformers.encoder_decoders import DECODER, FIRST_STEP, SIZES, Part
from sardonyx.transformers.torch_onnx_export_helper import transformers_package

logger = logging.getLogger(__name__)

OLDEST_OPSET = 14
FILES = {"edinit": FIRST_STEP, "decoder_past": DECODER}
"""The parts by the names of their files."""


def print_args(args: argparse.Namespace) -> None:
    """Log arguments."""
    for name, value in vars(args).items():
        logger.info("%s: %s", name, value)


def user_command(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max_length", type=int, default=20)
    parser.add_argument("--min_length", type=int, default=0)
    parser.add_argument("-o", "--output", default="onnx_models", help="folder to write")
    parser.add_argument("-i", "--input_text", help="a text, for a search")
    parser.add_argument("-s", "--spm_path", help="a tokenizer of sentencepiece, for a search")
    parser.add_argument("-v", "--vocab_path", help="a vocabulary, for a search")
    parser.add_argument("-b", "--num_beams", type=int, default=5)
    parser.add_argument("--repetition_penalty", type=float, default=1.0)
    parser.add_argument("--no_repeat_ngram_size", type=int, default=3)
    parser.add_argument("--early_stopping", type=bool, default=False)
    parser.add_argument("--opset_version", type=int, default=OLDEST_OPSET)
    parser.add_argument("--no_encoder", action="store_true", help="do not write the encoder")
    parser.add_argument("--no_decoder", action="store_true", help="do not write the decoder")
    parser.add_argument("--no_chain", action="store_true", help="do not build a search around them, which is not possible yet")
    parser.add_argument("--no_inference", action="store_true", help="do not run a search, which is not possible yet")
    parser.add_argument("-m", "--model_dir", required=True, help="name or folder of the model")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Write the parts, and compare them with PyTorch; gives the paths of the files."""
    arguments = user_command(argv)
    setup_logger(False)
    print_args(arguments)
    if arguments.opset_version < OLDEST_OPSET:
        raise ValueError(f"the oldest opset is {OLDEST_OPSET}, got {arguments.opset_version}")
    loader = transformers_package().BartForConditionalGeneration
    model = loader.from_pretrained(arguments.model_dir, attn_implementation="eager").eval()
    config = model.config
    conversion = Conversion(
        "bart", config.encoder_attention_heads, config.d_model, overwrite=True, opset=arguments.opset_version
    )
    left_out = {"edinit": arguments.no_encoder, "decoder_past": arguments.no_decoder}
    paths = []
    for name, kind in FILES.items():
        if not left_out[name]:
            path = Path(arguments.output, f"{name}.onnx")
            part = Part(model, *kind, integers=np.int32)
            paths.append(conversion.write(part, path, path))
            compare(part, paths[-1], Precision.FLOAT32, SIZES, len(SIZES))
    if not (arguments.no_chain and arguments.no_inference):
        refuse_search(paths, "--no_chain --no_inference")
    return paths


if __name__ == "__main__":
    main()
