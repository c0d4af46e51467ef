"""T5's modules: beside those of the transformers package they give the same, and so do their files in both runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.transformers.encoder_decoders import DECODER_INIT, ENCODER, Part
from sardonyx.transformers.models.t5.t5_decoder import T5Decoder, T5DecoderHelper, T5DecoderInit, T5DecoderInputs
from sardonyx.transformers.models.t5.t5_encoder import T5Encoder, T5EncoderInputs
from sardonyx.transformers.models.t5.t5_encoder_decoder_init import (
    T5EncoderDecoderInit,
    T5EncoderDecoderInitHelper,
    T5EncoderDecoderInitInputs,
)
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.onnx_model_t5 import FusionRelativePositionBiasBlock

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
SIZES = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
EXACT = 1e-5


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return hub.T5ForConditionalGeneration(hub.T5Config(**SIZES, decoder_start_token_id=3)).eval()


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def near(got, wanted) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def sessions(path: Path, *runtimes):
    return [
        runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for runtime in runtimes or (onnxruntime, sardonyx)
    ]


def test_the_encoder_gives_hidden_states(model) -> None:
    inputs = T5EncoderInputs.create_dummy(3, 7, 60, "cpu", use_int32_inputs=True)
    assert inputs.input_ids.dtype == inputs.attention_mask.dtype == torch.int32
    assert (inputs.attention_mask.diff(dim=1) >= 0).all() and (inputs.attention_mask[:, -1] == 1).all()
    words, mask = inputs.to_list()
    encoder = T5Encoder(model.encoder, model.config)
    assert isinstance(encoder, torch.nn.Module)
    near(encoder(words, mask), model.encoder(words.long(), mask.long()).last_hidden_state)


@pytest.mark.parametrize("is_tied", [True, False])
def test_steps_give_what_the_whole_model_gives(is_tied: bool) -> None:
    """Unlike in older models the head is scaled or not."""
    torch.manual_seed(1)
    config = hub.T5Config(**SIZES, decoder_start_token_id=3, tie_word_embeddings=is_tied)
    model = hub.T5ForConditionalGeneration(config).eval()
    source = T5EncoderInputs.create_dummy(2, 5, 60, "cpu")
    words = torch.tensor([[3, 8, 9], [3, 1, 2]])
    options = {"input_ids": source.input_ids, "attention_mask": source.attention_mask}
    wanted = model(**options, decoder_input_ids=words).logits
    hidden = T5Encoder(model.encoder, config)(*source.to_list())
    first = T5DecoderInit(model.decoder, model.lm_head, config)
    logits, own, cross = first(words[:, :2], source.attention_mask, hidden)
    near(logits, wanted[:, :2])
    step = T5Decoder(model.decoder, model.lm_head, config)
    logits, own = step(words[:, 2:], source.attention_mask, *own, *cross)
    near(logits, wanted[:, 2:])
    assert len(own) == len(cross) == 6 and own[0].shape == (2, 4, 3, 8)
    near(first(None, source.attention_mask, hidden)[0], wanted[:, :1])


def test_the_encoder_and_the_first_step_are_one_module(model) -> None:
    inputs = T5EncoderDecoderInitInputs.create_dummy(model.config, 2, 5, True, "cpu")
    assert inputs.decoder_input_ids.tolist() == [[3], [3]]
    source = {"input_ids": inputs.encoder_input_ids, "attention_mask": inputs.encoder_attention_mask}
    pieces = model.encoder, model.decoder, model.lm_head, model.config
    wanted = model(**source, decoder_input_ids=inputs.decoder_input_ids)
    logits, hidden, own, cross = T5EncoderDecoderInit(*pieces)(*inputs.to_list())
    near(logits, wanted.logits)
    near(hidden, wanted.encoder_last_hidden_state)
    near(own[4], wanted.past_key_values.self_attention_cache.layers[2].keys)
    near(cross[5], wanted.past_key_values.cross_attention_cache.layers[2].values)
    other = model(**source, decoder_input_ids=torch.full((2, 1), 7)).logits
    near(T5EncoderDecoderInit(*pieces, decoder_start_token_id=7)(*inputs.to_list()[:2])[0], other)
    caches = T5EncoderDecoderInit(*pieces, output_cross_only=True)(*inputs.to_list())
    assert len(caches) == 6
    near(caches[5], cross[5])


@pytest.mark.parametrize("with_past", [True, False])
def test_files_of_decoders(model, with_past: bool, tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    kind = T5Decoder if with_past else T5DecoderInit
    decoder = kind(model.decoder, model.lm_head, model.config)
    T5DecoderHelper.export_onnx(decoder, "cpu", str(path), use_int32_inputs=True)
    for session in sessions(path):
        assert T5DecoderHelper.verify_onnx(decoder, session, "cpu", True) < EXACT
    if with_past:
        inputs = T5DecoderInputs.create_dummy(model.config, 2, 4, 3, "cpu", float16=True, use_int32_inputs=True).to_fp32()
        logits, own = decoder(*inputs.to_list())
        got = T5DecoderHelper.onnxruntime_inference(sessions(path)[1], inputs)
        for result, wanted in zip(got, [logits, *own], strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("has_words", "cross_only"), [(True, False), (False, False), (False, True)])
def test_files_of_encoders_with_the_first_step(model, has_words: bool, cross_only: bool, tmp_path: Path) -> None:
    path = tmp_path / "encoder.onnx"
    module = T5EncoderDecoderInit(model.encoder, model.decoder, model.lm_head, model.config, output_cross_only=cross_only)
    T5EncoderDecoderInitHelper.export_onnx(module, "cpu", str(path), has_words)
    inputs = T5EncoderDecoderInitInputs.create_dummy(model.config, 2, 5, has_words, "cpu")
    for session in sessions(path):
        assert T5EncoderDecoderInitHelper.verify_onnx(module, session, "cpu", False, max_cases=3) < EXACT
        (first, *_) = T5EncoderDecoderInitHelper.onnxruntime_inference(session, inputs)
        np.testing.assert_allclose(first, module(*inputs.to_list())[0], rtol=1e-5, atol=1e-5)


def test_other_modules_are_refused(model) -> None:
    with pytest.raises(TypeError, match="T5Decoder"):
        T5DecoderHelper.export_onnx(model, "cpu", "decoder.onnx")


@pytest.mark.parametrize("distance", [20, 128])
@pytest.mark.parametrize("part", [ENCODER, DECODER_INIT], ids=["both ways", "earlier words"])
def test_biases_of_distances_become_one_op(distance: int, part, tmp_path: Path) -> None:
    torch.manual_seed(2)
    buckets = {"relative_attention_max_distance": distance, "relative_attention_num_buckets": 8}
    model = hub.T5ForConditionalGeneration(hub.T5Config(**SIZES, **buckets, decoder_start_token_id=3)).eval()
    path = tmp_path / "part.onnx"
    piece = Part(model, *part)
    piece.export(path, 17)
    fused = OnnxModel(onnx.load(path))
    before = len(fused.nodes())
    FusionRelativePositionBiasBlock(fused).apply()
    (node,) = fused.get_nodes_by_op_type("RelativePositionBias")
    assert fused.get_node_attribute(node, "max_distance") == distance
    assert fused.get_node_attribute(node, "is_bidirectional") == (part is ENCODER) and len(fused.nodes()) < before - 20
    fused.save_model_to_file(str(path))
    session = sessions(path, sardonyx)[0]  # onnxruntime has the op for GPUs alone
    assert piece.difference_of(session, 2, [(2, 30, 25, 1), (1, 3, 2, 1)]) < EXACT
