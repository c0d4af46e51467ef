"""Times of a BERT model with made-up inputs, by batch, length and number of threads, as a table.

`python -m sardonyx.transformers.bert_perf_test --model bert.onnx --batch_size 1 8 --sequence_length 128`
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import get_latency_result, output_details
from sardonyx.transformers.bert_test_data import Feeds, generate_test_data, get_bert_inputs
from sardonyx.transformers.io_binding_helper import TypeHelper, place_of
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

LEVELS = {
    0: GraphOptimizationLevel.ORT_DISABLE_ALL,
    1: GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    99: GraphOptimizationLevel.ORT_ENABLE_ALL,
}
Results = dict[str, dict[str, Any]]


@dataclass
class TestSetting:
    """What is measured."""

    __test__ = False
    batch_size: int
    sequence_length: int
    test_cases: int
    test_times: int
    use_gpu: bool
    use_io_binding: bool
    provider: str | None
    intra_op_num_threads: int | None
    seed: int
    verbose: bool
    log_severity: int
    average_sequence_length: int
    random_sequence_length: bool


@dataclass
class ModelSetting:
    """Of which model, and which of its inputs are what."""

    model_path: str
    input_ids_name: str | None
    segment_ids_name: str | None
    input_mask_name: str | None
    opt_level: int
    input_tuning_results: str | None
    output_tuning_results: str | None
    mask_type: int


def create_session(
    model_path: str,
    use_gpu: bool,
    provider: str | None,
    intra_op_num_threads: int | None,
    graph_optimization_level: int | None = None,
    log_severity: int = 2,
    tuning_results_path: str | None = None,
) -> InferenceSession:
    """A session for a measurement, on the CPU."""
    if use_gpu:
        raise ValueError("there are no GPU providers here; leave --use_gpu out to measure the CPU")
    options = SessionOptions()
    options.log_severity_level = log_severity
    options.intra_op_num_threads = intra_op_num_threads or 0
    options.graph_optimization_level = LEVELS[99 if graph_optimization_level is None else graph_optimization_level]
    return InferenceSession(model_path, options, providers=["CPUExecutionProvider"])


def onnxruntime_inference(
    session: InferenceSession, all_inputs: Sequence[Feeds], output_names: Sequence[str]
) -> tuple[list[list[Any]], list[float]]:
    """(results, seconds) of a run with each of the inputs, after one that is not counted."""
    session.run(output_names, all_inputs[0])
    results, times = [], []
    for inputs in all_inputs:
        start = time.perf_counter()
        results.append(session.run(output_names, inputs))
        times.append(time.perf_counter() - start)
    return results, times


def onnxruntime_inference_with_io_binding(
    session: InferenceSession, all_inputs: Sequence[Feeds], output_names: Sequence[str], test_setting: TestSetting
) -> tuple[list[list[Any]], list[float]]:
    """The same with bound inputs and outputs; binding is not counted."""
    results, times = [], []
    for inputs in (all_inputs[0], *all_inputs):
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name in output_names:
            binding.bind_output(name)
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append(time.perf_counter() - start)
        results.append(binding.copy_outputs_to_cpu())
    return results[1:], times[1:]


def to_string(model_path: str, session: InferenceSession, test_setting: TestSetting) -> str:
    """A measurement in words, which no other has."""
    threads = session.get_session_options().intra_op_num_threads
    names = ("batch_size", "sequence_length", "test_cases", "test_times", "use_gpu", "use_io_binding")
    settings = ",".join(f"{name}={getattr(test_setting, name)}" for name in names)
    return f"model={Path(model_path).name},intra_op_num_threads={threads},{settings}"


def run_one_test(
    model_setting: ModelSetting,
    test_setting: TestSetting,
    perf_results: Results,
    all_inputs: Sequence[Feeds],
    intra_op_num_threads: int | None,
) -> None:
    """Measure with so many threads, and note the figures."""
    chosen = test_setting.use_gpu, test_setting.provider, intra_op_num_threads
    session = create_session(model_setting.model_path, *chosen, model_setting.opt_level, test_setting.log_severity)
    outputs = [output.name for output in session.get_outputs()]
    times: list[float] = []
    for _ in range(test_setting.test_times):
        if test_setting.use_io_binding:
            times += onnxruntime_inference_with_io_binding(session, all_inputs, outputs, test_setting)[1]
        else:
            times += onnxruntime_inference(session, all_inputs, outputs)[1]
    key = to_string(model_setting.model_path, session, test_setting)
    perf_results[key] = get_latency_result(times, test_setting.batch_size)
    print(f"{key}: {perf_results[key]['average_latency_ms']} ms, {perf_results[key]['QPS']} rows a second")


launch_test = run_one_test
"""onnxruntime has a process for each measurement; sessions here leave nothing behind that another would notice."""


def run_perf_tests(
    model_setting: ModelSetting, test_setting: TestSetting, perf_results: Results, all_inputs: Sequence[Feeds]
) -> None:
    """Measure with the threads that are asked for, or with one, two, four … up to the cores."""
    given = test_setting.intra_op_num_threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = [given] if given is not None else sorted({cores, *(2**power for power in range(cores.bit_length()))})
    for count in counts:
        launch_test(model_setting, test_setting, perf_results, all_inputs, count)


def run_performance(model_setting: ModelSetting, test_setting: TestSetting, perf_results: Results) -> None:
    """Make inputs of one size, and measure."""
    values = get_bert_inputs(
        model_setting.model_path, model_setting.input_ids_name, model_setting.segment_ids_name, model_setting.input_mask_name
    )
    inputs = generate_test_data(
        test_setting.batch_size,
        test_setting.sequence_length,
        test_setting.test_cases,
        test_setting.seed,
        test_setting.verbose,
        *values,
        test_setting.average_sequence_length,
        test_setting.random_sequence_length,
        model_setting.mask_type,
    )
    run_perf_tests(model_setting, test_setting, perf_results, inputs)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="path of the model")
    parser.add_argument("-b", "--batch_size", type=int, nargs="+", required=True, help="sizes of the batch")
    parser.add_argument("-s", "--sequence_length", type=int, required=True, help="length of the sequences")
    parser.add_argument("--samples", type=int, default=10, help="how many different inputs")
    parser.add_argument("-t", "--test_times", type=int, default=0, help="runs with each of them; by default 1000 / samples")
    parser.add_argument("--opt_level", type=int, choices=sorted(LEVELS), default=99, help="level of optimization")
    parser.add_argument("--seed", type=int, default=3, help="for other inputs")
    parser.add_argument("--verbose", action="store_true", help="accepted for compatibility")
    parser.add_argument("--log_severity", type=int, default=2, choices=range(5))
    parser.add_argument("--use_gpu", action="store_true", help="refused: there are no GPU providers")
    parser.add_argument("--use_io_binding", action="store_true", help="bind inputs and outputs")
    parser.add_argument("--provider", default=None, help="accepted for compatibility")
    parser.add_argument("-n", "--intra_op_num_threads", type=int, default=None, help="threads; by default several are tried")
    for name in ("input_ids", "segment_ids", "input_mask"):
        parser.add_argument(f"--{name}_name", default=None, help=f"the input for {name}, if its name does not tell")
    parser.add_argument("--input_tuning_results", default=None, help="accepted for compatibility")
    parser.add_argument("--output_tuning_results", default=None, help="accepted for compatibility")
    parser.add_argument("-a", "--average_sequence_length", type=int, default=-1, help="how many words count; -1 for all")
    parser.add_argument("-r", "--random_sequence_length", action="store_true", help="so many on average")
    parser.add_argument("--mask_type", type=int, default=2, help="1: lengths, 2: ones and zeros, 3: lengths with sums")
    return parser.parse_args(argv)


def numpy_type(torch_type: Any) -> Any:
    """NumPy's type for PyTorch's."""
    return TypeHelper.torch_type_to_numpy_type(torch_type)


def create_input_output_tensors(
    inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], device: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays as tensors of PyTorch on a device, which a binding can be made of."""
    torch = loaded_torch()
    given, taken = ({name: torch.from_numpy(array).to(device) for name, array in part.items()} for part in (inputs, outputs))
    return given, taken


def create_io_binding(sess: InferenceSession, input_tensors: Mapping[str, Any], output_tensors: Mapping[str, Any]) -> Any:
    """A binding of tensors in their memory."""
    binding = sess.io_binding()
    for name, tensor in input_tensors.items():
        binding.bind_input(name, *place_of(tensor))
    for name, tensor in output_tensors.items():
        binding.bind_output(name, *place_of(tensor))
    return binding


def main(argv: Sequence[str] | None = None) -> Mapping[str, Mapping[str, Any]]:
    """Measure, print, and write a table beside the model; gives the figures by what was measured."""
    options = parse_arguments(argv)
    model = ModelSetting(
        options.model,
        options.input_ids_name,
        options.segment_ids_name,
        options.input_mask_name,
        options.opt_level,
        options.input_tuning_results,
        options.output_tuning_results,
        options.mask_type,
    )
    results: Results = {}
    for batch_size in sorted(set(options.batch_size)):
        run_performance(model, _setting(options, batch_size), results)
    stem = f"perf_results_CPU_B{'-'.join(map(str, sorted(set(options.batch_size))))}_S{options.sequence_length}"
    path = Path(options.model).with_name(f"{stem}_{time.strftime('%Y%m%d-%H%M%S')}.csv")
    lines = [{"measured": key, **figures} for key, figures in results.items()]
    output_details(sorted(lines, key=lambda line: np.float64(line["average_latency_ms"])), str(path))
    print(f"written to {path}")
    return results


def _setting(options: argparse.Namespace, batch_size: int) -> TestSetting:
    average = options.average_sequence_length if options.average_sequence_length > 0 else options.sequence_length
    return TestSetting(
        batch_size,
        options.sequence_length,
        options.samples,
        options.test_times or max(1, 1000 // options.samples),
        options.use_gpu,
        options.use_io_binding,
        options.provider,
        options.intra_op_num_threads,
        options.seed,
        options.verbose,
        options.log_severity,
        average,
        options.random_sequence_length,
    )


if __name__ == "__main__":
    main()
