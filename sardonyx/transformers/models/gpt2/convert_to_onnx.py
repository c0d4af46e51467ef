"""GPT-2 of the transformers package as an ONNX file, fused and of another precision if asked, and compared with PyTorch.

`python -m sardonyx.transformers.models.gpt2.convert_to_onnx -m gpt2 -o`
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sardonyx.transformers.benchmark_helper import Precision, output_details, setup_logger
from sardonyx.transformers.conversion import TOLERANCES, Conversion
from sardonyx.transformers.decoders import Decoder
from sardonyx.transformers.models.gpt2.gpt2_helper import KEPT_IN_FLOAT
from sardonyx.transformers.onnx_exporter import transformers_package

logger = logging.getLogger(__name__)

SIZES = [(1, 8, 0), (2, 1, 5), (3, 4, 2), (1, 1, 0)]
"""(batch, length, past) of the inputs of comparisons."""


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name_or_path", required=True, help="name or folder of the model")
    parser.add_argument("--model_class", default="GPT2LMHeadModel", choices=["GPT2LMHeadModel"])
    parser.add_argument("--cache_dir", default=os.path.join(".", "cache_models"), help="where fetched models are kept")
    parser.add_argument("--output", default=os.path.join(".", "onnx_models"), help="folder or file to write")
    parser.add_argument("-o", "--optimize_onnx", action="store_true", help="fuse blocks")
    parser.add_argument("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=list(Precision))
    parser.add_argument("-t", "--test_cases", type=int, default=20, help="how many random inputs are compared")
    parser.add_argument("--tolerance", type=float, default=0, help="largest difference allowed; 0 is that of the precision")
    parser.add_argument("-e", "--use_external_data_format", action="store_true", help="weights in a file of their own")
    parser.add_argument("--overwrite", action="store_true", help="export again what is there")
    parser.add_argument("--use_int64_inputs", action="store_true", help="words, places and masks as int64, not int32")
    parser.add_argument("-a", "--auto_mixed_precision", action="store_true", help="with fp16: leave sums in float32")
    parser.add_argument("--keep_io_types", action="store_true", help="with fp16: inputs and outputs stay float32")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


def get_onnx_model_size(onnx_path: str, use_external_data_format: bool) -> int:
    """Bytes of a model, with all files of its folder if its weights are in one."""
    if not use_external_data_format:
        return os.path.getsize(onnx_path)
    return sum(file.stat().st_size for file in Path(onnx_path).parent.rglob("*") if file.is_file())


def get_latency_name(batch_size: int, sequence_length: int, past_sequence_length: int) -> str:
    """The name of a column of measured times."""
    return f"average_latency(batch_size={batch_size},sequence_length={sequence_length},past_sequence_length={past_sequence_length})"


def main(
    argv: Sequence[str] | None = None,
    experiment_name: str = "",
    run_id: str = "0",
    csv_filename: str = "gpt2_parity_results.csv",
) -> dict[str, str | int | float | bool]:
    """Write a model, and append to a table how far it is from PyTorch; gives the line of the table."""
    arguments = parse_arguments(argv)
    setup_logger(arguments.verbose)
    hub = transformers_package()
    loader = hub.GPT2LMHeadModel
    model = loader.from_pretrained(arguments.model_name_or_path, cache_dir=arguments.cache_dir, attn_implementation="eager")
    integers = np.int64 if arguments.use_int64_inputs else np.int32
    decoder = Decoder(model.eval(), stacked=True, integers=integers)
    path = _convert(decoder, arguments)
    difference = decoder.largest_difference(path, arguments.test_cases, SIZES)
    tolerance = arguments.tolerance or TOLERANCES[arguments.precision]
    line = {
        "experiment": experiment_name,
        "run_id": run_id,
        "model_name": str(arguments.model_name_or_path),
        "precision": str(arguments.precision),
        "optimized": arguments.optimize_onnx,
        "onnx_path": path,
        "onnx_size_in_bytes": get_onnx_model_size(path, arguments.use_external_data_format),
        "test_cases": arguments.test_cases,
        "max_diff": difference,
        "is_within_tolerance": difference <= tolerance,
    }
    output_details([line], csv_filename)
    if difference > tolerance:
        logger.warning("%s: outputs differ by up to %g from PyTorch's, %g is allowed", path, difference, tolerance)
    return line


def _convert(decoder: Decoder, arguments: argparse.Namespace) -> str:
    """Export, fuse and convert; gives the path of the last file."""
    target = Path(arguments.output)
    folder = target.parent if target.suffix == ".onnx" else target
    stem = f"{Path(arguments.model_name_or_path).name}_past"
    config = decoder.model.config
    kept = list(KEPT_IN_FLOAT) if arguments.auto_mixed_precision else None
    conversion = Conversion(
        "gpt2",
        config.n_head,
        config.hidden_size,
        arguments.optimize_onnx,
        arguments.precision,
        arguments.use_external_data_format,
        arguments.overwrite,
        lambda model: {"keep_io_types": arguments.keep_io_types, "op_block_list": kept},
    )
    final = target if target.suffix == ".onnx" else folder / f"{stem}_{arguments.precision}.onnx"
    return conversion.write(decoder, folder / f"{stem}.onnx", final)


if __name__ == "__main__":
    main()
