"""Times of a model with several engines, each in a process of its own, in one table.

`python -m sardonyx.transformers.models.llama.benchmark_all --hf-pt-eager --ort-convert-to-onnx-model-path model.onnx
--model-name MODEL --precision fp32 --device cpu`
"""

from __future__ import annotations

import argparse
import datetime
import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sardonyx import __version__
from sardonyx.transformers.benchmark_helper import setup_logger
from sardonyx.transformers.metrics import BenchmarkRecord
from sardonyx.transformers.models.llama import benchmark as one_engine
from sardonyx.transformers.step_times import cpu_alone

logger = logging.getLogger(__name__)

STEPS = {"to get past_key_values": "prompt", "with past_key_values": "per-token"}
FIGURES = {
    "batch": re.compile(r"Batch Size: (\d+)"),
    "length": re.compile(r"Sequence Length: (\d+)"),
    "latency": re.compile(r"Latency: ([\d.e+-]+) s"),
    "throughput": re.compile(r"Throughput: ([\d.e+-]+) tps"),
    "memory": re.compile(r"peak=([\d.e+-]+) MB"),
}
"""What the program for one engine says; memory comes last."""
PYTORCH = "pytorch-eager", "pytorch-compile"
Results = list[list[Any]]


def get_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-b", "--batch-sizes", default="1 2")
    parser.add_argument("-s", "--sequence-lengths", default="8 16 32 64 128 256 512")
    parser.add_argument("-w", "--warmup-runs", type=int, default=5)
    parser.add_argument("-n", "--num-runs", type=int, default=1000)
    parser.add_argument("--hf-pt-eager", action="store_true", help="measure PyTorch")
    parser.add_argument("--hf-pt-compile", action="store_true", help="measure torch.compile")
    parser.add_argument("--hf-ort-dir-path", default="", help="measure optimum with the files of this folder")
    parser.add_argument("--ort-msft-model-path", default="", help="measure this file of github.com/microsoft/Llama-2-Onnx")
    parser.add_argument("--ort-convert-to-onnx-model-path", default="", help="measure this file of convert_to_onnx")
    parser.add_argument("--cache-dir", default="./model_cache", help="where fetched models are kept")
    parser.add_argument("--model-name", required=True, help="name or folder of the model")
    parser.add_argument("--precision", required=True, choices=["int4", "int8", "fp16", "fp32"])
    parser.add_argument("--device", required=True, type=cpu_alone, help="cpu")
    parser.add_argument("--device-id", type=int, default=0, help="not used: there is one CPU")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--timeout", type=int, default=10, help="minutes for each engine")
    parser.add_argument("--log-folder", help="where results are written")
    arguments = parser.parse_args(argv)
    arguments.model_size = Path(arguments.model_name).name.replace(".", "-")
    arguments.log_folder = arguments.log_folder or f"./{arguments.model_size}_{arguments.precision}"
    arguments.timeout *= 60
    os.makedirs(arguments.log_folder, exist_ok=True)
    return arguments


def process_log_file(device_id: int, log_file: str, base_results: Sequence[Any]) -> Results:
    """What a program has said, a line for each step behind what is known of all."""
    rows: Results = []
    values: dict[str, float] = {}
    step = None
    for line in Path(log_file).read_text(encoding="utf-8", errors="replace").splitlines():
        step = next((name for mark, name in STEPS.items() if mark in line), step)
        matches = {name: match for name, pattern in FIGURES.items() if (match := pattern.search(line))}
        values |= {name: float(match[1]) for name, match in matches.items()}
        if "memory" in matches and len(values) == len(FIGURES):
            sizes = int(values["batch"]), int(values["length"])
            latency = values["latency"]
            rows.append([*base_results, *sizes, step, latency, latency * 1000, values["throughput"], values["memory"] / 1000])
            values = {}
    return rows


def save_results(results: Results, filename: str) -> None:
    """Write the rows as a table, and as JSON beside it."""
    records = [_record(*row) for row in results]
    BenchmarkRecord.save_as_csv(filename, records)
    BenchmarkRecord.save_as_json(filename.replace(".csv", ".json"), records)
    logger.info("written: %s", filename)


def _record(
    warm_ups: int,
    runs: int,
    model: str,
    engine: str,
    precision: str,
    device: str,
    batch: int,
    length: int,
    step: str,
    seconds: float,
    milliseconds: float,
    throughput: float,
    gigabytes: float,
) -> BenchmarkRecord:
    backend = "pytorch" if engine in PYTORCH else "onnxruntime"
    package = ("torch", version("torch")) if engine in PYTORCH else ("sardonyx", __version__)
    record = BenchmarkRecord(model, precision, backend, device, *package, batch, warm_ups, runs)
    record.config.seq_length = length
    record.config.customized |= {"measure_step": step, "engine": engine}
    record.metrics.customized |= {"latency_s_mean": seconds, "throughput_tps": throughput}
    record.metrics.latency_ms_mean, record.metrics.max_memory_usage_GB = milliseconds, gigabytes
    return record


def benchmark(args: argparse.Namespace, benchmark_cmd: Sequence[str], engine: str) -> Results:
    """Run the program for one engine, as long as it may take; gives what it has said."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    path = os.path.join(args.log_folder, f"{engine}_{now}.log")
    with open(path, "w", encoding="utf-8") as log:
        try:
            done = subprocess.run(list(benchmark_cmd), stdout=log, stderr=log, timeout=args.timeout, check=False)
        except subprocess.TimeoutExpired:
            logger.warning("%s took more than %d s; what it has measured is kept", engine, args.timeout)
        else:
            if done.returncode:
                logger.warning("%s has failed, and %s says why", engine, path)
    base = [args.warmup_runs, args.num_runs, args.model_name, engine, args.precision, args.device]
    return process_log_file(args.device_id, path, base)


def _command(args: argparse.Namespace, kind: str, *more: str) -> list[str]:
    """The program for one engine."""
    names = "model_name", "precision", "batch_sizes", "sequence_lengths", "device", "warmup_runs", "num_runs", "log_folder"
    words = [word for name in (*names, "cache_dir") for word in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    return [sys.executable, "-m", one_engine.__name__, "--benchmark-type", kind, *words, *more]


def main(argv: Sequence[str] | None = None) -> str:
    """Measure with each engine that is wanted; gives the path of the table."""
    args = get_args(argv)
    setup_logger(args.verbose)
    path = ["--ort-model-path"]
    engines: Sequence[tuple[Any, str, str, list[str]]] = (
        (args.hf_pt_eager, "pytorch-eager", "hf-pt-eager", []),
        (args.hf_pt_compile, "pytorch-compile", "hf-pt-compile", []),
        (args.hf_ort_dir_path, "optimum-ort", "hf-ort", ["--hf-ort-dir-path"]),
        (args.ort_msft_model_path, "ort-msft", "ort-msft", path),
        (args.ort_convert_to_onnx_model_path, "onnxruntime", "ort-convert-to-onnx", path),
    )
    results = []
    for wanted, engine, kind, option in engines:
        if wanted:
            logger.info("measuring %s", engine)
            results += benchmark(args, _command(args, kind, *option, *([wanted] if option else [])), engine)
    if not results:
        raise RuntimeError(f"nothing was measured; name an engine, or see the logs in {args.log_folder}")
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    table = os.path.join(args.log_folder, f"{args.model_size}_{args.precision}_{now}.csv")
    save_results(results, table)
    return table


if __name__ == "__main__":
    main()
