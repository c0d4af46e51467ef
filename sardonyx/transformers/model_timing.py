"""Times of models for many sizes of inputs: the rows that programs of measurement write into tables.

`benchmark` and `models.gpt2.benchmark_gpt2` are programs around this.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import (
    ConfigModifier,
    Precision,
    get_latency_result,
    inference_ort,
    inference_ort_with_io_binding,
    run_times,
)
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)
Row = dict[str, Any]


def refuse_gpu(use_gpu: bool) -> None:
    """Raise where a GPU is asked for."""
    if use_gpu:
        raise ValueError("there are no GPUs here; leave --use_gpu out to measure the CPU")


def template(
    engine: str, version: str, model_name: str, precision: Precision, threads: int, config_modifier: ConfigModifier
) -> Row:
    """What the rows of a model share."""
    return {
        "engine": engine,
        "version": version,
        "providers": "NA",
        "device": "cpu",
        "optimizer": "",
        "precision": precision,
        "io_binding": "",
        "model_name": model_name,
        "inputs": 1,
        "threads": threads,
        "custom_layer_num": config_modifier.get_layer_num(),
    }


def measured_sizes(
    measure: Callable[[int, int], Mapping[str, Any]],
    batch_sizes: Sequence[int],
    sequence_lengths: Sequence[int],
    longest: int | None,
    shared: Mapping[str, Any],
) -> list[Row]:
    """A row for each batch and length that the model can take; `measure` gives the figures of one."""
    rows = []
    for batch_size in batch_sizes:
        for length in sequence_lengths:
            if longest is not None and length > longest:
                logger.info("%s takes %d words at most, so %d are left out", shared["model_name"], longest, length)
                continue
            now = datetime.datetime.now()
            row = {**shared, "batch_size": batch_size, "sequence_length": length, "datetime": str(now)}
            rows.append(row | dict(measure(batch_size, length)))
            logger.info("%s", rows[-1])
    return rows


def function_figures(run: Callable[[], Any], repeat_times: int, batch_size: int) -> Row:
    """The figures of so many calls, after one that is not counted."""
    run()
    return get_latency_result(run_times(run, repeat_times), batch_size)


def session_figures(
    session: InferenceSession, feeds: Mapping[str, np.ndarray], repeat_times: int, batch_size: int, is_bound: bool
) -> Row:
    """The figures of so many runs of a session, in bound memory or not, after one that is not counted."""
    if not is_bound:
        return inference_ort(session, feeds, {}, repeat_times, batch_size, warm_up_repeat=1)
    names = [value.name for value in session.get_outputs()]
    outputs = session.run(names, feeds)
    buffers: list[np.ndarray] = []
    places = buffers, [output.size for output in outputs], batch_size, "cpu"
    return inference_ort_with_io_binding(session, feeds, {}, repeat_times, names, outputs, *places, warm_up_repeat=1)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let PyTorch use so many threads for a while; as many as it likes if that is no count."""
    torch = loaded_torch()
    before = torch.get_num_threads()
    try:
        if count > 0:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)
