"""Times of Whisper by all engines for the recordings of a folder, each in a process of its own, as a table.

`python -m sardonyx.transformers.models.whisper.benchmark_all -a FOLDER --model-name MODEL --precision fp32 --device cpu --hf-pt-eager`
"""

from __future__ import annotations

import argparse
import csv
import datetime
import logging
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sardonyx.transformers.benchmark_helper import setup_logger
from sardonyx.transformers.model_timing import refuse_gpu
from sardonyx.transformers.models.whisper import benchmark as program
from sardonyx.transformers.torch_onnx_export_helper import transformers_package

logger = logging.getLogger(__name__)
SAMPLING_RATE = 16000
SETTINGS = ("Warmup Runs", "Measured Runs", "Model Name", "Engine", "Precision", "Device", "Audio File", "Duration (s)")
FIGURES = {
    "Load Time (s)": r"Loaded model in (\S+) s",
    "Feature Extraction (s)": r"Feature extraction: (\S+) s",
    "Token Length": r"Generated token length: (\d+) tokens",
    "Latency (s)": r"Latency: (\S+) s",
    "Throughput (qps)": r"Throughput: (\S+) qps",
    "CPU Usage (%)": r"CPU usage: (\S+)%",
    "Memory (MB)": r"CPU peak memory: (\S+) MB",
}
"""Columns of the table, and what the logs say about them."""
SOUNDS = (".wav", ".flac", ".mp3", ".m4a", ".ogg")


def get_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-a", "--audio-path", required=True, help="folder of recordings, or one")
    parser.add_argument("-l", "--language", default=None, help="of the recordings; goes with --task into the first words")
    parser.add_argument("-t", "--task", default=None, choices=["transcribe", "translate"])
    parser.add_argument("-w", "--warmup-runs", type=int, default=5, help="runs that are not counted")
    parser.add_argument("-n", "--num-runs", type=int, default=10, help="runs that are measured")
    parser.add_argument("--hf-pt-eager", action="store_true", help="measure PyTorch")
    parser.add_argument("--hf-pt-compile", action="store_true", help="measure what PyTorch compiles")
    parser.add_argument("--hf-ort-dir-path", default=None, help="measure files that optimum wrote")
    parser.add_argument("--ort-model-path", default=None, help="measure a folder of an encoder and a decoder, or a file")
    parser.add_argument("--model-name", required=True, help="name or folder of the model")
    parser.add_argument("--precision", required=True, choices=["int4", "int8", "fp16", "fp32"])
    parser.add_argument("--device", required=True, choices=["cpu", "cuda"], help="cuda is refused: there are no GPUs here")
    parser.add_argument("--device-id", type=int, default=0, help="accepted for compatibility")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--timeout", type=int, default=5, help="minutes that one measurement may take")
    parser.add_argument("--log-folder", default=None, help="where logs and the table are written")
    parser.add_argument("--tune", action="store_true", help="accepted for compatibility")
    args = parser.parse_args(argv)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    args.log_folder = args.log_folder or f"{Path(args.model_name).name}_{args.precision}_{stamp}"
    args.decoder_input_ids = _first_words(args)
    return args


def _first_words(args: argparse.Namespace) -> list[int]:
    """The words that tell a model language and task; none if neither is given."""
    if args.language is None and args.task is None:
        return []
    hub = transformers_package()
    processor = hub.WhisperProcessor.from_pretrained(args.model_name)
    config = hub.AutoConfig.from_pretrained(args.model_name)
    pairs = processor.get_decoder_prompt_ids(language=args.language, task=args.task or "transcribe")
    return [config.decoder_start_token_id, *(word for _, word in pairs)]


def process_log_file(device_id: int, log_file: str, base_results: Sequence[Any]) -> list[list[Any]]:
    """A row of the table for a log, none if it has no time."""
    text = Path(log_file).read_text(encoding="utf-8")
    found = {column: re.search(pattern, text) for column, pattern in FIGURES.items()}
    if found["Latency (s)"] is None:
        return []
    return [[*base_results, *(float(match[1]) if match else None for match in found.values())]]


def save_results(results: Sequence[Sequence[Any]], filename: str) -> None:
    """Write the table."""
    with open(filename, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*SETTINGS, *FIGURES])
        writer.writerows(results)
    logger.info("written to %s", filename)


def benchmark(
    args: argparse.Namespace, benchmark_cmd: Sequence[str], engine: str, audio_file: str, duration: float
) -> list[list[Any]]:
    """Run a command line with its log in a file; gives the rows. What fails or takes too long leaves none."""
    log = Path(args.log_folder, f"{engine}_{Path(audio_file).stem}_{args.device}.log")
    with open(log, "w", encoding="utf-8") as file:
        try:
            subprocess.run(benchmark_cmd, stdout=file, stderr=subprocess.STDOUT, timeout=args.timeout * 60, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            logger.warning("%s of %s: %s; see %s", engine, audio_file, type(error).__name__, log)
    settings = args.warmup_runs, args.num_runs, args.model_name, engine, args.precision, args.device
    return process_log_file(args.device_id, str(log), [*settings, audio_file, duration])


def main(argv: Sequence[str] | None = None) -> list[list[Any]]:
    """Measure, and write the table; gives its rows."""
    args = get_args(argv)
    setup_logger(args.verbose)
    refuse_gpu(args.device != "cpu")
    Path(args.log_folder).mkdir(parents=True, exist_ok=True)
    path = Path(args.audio_path)
    files = sorted(file for file in path.iterdir() if file.suffix in SOUNDS) if path.is_dir() else [path]
    results = []
    for file in files:
        duration = len(program.load_audio(str(file), SAMPLING_RATE)) / SAMPLING_RATE
        for engine, options in _engines(args).items():
            results += benchmark(args, _command(args, engine, str(file), options), engine, str(file), duration)
    save_results(results, str(Path(args.log_folder, f"{Path(args.model_name).name}_{args.precision}.csv")))
    return results


def _engines(args: argparse.Namespace) -> dict[str, list[str]]:
    """What is asked for, with the arguments that it needs."""
    asked = {
        "hf-pt-eager": [] if args.hf_pt_eager else None,
        "hf-pt-compile": [] if args.hf_pt_compile else None,
        "hf-ort": ["--hf-ort-dir-path", args.hf_ort_dir_path] if args.hf_ort_dir_path else None,
        "ort": ["--ort-model-path", args.ort_model_path] if args.ort_model_path else None,
    }
    return {engine: options for engine, options in asked.items() if options is not None}


def _command(args: argparse.Namespace, engine: str, file: str, options: Sequence[str]) -> list[str]:
    """The command line of one measurement."""
    named = {
        "--benchmark-type": engine,
        "--model-name": args.model_name,
        "--precision": args.precision,
        "--audio-path": file,
        "--device": args.device,
        "--warmup-runs": args.warmup_runs,
        "--num-runs": args.num_runs,
        "--log-folder": args.log_folder,
        "--decoder-input-ids": args.decoder_input_ids,
    }
    pairs = [str(word) for pair in named.items() for word in pair]
    return [sys.executable, "-m", program.__name__, *pairs, *options]


if __name__ == "__main__":
    main()
