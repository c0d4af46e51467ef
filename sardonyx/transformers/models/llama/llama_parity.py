"""How far a file of a decoder is from PyTorch, for random words.

`python -m sardonyx.transformers.models.llama.llama_parity -m MODEL -o model.onnx --merged -fp fp32`
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import setup_logger
from sardonyx.transformers.decoders import cache_of
from sardonyx.transformers.models.llama.dist_settings import get_rank, get_size
from sardonyx.transformers.models.llama.llama_inputs import (
    convert_inputs_for_ort,
    get_merged_sample_with_past_kv_inputs,
    get_sample_inputs,
    get_sample_with_past_kv_inputs,
    verify_ort_inputs,
)
from sardonyx.transformers.models.llama.llama_torch import setup_torch_model
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.parity import largest_difference
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

BATCH = 2
TOLERANCE = 5e-1
TOLERANCE_OF_INTEGERS = 2e1
"""How far logits may be from PyTorch's, relatively and absolutely; the second, of models with weights of few bits."""


def get_sequence_lengths(args: argparse.Namespace, config: Any) -> tuple[int, int, int]:
    """How many words there were, how many come, and how many there can be."""
    past, length = (8, 1) if args.use_past_kv else (0, 8)
    return past, length, config.max_position_embeddings


def get_inputs(args: argparse.Namespace, config: Any) -> dict[str, Any]:
    """Random inputs of PyTorch: of a step of any kind, of one with a past, or of one without."""
    past, length, longest = get_sequence_lengths(args, config)
    options = {"use_fp16": args.use_fp16, "return_dict": True, "world_size": get_size()}
    inputs: dict[str, Any]
    if args.merged:
        inputs = get_merged_sample_with_past_kv_inputs(
            config, args.device, BATCH, seq_len=length, past_seq_len=past, max_seq_len=longest, **options
        )
    elif args.use_past_kv:
        inputs = get_sample_with_past_kv_inputs(config, args.device, BATCH, past, **options)
    else:
        inputs = get_sample_inputs(config, args.device, BATCH, length, return_dict=True)
    return inputs


def torch_deepcopy(value: Any) -> Any:
    """A copy of numbers, texts, arrays, tensors, caches, and collections of them."""
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (tuple, list, set)):
        return type(value)(torch_deepcopy(item) for item in value)
    if isinstance(value, dict):
        return {name: torch_deepcopy(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    if hasattr(value, "clone"):
        return value.clone()
    if hasattr(value, "layers"):
        return cache_of(torch_deepcopy([(layer.keys, layer.values) for layer in value.layers]))
    raise NotImplementedError(f"a value of {type(value)} cannot be copied")


def verify_parity(
    args: argparse.Namespace,
    location: str,
    use_auth_token: bool,
    kv_cache_ortvalues: dict[str, Any],
    pytorch_model: Any = None,
    config: Any = None,
) -> dict[str, Any]:
    """Compare logits, with a warning that tells whether they are close; gives `kv_cache_ortvalues` back."""
    torch = loaded_torch()
    if pytorch_model is None:
        config, pytorch_model = setup_torch_model(
            args, location, use_auth_token, torch.float16 if args.use_fp16 else torch.float32, args.device
        )
    inputs = get_inputs(args, config)
    past, _, longest = get_sequence_lengths(args, config)
    arrays = convert_inputs_for_ort(torch_deepcopy(inputs), args.use_buffer_share, past, longest)
    if "past_key_values" in inputs:
        inputs["past_key_values"] = cache_of(inputs["past_key_values"])
    start = time.perf_counter()
    with torch.no_grad():
        wanted = pytorch_model(**inputs).logits.cpu().numpy()
    logger.info("PyTorch took %g s", time.perf_counter() - start)
    session = InferenceSession(args.onnx_model_path, providers=["CPUExecutionProvider"])
    arrays = verify_ort_inputs(session, arrays)
    start = time.perf_counter()
    (got,) = session.run(["logits"], arrays)
    logger.info("sardonyx took %g s", time.perf_counter() - start)
    _judge(args.onnx_model_path, np.asarray(got, np.float64), wanted.astype(np.float64))
    return kv_cache_ortvalues


def _judge(path: str, got: np.ndarray, wanted: np.ndarray) -> None:
    tolerance = TOLERANCE_OF_INTEGERS if "int4" in path or "int8" in path else TOLERANCE
    is_close = np.allclose(got, wanted, rtol=tolerance, atol=tolerance)
    difference = largest_difference(wanted, got)
    report = logger.info if is_close else logger.warning
    report("%s: logits are %s to PyTorch's, and differ by up to %g", path, "close" if is_close else "not close", difference)


def get_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program; the precision is that of the inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name", help="name of the model")
    parser.add_argument(
        "-t", "--torch_model_directory", default=".", help="folder of the model, if the name is not to be fetched"
    )
    parser.add_argument("-o", "--onnx_model_path", required=True, help="the file, with its weights beside it")
    parser.add_argument("-ep", "--execution_provider", default="cpu", choices=["cpu"])
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-p", "--use_past_kv", action="store_true", help="the file takes keys and values of earlier words")
    parser.add_argument("-g", "--use_buffer_share", action="store_true", help="earlier and all keys share memory")
    parser.add_argument("--merged", action="store_true", help="the file takes any number of words")
    parser.add_argument("-fp", "--precision", required=True, choices=["int4", "int8", "fp16", "fp32"])
    parser.add_argument("--cache_dir", default="./model_cache", help="where fetched models are kept")
    parser.add_argument("--small_gpu", action="store_true", help="load the module anew for each comparison")
    arguments = parser.parse_args(argv or None)
    arguments.precision = "fp16" if arguments.precision == "fp16" else "fp32"
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Compare one step, or with a file of any number of words the first and a later one."""
    arguments = get_args(argv)
    setup_logger(arguments.verbose)
    transformers_package()  # which loads PyTorch
    arguments.rank, arguments.device = get_rank(), "cpu"
    arguments.use_fp16 = arguments.precision == "fp16"
    folder = arguments.torch_model_directory
    location = arguments.model_name if folder == "." else folder
    if not arguments.merged:
        verify_parity(arguments, location, False, {})
        return
    config = model = None
    if not arguments.small_gpu:
        torch = loaded_torch()
        config, model = setup_torch_model(arguments, location, False, torch.float16 if arguments.use_fp16 else torch.float32)
    for arguments.use_past_kv in (False, True):
        verify_parity(arguments, location, False, {}, model, config)


if __name__ == "__main__":
    main()
