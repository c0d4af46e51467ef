"""Parts of models around a search: decoders are written, checked and changed, and compute what the package computes."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

from sardonyx.transformers import convert_generation as generation
from sardonyx.transformers.benchmark_helper import Precision

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
GPT = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("models")
    hub.GPT2LMHeadModel(hub.GPT2Config(**GPT)).save_pretrained(path / "gpt2")
    hub.T5ForConditionalGeneration(hub.T5Config(**T5, decoder_start_token_id=3)).save_pretrained(path / "t5")
    return path


def arguments(folder: Path, kind: str, *more: str):
    common = ["-m", str(folder / kind), "--model_type", kind, "--output", str(folder / f"{kind}_search.onnx")]
    return generation.parse_arguments([*common, "--cache_dir", str(folder / "cache"), *more])


@pytest.fixture(scope="module")
def gpt2(folder: Path) -> str:
    path = str(folder / "decoder" / "gpt2.onnx")
    generation.gpt2_to_onnx(arguments(folder, "gpt2", "--decoder_onnx", path))
    return path


def feeds(length: int = 3) -> dict[str, np.ndarray]:
    words = np.random.default_rng(0).integers(0, 61, (2, length)).astype(np.int32)
    places = np.tile(np.arange(length, dtype=np.int32), (2, 1))
    past = {f"past_{layer}": np.zeros((2, 2, 4, 0, 8), np.float32) for layer in range(2)}
    return {"input_ids": words, "position_ids": places, "attention_mask": np.ones((2, length), np.int32), **past}


def wanted_logits(folder: Path, words: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return hub.GPT2LMHeadModel.from_pretrained(folder / "gpt2").eval()(torch.from_numpy(words).long()).logits.numpy()


def test_gpt2_is_written_and_looks_as_it_should(gpt2: str, folder: Path) -> None:
    generation.verify_gpt2_subgraph(onnx.load(gpt2).graph, Precision.FLOAT32)
    with pytest.raises(ValueError, match="input past_0 is to be of FLOAT16, got FLOAT"):
        generation.verify_gpt2_subgraph(onnx.load(gpt2).graph, Precision.FLOAT16)
    session = generation.create_ort_session(gpt2, False, False)
    given = feeds()
    np.testing.assert_allclose(session.run(["logits"], given)[0], wanted_logits(folder, given["input_ids"]), atol=1e-5)
    with pytest.raises(ValueError, match="no GPUs"):
        generation.create_ort_session(gpt2, True, False)


def test_halves_keep_some_ops_wide(folder: Path) -> None:
    path = str(folder / "half" / "gpt2.onnx")
    generation.gpt2_to_onnx(arguments(folder, "gpt2", "--decoder_onnx", path, "-p", "fp16"))
    generation.verify_gpt2_subgraph(onnx.load(path).graph, Precision.FLOAT16)


def test_logits_get_columns_of_zeros(gpt2: str, folder: Path, tmp_path: Path) -> None:
    path = shutil.copy(gpt2, tmp_path / "padded.onnx")
    assert generation.pad_weights_of_logits_matmul(str(path), use_external_data_format=False)
    given = feeds()
    logits = onnxruntime.InferenceSession(path).run(["logits"], given)[0]
    assert logits.shape == (2, 3, 64) and not logits[..., 61:].any()
    np.testing.assert_allclose(logits[..., :61], wanted_logits(folder, given["input_ids"]), atol=1e-5)
    before = Path(path).read_bytes()
    assert generation.pad_weights_of_logits_matmul(str(path), False) and Path(path).read_bytes() == before
    relu = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] logits) {logits = Relu(x)}'
    )
    onnx.save(relu, tmp_path / "relu.onnx")
    assert not generation.pad_weights_of_logits_matmul(str(tmp_path / "relu.onnx"))
    assert not generation.generate_gpt2_init_decoder(str(tmp_path / "relu.onnx"), str(tmp_path / "no.onnx"))


def test_the_first_run_gives_logits_of_the_last_word(gpt2: str, folder: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "first.onnx")
    assert generation.generate_gpt2_init_decoder(gpt2, path)
    given = feeds(5)
    outputs = onnxruntime.InferenceSession(path).run(None, given)
    assert outputs[0].shape == (2, 1, 61) and outputs[1].shape == (2, 2, 4, 5, 8)
    np.testing.assert_allclose(outputs[0], wanted_logits(folder, given["input_ids"])[:, -1:], atol=1e-5)
    generation.verify_gpt2_subgraph(onnx.load(path).graph, Precision.FLOAT32)


def test_shapes_are_written_into_files(gpt2: str, tmp_path: Path) -> None:
    model = onnx.load(gpt2)
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "bare.onnx")
    generation.shape_inference(str(tmp_path / "bare.onnx"), use_external_data_format=False)
    inferred = onnx.load(tmp_path / "bare.onnx")
    assert len(inferred.graph.value_info) > 10
    assert generation.update_input_shapes_for_gpt2_decoder_model(str(tmp_path / "bare.onnx"), False)
    shapes = {value.name: generation.shape_of(value) for value in onnx.load(tmp_path / "bare.onnx").graph.input}
    assert shapes["input_ids"][1] == shapes["position_ids"][1] == 1 and shapes["attention_mask"][1] != 1


def test_both_files_of_t5_look_as_they_should(folder: Path) -> None:
    args = arguments(folder, "t5")
    generation.t5_to_onnx(args)
    first, decoder = (onnx.load(path).graph for path in (args.encoder_decoder_init_onnx, args.decoder_onnx))
    generation.verify_t5_encoder_decoder_init_subgraph(first, Precision.FLOAT32)
    generation.verify_t5_decoder_subgraph(decoder, Precision.FLOAT32)
    with pytest.raises(ValueError, match="expected 2 inputs input_ids, encoder_attention_mask"):
        generation.verify_t5_decoder_subgraph(first, Precision.FLOAT32)
    decoder.output[1].name = "present"
    with pytest.raises(ValueError, match="output 1 is to be present_key_self_0, got present"):
        generation.verify_t5_decoder_subgraph(decoder, Precision.FLOAT32)


def test_sizes_with_names_of_numbers_become_numbers() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[batch, n, m, 7] x) => (float[batch, n, m, 7] y) {y = Relu(x)}'
    model = onnx.parser.parse_model(text)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = "4"
        value.type.tensor_type.shape.dim[2].dim_param = "5"
    generation.make_dim_proto_numeric_t5(model, SimpleNamespace(num_heads=4, d_model=32, d_kv=8))
    assert generation.shape_of(model.graph.input[0]) == ("batch", 4, "5", 7) == generation.shape_of(model.graph.output[0])


def test_the_search_of_the_package_is_measured(folder: Path) -> None:
    args = arguments(folder, "gpt2", "--max_length", "6", "--total_runs", "3", "--num_beams", "2")
    model = hub.GPT2LMHeadModel.from_pretrained(folder / "gpt2").eval()
    words = torch.tensor([[4, 5], [6, 7]])
    figures = generation.test_torch_performance(args, model, words, torch.ones_like(words), 60, 0, [[9]])
    assert figures["test_times"] == 3 and float(figures["average_latency_ms"]) > 0
