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


def test_graphs_are_changed_in_place_as_a_whole() -> None:
    words = steps(3)
    model = attending()
    del model.model.graph.output[1:]
    for name in ("present_key_self_0", "present_value_self_0"):
        shape = ["batch_size", HEADS, "total_length", SIZE]
        model.model.graph.output.append(helper.make_tensor_value_info(name, FLOAT, shape))
    assert generation.update_decoder_subgraph_share_buffer_and_use_decoder_masked_mha(model.model.graph)
    assert [node.op_type for node in model.model.graph.node].count("DecoderMaskedMultiHeadAttention") == 1
    values = {value.name: value for value in (*model.model.graph.input, *model.model.graph.output)}
    for name in ("past_key_self_0", "past_value_self_0", "present_key_self_0", "present_value_self_0"):
        assert generation.shape_of(values[name]) == ("batch_size", HEADS, "max_seq_len", SIZE)
    beams = {"beam_width": np.array([1], np.int32), "cache_indirection": np.zeros((3, 1, LONGEST), np.int32)}
    np.testing.assert_allclose(with_buffers(model, words, **beams), growing(words), atol=1e-5)
    assert generation.pack_qkv_for_decoder_masked_mha(model.model)
    assert [node.op_type for node in model.model.graph.node] == ["MatMul", "DecoderMaskedMultiHeadAttention"]
    np.testing.assert_allclose(with_buffers(model, words, **beams), growing(words), atol=1e-5)


def test_graphs_stay_where_attention_is_not_fused_or_no_product() -> None:
    unfused = decoder([helper.make_node("Identity", ["x"], ["y"])], {"y": FLOAT}).model
    before = unfused.SerializeToString()
    assert not generation.update_decoder_subgraph_share_buffer_and_use_decoder_masked_mha(unfused.graph)
    assert unfused.SerializeToString() == before
    for change in ("op", "source", "size"):
        model = generation.replace_mha_with_dmmha(attending(), "past_sequence_length").model
        (product,) = [node for node in model.graph.node if node.name == "m1"]
        if change == "op":
            product.op_type = "Add"
        elif change == "source":
            product.input[0] = "p0"
        else:
            wide = next(tensor for tensor in model.graph.initializer if tensor.name == "w1")
            wide.CopyFrom(numpy_helper.from_array(np.zeros((WIDTH, 2 * WIDTH), np.float32), "w1"))
        before = model.SerializeToString()
        assert not generation.pack_qkv_for_decoder_masked_mha(model) and model.SerializeToString() == before


def stacked() -> onnx.ModelProto:
    """Attention of GPT-2, with keys and values of earlier words in one tensor."""
    rng = np.random.default_rng(3)
    arrays = {"w": rng.normal(size=(WIDTH, 3 * WIDTH)), "b": rng.normal(size=3 * WIDTH)}
    weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    sizes = {"x": ["batch", 1, WIDTH], "past_0": [2, "batch", HEADS, "past", SIZE]}
    results = {"y": ["batch", 1, WIDTH], "present_0": [2, "batch", HEADS, "total", SIZE]}
    values = [[helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in part.items()] for part in (sizes, results)]
    options = {"domain": "com.microsoft", "num_heads": HEADS, "unidirectional": 1}
    node = helper.make_node("Attention", ["x", "w", "b", "", "past_0"], ["y", "present_0"], **options)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "gpt2", *values, weights), opset_imports=opsets, ir_version=8)


def test_stacked_keys_and_values_lie_in_buffers() -> None:
    model = stacked()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert generation.update_decoder_subgraph_past_present_share_buffer(model.graph) is model.graph
    assert generation.shape_of(model.graph.input[1]) == (2, "batch", HEADS, "max_seq_len", SIZE)
    assert generation.shape_of(model.graph.output[1]) == (2, "batch", HEADS, "max_seq_len", SIZE)
    buffered = sardonyx.InferenceSession(model.SerializeToString())
    past, buffer = np.zeros((2, 3, HEADS, 0, SIZE), np.float32), np.full((2, 3, HEADS, LONGEST, SIZE), 9.0, np.float32)
    for step, x in enumerate(steps(3)):
        expected, past = session.run(None, {"x": x, "past_0": past})
        feeds = {"x": x, "past_0": buffer, "past_sequence_length": np.array([step], np.int32)}
        state, buffer = buffered.run(None, feeds)
        np.testing.assert_allclose(state, expected, atol=1e-5)
        np.testing.assert_allclose(buffer[:, :, :, : step + 1], past, atol=1e-5)


def attending_to_source() -> OnnxModel:
    inputs = ["x", "past_key_cross_0", "past_value_cross_0"]
    node = helper.make_node("MultiHeadAttention", inputs, ["y"], name="c", domain="com.microsoft", num_heads=HEADS, scale=0.4)
    model = decoder([node], {"y": FLOAT})
    source = ["batch_size", HEADS, "source_length", SIZE]
    model.model.graph.input.extend(helper.make_tensor_value_info(name, FLOAT, source) for name in inputs[1:])
    return model


def test_scores_of_a_source_become_outputs() -> None:
    model = attending_to_source()
    with pytest.raises(ValueError, match="none over past_key_cross_0"):
        generation.update_decoder_subgraph_output_cross_attention(model.model.graph)
    rng = np.random.default_rng(4)
    source = rng.normal(size=(2, 2, HEADS, 5, SIZE)).astype(np.float32)
    unused = np.zeros((2, HEADS, 0, SIZE), np.float32)
    feeds = {"x": steps(2)[0], "past_key_cross_0": source[0], "past_value_cross_0": source[1]}
    feeds |= {"past_key_self_0": unused, "past_value_self_0": unused}
    (expected,) = onnxruntime.InferenceSession(model.model.SerializeToString()).run(None, feeds)
    generation.replace_mha_with_dmmha(model, "past_sequence_length")
    generation.update_decoder_subgraph_output_cross_attention(model.model.graph)
    assert generation.shape_of(model.model.graph.output[1]) == ("batch_size", HEADS, 1, "source_length")
    feeds |= {"beam_width": np.array([1], np.int32), "cache_indirection": np.zeros((2, 1, LONGEST), np.int32)}
    states, scores = sardonyx.InferenceSession(model.model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(states, expected, atol=1e-5)
    query = feeds["x"].reshape(2, 1, HEADS, SIZE).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(scores, 0.4 * query @ source[0].transpose(0, 1, 3, 2), atol=1e-5)


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
