"""GPT-2 of the transformers package as an ONNX file, fused and of another precision if asked, and compared with PyTorch.

`python -m sardonyx.transformers.models.gpt2.convert_to_onnx -m gpt2 -o`
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sardonyx import __version__
from sardonyx.transformers.benchmark_helper import (
    Precision,
    create_onnxruntime_session,
    get_ort_environment_variables,
    output_details,
    setup_logger,
)
from sardonyx.transformers.conversion import TOLERANCES, Conversion
from sardonyx.transformers.model_timing import refuse_gpu
from sardonyx.transformers.models.gpt2.gpt2_helper import KEPT_IN_FLOAT, MODEL_CLASSES, Gpt2Helper
from sardonyx.transformers.models.gpt2.gpt2_tester import Gpt2Tester
from sardonyx.transformers.models.gpt2.stacked import Stacked
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.onnx_model_gpt2 import Gpt2OnnxModel
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

SIZES = [(1, 8, 0), (2, 1, 5), (3, 4, 2), (1, 1, 0)]
"""(batch, length, past) of the inputs of comparisons."""
MEASURED = 8, 1, 32
"""(batch, length, past) of the runs that are measured."""


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name_or_path", required=True, help="name or folder of the model")
    parser.add_argument("--model_class", default="GPT2LMHeadModel", choices=list(MODEL_CLASSES))
    parser.add_argument("--cache_dir", default=os.path.join(".", "cache_models"), help="where fetched models are kept")
    parser.add_argument("--output", default=os.path.join(".", "onnx_models"), help="folder or file to write")
    parser.add_argument("-o", "--optimize_onnx", action="store_true", help="fuse blocks")
    parser.add_argument("--use_gpu", action="store_true", help="refused: there are no GPUs here")
    parser.add_argument("--provider", default=None, help="the provider of sessions")
    parser.add_argument("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=list(Precision))
    parser.add_argument(
        "-i", "--input_test_file", default="", help="lines of JSON with input_ids, whose next words are compared"
    )
    parser.add_argument("-t", "--test_cases", type=int, default=20, help="how many random inputs are compared in a run")
    parser.add_argument("-r", "--test_runs", type=int, default=10, help="how many such runs")
    parser.add_argument("--tolerance", type=float, default=0, help="largest difference allowed; 0 is that of the precision")
    parser.add_argument("-e", "--use_external_data_format", action="store_true", help="weights in a file of their own")
    parser.add_argument("--overwrite", action="store_true", help="export again what is there")
    parser.add_argument("--use_int64_inputs", action="store_true", help="words, places and masks as int64, not int32")
    parser.add_argument("-s", "--stage", type=int, default=0, choices=[0, 1, 2], help="1: compare without a past")
    parser.add_argument("-a", "--auto_mixed_precision", action="store_true", help="with fp16: leave sums in float32")
    parser.add_argument("--keep_io_types", action="store_true", help="with fp16: inputs and outputs stay float32")
    for kind in ("io", "op", "node"):
        parser.add_argument(f"--{kind}_block_list", nargs="+", default=[], help=f"with fp16: each {kind} that stays float32")
    parser.add_argument(
        "--force_fp16_initializers", action="store_true", help="with fp16: weights, too, where ops stay float32"
    )
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
) -> dict[str, Any]:
    """Write a model, and append to a table how far it is from PyTorch and how long it takes; gives the line of the table."""
    arguments = parse_arguments(argv)
    setup_logger(arguments.verbose)
    refuse_gpu(arguments.use_gpu)
    wrapper, output, has_words = MODEL_CLASSES[arguments.model_class]
    options = {"cache_dir": arguments.cache_dir, "attn_implementation": "eager"}
    model = wrapper.from_pretrained(arguments.model_name_or_path, **options).eval()
    integers = dict.fromkeys(
        ("input_ids", "position_ids", "attention_mask"), np.int64 if arguments.use_int64_inputs else np.int32
    )
    part = Stacked(model, output, has_words, has_words, integers)
    path = _convert(part, arguments)
    difference = part.largest_difference(path, arguments.test_cases, SIZES)
    tolerance = arguments.tolerance or TOLERANCES[arguments.precision]
    given = {name: value for name, value in vars(arguments).items() if name in COLUMNS}
    size = get_onnx_model_size(path, arguments.use_external_data_format)
    line = {
        "experiment": experiment_name,
        "run_id": run_id,
        "model_name": str(arguments.model_name_or_path),
        **given,
        "precision": str(arguments.precision),
        "optimizer": arguments.optimize_onnx,
        "optimized": arguments.optimize_onnx,
        "onnxruntime": __version__,
        "environment_variables": get_ort_environment_variables(),
        "onnx_path": path,
        "onnx_size_in_bytes": size,
        "onnx_size_in_MB": f"{size / 2**20:.2f}",
        "test_cases": arguments.test_cases,
        "runs": arguments.test_runs,
        "max_diff": difference,
        "is_within_tolerance": difference <= tolerance,
        **_operators(path),
        **_figures(path, part, arguments),
    }
    output_details([line], csv_filename)
    if difference > tolerance:
        logger.warning("%s: outputs differ by up to %g from PyTorch's, %g is allowed", path, difference, tolerance)
    return line


COLUMNS = frozenset(
    ("model_class", "stage", "keep_io_types", "io_block_list", "op_block_list", "node_block_list")
    + ("force_fp16_initializers", "auto_mixed_precision")
)
"""Arguments that are columns of the table."""


def _operators(path: str) -> dict[str, str]:
    """The ops of a file, and those that stand for a whole block."""
    model = Gpt2OnnxModel(onnx.load(path, load_external_data=False))
    fused = [op for op, count in model.get_fused_operator_statistics().items() if count]
    return {"optimized_operators": ",".join(fused), "operators": ",".join(sorted(model.get_operator_statistics()))}


def _figures(path: str, part: Stacked, arguments: argparse.Namespace) -> dict[str, Any]:
    """How near a session is to PyTorch on random inputs, and how long a run takes."""
    session = create_onnxruntime_session(path, use_gpu=False, provider=arguments.provider, verbose=arguments.verbose)
    if session is None:
        raise RuntimeError(f"{path} cannot be opened; the log says why")
    kinds = {value.type for value in (*session.get_inputs(), *session.get_outputs()) if "float" in value.type}
    is_half = any("float16" in value.type for value in session.get_inputs())
    kind = loaded_torch().int64 if arguments.use_int64_inputs else loaded_torch().int32
    common: dict[str, Any] = {
        "is_float16": is_half,
        "use_io_binding": len(kinds) == 1,
        "model_class": arguments.model_class,
        "has_position_ids": part.has_places,
        "has_attention_mask": part.has_mask,
        **dict.fromkeys(("input_ids_dtype", "position_ids_dtype", "attention_mask_dtype"), kind),
    }
    if arguments.input_test_file:
        _test_generation(session, part.model, arguments)
    tolerance = arguments.tolerance or TOLERANCES[arguments.precision]
    runs = {"test_cases_per_run": arguments.test_cases, "total_runs": arguments.test_runs, "stage": arguments.stage}
    parity = Gpt2Helper.test_parity(
        session, part.model, "cpu", rtol=tolerance, atol=tolerance, verbose=arguments.verbose, **runs, **common
    )
    batch, length, past = MEASURED
    past = min(past, part.model.config.n_positions - length)
    sizes = {"batch_size": batch, "sequence_length": length, "past_sequence_length": past}
    latency = Gpt2Helper.test_performance(session, part.model, "cpu", **sizes, **common)
    return {get_latency_name(*MEASURED): f"{latency:.2f}", **{_column(name): value for name, value in parity.items()}}


def _column(name: str) -> str:
    """Percentiles have their numbers in front in tables."""
    return f"diff_{name.rpartition('_')[2]}_percentile" if name.startswith("max_diff_percentile") else name


def _test_generation(session: Any, model: Any, arguments: argparse.Namespace) -> None:
    """Compare the words that follow those of a file."""
    with open(arguments.input_test_file, encoding="utf-8") as file:
        inputs: list[Mapping[str, Any]] = [json.loads(line) for line in file if line.strip()]
    torch = loaded_torch()
    kind = torch.int64 if arguments.use_int64_inputs else torch.int32
    tensors = [{name: torch.tensor(value, dtype=kind) for name, value in line.items()} for line in inputs]
    Gpt2Tester.test_generation(
        session, model, "cpu", tensors, arguments.precision, arguments.model_class, verbose=arguments.verbose
    )


def _convert(part: Stacked, arguments: argparse.Namespace) -> str:
    """Export, fuse and convert; gives the path of the last file."""
    target = Path(arguments.output)
    folder = target.parent if target.suffix == ".onnx" else target
    paths = Gpt2Helper.get_onnx_paths(str(folder), arguments.model_name_or_path, arguments.model_class)
    config = part.model.config

    def half_options(_model: OnnxModel) -> Mapping[str, Any]:
        kept = [*arguments.op_block_list, *(KEPT_IN_FLOAT if arguments.auto_mixed_precision else ())]
        return {
            "keep_io_types": arguments.keep_io_types or arguments.io_block_list,
            "op_block_list": kept or None,
            "node_block_list": arguments.node_block_list,
            "force_fp16_initializers": arguments.force_fp16_initializers,
        }

    conversion = Conversion(
        "gpt2",
        config.n_head,
        config.hidden_size,
        arguments.optimize_onnx,
        arguments.precision,
        arguments.use_external_data_format,
        arguments.overwrite,
        half_options,
    )
    final = target if target.suffix == ".onnx" else folder / f"{Path(paths['raw']).stem}_{arguments.precision}.onnx"
    return conversion.write(part, Path(paths["raw"]), final)


if __name__ == "__main__":
    main()
