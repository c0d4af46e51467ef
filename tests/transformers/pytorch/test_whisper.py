"""Whisper's modules: beside those of the transformers package they give the same, and so do their files in both runtimes."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import sardonyx
from sardonyx.transformers.models.whisper.whisper_decoder import WhisperDecoder
from sardonyx.transformers.models.whisper.whisper_encoder import WhisperEncoder
from sardonyx.transformers.models.whisper.whisper_encoder_decoder_init import WhisperEncoderDecoderInit
from sardonyx.transformers.models.whisper.whisper_inputs import convert_inputs_for_ort
from sardonyx.transformers.models.whisper.whisper_jump_times import WhisperJumpTimes, jump_times_model

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")
generation_whisper = pytest.importorskip("transformers.models.whisper.generation_whisper")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDTHS = {"vocab_size": 60, "d_model": 32, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SOUND = {"max_source_positions": 20, "max_target_positions": 30, "num_mel_bins": 8, "begin_suppress_tokens": None}
EXACT = 1e-5
CPU = "CPUExecutionProvider"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return hub.WhisperForConditionalGeneration(hub.WhisperConfig(**LAYERS, **WIDTHS, **TOKENS, **SOUND)).eval()


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def near(got, wanted) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_steps_give_what_the_whole_model_gives(model) -> None:
    words = torch.tensor([[1, 8, 9], [1, 5, 2]])
    (sound,) = WhisperEncoder(model.config, model, "hf").inputs(False, True)
    wanted = model(sound, decoder_input_ids=words)
    hidden = WhisperEncoder(model.config, model, "hf")(sound)
    near(hidden, wanted.encoder_last_hidden_state)
    decoder = WhisperDecoder(model.config, model, "hf", no_beam_search_op=True)
    logits, present = decoder(words[:, :2], hidden)
    near(logits, wanted.logits[:, :2])
    assert len(present) == 2 and [tensor.shape[2] for tensor in present[0]] == [2, 2, 20, 20]
    logits, own = decoder(words[:, 2:], hidden, present)
    near(logits, wanted.logits[:, 2:])
    near(own[2], wanted.past_key_values.self_attention_cache.layers[1].keys)


def test_the_encoder_with_the_first_step_or_with_keys_and_values(model) -> None:
    words = torch.tensor([[1, 8], [1, 5]])
    both = WhisperEncoderDecoderInit(model.config, model, "hf")
    sound = both.inputs(False, True, return_dict=True)["audio_features"]
    wanted = model(sound, decoder_input_ids=words)
    logits, hidden, present = both(sound, words)
    near(logits, wanted.logits)
    near(hidden, wanted.encoder_last_hidden_state)
    near(present[1][3], wanted.past_key_values.cross_attention_cache.layers[1].values)
    near(both(sound)[0], wanted.logits[:, :1])
    alone = WhisperEncoderDecoderInit(model.config, model, "hf", no_beam_search_op=True)
    assert list(alone.inputs(False, True, return_dict=True)) == ["audio_features"]
    hidden, cross = alone(sound)
    near(cross[3], present[1][3])


def files(model, folder: Path, halves: bool):
    """Every kind of file: module, arguments of the export, path."""
    config = model.config
    kinds = {
        "encoder": (WhisperEncoder(config, model, "hf"), {}),
        "decoder": (WhisperDecoder(config, model, "hf", True), {"use_int32_inputs": False}),
        "first": (WhisperDecoder(config, model, "hf"), {"use_encoder_hidden_states": True, "use_kv_cache_inputs": False}),
        "both": (WhisperEncoderDecoderInit(config, model, "hf"), {}),
        "caches": (WhisperEncoderDecoderInit(config, model, "hf", True), {}),
    }
    for name, (module, options) in kinds.items():
        path = str(folder / f"{name}.onnx")
        module.export_onnx(path, CPU, use_fp16_inputs=halves, **options)
        yield module, path, options.get("use_int32_inputs", True)


@pytest.mark.parametrize("halves", [False, True])
def test_files(model, halves: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for module, path, integers in files(model, tmp_path, halves):
            known = [] if isinstance(module, WhisperEncoder) else [integers]
            assert module.verify_onnx(path, CPU, halves, *known) < (2e-2 if halves else EXACT)
            sessions = [runtime.InferenceSession(path, providers=[CPU]) for runtime in (onnxruntime, sardonyx)]
            assert (
                module.part.with_integers(np.int32 if integers else np.int64).difference_of(sessions[0], 1, [(2, 0, 3, 2)])
                < 2e-2
            )
            assert [value.name for value in sessions[1].get_inputs()] == module.input_names()
            assert [value.name for value in sessions[1].get_outputs()] == module.output_names()
            samples = module.inputs(halves, integers, return_dict=True)
            sessions[1].run(None, convert_inputs_for_ort(samples, sessions[1]))
    assert not [record for record in caplog.records if "differ" in record.message]


def test_what_a_decoder_cannot_take_is_refused(model) -> None:
    with pytest.raises(ValueError, match="one of them"):
        WhisperDecoder(model.config, model, "hf").export_onnx("a.onnx", CPU, use_encoder_hidden_states=True)
    with pytest.raises(NotImplementedError, match="'openai'"):
        WhisperEncoder(model.config, model, "openai")


# --- times of words


def times_of_the_package(heads, start: int, length: int, scores) -> np.ndarray:
    """What generation_whisper makes of these scores."""
    weights = torch.stack([scores[layer][:, head] for layer, head in heads.tolist()], dim=1)
    weights = weights[..., : length // 2].softmax(dim=-1)
    weights = (weights - weights.mean(dim=-2, keepdim=True)) / weights.std(dim=-2, keepdim=True, unbiased=False)
    table = generation_whisper._median_filter(weights, 7).mean(dim=1)[:, start:-1]
    times = []
    for matrix in table:
        words, frames = generation_whisper._dynamic_time_warping(-matrix.double().numpy())
        times.append(frames[np.pad(np.diff(words), (1, 0), constant_values=1).astype(bool)] / 50)
    return np.array(times)


@pytest.mark.parametrize("halves", [False, True])
def test_times_of_words(model, halves: bool, tmp_path: Path) -> None:
    torch.manual_seed(2)
    module = WhisperJumpTimes(model.config, "cpu", tmp_path)
    heads = torch.tensor([[0, 1], [1, 3], [1, 0]], dtype=torch.int32)
    start, length = torch.tensor([2]), torch.tensor([34])
    scores = [3 * torch.randn(2, 4, 9, 20) for _ in range(2)]
    scores = [tensor.half() if halves else tensor for tensor in scores]
    wanted = times_of_the_package(heads, 2, 34, [tensor.float() for tensor in scores])
    assert wanted.shape == (2, 6) and wanted.max() < 34 / 100
    got = module(heads, start, length, scores).numpy()
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    path = str(tmp_path / "jump_times.onnx")
    module.export_onnx(path, CPU, use_fp16_inputs=halves)
    feeds = {"alignment_heads": heads, "sot_sequence_length": start, "segment_length": length, "QKs": scores}
    for runtime in (onnxruntime, sardonyx):
        session = runtime.InferenceSession(path, providers=[CPU])
        assert [value.name for value in session.get_inputs()] == module.input_names()
        (times,) = session.run(None, convert_inputs_for_ort(feeds, session))
        np.testing.assert_allclose(times, wanted, atol=1e-6)


def test_files_of_times_take_wide_pairs(model) -> None:
    typed = jump_times_model(model.config, use_int32_inputs=False).graph.input[0].type.tensor_type
    assert typed.elem_type == 7
