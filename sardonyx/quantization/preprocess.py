"""`python -m sardonyx.quantization.preprocess --input … --output …`: `quant_pre_process` from a terminal."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

from sardonyx.quantization.shape_inference import quant_pre_process


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepare a float model for quantization: infer shapes, fold and fuse.")
    parser.add_argument("--input", required=True, help="path of the float model")
    parser.add_argument("--output", required=True, help="path of the prepared model")
    parser.add_argument("--skip_optimization", type=_truth, default=False, help="do not fold and fuse")
    parser.add_argument("--skip_onnx_shape", type=_truth, default=False, help="do not infer shapes with the onnx package")
    parser.add_argument("--skip_symbolic_shape", type=_truth, default=False, help="do not infer symbolic shapes")
    parser.add_argument("--auto_merge", action="store_true", help="accepted for compatibility")
    parser.add_argument("--int_max", type=int, default=2**31 - 1, help="accepted for compatibility")
    parser.add_argument("--guess_output_rank", action="store_true", help="accepted for compatibility")
    parser.add_argument("--verbose", type=int, default=0, help="1: say which values have no type")
    parser.add_argument("--save_as_external_data", type=_truth, default=False, help="tensors go to files beside the model")
    parser.add_argument("--all_tensors_to_one_file", type=_truth, default=False, help="one file for all tensors")
    parser.add_argument("--external_data_location", help="name of that file")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024, help="bytes from which a tensor goes there")
    return parser.parse_args(arguments)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"true or false, not {text!r}")
    return text.lower() in ("true", "1")


def main(arguments: Sequence[str] | None = None) -> None:
    options = vars(parse_arguments(arguments))
    if options["verbose"]:
        logging.basicConfig(level=logging.INFO)
    quant_pre_process(options.pop("input"), options.pop("output"), **options)


if __name__ == "__main__":
    main()
