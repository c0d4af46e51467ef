"""Which ops of GPT-2 should stay in float32, if the rest is float16: files of many kinds are compared with PyTorch and ranked.

`python -m sardonyx.transformers.models.gpt2.gpt2_parity -m gpt2 --test_cases 100 --runs 10`
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import logging
import os
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import combinations
from types import ModuleType
from typing import Any

import onnx

from sardonyx.transformers.benchmark_helper import output_details, setup_logger
from sardonyx.transformers.model_timing import refuse_gpu
from sardonyx.transformers.models.gpt2 import convert_to_onnx
from sardonyx.transformers.onnx_model import OnnxModel

logger = logging.getLogger(__name__)
Row = Mapping[str, Any]
KEPT = ("FastGelu", "LayerNormalization")
CANDIDATES = ("FastGelu", "LayerNormalization", "SkipLayerNormalization")
"""Ops that are tried in float32."""
ALIKE = ("model_name", "test_cases", "runs")
"""Rows that agree in these are compared."""
SIGNIFICANT = 0.05


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name_or_path", required=True, help="name or folder of the model")
    parser.add_argument("--csv", default="gpt2_parity_results.csv", help="the table, which may have rows of earlier runs")
    parser.add_argument("--test_cases", type=int, default=500, help="how many random inputs in a run")
    parser.add_argument("--runs", type=int, default=40, help="how many such runs")
    parser.add_argument("--use_gpu", action="store_true", help="refused: there are no GPUs here")
    parser.add_argument("--all", action="store_true", help="try each op alone, too")
    parser.add_argument("-e", "--use_external_data_format", action="store_true", help="weights in a file of their own")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--skip_test", action="store_true", help="rank the rows of the table alone")
    parser.add_argument("--overwrite", action="store_true", help="begin a new table")
    return parser.parse_args(argv)


class ParityTask:
    """Conversions, each with a number and a row of the table."""

    def __init__(self, test_cases: int, total_runs: int, csv_path: str):
        self.test_cases, self.total_runs, self.csv_path = test_cases, total_runs, csv_path
        self.results: list[dict[str, Any]] = []
        self.run_id = 0

    def run(self, argv: Sequence[str], experiment_name: str) -> dict[str, Any] | None:
        """Convert a model with these arguments and compare it; None, with the reason in the log, where that fails."""
        counts = ["-t", str(self.test_cases), "-r", str(self.total_runs)]
        number = str(self.run_id)
        self.run_id += 1
        try:
            row = convert_to_onnx.main([*argv, *counts], experiment_name, number, self.csv_path)
        except Exception:
            logger.exception("%s: the file cannot be converted or compared", experiment_name)
            return None
        self.results.append(row)
        return row


# --- results


def load_results_from_csv(csv_path: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    with open(csv_path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def get_latency(row: Row) -> float:
    """The average time of a row, in milliseconds."""
    name = next((name for name in row if name.startswith("average_latency(batch_size=")), None)
    if name is None:
        raise ValueError(f"the row has no average latency, but {', '.join(row)}")
    return float(row[name])


def score(row: Row) -> float:
    """How good a file is: the share of the same words counts most, then time, then size."""
    return float(row["top1_match_rate"]) * 1000 - get_latency(row) * 10 - float(row["onnx_size_in_MB"]) / 100


def print_wins(wins: Mapping[str, int], rows: Sequence[Row], test_name: str) -> None:
    """Show a ranking by how many others a file is better than, then by scores."""
    ranked = sorted(rows, key=lambda row: (wins.get(str(row["run_id"]), 0), score(row)), reverse=True)
    print(f"ranking by {test_name}:")
    for place, row in enumerate(ranked, 1):
        figures = f"{float(row['top1_match_rate']):.4f} same words, {get_latency(row):.2f} ms, {row['onnx_size_in_MB']} MB"
        won = wins.get(str(row["run_id"]), 0)
        print(f"{place:2d}. run {row['run_id']}, better than {won}: {figures}, {row['experiment']}")


def run_significance_test(rows: Sequence[Row], output_csv_path: str) -> list[dict[str, Any]]:
    """Tell which files choose PyTorch's words more often, by the U test and the t test of their runs; gives a row for each pair."""
    stats = _statistics_package()
    results: list[dict[str, Any]] = []
    wins: dict[str, MutableMapping[str, int]] = {"U": {}, "T": {}}
    alike = [pair for pair in combinations(rows, 2) if all(str(pair[0][name]) == str(pair[1][name]) for name in ALIKE)]
    for pair in alike:
        rates = [_rates(row) for row in pair]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # rates that are the same in all runs have no variance
            tests = {"U": stats.mannwhitneyu(*rates, alternative="two-sided"), "T": stats.ttest_ind(*rates)}
        result: dict[str, Any] = {"model_name": pair[0]["model_name"]}
        for number, row in enumerate(pair, 1):
            result |= {f"run_id_{number}": row["run_id"], f"experiment_{number}": row["experiment"]}
            result[f"top1_match_rate_{number}"] = float(row["top1_match_rate"])
        better = max(pair, key=lambda row: float(row["top1_match_rate"]))
        for test, outcome in tests.items():
            result |= {f"{test}_statistic": float(outcome.statistic), f"{test}_pvalue": float(outcome.pvalue)}
            if outcome.pvalue < SIGNIFICANT:
                wins[test][str(better["run_id"])] = wins[test].get(str(better["run_id"]), 0) + 1
        results.append(result)
    if results:
        output_details(results, output_csv_path)
    for test, name in (("U", "U test"), ("T", "t test")):
        print_wins(wins[test], rows, name)
    return results


def _rates(row: Row) -> list[float]:
    """The share of same words in each run; tables have it as text."""
    rates = row["top1_match_rate_per_run"]
    return [float(rate) for rate in (json.loads(rates) if isinstance(rates, str) else rates)]


def _statistics_package() -> ModuleType:
    try:
        return importlib.import_module("scipy.stats")
    except ImportError as error:
        raise ImportError("the tests of significance are scipy's: pip install scipy") from error


# --- candidates


def get_last_matmul_node_name(raw_onnx_model: str) -> str | None:
    """The product that gives the logits, None if something else does."""
    model = OnnxModel(onnx.load(raw_onnx_model, load_external_data=False))
    name = model.graph().output[0].name
    node = model.output_name_to_node().get(name)
    if node is None or node.op_type != "MatMul":
        logger.warning("%s is given by %s, not by MatMul", name, node.op_type if node is not None else "no node")
        return None
    return node.name


def get_mixed_precision_parameters(
    args: argparse.Namespace, last_matmul_node_name: str | None, op_block_list: Sequence[str]
) -> list[str]:
    """Arguments of the converter: float16 except for logits, their product, and some ops."""
    parameters = ["-m", args.model_name_or_path, "-o", "-p", "fp16", "--io_block_list", "logits"]
    if args.use_external_data_format:
        parameters.append("--use_external_data_format")
    if last_matmul_node_name:
        parameters += ["--node_block_list", last_matmul_node_name]
    return parameters + (["--op_block_list", *op_block_list] if op_block_list else [])


def run_candidate(
    task: ParityTask,
    args: argparse.Namespace,
    last_matmul_node_name: str | None,
    op_block_list: Sequence[str] = KEPT,
) -> dict[str, Any] | None:
    """Compare a file whose logits and some ops are float32."""
    also = f" and {','.join(sorted(op_block_list))}" if op_block_list else ""
    name = f"Mixed precision: logits{also} in FP32"
    return task.run(get_mixed_precision_parameters(args, last_matmul_node_name, op_block_list), name)


def get_baselines(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Arguments of the converter for a file of float32, and for one of float16."""
    common = ["-m", args.model_name_or_path, "-o", *(["--use_external_data_format"] if args.use_external_data_format else [])]
    return [*common, "-p", "fp32"], [*common, "-p", "fp16"]


def run_tuning_step0(
    task: ParityTask, fp16_baseline: Sequence[str], all_ops: Sequence[str], optimized_ops: Sequence[str]
) -> None:
    """Which op loses most in float16? All are float32 but one, and the fused ones of them together."""
    task.run([*fp16_baseline, "--io_block_list", "logits"], "FP16 except logits")
    task.run([*fp16_baseline, "--keep_io_types"], "Graph I/O FP32, Other FP16")
    everything = [*fp16_baseline, "--keep_io_types", "--op_block_list", *all_ops, "--force_fp16_initializers"]
    task.run(everything, "FP32 except weights in FP16")
    for op in optimized_ops:
        kept = [other for other in all_ops if other != op]
        task.run([*fp16_baseline, "--keep_io_types", "--op_block_list", *kept], f"FP32 except {op} in FP16")


def run_tuning_step1(task: ParityTask, mixed_precision_baseline: Sequence[str], optimized_ops: Sequence[str]) -> None:
    """Which fused op gains most in float32? One at a time."""
    for op in optimized_ops:
        task.run([*mixed_precision_baseline, "--op_block_list", op], f"Mixed precision baseline + {op} in FP32")


def run_tuning_step2(task: ParityTask, mixed_precision_baseline: Sequence[str], optimized_ops: Sequence[str]) -> None:
    """Which fused op gains most beside those that are known to gain?"""
    known = [op for op in CANDIDATES if op in optimized_ops]
    for op in optimized_ops:
        if op not in known:
            kept = [*known, op]
            task.run(
                [*mixed_precision_baseline, "--op_block_list", *kept], f"Mixed precision baseline + {','.join(kept)} in FP32"
            )


def run_parity(task: ParityTask, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare files of float32, of float16, and of mixtures; gives the rows."""
    fp32_baseline, fp16_baseline = get_baselines(args)
    if task.run(fp32_baseline, "FP32 baseline") is None:
        return task.results
    half = task.run(fp16_baseline, "FP16 baseline")
    if half is None:
        return task.results
    fused, every = half["optimized_operators"].split(","), half["operators"].split(",")
    last = get_last_matmul_node_name(half["onnx_path"])  # fused nodes may have other names than those of the raw file
    if args.all:
        run_tuning_step0(task, fp16_baseline, every, fused)
        baseline = get_mixed_precision_parameters(args, last, [])
        run_tuning_step1(task, baseline, fused)
        run_tuning_step2(task, baseline, fused)
    norms = ("SkipLayerNormalization", "LayerNormalization")
    blocks = ((), KEPT, ("FastGelu", *norms), (*norms, "Add"), ("FastGelu", "EmbedLayerNormalization", *norms, "Add"))
    for ops in blocks:
        run_candidate(task, args, last, [op for op in ops if op in every])
    return task.results


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Compare, and rank all rows of the table; gives them."""
    args = parse_arguments(argv)
    setup_logger(args.verbose)
    refuse_gpu(args.use_gpu)
    _statistics_package()  # before hours of comparisons
    if args.overwrite and os.path.exists(args.csv):
        os.remove(args.csv)
    if not args.skip_test:
        run_parity(ParityTask(args.test_cases, args.runs, args.csv), args)
    rows = load_results_from_csv(args.csv)
    run_significance_test(rows, f"{os.path.splitext(args.csv)[0]}.stats.csv")
    return rows


if __name__ == "__main__":
    main()
