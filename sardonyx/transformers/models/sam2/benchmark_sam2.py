"""Times of the image encoder and the image decoder of SAM 2, by sessions or by PyTorch.

`python -m sardonyx.transformers.models.sam2.benchmark_sam2 --onnx_path FILE --engine ort`
"""

from __future__ import annotations

import argparse
import csv
import datetime
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import run_times, setup_logger
from sardonyx.transformers.models.sam2.image_decoder import SAM2ImageDecoder
from sardonyx.transformers.models.sam2.image_encoder import SAM2ImageEncoder
from sardonyx.transformers.models.sam2.sam2_image_onnx_predictor import create_ort_session as session_of_file
from sardonyx.transformers.models.sam2.sam2_parts import FEATURES, PROMPTS
from sardonyx.transformers.models.sam2.sam2_utils import (
    CONFIGS,
    SIDE,
    decoder_shape_dict,
    encoder_shape_dict,
    load_sam2_model,
)
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

TYPES = {"fp32": np.float32, "fp16": np.float16}


class TestConfig:
    """What is measured, and how. `dtype` is a type of PyTorch, or "fp32" or "fp16"."""

    __test__ = False  # pytest takes classes of such names for tests

    def __init__(
        self,
        model_type: str,
        onnx_path: str,
        sam2_dir: str,
        device: Any = "cpu",
        component: str = "image_encoder",
        provider: str = "CPUExecutionProvider",
        torch_compile_mode: str = "none",
        batch_size: int = 1,
        height: int = SIDE,
        width: int = SIDE,
        num_labels: int = 1,
        num_points: int = 1,
        num_masks: int = 1,
        multi_mask_output: bool = False,
        use_tf32: bool = True,
        enable_cuda_graph: bool = False,
        dtype: Any = "fp32",
        prefer_nhwc: bool = False,
        warm_up: int = 5,
        enable_nvtx_profile: bool = False,
        enable_ort_profile: bool = False,
        enable_torch_profile: bool = False,
        repeats: int = 1000,
        verbose: bool = False,
    ):
        if component not in ("image_encoder", "image_decoder"):
            raise ValueError(f"image_encoder or image_decoder is measured, not {component!r}")
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})

    def __repr__(self) -> str:
        return f"{vars(self)}"

    def shape_dict(self) -> Mapping[str, list[int]]:
        """The shape of each input and output."""
        options: Any = self
        if options.component == "image_encoder":
            return encoder_shape_dict(options.batch_size, options.height, options.width)
        counts = options.num_labels, options.num_points, options.num_masks
        return decoder_shape_dict(options.height, options.width, *counts)

    def random_arrays(self) -> dict[str, np.ndarray]:
        """Random inputs."""
        options: Any = self
        kind = TYPES.get(options.dtype) or (np.float16 if "float16" in str(options.dtype) else np.float32)
        rng, shapes = np.random.default_rng(0), self.shape_dict()
        if options.component == "image_encoder":
            return {"image": rng.normal(size=shapes["image"]).astype(kind)}
        feeds = {name: rng.random(shapes[name]).astype(kind) for name in (*FEATURES, *PROMPTS)}
        feeds["point_coords"] *= SIDE
        feeds["point_labels"] = np.ones(shapes["point_labels"], np.int32)
        return feeds | {"original_image_size": np.array([options.height, options.width], np.int32)}

    def random_inputs(self) -> Mapping[str, Any]:
        """The same as tensors of PyTorch."""
        return {name: loaded_torch().from_numpy(array) for name, array in self.random_arrays().items()}


def create_ort_session(config: TestConfig, session_options: SessionOptions | None = None) -> InferenceSession:
    """A session of the file."""
    options: Any = config
    if options.verbose:
        logger.info("a session for %r", config)
    return session_of_file(options.onnx_path, session_options, options.provider)


def create_session(config: TestConfig, session_options: SessionOptions | None = None) -> InferenceSession:
    """The same; there is no session of a GPU around it."""
    return create_ort_session(config, session_options)


class OrtTestSession:
    """A session with its inputs."""

    def __init__(self, config: TestConfig, session_options: SessionOptions | None = None):
        self.ort_session = create_session(config, session_options)
        self.feed_dict = config.random_arrays()

    def infer(self) -> dict[str, Any]:
        """The outputs by their names."""
        names = [value.name for value in self.ort_session.get_outputs()]
        return dict(zip(names, self.ort_session.run(names, self.feed_dict), strict=True))


def measure_latency(cuda_session: InferenceSession, input_dict: Mapping[str, Any]) -> float:
    """Seconds of one run; inputs are arrays or tensors."""
    feeds = {name: np.asarray(value) for name, value in input_dict.items()}
    start = time.perf_counter()
    cuda_session.run(None, feeds)
    return time.perf_counter() - start


def run_torch(config: TestConfig) -> float | None:
    """Mean seconds of a run by PyTorch; None if there are to be no runs."""
    options: Any = config
    torch = loaded_torch()
    model = load_sam2_model(options.sam2_dir, options.model_type, options.device)
    is_encoder = options.component == "image_encoder"
    module: Any = SAM2ImageEncoder(model) if is_encoder else SAM2ImageDecoder(model, options.multi_mask_output)
    inputs = config.random_inputs()
    with torch.inference_mode():
        return _mean_seconds(options, lambda: module(**inputs))


def _run_ort(config: TestConfig, threads: int) -> float | None:
    """Mean seconds of a run by a session; None if there are to be no runs."""
    options: Any = config
    settings = SessionOptions()
    settings.intra_op_num_threads = threads
    settings.enable_profiling = options.enable_ort_profile
    session = OrtTestSession(config, settings)
    seconds = _mean_seconds(options, session.infer)
    if options.enable_ort_profile:
        logger.info("profile: %s", session.ort_session.end_profiling())
    return seconds


def _mean_seconds(options: Any, run: Callable[[], Any]) -> float | None:
    run_times(run, options.warm_up)
    return float(np.mean(run_times(run, options.repeats))) if options.repeats else None


def run_test(args: argparse.Namespace, csv_writer: csv.DictWriter[str] | None = None) -> dict[str, Any]:
    """Measure once; gives a row of a table, and writes it if there is one."""
    if args.use_gpu:
        raise ValueError("there are no GPUs here; leave --use_gpu out")
    own: tuple[str, ...] = (
        "model_type",
        "onnx_path",
        "sam2_dir",
        "component",
        "batch_size",
        "height",
        "width",
        "dtype",
        "warm_up",
        "repeats",
    )
    own += ("enable_ort_profile", "prefer_nhwc")
    config = TestConfig(**{name: getattr(args, name) for name in own}, multi_mask_output=args.multimask_output)
    seconds = _run_ort(config, args.intra_op_num_threads) if args.engine == "ort" else run_torch(config)
    row = {name: vars(config)[name] for name in COLUMNS if name in vars(config)}
    row |= {"use_gpu": False, "intra_op_num_threads": args.intra_op_num_threads}
    row |= {"engine": f"{args.engine}:cpu", "average_latency": seconds}
    if csv_writer is not None and seconds is not None:
        csv_writer.writerow(row)
    logger.info("%s", row)
    return row


COLUMNS = (
    "model_type",
    "component",
    "dtype",
    "use_gpu",
    "enable_cuda_graph",
    "prefer_nhwc",
    "use_tf32",
    "batch_size",
    "height",
    "width",
    "multi_mask_output",
    "num_labels",
    "num_points",
    "num_masks",
    "intra_op_num_threads",
    "warm_up",
    "repeats",
    "enable_nvtx_profile",
    "torch_compile_mode",
    "engine",
    "average_latency",
)


def run_perf_test(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, and write a table of one row into the current folder."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    with open(f"benchmark_sam_cpu_{args.engine}_{now}.csv", "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        return run_test(args, writer)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--component", choices=["image_encoder", "image_decoder"], default="image_encoder")
    parser.add_argument("--dtype", choices=list(TYPES), default="fp32", help="of the inputs of the file")
    for name in ("use_gpu", "use_cuda_graph", "prefer_nhwc", "enable_nvtx_profile", "enable_torch_profile"):
        parser.add_argument(f"--{name}", action="store_true", help="of GPUs, which are not used here")
    parser.add_argument("--enable_ort_profile", action="store_true", help="write a profile of the session")
    parser.add_argument("--intra_op_num_threads", type=int, choices=[0, 1, 2, 4, 8, 16], default=0, help="0: one for each core")
    parser.add_argument("--batch_size", type=int, default=1, help="images")
    parser.add_argument("--height", type=int, default=SIDE, help="rows of the image")
    parser.add_argument("--width", type=int, default=SIDE, help="columns of the image")
    parser.add_argument("--repeats", type=int, default=1000, help="runs that are measured")
    parser.add_argument("--warm_up", type=int, default=5, help="runs before them")
    parser.add_argument("--engine", choices=["ort", "torch"], default="ort")
    parser.add_argument("--multimask_output", action="store_true", help="the decoder gives three masks")
    parser.add_argument("--model_type", choices=[f"sam2_hiera_{size}" for size in CONFIGS], default="sam2_hiera_large")
    parser.add_argument("--sam2_dir", default="./segment-anything-2", help="a clone of sam2 with its checkpoints, for PyTorch")
    parser.add_argument("--onnx_path", default="./sam2_onnx_models/sam2_hiera_large_image_encoder.onnx")
    parser.add_argument("--torch_compile_mode", default="none", help="of GPUs, which are not used here")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the program."""
    setup_logger(verbose=False)
    return run_perf_test(parse_arguments(argv))


if __name__ == "__main__":
    main()
