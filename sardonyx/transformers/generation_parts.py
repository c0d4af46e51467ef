"""What becomes part of a model around a search: decoders as files, checked and changed. `convert_generation` has the names.

Nothing here needs the search itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference
from sardonyx.transformers.benchmark_helper import Precision, get_latency_result
from sardonyx.transformers.model_timing import refuse_gpu
from sardonyx.transformers.models.gpt2 import convert_to_onnx as gpt2_converter
from sardonyx.transformers.models.t5 import convert_to_onnx as t5_converter
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.past_helper import PastKeyValuesHelper
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

FLOATS = {Precision.FLOAT32: TensorProto.FLOAT, Precision.FLOAT16: TensorProto.FLOAT16}
MULTIPLE = 8
"""Columns of logits become a multiple of so many."""


# --- files


def gpt2_to_onnx(args: argparse.Namespace) -> None:
    """Write GPT-2 as `args.decoder_onnx`."""
    is_half = Precision(args.precision) is Precision.FLOAT16
    arguments = ["-m", args.model_name_or_path, "--cache_dir", args.cache_dir, "--output", args.decoder_onnx]
    arguments += ["-o", "-p", str(args.precision), "-t", "10", "-r", "1", "--overwrite"]
    arguments += ["-e"] if args.use_external_data_format else []
    arguments += ["--verbose"] if args.verbose else []
    if is_half and list(args.op_block_list) == ["auto"]:
        arguments.append("--auto_mixed_precision")
    elif is_half and args.op_block_list:
        arguments += ["--op_block_list", *args.op_block_list]
    gpt2_converter.main(arguments, csv_filename=str(Path(args.decoder_onnx).with_suffix(".csv")))


def t5_to_onnx(args: argparse.Namespace) -> None:
    """Write T5 as two files; `args.encoder_decoder_init_onnx` and `args.decoder_onnx` become their paths."""
    folder = str(Path(args.output).parent)
    arguments = ["-m", args.model_name_or_path, "--model_type", args.model_type, "--cache_dir", args.cache_dir]
    arguments += ["--output", folder, "-o", "-p", str(args.precision), "--encoder_decoder_init"]
    arguments += ["-e"] if args.use_external_data_format else []
    paths = t5_converter.main(arguments)
    args.encoder_decoder_init_onnx = next(path for path in paths if "_encoder_decoder_init" in Path(path).name)
    args.decoder_onnx = next(path for path in paths if path != args.encoder_decoder_init_onnx)


def shape_inference(onnx_path: str, use_external_data_format: bool = True) -> None:
    """Write the types of inner values into a file."""
    inferred = SymbolicShapeInference.infer_shapes(onnx.load(onnx_path), auto_merge=True)
    OnnxModel.save(inferred, onnx_path, save_as_external_data=use_external_data_format)


def create_ort_session(model_path: str, use_gpu: bool, use_sln_strict_mode: bool) -> InferenceSession:
    """A session that runs a file as it is. The strict mode is one of GPUs; sums are always exact to their type here."""
    refuse_gpu(use_gpu)
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    return InferenceSession(model_path, options, providers=["CPUExecutionProvider"])


def pad_weights_of_logits_matmul(onnx_path: str, use_external_data_format: bool = True) -> bool:
    """Give logits a multiple of 8 columns, the new ones 0. False, and an untouched file, if no product with weights gives them."""
    model = OnnxModel(onnx.load(onnx_path))
    product = _logits_product(model)
    weight = model.get_initializer(product.input[1]) if product is not None else None
    if product is None or weight is None or len(weight.dims) != 2:
        return False
    columns = weight.dims[1]
    added = -columns % MULTIPLE
    if not added:
        return True
    readers = [node for node in model.nodes() if weight.name in node.input]
    padded = numpy_helper.from_array(np.pad(numpy_helper.to_array(weight), ((0, 0), (0, added))), f"{weight.name}_padded")
    model.add_initializer(padded)
    product.input[1] = padded.name
    if len(readers) == 1:
        model.remove_initializer(weight)
    logits = next(value for value in model.graph().output if value.name == "logits")
    if logits.type.tensor_type.shape.dim:
        logits.type.tensor_type.shape.dim[-1].dim_value = columns + added
    model.save_model_to_file(onnx_path, use_external_data_format)
    return True


def _logits_product(model: OnnxModel) -> NodeProto | None:
    """The MatMul that gives logits."""
    node = model.output_name_to_node().get("logits")
    return node if node is not None and node.op_type == "MatMul" else None


def update_input_shapes_for_gpt2_decoder_model(decoder_onnx_path: str, use_external_data_format: bool = True) -> bool:
    """Let a file of GPT-2 take one word and its place."""
    model = onnx.load(decoder_onnx_path)
    for value in model.graph.input:
        if value.name in ("input_ids", "position_ids"):
            value.type.tensor_type.shape.dim[1].dim_value = 1
    OnnxModel.save(model, decoder_onnx_path, save_as_external_data=use_external_data_format)
    return True


def generate_gpt2_init_decoder(
    decoder_onnx_path: str, init_decoder_onnx_path: str, use_external_data_format: bool = True
) -> bool:
    """Write a file of GPT-2 that gives the logits of the last word alone. False, and no file, if no product gives logits."""
    model = OnnxModel(onnx.load(decoder_onnx_path))
    product = _logits_product(model)
    if product is None:
        return False
    bounds = {"starts": -1, "ends": np.iinfo(np.int64).max, "axes": 1}
    names = [f"last_word_{name}" for name in bounds]
    for name, bound in zip(names, bounds.values(), strict=True):
        model.add_initializer(numpy_helper.from_array(np.array([bound], np.int64), name))
    last = helper.make_node("Slice", [product.input[0], *names], ["last_word"], name=model.create_node_name("Slice"))
    model.add_node(last)
    product.input[0] = last.output[0]
    logits = next(value for value in model.graph().output if value.name == "logits")
    if len(logits.type.tensor_type.shape.dim) == 3:
        logits.type.tensor_type.shape.dim[1].dim_value = 1
    model.save_model_to_file(init_decoder_onnx_path, use_external_data_format)
    return True


def make_dim_proto_numeric_t5(model: ModelProto, config: Any) -> None:
    """Let sizes of inputs and outputs whose names are numbers (one word, heads, sizes of T5) be these numbers."""
    known = {str(size) for size in (1, config.num_heads, config.d_model, config.d_kv)}
    for value in (*model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in known:
                size.dim_value = int(size.dim_param)  # a size is a name or a number


# --- checks


def verify_gpt2_subgraph(graph: GraphProto, precision: Precision) -> None:
    """Raise where a graph does not look like a decoder of GPT-2 with a past."""
    layers = sum(value.name.startswith("past_") and value.name[5:].isdecimal() for value in graph.input)
    words = dict.fromkeys(("input_ids", "position_ids", "attention_mask"), TensorProto.INT32)
    floats = FLOATS[Precision(precision)]
    _verify(graph.input, words | {f"past_{layer}": floats for layer in range(layers)}, "input")
    _verify(graph.output, {"logits": None} | {f"present_{layer}": floats for layer in range(layers)}, "output")


def verify_t5_decoder_subgraph(graph: GraphProto, precision: Precision) -> None:
    """Raise where a graph does not look like a decoder of T5 with keys and values of earlier words and of the source."""
    layers = sum(value.name.startswith("past_key_self_") for value in graph.input)
    floats = FLOATS[Precision(precision)]
    words: dict[str, int | None] = dict.fromkeys(("input_ids", "encoder_attention_mask"), TensorProto.INT32)
    if any(value.name == "encoder_hidden_states" for value in graph.input):
        words["encoder_hidden_states"] = floats
    _verify(graph.input, words | dict.fromkeys(PastKeyValuesHelper.get_past_names(layers), floats), "input")
    present = PastKeyValuesHelper.get_past_names(layers, present=True)[: 2 * layers]
    _verify(graph.output, {"logits": None} | dict.fromkeys(present, floats), "output")


def verify_t5_encoder_decoder_init_subgraph(graph: GraphProto, precision: Precision) -> None:
    """Raise where a graph does not look like the encoder of T5 with the first step, or with keys and values of the source alone."""
    layers = sum(value.name.startswith("present_key_cross_") for value in graph.output)
    floats = FLOATS[Precision(precision)]
    words = dict.fromkeys(("encoder_input_ids", "encoder_attention_mask"), TensorProto.INT32)
    if len(graph.input) > len(words):
        words["decoder_input_ids"] = TensorProto.INT32
    present = PastKeyValuesHelper.get_past_names(layers, present=True)
    _verify(graph.input, words, "input")
    if graph.output and graph.output[0].name.startswith("present_"):
        _verify(graph.output, dict.fromkeys(present[2 * layers :], floats), "output")
    else:
        _verify(graph.output, {"logits": None, "encoder_hidden_states": floats} | dict.fromkeys(present, floats), "output")


def _verify(values: Sequence[Any], expected: Mapping[str, int | None], kind: str) -> None:
    """Raise at the first value whose name or type is another; without a type both widths of floats will do."""
    if len(values) != len(expected):
        raise ValueError(f"expected {len(expected)} {kind}s {', '.join(expected)}, got {len(values)}")
    for number, (value, (name, element)) in enumerate(zip(values, expected.items(), strict=True)):
        got = value.type.tensor_type.elem_type
        if value.name != name:
            raise ValueError(f"{kind} {number} is to be {name}, got {value.name}")
        if got not in (FLOATS.values() if element is None else (element,)):
            wanted = "a float" if element is None else TensorProto.DataType.Name(element)
            raise ValueError(f"{kind} {name} is to be of {wanted}, got {TensorProto.DataType.Name(got)}")


# --- the search of the transformers package


def test_torch_performance(
    args: argparse.Namespace,
    model: Any,
    input_ids: Any,
    attention_mask: Any,
    eos_token_id: int,
    pad_token_id: int,
    bad_words_ids: list[list[int]],
) -> dict[str, Any]:
    """How long the search of the transformers package takes, as `get_latency_result` has it."""
    refuse_gpu(args.use_gpu)
    names = ("max_length", "min_length", "num_beams", "early_stopping", "no_repeat_ngram_size", "num_return_sequences")
    options = {name: getattr(args, name) for name in (*names, "length_penalty", "repetition_penalty")}
    tokens = {"eos_token_id": eos_token_id, "pad_token_id": pad_token_id, "bad_words_ids": bad_words_ids or None}
    times = list(
        _seconds(args.total_runs, model, {"input_ids": input_ids, "attention_mask": attention_mask, **options, **tokens})
    )
    return get_latency_result(times, input_ids.shape[0])


test_torch_performance.__test__ = False  # type: ignore[attr-defined]  # pytest takes such names for tests


def _seconds(count: int, model: Any, options: Mapping[str, Any]) -> Iterator[float]:
    with loaded_torch().no_grad():
        for _ in range(count):
            start = time.perf_counter()
            model.generate(**options)
            yield time.perf_counter() - start


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of `convert_generation`."""
    parser = argparse.ArgumentParser(description="Build a model around a search.")
    parser.add_argument("-m", "--model_name_or_path", required=True, help="name or folder of the model")
    parser.add_argument("--model_type", default="gpt2", choices=["gpt2", "t5", "mt5"])
    parser.add_argument("--cache_dir", default=str(Path("cache_models")), help="where fetched models are kept")
    parser.add_argument("--decoder_onnx", default="", help="the decoder; written if it is not there")
    parser.add_argument("--encoder_decoder_init_onnx", default="", help="the encoder of T5 with the first step")
    parser.add_argument("--output", required=True, help="the model to write")
    parser.add_argument("-p", "--precision", default="fp32", choices=["fp32", "fp16"])
    parser.add_argument("-b", "--op_block_list", nargs="*", default=["auto"], help="with fp16: ops that stay float32")
    for names in SWITCHES:
        parser.add_argument(*names, action="store_true")
    for name, default in NUMBERS.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args(argv)


SWITCHES = (
    ("--verbose",),
    ("-e", "--use_external_data_format"),
    ("-s", "--run_shape_inference"),
    ("-dpvs", "--disable_pad_vocab_size"),
    ("-dsgd", "--disable_separate_gpt2_decoder_for_init_run"),
    ("-i", "--disable_shared_initializers"),
    *((f"--{name}",) for name in ("encoder_decoder_init", "output_sequences_scores", "output_token_scores", "early_stopping")),
    *(
        (f"--{name}",)
        for name in ("vocab_mask", "past_present_share_buffer", "use_decoder_masked_attention", "prefix_vocab_mask")
    ),
    *((f"--{name}",) for name in ("custom_attention_mask", "presence_mask", "seed", "use_sln_strict_mode", "use_gpu")),
    *((f"--{name}",) for name in ("disable_parity", "disable_perf_test", "torch_performance", "save_test_data")),
)
NUMBERS: dict[str, int | float] = {
    "no_repeat_ngram_size": 0,
    "min_length": 1,
    "max_length": 50,
    "num_beams": 4,
    "num_return_sequences": 1,
    "length_penalty": 1.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "filter_value": -float("inf"),
    "min_tokens_to_keep": 1,
    "presence_penalty": 0.0,
    "custom": 0,
    "vocab_size": -1,
    "eos_token_id": -1,
    "pad_token_id": -1,
    "total_runs": 1,
}
