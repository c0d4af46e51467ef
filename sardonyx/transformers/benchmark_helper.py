"""What programs that measure models share: sessions by a few switches, times, memory, tables."""

from __future__ import annotations

import csv
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.runtime.preparation.providers import get_available_providers

logger = logging.getLogger(__name__)
SUMMARY_KEYS = (
    "model_name",
    "inputs",
    "threads",
    "engine",
    "version",
    "providers",
    "device",
    "precision",
    "optimizer",
    "io_binding",
)
"""What tells the lines of a summary apart."""


class Precision(Enum):
    """Types of weights."""

    FLOAT32 = "fp32"
    FLOAT16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"

    def __str__(self) -> str:
        return self.value


class OptimizerInfo(Enum):
    """Who optimized a model before it is measured."""

    NOOPT = "no_opt"
    BYORT = "by_ort"
    BYSCRIPT = "by_script"

    def __str__(self) -> str:
        return self.value


class ConfigModifier:
    """Sets the number of layers in a configuration of the transformers package."""

    def __init__(self, num_layers: int | None):
        self.num_layers = num_layers

    def modify(self, config: Any) -> None:
        """Change a configuration, if a number was given."""
        if self.num_layers is not None:
            for name in ("num_hidden_layers", "encoder_layers", "decoder_layers"):
                if hasattr(config, name):
                    setattr(config, name, self.num_layers)

    def get_layer_num(self) -> int | None:
        return self.num_layers


def create_onnxruntime_session(
    onnx_model_path: str,
    use_gpu: bool,
    provider: str | None = None,
    enable_all_optimization: bool = True,
    num_threads: int = -1,
    enable_profiling: bool = False,
    verbose: bool = False,
    enable_mlas_gemm_fastmath_arm64_bfloat16: bool = False,
    provider_options: Mapping[str, Any] | None = None,
) -> InferenceSession | None:
    """A session of a file; None with the reason in the log if there can be none."""
    options = SessionOptions()
    level = GraphOptimizationLevel.ORT_ENABLE_ALL if enable_all_optimization else GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.graph_optimization_level = level
    options.enable_profiling = enable_profiling
    options.log_severity_level = 0 if verbose else 4
    if num_threads > 0:
        options.intra_op_num_threads = num_threads
    name = f"{provider}ExecutionProvider" if provider and not provider.endswith("ExecutionProvider") else provider
    known = {available.lower(): available for available in get_available_providers()}
    providers = [known.get((name or "").lower(), "CPUExecutionProvider")]
    try:
        return InferenceSession(onnx_model_path, options, providers=[(providers[0], dict(provider_options or {}))])
    except Exception:
        logger.exception("there is no session of %s", onnx_model_path)
        return None


def setup_logger(verbose: bool = True) -> None:
    """Show records of programs on the terminal: all of them, or information and worse."""
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, format="%(message)s", force=True)
    logging.getLogger("sardonyx.transformers").setLevel(
        level
    )  # that of the whole package becomes WARNING with the first session


def prepare_environment(cache_dir: str, output_dir: str, use_gpu: bool, provider: str | None = None) -> None:
    """Make the folders of a measurement."""
    for folder in (cache_dir, output_dir):
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
    if use_gpu:
        logger.warning("there are no GPU providers here; the CPU is measured")


def get_latency_result(latency_list: Sequence[float], batch_size: int) -> dict[str, Any]:
    """Figures about times in seconds, as texts in milliseconds."""
    times = np.asarray(latency_list, np.float64) * 1000
    mean = float(times.mean())
    percentiles = {f"latency_{share}_percentile": f"{np.percentile(times, share):.2f}" for share in (90, 95, 99)}
    return {
        "test_times": len(latency_list),
        "latency_variance": f"{np.var(latency_list, dtype=np.float64) * 1000:.2f}",
        **percentiles,
        "average_latency_ms": f"{mean:.2f}",
        "QPS": f"{batch_size * 1000 / mean:.2f}",
    }


def inference_ort(
    ort_session: InferenceSession,
    ort_inputs: Mapping[str, Any],
    result_template: Mapping[str, Any],
    repeat_times: int,
    batch_size: int,
    warm_up_repeat: int = 0,
) -> dict[str, Any]:
    """The figures of so many runs, added to what `result_template` says about them."""
    for _ in range(warm_up_repeat):
        ort_session.run(None, ort_inputs)
    times = run_times(lambda: ort_session.run(None, ort_inputs), repeat_times)
    return {**result_template, "io_binding": False, **get_latency_result(times, batch_size)}


def inference_ort_with_io_binding(
    ort_session: InferenceSession,
    ort_inputs: Mapping[str, np.ndarray],
    result_template: Mapping[str, Any],
    repeat_times: int,
    ort_output_names: Sequence[str],
    ort_outputs: Sequence[np.ndarray],
    output_buffers: list[np.ndarray],
    output_buffer_max_sizes: Sequence[int],
    batch_size: int,
    device: str,
    data_type: Any = np.longlong,
    warm_up_repeat: int = 0,
) -> dict[str, Any]:
    """The same with bound memory: outputs go into buffers, which are made if there are none yet."""
    if not output_buffers:
        allocateOutputBuffers(output_buffers, output_buffer_max_sizes, device)
    binding = ort_session.io_binding()
    for name, array in ort_inputs.items():
        binding.bind_cpu_input(name, array)
    for name, output, buffer in zip(ort_output_names, ort_outputs, output_buffers, strict=True):
        binding.bind_output(name, "cpu", 0, output.dtype, output.shape, buffer.ctypes.data)
    for _ in range(warm_up_repeat):
        ort_session.run_with_iobinding(binding)
    times = run_times(lambda: ort_session.run_with_iobinding(binding), repeat_times)
    return {**result_template, "io_binding": True, **get_latency_result(times, batch_size)}


def allocateOutputBuffers(  # noqa: N802 - the original's name
    output_buffers: list[np.ndarray], output_buffer_max_sizes: Sequence[int], device: str
) -> None:
    """Append memory for so many numbers each; eight bytes hold a number of any type."""
    output_buffers.extend(np.zeros(size, np.float64) for size in output_buffer_max_sizes)


def run_times(run: Callable[[], Any], count: int) -> list[float]:
    """Seconds of each of so many runs."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def set_random_seed(seed: int = 123) -> None:
    """Seed the random numbers of Python and of NumPy."""
    random.seed(seed)
    np.random.seed(seed)


# --- tables


def output_details(results: Sequence[Mapping[str, Any]], csv_filename: str) -> None:
    """Append a line for each result to a table."""
    columns = list(dict.fromkeys(name for result in results for name in result))
    _append(csv_filename, columns, results)


def output_summary(results: Sequence[Mapping[str, Any]], csv_filename: str, args: Any) -> None:
    """Append a line for each model and way, with the mean times by batch and length."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for result in results:
        key = tuple(result.get(name) for name in SUMMARY_KEYS)
        row = rows.setdefault(key, dict(zip(SUMMARY_KEYS, key, strict=True)))
        row[f"b{result.get('batch_size')}_s{result.get('sequence_length')}"] = result.get("average_latency_ms")
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    _append(csv_filename, columns, list(rows.values()))


def output_fusion_statistics(model_fusion_statistics: Mapping[str, Mapping[str, int]], csv_filename: str) -> None:
    """Append a line for each model, with the counts of its fused ops."""
    rows = [{"model_filename": name, **counts} for name, counts in model_fusion_statistics.items()]
    _append(csv_filename, list(dict.fromkeys(name for row in rows for name in row)), rows)


def _append(path: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    is_new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        if is_new:
            writer.writeheader()
        writer.writerows(rows)
    logger.info("written to %s", path)


# --- memory


class MemoryMonitor:
    """The most memory that the process has while `keep_measuring` is set."""

    def __init__(self, keep_measuring: bool = True):
        self.keep_measuring = keep_measuring

    def measure_cpu_usage(self) -> float:
        """Megabytes at most; one look if `keep_measuring` is off."""
        largest = resident_megabytes()
        while self.keep_measuring:
            time.sleep(0.005)
            largest = max(largest, resident_megabytes())
        return largest

    def measure_gpu_usage(self) -> None:
        """None: GPUs are not used here."""
        return


def resident_megabytes() -> float:
    """How much of the process lies in memory now; what it had at most, where the system does not tell."""
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure_memory(
    is_gpu: bool, func: Callable[[], Any] | None, monitor_type: str = "cuda", start_memory: float | None = None
) -> float | None:
    """By how many megabytes the process grows while a function runs; without one, how many it has. None for a GPU."""
    if is_gpu:
        return None
    before = MemoryMonitor(False).measure_cpu_usage() if start_memory is None else start_memory
    if func is None:
        return before
    monitor = MemoryMonitor()
    with ThreadPoolExecutor() as executor:
        largest = executor.submit(monitor.measure_cpu_usage)
        try:
            executor.submit(func).result()
        finally:
            monitor.keep_measuring = False
    return largest.result() - before


def get_ort_environment_variables() -> dict[str, str]:
    """Variables of the environment that steer runs."""
    prefixes = ("ORT_", "SARDONYX_", "OMP_", "OPENBLAS_")
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}
