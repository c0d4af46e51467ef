"""Times of GPT-2 by PyTorch and by a session, by batch, length and past, as a table.

`python -m sardonyx.transformers.models.gpt2.benchmark_gpt2 -m gpt2 -o`
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sardonyx.transformers.benchmark_helper import (
    Precision,
    create_onnxruntime_session,
    get_ort_environment_variables,
    output_details,
    prepare_environment,
    setup_logger,
)
from sardonyx.transformers.model_timing import refuse_gpu, torch_threads
from sardonyx.transformers.models.gpt2.gpt2_helper import DEFAULT_TOLERANCE, MODEL_CLASSES, Gpt2Helper
from sardonyx.transformers.quantize_helper import QuantizeHelper

logger = logging.getLogger(__name__)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model_name_or_path", required=True, help="name or folder of the model")
    parser.add_argument("--model_class", default="GPT2LMHeadModel", choices=list(MODEL_CLASSES))
    parser.add_argument("--cache_dir", default=os.path.join(".", "cache_models"), help="where fetched models are kept")
    parser.add_argument("--onnx_dir", default=os.path.join(".", "onnx_models"), help="where exported models are kept")
    parser.add_argument("--test_times", type=int, default=100, help="runs that are measured")
    parser.add_argument("-v", "--validate_onnx", action="store_true", help="compare outputs with PyTorch's")
    parser.add_argument("-o", "--optimize_onnx", action="store_true", help="fuse blocks")
    stages = "0: as the sizes say, 1: without a past, 2: one word after a past"
    parser.add_argument("--stage", type=int, default=0, choices=[0, 1, 2], help=stages)
    parser.add_argument("--use_gpu", action="store_true", help="refused: there are no GPUs here")
    parser.add_argument("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=list(DEFAULT_TOLERANCE))
    parser.add_argument("--torchscript", action="store_true", help="let PyTorch trace the module")
    parser.add_argument("-b", "--batch_sizes", nargs="+", type=int, default=[1], help="rows of inputs")
    parser.add_argument("--sequence_lengths", nargs="+", type=int, default=[1], help="new words in a row")
    lengths = [8, 16, 32, 64, 128, 256]
    parser.add_argument("-s", "--past_sequence_lengths", nargs="+", type=int, default=lengths, help="earlier words in a row")
    parser.add_argument("-r", "--result_csv", default=None, help="the table")
    parser.add_argument("--thread_num", type=int, default=-1, help="threads; -1: one for each core")
    parser.add_argument("--include_copy_output_latency", action="store_true", help="count copies of bound outputs")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--output_torch_latency", action="store_true", help="measure PyTorch, too")
    parser.add_argument("--disable_io_binding", action="store_true", help="do not bind memory")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> str:
    """Measure, and write a table; gives its path."""
    setup_logger(args.verbose)
    refuse_gpu(args.use_gpu)
    if args.precision is not Precision.FLOAT32 and not args.optimize_onnx:
        raise ValueError(f"files of {args.precision} are optimized: --optimize_onnx")
    prepare_environment(args.cache_dir, args.onnx_dir, args.use_gpu)
    wrapper, _, has_words = MODEL_CLASSES[args.model_class]
    options = {"cache_dir": args.cache_dir, "attn_implementation": "eager"}
    model = wrapper.from_pretrained(args.model_name_or_path, **options).eval()
    path = _file(model, args, has_words)
    session = create_onnxruntime_session(path, args.use_gpu, num_threads=args.thread_num, verbose=args.verbose)
    if session is None:
        raise RuntimeError(f"{path} cannot be opened; the log says why")
    words = {"has_position_ids": has_words, "has_attention_mask": has_words}
    module = Gpt2Helper.torchscript(model, model.config, "cpu", **words) if args.torchscript else model
    with torch_threads(args.thread_num):
        rows = [_row(session, module, model.config, sizes, args, words) for sizes in _sizes(args, model.config)]
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = args.result_csv or f"benchmark_result_{stamp}.csv"
    output_details(rows, path)
    return path


def _file(model: Any, args: argparse.Namespace, has_words: bool) -> str:
    """Export, fuse and convert a module; gives the path of the last file."""
    config = model.config
    paths = Gpt2Helper.get_onnx_paths(args.onnx_dir, args.model_name_or_path, args.model_class)
    Gpt2Helper.export_onnx(model, "cpu", paths["raw"], has_position_ids=has_words, has_attention_mask=has_words)
    if not args.optimize_onnx:
        return paths["raw"]
    path = paths[str(args.precision)]
    Gpt2Helper.optimize_onnx(
        paths["raw"], path, args.precision is Precision.FLOAT16, config.num_attention_heads, config.hidden_size
    )
    if args.precision is Precision.INT8:
        QuantizeHelper.quantize_onnx_model(path, path)
    return path


def _sizes(args: argparse.Namespace, config: Any) -> Iterator[tuple[int, int, int]]:
    """(batch, past, length) of what is measured, as far as the model has places for it."""
    pasts = [0] if args.stage == 1 else args.past_sequence_lengths
    lengths = [1] if args.stage == 2 else args.sequence_lengths
    for batch, length, past in itertools.product(args.batch_sizes, lengths, pasts):
        if past + length <= config.n_positions:
            yield batch, past, length
        else:
            logger.info(
                "the model has %d places, so a past of %d words with %d more is left out", config.n_positions, past, length
            )


def _row(
    session: Any, module: Any, config: Any, sizes: tuple[int, int, int], args: argparse.Namespace, words: Mapping[str, bool]
) -> dict[str, Any]:
    """One line of the table."""
    batch, past, length = sizes
    is_half = args.precision is Precision.FLOAT16
    model = config.num_attention_heads, config.hidden_size, config.n_layer, config.vocab_size
    inputs = Gpt2Helper.get_dummy_inputs(*sizes, *model, "cpu", is_half, **words)
    torch_latency = None
    if args.output_torch_latency or args.validate_onnx:
        expected, torch_latency = Gpt2Helper.pytorch_inference(module, inputs, max(1, args.test_times))
    if args.disable_io_binding:
        outputs, latency = Gpt2Helper.onnxruntime_inference(session, inputs, max(1, args.test_times))
    else:
        shapes = Gpt2Helper.get_output_shapes(*sizes, config, args.model_class)
        buffers = Gpt2Helper.get_output_buffers(shapes, "cpu", is_half)
        outputs, latency = Gpt2Helper.onnxruntime_inference_with_binded_io(
            session,
            inputs,
            buffers,
            shapes,
            max(1, args.test_times),
            include_copy_output_latency=args.include_copy_output_latency,
        )
    if args.validate_onnx:
        tolerance = DEFAULT_TOLERANCE[args.precision]
        if not Gpt2Helper.compare_outputs(expected, outputs, rtol=tolerance, atol=tolerance):
            logger.warning("batch, past and length %s: outputs differ by more than %g from PyTorch's", sizes, tolerance)
    return {
        "model_name": args.model_name_or_path,
        "model_class": args.model_class,
        "stage": args.stage,
        "environment_variables": get_ort_environment_variables(),
        "gpu": args.use_gpu,
        "precision": args.precision,
        "optimizer": args.optimize_onnx,
        "torchscript": args.torchscript,
        "batch_size": batch,
        "sequence_length": length,
        "past_sequence_length": past,
        "disable_io_binding": args.disable_io_binding,
        "torch_latency": "None" if torch_latency is None else f"{torch_latency:.2f}",
        "onnxruntime_latency": f"{latency:.2f}",
    }


if __name__ == "__main__":
    print(main(parse_arguments()))
