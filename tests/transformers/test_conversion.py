"""What converters are made of, without PyTorch: shared weights, attention over groups, names of files and sizes, arguments."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.transformers import convert_generation
from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.conversion import mixed_precision, part_path
from sardonyx.transformers.models.bart import export as bart
from sardonyx.transformers.models.llama import convert_to_onnx as llama
from sardonyx.transformers.models.t5 import convert_to_onnx as t5
from sardonyx.transformers.models.whisper import convert_to_onnx as whisper
from sardonyx.transformers.onnx_model import OnnxModel

rng = np.random.default_rng(0)
HEADS, SIZE = 2, 8
WIDTH = HEADS * SIZE


def product(weights: np.ndarray, name: str = "w") -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, len(weights)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, weights.shape[1]])],
        [numpy_helper.from_array(weights, name)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_two_models_share_weights_of_equal_values() -> None:
    weights = rng.normal(size=(32, 64)).astype(np.float32)
    encoder, decoder = product(weights, "a"), product(weights.copy(), "b")
    (shared,) = convert_generation.get_shared_initializers(encoder, decoder)
    assert shared.name == "s_e_a" and np.array_equal(numpy_helper.to_array(shared), weights)
    for model in (encoder, decoder):
        assert not model.graph.initializer
        assert model.graph.node[0].input[1] == "s_e_a"
        (declared,) = (value for value in model.graph.value_info if value.name == "s_e_a")
        assert convert_generation.shape_of(declared) == (32, 64)


def test_weights_that_differ_or_are_small_are_not_shared() -> None:
    weights = rng.normal(size=(32, 64)).astype(np.float32)
    assert not convert_generation.get_shared_initializers(product(weights), product(weights + 1))
    assert not convert_generation.get_shared_initializers(product(weights[:2, :2]), product(weights[:2, :2]))


def test_a_name_of_shared_weights_that_is_taken_is_refused() -> None:
    weights = rng.normal(size=(32, 64)).astype(np.float32)
    first, second = product(weights, "w"), product(weights, "w")
    first.graph.node.append(helper.make_node("Identity", ["shared_w"], ["z"]))
    with pytest.raises(RuntimeError, match="shared_w"):
        convert_generation.remove_shared_initializers(first.graph, second.graph)


def test_moved_weights_stay_declared() -> None:
    model = product(rng.normal(size=(32, 64)).astype(np.float32))
    (moved,) = convert_generation.move_initializers(model.graph)
    assert moved.name == "w" and not model.graph.initializer
    assert convert_generation.shape_of(model.graph.value_info[0]) == (32, 64)


def test_masks_begin_with_the_first_word() -> None:
    words = np.array([[0, 0, 5, 0], [3, 0, 0, 1], [0, 0, 0, 0]])
    assert convert_generation.create_attention_mask(words, 0).tolist() == [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]


# --- attention over groups of heads


def cached_attention(heads: int = HEADS, packed_bias: str = "") -> OnnxModel:
    """Attention of two words with three before them, each of which sees all before it."""
    cache = [1, heads, 3, SIZE]
    inputs = {name: [1, 2, heads * SIZE] for name in ("q", "k", "v")} | {"past_key": cache, "past_value": cache}
    bias = np.where(np.arange(5)[None, :] <= np.arange(3, 5)[:, None], 0, -1e9).astype(np.float32)[None, None]
    node = helper.make_node(
        "MultiHeadAttention",
        ["q", "k", "v", packed_bias, "", "bias", "past_key", "past_value"],
        ["y", "present_key", "present_value"],
        name="attention",
        domain="com.microsoft",
        num_heads=heads,
    )
    outputs = {"y": [1, 2, heads * SIZE], "present_key": [1, heads, 5, SIZE], "present_value": [1, heads, 5, SIZE]}
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("mask", TensorProto.INT64, [1, "length"]),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(bias, "bias")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def test_attention_over_groups_takes_the_place_of_attention_with_a_cache() -> None:
    before = cached_attention()
    feeds = {
        value.name: rng.normal(size=convert_generation.shape_of(value)).astype(np.float32)
        for value in before.graph().input
        if value.name != "mask"
    }
    wanted = onnxruntime.InferenceSession(before.model.SerializeToString()).run(
        None, feeds | {"mask": np.ones((1, 5), np.int64)}
    )
    after = convert_generation.replace_mha_with_gqa(cached_attention(), "mask", HEADS)
    after.topological_sort()
    assert {node.op_type for node in after.graph().node} >= {"GroupQueryAttention"} and not after.get_nodes_by_op_type(
        "MultiHeadAttention"
    )
    for runtime in (onnxruntime, sardonyx):
        session = runtime.InferenceSession(after.model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(None, feeds | {"mask": np.ones((1, 5), np.int64)})
        for got, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (cached_attention(), {"kv_num_heads": 1}, "keys of 1 heads"),
        (cached_attention(), {"world_size": 2}, "world_size 2"),
        (cached_attention(packed_bias="b"), {}, "no other bias"),
    ],
)
def test_attention_that_groups_cannot_replace_is_refused(model: OnnxModel, arguments: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        convert_generation.replace_mha_with_gqa(model, "mask", **arguments)
    assert model.get_nodes_by_op_type("MultiHeadAttention") and len(model.graph().node) == 1


def test_a_search_is_refused_with_the_way_out() -> None:
    with pytest.raises(NotImplementedError, match="beam_search"):
        convert_generation.main([])
    with pytest.raises(NotImplementedError, match="--no_beam_search_op"):
        convert_generation.refuse_search(["a.onnx"], "--no_beam_search_op")


# --- converters


def test_parts_are_named_after_the_model() -> None:
    assert part_path("out", "google/mt5-small", "_encoder").replace("\\", "/") == "out/mt5-small_encoder.onnx"
    assert part_path("out", "t5", "_decoder", new_folder=True).replace("\\", "/") == "out/t5_decoder/t5_decoder.onnx"


@pytest.mark.parametrize(("weights", "are_halves"), [(0.1, False), (0.5, True)])
def test_logits_stay_in_float32_unless_their_weights_were_halves(weights: float, are_halves: bool) -> None:
    model = OnnxModel(product(np.full((4, 4), weights, np.float32)))
    parameters = mixed_precision(model, ["Add"])
    assert parameters["force_fp16_initializers"] == are_halves
    assert parameters["keep_io_types"] == ([] if are_halves else ["y"])
    assert parameters["node_block_list"] == ([] if are_halves else ["product"])
    assert not mixed_precision(model, ["Add"], force_fp16_logits=True)["keep_io_types"]


def test_sensitive_products_of_whisper_are_at_both_ends_and_in_each_third_layer() -> None:
    names = [f"/decoder/layers.{layer}/self_attn/q_proj/MatMul" for layer in range(8)]
    others = ["/decoder/layers.0/fc1/MatMul", "/proj_out/MatMul", "/encoder/layers.2/fc2/MatMul", "/k_proj/MatMul"]
    wide = whisper.get_sensitive_node_names([*names, *others], 4, 8)
    assert wide == [names[0], names[3], names[6], names[7], others[1], others[2], others[3]]
    config = whisper.make_quant_algo_config(Precision.INT4, "k_quant_mixed", names, 4, 8)
    assert config.customized_weight_config == {name: {"bits": 8} for name in wide[:4]}
    assert set(whisper.make_quant_algo_config(Precision.INT8, "k_quant", names).customized_weight_config) == set(names)


def test_open_sizes_of_decoders() -> None:
    names = ["input_ids", "attention_mask", "past_key_values.0.key"], ["logits", "present.0.key"]
    assert llama.get_merged_model_dynamic_axes(*names) == {
        "input_ids": {0: "batch_size", 1: "sequence_length"},
        "attention_mask": {0: "batch_size", 1: "total_sequence_length"},
        "past_key_values.0.key": {0: "batch_size", 2: "past_sequence_length"},
        "logits": {0: "batch_size", 1: "sequence_length"},
        "present.0.key": {0: "batch_size", 2: "total_sequence_length"},
    }
    assert llama.get_model_with_past_kv_dynamic_axes(*names)["input_ids"] == {0: "batch_size"}
    assert llama.get_model_dynamic_axes(*names)["present.0.key"] == {0: "batch_size", 2: "sequence_length"}
    with pytest.raises(ValueError, match="'other'"):
        llama.get_model_dynamic_axes(["other"], [])


def test_converters_take_the_arguments_of_the_original() -> None:
    t5_arguments = t5.parse_arguments(["-m", "t5-small", "-o", "-p", "fp16", "-e", "-s", "-w", "--use_int64_inputs"])
    assert t5_arguments.precision == "fp16" and t5_arguments.use_decoder_start_token and t5_arguments.overwrite
    asked = whisper.parse_arguments(
        ["-m", "w", "-o", "-p", "int4", "--output_cross_qk", "-f", "--quant_method", "k_quant_mixed"]
    )
    assert asked.precision is Precision.INT4 and asked.collect_cross_qk and asked.use_forced_decoder_ids
    assert llama.get_args(["-m", "l", "-p", "int8", "-q", "quantize_dynamic", "--no_merged"]).no_merged
    assert bart.user_command(["-m", "b", "--no_chain"]).no_chain
