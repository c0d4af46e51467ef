"""Runs a model many times on made-up inputs: `python -m sardonyx.tools.onnxruntime_test MODEL 100`. `sardonyx bench` tells more."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession


def generate_feeds(sess: Any, symbolic_dims: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Random inputs of a session; symbolic sizes are 1 unless `symbolic_dims` has them."""
    return {value.name: _random(value, symbolic_dims or {}) for value in sess.get_inputs()}


def _random(value: Any, sizes: Mapping[str, int]) -> np.ndarray:
    shape = [size if isinstance(size, int) else int(sizes.get(size, 1)) for size in value.shape]
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    dtype = next((dtype for dtype in dtypes.ALL if str(dtype) == kind), None)
    if dtype is None:
        raise ValueError(f"input {value.name} of type {value.type} cannot be made up")
    if dtype is dtypes.string:
        return np.full(shape, "text", dtype=object)
    rng = np.random.default_rng()
    return np.asarray(rng.random(shape) if dtype in dtypes.FLOATS else rng.integers(0, 2, shape)).astype(dtype.numpy)


def run_model(
    model_path: str,
    num_iters: int = 1,
    debug: bool | None = None,
    profile: bool | None = None,
    symbolic_dims: Mapping[str, int] | None = None,
    feeds: Mapping[str, Any] | None = None,
    override_initializers: bool = True,
) -> tuple[int, Mapping[str, Any] | None, list[Any]]:
    """Run a model so often and print how long that took; 0, the feeds and the outputs of the last run."""
    if debug:
        input("Attach a debugger, then press Enter.")
    options = SessionOptions()
    options.enable_profiling = bool(profile)
    session = InferenceSession(model_path, options, providers=["CPUExecutionProvider"])
    feeds = feeds or generate_feeds(session, symbolic_dims)
    outputs: list[Any] = []
    start = time.perf_counter()
    for _ in range(num_iters):
        outputs = session.run([], feeds)
    seconds = time.perf_counter() - start
    print(f"model: {model_path}\niterations: {num_iters}\navg latency: {1000 * seconds / max(num_iters, 1):.3f} ms")
    if profile:
        print(f"trace file: {session.end_profiling()}")
    return 0, feeds, outputs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a model on made-up inputs.")
    parser.add_argument("model_path", help="path of the model")
    parser.add_argument("num_iters", nargs="?", type=int, default=1000, help="how often (default 1000)")
    parser.add_argument("--debug", action="store_true", help="wait for a debugger first")
    parser.add_argument("--profile", action="store_true", help="write a trace of the runs")
    parser.add_argument("--symbolic_dims", type=_pairs, default={}, help="sizes, as batch=1,seqlen=5")
    options = parser.parse_args(arguments)
    code, _, _ = run_model(
        options.model_path, options.num_iters, options.debug, options.profile, symbolic_dims=options.symbolic_dims
    )
    return code


def _pairs(text: str) -> dict[str, int]:
    return {name.strip(): int(size) for name, _, size in (pair.partition("=") for pair in text.split(","))}


if __name__ == "__main__":
    sys.exit(main())
