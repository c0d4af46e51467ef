"""Times of texts that a decoder writes: the prompt, the first token, each further one, the choice of tokens, and all together.

`python -m sardonyx.transformers.models.llama.benchmark_e2e -bt ort -m MODEL -o model.onnx -f prompts.json -p fp32`
"""

from __future__ import annotations

import argparse
import csv
import datetime
import gc
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import run_times, set_random_seed, setup_logger
from sardonyx.transformers.decoders import cache_of
from sardonyx.transformers.models.llama.llama_inputs import add_io_bindings_as_tensors, get_initial_inputs_and_outputs
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.step_times import StepTimes, add_device, numbers, peak_memory
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)


def get_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program; the precision is that of the inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-bt", "--benchmark-type", required=True, choices=["pt-eager", "pt-compile", "ort"])
    parser.add_argument("-m", "--model-name", help="name of the model")
    parser.add_argument("-a", "--auth", action="store_true", help="fetch with the token that is stored")
    parser.add_argument("-t", "--trust", action="store_true", help="run code that the model brings")
    parser.add_argument("-c", "--cache-dir", default=os.path.join(".", "model_cache"), help="where fetched models are kept")
    parser.add_argument("--hf-dir-path", default="", help="folder of the model, if the name is not to be fetched")
    parser.add_argument("-o", "--onnx-model-path", help="the file, with ort")
    parser.add_argument("-f", "--prompts-file", required=True, help="JSON: a prompt for each count of tokens")
    parser.add_argument(
        "--use_buffer_share", action="store_true", help="with GroupQueryAttention: one memory for keys and values"
    )
    parser.add_argument("--anomaly-filtering", action="store_true", help="pass over tokens that took ten times the least")
    parser.add_argument("-b", "--batch-sizes", type=numbers, default="1 2")
    parser.add_argument("-s", "--prompt-lengths", type=numbers, default="16 64 256 1024")
    parser.add_argument("-p", "--precision", required=True, choices=["int4", "int8", "fp16", "fp32"])
    parser.add_argument("-g", "--generation-length", type=int, default=256, help="tokens to write")
    add_device(parser)
    parser.add_argument("-w", "--warmup-runs", type=int, default=5)
    parser.add_argument("-n", "--num-runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2)
    arguments = parser.parse_args(argv)
    if arguments.benchmark_type == "ort" and not arguments.onnx_model_path:
        parser.error("ort needs --onnx-model-path")
    if not (arguments.model_name or arguments.hf_dir_path):
        parser.error("the model has a --model-name or a --hf-dir-path")
    if arguments.generation_length < 1:
        parser.error("--generation-length is 1 at least")
    arguments.onnx_precision = arguments.precision
    arguments.precision = "fp16" if arguments.precision == "fp16" else "fp32"
    arguments.use_fp16 = arguments.precision == "fp16"
    arguments.target_device, arguments.execution_provider = arguments.device, "CPUExecutionProvider"
    arguments.engine = "ort" if arguments.benchmark_type == "ort" else "pt"
    arguments.use_buffer_share = arguments.use_buffer_share and arguments.engine == "ort"
    return arguments


def get_model(args: argparse.Namespace) -> Any:
    """The module or the session that is measured."""
    if args.benchmark_type == "ort":
        return InferenceSession(args.onnx_model_path, providers=[args.execution_provider])
    loader = transformers_package().AutoModelForCausalLM
    torch = loaded_torch()
    kind = torch.float16 if args.use_fp16 else torch.float32
    model = loader.from_pretrained(args.hf_dir_path or args.model_name, **_hub_options(args)).to(kind).eval()
    return torch.compile(model) if args.benchmark_type == "pt-compile" else model


def _hub_options(args: argparse.Namespace) -> dict[str, Any]:
    return {"cache_dir": args.cache_dir, "token": args.auth or None, "trust_remote_code": args.trust}


def run_inference(args: argparse.Namespace, model: Any, runs: int, inputs: Any, outputs: Any) -> tuple[float, Any]:
    """The mean seconds of so many runs, and the outputs of the last."""
    if args.benchmark_type == "ort":
        binding = add_io_bindings_as_tensors(model, inputs, outputs, args.use_fp16, args.use_buffer_share)
        return StepTimes(run_times(lambda: model.run_with_iobinding(binding), runs)).latency, outputs
    torch = loaded_torch()
    past = inputs["past_key_values"]
    times = []
    for _ in range(runs):
        own = {**inputs, "past_key_values": cache_of(past) if isinstance(past, list) else past}
        start = time.perf_counter()
        with torch.no_grad():
            outputs = model(**own)
        times.append(time.perf_counter() - start)
    return StepTimes(times).latency, outputs


def prepare_model_for_inference(
    args: argparse.Namespace, model: Any, config: Any, tokenizer: Any, prompt_length: int, prompt: Sequence[str]
) -> tuple[dict[str, Any], Any]:
    """Inputs of prompts, and memory for outputs, behind runs that are not counted."""
    clear_cache()
    inputs, outputs = get_initial_inputs_and_outputs(
        config, tokenizer, prompt_length, prompt, args.target_device, args.use_fp16, args.use_buffer_share, args.engine
    )
    if args.warmup_runs:
        run_inference(args, model, args.warmup_runs, dict(inputs), outputs)
    return inputs, outputs


def clear_cache() -> None:
    """Free what nothing uses any more."""
    gc.collect()


@dataclass
class Writing:
    """How long texts took: seconds of each step, of each choice, and of all."""

    tokens: Any
    steps: list[float] = field(default_factory=list)
    choices: list[float] = field(default_factory=list)
    seconds: float = 0.0


def write(args: argparse.Namespace, model: Any, config: Any, tokenizer: Any, inputs: dict[str, Any], outputs: Any) -> Writing:
    """Write tokens behind prompts, each time the likeliest one; a text that has ended is filled up."""
    torch = loaded_torch()
    writing = Writing(inputs["input_ids"])
    is_over = torch.zeros(len(writing.tokens), 1, dtype=torch.bool)
    start = time.perf_counter()
    for _ in range(1 + args.generation_length):  # the first step takes the prompt
        seconds, outputs = run_inference(args, model, 1, inputs, outputs)
        writing.steps.append(seconds)
        choice_start = time.perf_counter()
        logits = outputs["logits"]
        chosen = logits[:, -1:].argmax(-1).masked_fill(is_over, tokenizer.eos_token_id)
        is_over |= chosen == tokenizer.eos_token_id
        writing.choices.append(time.perf_counter() - choice_start)
        writing.tokens = torch.hstack((writing.tokens, chosen))
        inputs = _later_inputs(args, inputs, outputs, chosen)
        if args.engine == "ort":
            outputs = _later_outputs(args, config, inputs, outputs)
    writing.seconds = time.perf_counter() - start
    return writing


def _later_inputs(args: argparse.Namespace, inputs: dict[str, Any], outputs: Any, chosen: Any) -> dict[str, Any]:
    """Inputs of the step behind this one."""
    torch = loaded_torch()
    words = {
        "input_ids": chosen,
        "attention_mask": torch.hstack((inputs["attention_mask"], torch.ones_like(chosen))),
        "position_ids": inputs["position_ids"][:, -1:] + 1,
    }
    if args.engine == "pt":
        return {**words, "past_key_values": outputs["past_key_values"]}
    names = [name for name in inputs if name.startswith("past")]
    if args.use_buffer_share:
        return {**words, **{name: inputs[name] for name in names}}
    return {**words, **{name: outputs[name.replace("past_key_values", "present")] for name in names}}


def _later_outputs(args: argparse.Namespace, config: Any, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Memory for the outputs of the step behind this one."""
    batch, length = inputs["attention_mask"].shape
    later = {"logits": outputs["logits"].new_zeros(batch, 1, config.vocab_size)}
    for name, tensor in outputs.items():
        if name.startswith("present"):
            later[name] = tensor.new_zeros(*tensor.shape[:2], length, tensor.shape[3])
    return later


COLUMNS = (
    "Prompt Processing",
    "Sampling",
    "First Token Generated",
    "Average {} of First {half} Tokens Generated",
    "Average {} of First {all} Tokens Generated",
)


def save_results(results: Sequence[Sequence[Any]], filename: str, gen_length: int) -> None:
    """Write a table with a line for each batch size and length."""
    columns = ["Batch Size", "Prompt Length"]
    for column in COLUMNS:
        text = column if "{}" in column else column + " {}"
        for kind, unit in (("Latency", "ms"), ("Throughput", "tps")):
            columns.append(f"{text.format(kind, half=gen_length // 2, all=gen_length)} ({unit})")
    columns += ["Wall-Clock Latency (s)", "Wall-Clock Throughput (tps)"]
    with open(filename, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(results)
    logger.info("written: %s", filename)


def _row(args: argparse.Namespace, batch: int, length: int, prompt_seconds: float, writing: Writing) -> list[Any]:
    """A line of the table."""
    tokens = StepTimes(writing.steps[1:], batch)
    if args.anomaly_filtering:
        tokens = tokens.without_anomalies()
    parts = (
        StepTimes([prompt_seconds], batch * length),
        StepTimes(writing.choices, batch),
        tokens.first(1),
        tokens.first(args.generation_length // 2),
        tokens,
    )
    written = batch * (length + args.generation_length)
    return [batch, length, *(figure for part in parts for figure in part.figures), writing.seconds, written / writing.seconds]


def _prompts(path: str) -> dict[int, str]:
    return {int(length): prompt for length, prompt in json.loads(Path(path).read_text(encoding="utf-8")).items()}


def main(argv: Sequence[str] | None = None) -> str:
    """Measure all batch sizes with all lengths; gives the path of the table."""
    args = get_args(argv)
    setup_logger(False)
    set_random_seed(args.seed)
    prompts = _prompts(args.prompts_file)
    missing = [length for length in args.prompt_lengths if length not in prompts]
    if missing:
        raise ValueError(f"{args.prompts_file} has no prompts for the lengths {missing}, but for {sorted(prompts)}")
    hub = transformers_package()
    loaded_torch().manual_seed(args.seed)
    source = args.hf_dir_path or args.model_name
    config, tokenizer = (kind.from_pretrained(source, **_hub_options(args)) for kind in (hub.AutoConfig, hub.AutoTokenizer))
    model = get_model(args)
    rows = []
    for batch, length in product(args.batch_sizes, args.prompt_lengths):
        prepared = args, model, config, tokenizer, length, [prompts[length]] * batch
        inputs, outputs = prepare_model_for_inference(*prepared)
        seconds, _ = run_inference(args, model, args.num_runs, inputs, outputs)
        inputs, outputs = prepare_model_for_inference(*prepared)
        writing = write(args, model, config, tokenizer, inputs, outputs)
        rows.append(_row(args, batch, length, seconds, writing))
        step = get_initial_inputs_and_outputs(config, tokenizer, length, prepared[-1], *_kinds(args))
        before, peak = peak_memory(partial(run_inference, args, model, 1, *step))
        logger.info("%d texts of %d tokens: %.3f s, memory %.1f MB, at most %.1f MB", batch, length, rows[-1][-2], before, peak)
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    table = f"benchmark_{args.engine}_e2e_{now}.csv"
    save_results(rows, table, args.generation_length)
    return table


def _kinds(args: argparse.Namespace) -> tuple[Any, ...]:
    return args.target_device, args.use_fp16, args.use_buffer_share, args.engine


if __name__ == "__main__":
    main()
