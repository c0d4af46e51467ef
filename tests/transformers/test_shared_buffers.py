"""Decoders with buffers give what those with growing keys and values give; onnxruntime computes the latter."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.transformers import convert_generation as generation
from sardonyx.transformers.onnx_model import OnnxModel

HEADS, SIZE, LONGEST = 2, 4, 6
WIDTH = HEADS * SIZE
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def decoder(nodes: list[onnx.NodeProto], outputs: dict[str, int], *weights: onnx.TensorProto) -> OnnxModel:
    past = ["batch_size", HEADS, "past_length", SIZE]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["batch_size", 1, WIDTH])]
    inputs += [helper.make_tensor_value_info(f"past_{kind}_self_0", FLOAT, past) for kind in ("key", "value")]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "decoder", inputs, results, list(weights))
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def attending() -> OnnxModel:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(size=(WIDTH, WIDTH)).astype(np.float32), f"w{number}") for number in range(3)]
    weights.append(numpy_helper.from_array(rng.normal(size=3 * WIDTH).astype(np.float32), "bias"))
    nodes = [helper.make_node("MatMul", ["x", f"w{number}"], [f"p{number}"], name=f"m{number}") for number in range(3)]
    inputs = ["p0", "p1", "p2", "bias", "", "", "past_key_self_0", "past_value_self_0"]
    results = ["y", "present_key_self_0", "present_value_self_0"]
    nodes.append(
        helper.make_node("MultiHeadAttention", inputs, results, name="a", domain="com.microsoft", num_heads=HEADS, scale=0.4)
    )
    return decoder(nodes, dict.fromkeys(results, FLOAT), *weights)


def steps(batch: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(4, batch, 1, WIDTH)).astype(np.float32)


def growing(words: np.ndarray) -> list[np.ndarray]:
    """The states after each word, as onnxruntime has them."""
    session = onnxruntime.InferenceSession(attending().model.SerializeToString())
    key = value = np.zeros((words.shape[1], HEADS, 0, SIZE), np.float32)
    states = []
    for x in words:
        state, key, value = session.run(None, {"x": x, "past_key_self_0": key, "past_value_self_0": value})
        states.append(state)
    return states


def with_buffers(model: OnnxModel, words: np.ndarray, **constant: np.ndarray) -> list[np.ndarray]:
    session = sardonyx.InferenceSession(model.model.SerializeToString())
    key, value = (np.full((words.shape[1], HEADS, LONGEST, SIZE), 9.0, np.float32) for _ in range(2))
    states = []
    for step, x in enumerate(words):
        feeds = {"x": x, "past_key_self_0": key, "past_value_self_0": value, "past_sequence_length": np.array([step], np.int32)}
        state, key, value = session.run(None, {**feeds, **constant})
        states.append(state)
        assert key.shape[2] == LONGEST
    return states


def test_attention_of_one_word_writes_into_buffers() -> None:
    words = steps(3)
    model, name = generation.fix_past_sequence_length(attending())
    generation.replace_mha_with_dmmha(model, name)
    (node,) = model.get_nodes_by_op_type("DecoderMaskedMultiHeadAttention")
    assert list(node.input)[5:8] == ["past_key_self_0", "past_value_self_0", "past_sequence_length"]
    assert not model.get_nodes_by_op_type("MultiHeadAttention")
    beams = {"beam_width": np.array([1], np.int32), "cache_indirection": np.zeros((3, 1, LONGEST), np.int32)}
    np.testing.assert_allclose(with_buffers(model, words, **beams), growing(words), atol=1e-5)


def test_beams_read_the_words_of_others() -> None:
    """Two beams of one text: the second goes on from the first's words, so that it sees what the first saw."""
    words = steps(2)
    model, name = generation.fix_past_sequence_length(attending())
    generation.add_cache_indirection_to_mha(model, name)
    plain = with_buffers(
        model, words, cache_indirection=np.array([[[0] * LONGEST, [1] * LONGEST]], np.int32).reshape(1, 2, LONGEST)
    )
    np.testing.assert_allclose(plain, growing(words), atol=1e-5)
    crossed = with_buffers(model, words, cache_indirection=np.zeros((1, 2, LONGEST), np.int32))
    same = words.copy()
    same[:-1, 1] = same[:-1, 0]  # all but the last word are those of the first beam
    np.testing.assert_allclose(crossed[-1], growing(same)[-1], atol=1e-5)


@pytest.mark.parametrize("way", ["scalar", "list", "shape"])
def test_lengths_of_the_past_become_an_input(way: str) -> None:
    index = numpy_helper.from_array(np.array(2 if way == "scalar" else [2]), "two")
    taking = [
        helper.make_node("Shape", ["past_key_self_0"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "two"], ["length"]),
    ]
    if way == "shape":
        taking = [helper.make_node("Shape", ["past_key_self_0"], ["length"], start=2, end=3)]
    other = [helper.make_node("Shape", ["past_key_self_0"], ["all"]), helper.make_node("Identity", ["all"], ["z"])]
    nodes = [*taking, helper.make_node("Add", ["length", "length"], ["y"]), *other]
    model = decoder(nodes, {"y": INT64, "z": INT64}, *([] if way == "shape" else [index]))
    names, removed = generation.find_past_seq_len_usage(model.model.graph)
    assert names == {"length"} and [node.op_type for node in removed] == [node.op_type for node in taking]
    generation.fix_past_sequence_length(model)
    key = np.zeros((1, HEADS, LONGEST, SIZE), np.float32)
    feeds = {"x": np.zeros((1, 1, WIDTH), np.float32), "past_key_self_0": key, "past_value_self_0": key}
    session = onnxruntime.InferenceSession(model.model.SerializeToString())
    doubled, sizes = session.run(None, {**feeds, "past_sequence_length": np.array([3], np.int32)})
    assert doubled.ravel().tolist() == [6] and doubled.ndim == (way != "scalar") and sizes.tolist() == [1, HEADS, LONGEST, SIZE]


def test_scores_become_outputs() -> None:
    model = generation.add_output_qk_to_mha(attending())
    x = steps(2)[0]
    past = np.random.default_rng(2).normal(size=(2, HEADS, 3, SIZE)).astype(np.float32)
    feeds = {"x": x, "past_key_self_0": past, "past_value_self_0": past}
    scores, key = sardonyx.InferenceSession(model.model.SerializeToString()).run(
        ["output_cross_qk_0", "present_key_self_0"], feeds
    )
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.model.graph.initializer}
    query = (x @ weights["w0"] + weights["bias"][:WIDTH]).reshape(2, 1, HEADS, SIZE).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(scores, 0.4 * query @ key.transpose(0, 1, 3, 2), atol=1e-5)
    skipped = generation.add_output_qk_to_mha(attending(), skip_node_idxs=[0])
    assert len(skipped.model.graph.output) == 3
