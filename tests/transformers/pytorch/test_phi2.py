"""Files of Phi-2 give what PyTorch gives, in both runtimes, and write the texts of the transformers package."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.fusion_options import AttentionOpType
from sardonyx.transformers.models.phi2 import convert_to_onnx as converter
from sardonyx.transformers.models.phi2 import inference_example
from tests.transformers.pytorch import tiny_llama

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
SHAPE = {"vocab_size": 60, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES = [(1, 8, 3), (2, 1, 5), (3, 4, 2), (2, 6, 0)]
CPU = ["CPUExecutionProvider"]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "phi"
    torch.manual_seed(0)
    config = hub.PhiConfig(**SHAPE, max_position_embeddings=40, eos_token_id=1)
    hub.PhiForCausalLM(config).save_pretrained(path)
    tiny_llama.save_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def made(folder: Path):
    """A converter, and the path of what it has exported."""
    one = converter.ConvertPhi2ToONNX("cpu", str(folder), str(folder))
    path = str(folder.parent / "phi2_original.onnx")
    with torch.no_grad():
        one.dynamo_export(path)
    return one, path


def sessions(path: str):
    return [runtime.InferenceSession(path, providers=CPU) for runtime in (onnxruntime, sardonyx)]


def ops(path: str) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def test_what_the_program_writes(folder: Path, tmp_path: Path) -> None:
    words = ["--model", str(folder), "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path)]
    exact, small = converter.main([*words, "--fp32_cpu", "--int4_cpu"])
    assert ops(exact)["MultiHeadAttention"] == 2 and ops(exact)["RotaryEmbedding"] == 4
    assert ops(small)["MatMulNBits"] == 13  # six of a layer, and the last one
    decoder = converter.PhiDecoder(hub.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval())
    for session in sessions(exact):
        assert [value.name for value in session.get_inputs()] == decoder.input_names
        assert decoder.difference_of(session, len(SIZES), SIZES) < 1e-5
    for session in sessions(small):
        feeds = decoder.feeds((2, 4, 0), np.random.default_rng(0))
        got, wanted = session.run(["logits"], feeds)[0], decoder.run(feeds)[0]
        assert np.abs(got - wanted).max() < 0.5 * np.abs(wanted).max()  # of weights of 4 bits
    before = (tmp_path / "phi2_original.onnx").stat().st_mtime_ns
    assert converter.main([*words, "--fp32_cpu"]) == [exact]
    assert (tmp_path / "phi2_original.onnx").stat().st_mtime_ns == before
    converter.main([*words, "--fp32_cpu", "--overwrite"])
    assert (tmp_path / "phi2_original.onnx").stat().st_mtime_ns > before


@pytest.mark.parametrize(("precision", "tolerance"), [(Precision.FLOAT32, 1e-5), (Precision.FLOAT16, 2e-2)])
def test_rows_without_gaps(made, tmp_path: Path, precision: Precision, tolerance: float) -> None:
    one, raw = made
    one.init_attn_type_and_precision(AttentionOpType.GroupQueryAttention, precision)
    path = str(tmp_path / "grouped.onnx")
    one.optimize_phi2_onnx(raw, path)
    assert ops(path)["GroupQueryAttention"] == 2
    decoder = converter.PhiDecoder(one.get_phi2_torch_model())
    for session in sessions(path):
        assert decoder.difference_of(session, 3, [(1, 8, 1), (2, 1, 1), (1, 4, 1)]) < tolerance


def test_what_is_refused(made, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, raw = made
    with pytest.raises(ValueError, match="needs a GPU"):
        one.init_attn_type_and_precision(AttentionOpType.PagedAttention, Precision.FLOAT16)
    for option in ("--fp16_gpu", "--use_cuda_graph"):
        with pytest.raises(SystemExit):
            converter.main([option])
        assert f"{option} needs a GPU" in capsys.readouterr().err
    generator = inference_example.ORTGenerator(raw, str(folder))
    with pytest.raises(ValueError, match="device_id is -1, not 0"):
        generator.create_session(0)


def test_inputs_of_the_module(made) -> None:
    one, _ = made
    words, mask, past = one.get_phi2_torch_inputs(2, 5)
    assert words.shape == (2, 1) and mask.shape == (2, 6) and past.get_seq_length() == 5
    assert one.get_phi2_torch_model()(words, attention_mask=mask, past_key_values=past).logits.shape == (2, 1, 60)


def test_files_are_erased_with_their_weights_alone(tmp_path: Path) -> None:
    tensor = onnx.numpy_helper.from_array(np.ones((300, 2), np.float32), "w")
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    path = tmp_path / "inner" / "a.onnx"
    path.parent.mkdir()
    onnx.save(onnx.helper.make_model(graph), path, save_as_external_data=True, location="a.data", size_threshold=0)
    (tmp_path / "mine.data").write_bytes(b"mine")
    model = onnx.load(path, load_external_data=False)
    other = onnx.TensorProto.FromString(model.graph.initializer[0].SerializeToString())
    other.external_data[0].value = "../mine.data"
    model.graph.initializer.append(other)
    path.write_bytes(model.SerializeToString())
    converter.ConvertPhi2ToONNX.erase_onnx_model(None, str(path))
    assert not list(path.parent.iterdir()) and (tmp_path / "mine.data").exists()


@pytest.mark.parametrize("is_shared", [False, True])
def test_texts(made, folder: Path, tmp_path: Path, is_shared: bool) -> None:
    one, raw = made
    kind = AttentionOpType.GroupQueryAttention if is_shared else AttentionOpType.MultiHeadAttention
    one.init_attn_type_and_precision(kind, Precision.FLOAT32)
    path = str(tmp_path / "model.onnx")
    one.optimize_phi2_onnx(raw, path)
    generator = inference_example.ORTGenerator(path, str(folder))
    generator.max_sequence_length = 40
    generator.create_session(-1, use_fp16=False, use_buffer_share=is_shared)
    prompts = ["w05 w06 w07"] if is_shared else ["w05 w06 w07", "w09"]  # shared memory knows no gaps before rows
    texts = generator.generate(prompts, 9)
    tokens = generator.tokenizer(prompts, padding=True, return_tensors="pt")
    wanted = one.get_phi2_torch_model().generate(**tokens, max_length=9, do_sample=False, pad_token_id=1)
    assert texts == generator.tokenizer.batch_decode(wanted, skip_special_tokens=True)


def test_a_run_is_told(made, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = inference_example.ORTGenerator(made[1], str(folder))
    generator.create_session(-1, use_fp16=False, use_buffer_share=False)
    generator.generate_benchmark((2, 4), 3)
    assert capsys.readouterr().out.startswith("2 texts of 4 tokens: prompt ")


def test_memory_is_copied() -> None:
    target = torch.zeros(2, 3)
    inference_example.cuda_memcpy(target, torch.arange(6.0))
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match=r"\[7\] of torch.float32 do not fit"):
        inference_example.cuda_memcpy(target, torch.zeros(7))
