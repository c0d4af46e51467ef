"""Times of a prompt and of one token behind it, with PyTorch, with optimum, or with a session of a file; one line for each figure.

`python -m sardonyx.transformers.models.llama.benchmark -bt ort-convert-to-onnx --ort-model-path model.onnx -m MODEL -p fp32`
"""

from __future__ import annotations

import argparse
import datetime
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import set_random_seed, setup_logger
from sardonyx.transformers.decoders import cache_of
from sardonyx.transformers.models.llama.dist_settings import get_rank, get_size
from sardonyx.transformers.models.llama.llama_inputs import (
    get_merged_sample_with_past_kv_inputs,
    get_msft_sample_inputs,
    get_sample_inputs,
    get_sample_with_past_kv_inputs,
    verify_ort_inputs,
)
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.step_times import (
    StepTimes,
    add_device,
    numbers,
    optimum_package,
    peak_memory,
    processor_share,
    step_times,
)
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

PYTORCH = "hf-pt-eager", "hf-pt-compile"
OPTIMUM = "hf-ort"
SESSIONS = "ort-msft", "ort-convert-to-onnx"
LONGEST_OF_MICROSOFT = 2048
"""Tokens for which models of github.com/microsoft/Llama-2-Onnx have memory."""
STEPS = {"prompt": "Evaluating the step to get past_key_values", "token": "Evaluating the step with past_key_values"}
Run = Callable[[Any], Any]


def get_args(rank: int = 0, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program; the precision is that of the inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-bt", "--benchmark-type", required=True, choices=[*PYTORCH, OPTIMUM, *SESSIONS])
    parser.add_argument("-m", "--model-name", required=True, help="name or folder of the model")
    parser.add_argument("-a", "--auth", action="store_true", help="fetch with the token that is stored")
    parser.add_argument("-p", "--precision", required=True, choices=["int4", "int8", "fp16", "fp32"])
    parser.add_argument("--hf-pt-dir-path", default="", help="folder of the module, if the name is not to be fetched")
    parser.add_argument("--hf-ort-dir-path", default="", help="folder of files of optimum or of convert_to_onnx")
    parser.add_argument("--ort-model-path", default="", help="a file")
    parser.add_argument("-b", "--batch-sizes", type=numbers, default="1 2")
    parser.add_argument("-s", "--sequence-lengths", type=numbers, default="32 64 128 256 512")
    add_device(parser)
    parser.add_argument("-w", "--warmup-runs", type=int, default=5)
    parser.add_argument("-n", "--num-runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=2, help="of random words")
    parser.add_argument("--max-length", type=int, default=32, help="not used: single steps are measured")
    parser.add_argument("--num-return-sequences", type=int, default=1, help="not used, too")
    parser.add_argument("--profile", action="store_true", help="write a profile of each step in place of times")
    parser.add_argument("--pt-filter-by", default="self_cpu_time_total", help="what a profile of PyTorch is ordered by")
    parser.add_argument("--pt-num-rows", type=int, default=1000, help="lines of a profile of PyTorch")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--log-folder", default=".", help="where profiles are written")
    parser.add_argument("--cache-dir", required=True, help="where fetched models are kept")
    arguments = parser.parse_args(argv)
    if arguments.benchmark_type == OPTIMUM and not arguments.hf_ort_dir_path:
        parser.error("hf-ort needs --hf-ort-dir-path")
    if arguments.benchmark_type in SESSIONS and not arguments.ort_model_path:
        parser.error(f"{arguments.benchmark_type} needs --ort-model-path")
    if arguments.profile and len(arguments.batch_sizes) * len(arguments.sequence_lengths) != 1:
        parser.error("--profile is of one batch size and one sequence length")
    arguments.precision = "fp16" if arguments.precision == "fp16" else "fp32"
    arguments.execution_provider = "CPUExecutionProvider"
    return arguments


def get_model(args: argparse.Namespace) -> Any:
    """The module, optimum's model or the session that is measured."""
    hub = transformers_package()
    torch = loaded_torch()
    if args.benchmark_type in PYTORCH:
        loader = hub.AutoModelForCausalLM
        kind = torch.float16 if args.use_fp16 else torch.float32
        source = args.hf_pt_dir_path or args.model_name
        model = loader.from_pretrained(source, cache_dir=args.cache_dir, token=args.auth or None).to(kind).eval()
        return torch.compile(model) if args.benchmark_type == "hf-pt-compile" else model
    options = SessionOptions()
    options.enable_profiling = args.profile
    if args.benchmark_type == OPTIMUM:
        loader = optimum_package().ORTModelForCausalLM
        return loader.from_pretrained(
            args.hf_ort_dir_path,
            file_name=_file_of(args.hf_ort_dir_path),
            provider=args.execution_provider,
            **({"session_options": options} if args.profile else {}),  # another runtime below optimum has options of its own
        )
    return InferenceSession(args.ort_model_path.format(args.rank), options, providers=[args.execution_provider])


def _file_of(folder: str) -> str:
    """The file of a folder that takes any number of words behind others."""
    names = [name for name in sorted(os.listdir(folder)) if name.endswith(".onnx")]
    for part in ("decoder_merged_model", "model_merged", "decoder_with_past_model", "model"):
        for name in names:
            if part in name:
                return name
    raise FileNotFoundError(f"{folder} has no file of a decoder, its files are {', '.join(names) or 'none'}")


def get_ort_model_inputs_len(args: argparse.Namespace, model: Any) -> int:
    """How many inputs a file has; 0 with PyTorch."""
    if args.benchmark_type in PYTORCH:
        return 0
    return len(model.input_names if args.benchmark_type == OPTIMUM else model.get_inputs())


def get_inputs(args: argparse.Namespace, ort_model_inputs_len: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Random inputs of a prompt, and of one token behind it."""
    batch, length, config = args.batch_size, args.sequence_length, args.config
    if args.benchmark_type in (*PYTORCH, OPTIMUM):
        past = get_sample_with_past_kv_inputs(config, args.target_device, batch, length, args.use_fp16, return_dict=True)
        return get_sample_inputs(config, args.target_device, batch, length, return_dict=True), past
    first, later = (_session_inputs(args, words, past, ort_model_inputs_len) for words, past in ((length, 0), (1, length)))
    return first, later


def _session_inputs(args: argparse.Namespace, words: int, past: int, input_count: int) -> dict[str, Any]:
    """Random inputs of so many words behind others, as arrays."""
    batch, config, halves, is_shared = args.batch_size, args.config, args.use_fp16, args.use_buffer_share
    if args.benchmark_type == "ort-msft":
        is_split = input_count > len(("x", "attn_mask", "k_cache", "v_cache", "pos"))
        return get_msft_sample_inputs(config, batch, past, words, LONGEST_OF_MICROSOFT, halves, is_shared, is_split)
    longest, place = config.max_position_embeddings, args.target_device
    inputs: dict[str, Any] = get_merged_sample_with_past_kv_inputs(
        config, place, batch, words, past, longest, halves, is_shared, "ort", return_dict=True, world_size=args.world_size
    )
    return inputs


def time_fn(args: argparse.Namespace, fn: Run, inputs: Any) -> StepTimes:
    """Measure runs, and tell the mean and how many texts that is in a second."""
    if args.verbose:
        logger.info("%s", fn(inputs))
    times = step_times(lambda: fn(inputs), args.warmup_runs, args.num_runs, args.batch_size)
    logger.info("Batch Size: %d", args.batch_size)
    logger.info("Sequence Length: %d", args.sequence_length)
    logger.info("Latency: %.9f s", times.latency)
    logger.info("Throughput: %.6f tps", times.throughput)
    return times


def measure_fn(args: argparse.Namespace, fn: Run, inputs: Any) -> None:
    """Tell how busy processors are in a run, and how much memory it takes."""
    logger.info("CPU usage: %.1f%%", 100 * processor_share(lambda: fn(inputs)))
    logger.info("CPU memory usage: before=%.1f MB, peak=%.1f MB", *peak_memory(lambda: fn(inputs)))


def profile_fn(args: argparse.Namespace, fn: Run, inputs: Any, inputs_type: str) -> str:
    """Run under a profiler; gives the name of the file, which a session writes when its profile ends."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    parts = f"b{args.batch_size}", f"s{args.sequence_length}", args.benchmark_type, args.precision, args.device, inputs_type
    name = "_".join((*parts, now))
    if args.benchmark_type not in PYTORCH:
        fn(inputs)
        return f"{name}.json"
    profiler = loaded_torch().profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profile:
        fn(inputs)
    path = os.path.join(args.log_folder, f"{name}.log")
    with open(path, "w", encoding="utf-8") as file:
        file.write(profile.key_averages().table(sort_by=args.pt_filter_by, row_limit=args.pt_num_rows))
    return path


def run_hf_inference(args: argparse.Namespace, init_inputs: Any, iter_inputs: Any, model: Any) -> None:
    """Measure a module, or optimum's model."""
    torch = loaded_torch()

    def run(inputs: dict[str, Any]) -> Any:
        past = inputs.get("past_key_values")
        if past:  # a cache grows with each run, so each has its own
            inputs = {**inputs, "past_key_values": tuple(past) if args.benchmark_type == OPTIMUM else cache_of(past)}
        with torch.no_grad():
            return model(**inputs)

    if not args.profile:
        _measure(args, run, init_inputs, iter_inputs)
        return
    for kind, inputs in (("prompt", init_inputs), ("token", iter_inputs)):
        name = profile_fn(args, run, inputs, kind)
        if args.benchmark_type == OPTIMUM and kind == "token":
            _keep_profile(args, model.session, name)


def run_ort_inference(args: argparse.Namespace, init_inputs: Any, iter_inputs: Any, model: InferenceSession) -> None:
    """Measure a session."""
    steps = [verify_ort_inputs(model, dict(inputs)) for inputs in (init_inputs, iter_inputs)]
    if not args.profile:
        _measure(args, partial(model.run, None), *steps)
        return
    for kind, inputs in zip(STEPS, steps, strict=True):
        session = model if kind == "prompt" else get_model(args)  # a session writes one profile
        name = profile_fn(args, partial(session.run, None), inputs, kind)
        _keep_profile(args, session, name)


def _keep_profile(args: argparse.Namespace, session: InferenceSession, name: str) -> None:
    path = os.path.join(args.log_folder, name)
    shutil.move(session.end_profiling(), path)
    logger.info("profile: %s", path)


def _measure(args: argparse.Namespace, run: Run, init_inputs: Any, iter_inputs: Any) -> None:
    for title, inputs in zip(STEPS.values(), (init_inputs, iter_inputs), strict=True):
        logger.info("%s", title)
        time_fn(args, run, inputs)
        measure_fn(args, run, inputs)


def run_inference(args: argparse.Namespace, init_inputs: Any, iter_inputs: Any, model: Any) -> None:
    """Measure what the arguments name."""
    measure = run_ort_inference if args.benchmark_type in SESSIONS else run_hf_inference
    measure(args, init_inputs, iter_inputs, model)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all batch sizes with all lengths."""
    args = get_args(get_rank(), argv)
    setup_logger(args.verbose)
    set_random_seed(args.seed)
    hub = transformers_package()
    loaded_torch().manual_seed(args.seed)
    args.rank, args.world_size = get_rank(), get_size()
    args.config = hub.AutoConfig.from_pretrained(args.model_name, cache_dir=args.cache_dir, token=args.auth or None)
    args.target_device, args.use_fp16, args.use_buffer_share = args.device, args.precision == "fp16", False
    model = get_model(args)
    input_count = get_ort_model_inputs_len(args, model)
    for batch, length in product(args.batch_sizes, args.sequence_lengths):
        args.batch_size, args.sequence_length = batch, length
        run_inference(args, *get_inputs(args, input_count), model)


if __name__ == "__main__":
    main()
