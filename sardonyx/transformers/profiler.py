"""Profiles of transformer models with made-up inputs: `python -m sardonyx.transformers.profiler --model bert.onnx`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, helper

from sardonyx.tools.symbolic_shape_infer import get_dim_from_proto as get_dim_from_type_proto
from sardonyx.transformers.benchmark_helper import create_onnxruntime_session
from sardonyx.transformers.bert_test_data import find_bert_inputs, generate_test_data
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.profile_result_processor import process_results

Feeds = dict[str, np.ndarray]


def get_shape_from_type_proto(type_proto: TypeProto) -> list[Any]:
    """The sizes of a tensor: numbers, names, or None."""
    return [get_dim_from_type_proto(dim) for dim in type_proto.tensor_type.shape.dim]


def run_profile(
    onnx_model_path: str,
    use_gpu: bool,
    provider: str | None,
    basic_optimization: bool,
    thread_num: int,
    all_inputs: Sequence[Feeds],
) -> str:
    """Run a model with each of the inputs; the path of the profile."""
    session = create_onnxruntime_session(
        onnx_model_path,
        use_gpu,
        provider,
        enable_all_optimization=not basic_optimization,
        num_threads=thread_num,
        enable_profiling=True,
    )
    assert session is not None
    for feeds in all_inputs:
        session.run(None, feeds)
    return str(session.end_profiling())


def create_dummy_inputs(onnx_model: OnnxModel, batch_size: int, sequence_length: int, samples: int) -> list[Feeds]:
    """Ones for each input. The first open size is the batch, the others are the length of a sequence."""
    feeds = {value.name: _ones(value.type, batch_size, sequence_length) for value in _free_inputs(onnx_model)}
    return [feeds] * samples


def _free_inputs(onnx_model: OnnxModel) -> list[Any]:
    return list(onnx_model.get_graph_inputs_excluding_initializers())


def _ones(type: TypeProto, batch_size: int, sequence_length: int) -> np.ndarray:
    sizes = get_shape_from_type_proto(type)
    first = next((axis for axis, size in enumerate(sizes) if not isinstance(size, int)), None)
    shape = [
        size if isinstance(size, int) else batch_size if axis == first else sequence_length for axis, size in enumerate(sizes)
    ]
    return np.ones(shape, helper.tensor_dtype_to_np_dtype(type.tensor_type.elem_type))


def create_bert_inputs(
    onnx_model: OnnxModel,
    batch_size: int,
    sequence_length: int,
    samples: int,
    input_ids_name: str | None = None,
    segment_ids_name: str | None = None,
    input_mask_name: str | None = None,
) -> list[Feeds]:
    """Random words, with segments and masks where the model has them."""
    inputs = find_bert_inputs(onnx_model, input_ids_name, segment_ids_name, input_mask_name)
    return generate_test_data(batch_size, sequence_length, samples, 123, False, *inputs, sequence_length, False, 2)


def create_gpt2_inputs(
    onnx_model: OnnxModel, batch_size: int, sequence_length: int, past_sequence_length: int, samples: int
) -> list[Feeds]:
    """Ones, of the sizes that inputs of GPT-2 name."""
    sizes = {
        "batch_size": batch_size,
        "seq_len": sequence_length,
        "past_seq_len": past_sequence_length,
        "total_seq_len": sequence_length + past_sequence_length,
    }
    return _named_inputs(onnx_model, sizes, samples)


def create_longformer_inputs(
    onnx_model: OnnxModel, batch_size: int, sequence_length: int, global_length: int, samples: int
) -> list[Feeds]:
    """Ones, with global attention for the first words."""
    all_inputs = _named_inputs(onnx_model, {"batch_size": batch_size, "sequence_length": sequence_length}, samples)
    for feeds in all_inputs:
        for name, array in feeds.items():
            if "global" in name:
                array[:, global_length:] = 0
    return all_inputs


def _named_inputs(onnx_model: OnnxModel, sizes: Mapping[str, int], samples: int) -> list[Feeds]:
    feeds = {}
    for value in _free_inputs(onnx_model):
        shape = [size if isinstance(size, int) else sizes.get(str(size), 1) for size in get_shape_from_type_proto(value.type)]
        feeds[value.name] = np.ones(shape, helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    return [{name: array.copy() for name, array in feeds.items()} for _ in range(samples)]


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Profile a transformer model with made-up inputs.")
    parser.add_argument("-i", "--input", default=None, help="path of a profile that is there already; nothing is run then")
    parser.add_argument("-m", "--model", default=None, help="path of the model")
    parser.add_argument("-b", "--batch_size", type=int, default=1, help="size of the batch")
    parser.add_argument("-s", "--sequence_length", type=int, default=32, help="length of the sequences")
    parser.add_argument("--past_sequence_length", type=int, default=1, help="length of the past, of GPT-2")
    parser.add_argument("--global_length", type=int, default=1, help="how many words have global attention, of Longformer")
    parser.add_argument("--samples", type=int, default=1000, help="how many runs")
    parser.add_argument("--threshold", type=float, default=0.01, help="leave out nodes with a smaller share of the time")
    parser.add_argument("--thread_num", type=int, default=-1, help="threads inside an op; -1 for as many as there are cores")
    for name in ("input_ids", "segment_ids", "input_mask"):
        parser.add_argument(f"--{name}_name", default=None, help=f"the input for {name}, if its name does not tell")
    parser.add_argument(
        "--dummy_inputs", default="default", choices=("bert", "gpt2", "longformer", "default"), help="whose inputs to make up"
    )
    parser.add_argument("-g", "--use_gpu", action="store_true", help="accepted for compatibility")
    parser.add_argument("--provider", default=None, help="who computes")
    parser.add_argument("--basic_optimization", action="store_true", help="basic optimizations alone")
    parser.add_argument("--kernel_time_only", action="store_true", help="accepted: times are those of kernels")
    parser.add_argument("-v", "--verbose", action="store_true", help="accepted for compatibility")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> list[str]:
    """Run a model and say which nodes and ops took the time."""
    if args.input is not None:
        return process_results(args.input, args)
    model = OnnxModel(onnx.load(args.model, load_external_data=False))
    sizes = model, args.batch_size, args.sequence_length
    if args.dummy_inputs == "bert":
        names = args.input_ids_name, args.segment_ids_name, args.input_mask_name
        feeds = create_bert_inputs(*sizes, args.samples, *names)
    elif args.dummy_inputs == "gpt2":
        feeds = create_gpt2_inputs(*sizes, args.past_sequence_length, args.samples)
    elif args.dummy_inputs == "longformer":
        feeds = create_longformer_inputs(*sizes, args.global_length, args.samples)
    else:
        feeds = create_dummy_inputs(*sizes, args.samples)
    path = run_profile(args.model, args.use_gpu, args.provider, args.basic_optimization, args.thread_num, feeds)
    return process_results(path, args)


def main(argv: Sequence[str] | None = None) -> None:
    print("\n".join(run(parse_arguments(argv))))


if __name__ == "__main__":
    main()
