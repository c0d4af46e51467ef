"""Llama's files by every way to them: in both runtimes they give what PyTorch gives."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.transformers.models.llama import convert_to_onnx as converter
from sardonyx.transformers.models.llama import llama_parity
from sardonyx.transformers.models.llama.llama_torch import setup_torch_model
from sardonyx.transformers.models.llama.quant_kv_dataloader import QuantKVDataLoader, texts_of
from tests.transformers.pytorch import tiny_llama

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
CPU = ["CPUExecutionProvider"]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_llama.save(path)
    return path


@pytest.fixture
def convert(folder: Path, tmp_path: Path):
    def converted(*words: str) -> list[str]:
        common = ["-m", str(folder), "-o", str(tmp_path / "out"), "--cache_dir", str(tmp_path / "cache")]
        return converter.main([*common, *words])

    return converted


def load(folder: Path):
    return hub.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def ops(path: str) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def difference(folder: Path, path: str) -> float:
    """How far a file is from PyTorch in either runtime."""
    decoder = converter.Decoder(load(folder), with_past="_decoder_model_" not in path)
    sessions = [runtime.InferenceSession(path, providers=CPU) for runtime in (onnxruntime, sardonyx)]
    sizes = converter.SIZES
    return max(decoder.difference_of(session, len(sizes), sizes) for session in sessions)


@pytest.mark.parametrize("words", [["-p", "fp32"], ["-p", "fp32", "--no_merged"], ["-p", "fp16"]])
def test_files_are_fused_and_exact(folder: Path, convert, words: list[str]) -> None:
    paths = convert(*words)
    assert len(paths) == 1 + ("--no_merged" in words)
    for path in paths:
        counts = ops(path)
        assert counts["MultiHeadAttention"] == 2 and counts["RotaryEmbedding"] == 4
        assert difference(folder, path) < (2e-2 if "fp16" in words else 1e-5)
        assert sorted(file.name for file in Path(path).parent.glob("*.onnx")) == sorted(Path(name).name for name in paths)


def test_shapes_are_written(convert) -> None:
    (path,) = convert("-p", "fp32")
    model = onnx.load(path, load_external_data=False)
    typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    assert {name for node in model.graph.node for name in node.output if name} <= typed


@pytest.mark.skipif(importlib.util.find_spec("onnxscript") is None, reason="PyTorch's newer exporter needs onnxscript")
def test_the_newer_exporter(folder: Path, convert) -> None:
    (path,) = convert("-p", "fp32", "-d")
    assert path.endswith("decoder_with_past_model_fp32_opt.onnx")
    assert ops(path)["MultiHeadAttention"] == 2
    assert difference(folder, path) < 1e-5


def test_files_of_optimum(folder: Path, convert, tmp_path: Path) -> None:
    source = tmp_path / "source" / "model.onnx"
    converter.Decoder(load(folder)).export(source, converter.OPSET, use_external_data_format=True)
    for precision in ("fp32", "fp16"):
        (path,) = convert("-p", precision, "--optimize_optimum", "-i", str(source))
        assert path == str(tmp_path / "out" / "tiny.onnx") and ops(path)["MultiHeadAttention"] == 2
        assert difference(folder, path) < (1e-5 if precision == "fp32" else 2e-2)
        assert source.exists() and not list(source.parent.glob("*.tmp.onnx"))


def test_shared_keys_are_not_taken_for_others(convert) -> None:
    with pytest.raises(ValueError, match="4 heads share keys"):
        convert("-p", "fp32", "--use_gqa")


def texts(path: Path) -> str:
    rng = np.random.default_rng(0)
    path.write_text("\n".join(" ".join(f"w{word:02}" for word in rng.integers(2, 40, 6)) for _ in range(4)))
    return str(path)


def test_smoothed_integers(folder: Path, convert, tmp_path: Path) -> None:
    words = ["-p", "int8", "-q", "smooth_quant", "--smooth_quant_dataset", texts(tmp_path / "texts.txt"), "--pad_max", "7"]
    with pytest.raises(ValueError, match="--no_merged"):
        convert(*words)
    paths = convert(*words, "--no_merged")
    arguments = converter.get_args(["-m", "tiny", *words[4:]])
    arguments.original_model_name = str(folder)
    exact = convert("-p", "fp32", "--no_merged")[0]
    for path, first_step in zip(paths, ("", exact), strict=True):
        smoothed = [node for node in onnx.load(path).graph.node if node.name.endswith("_smooth_mul")]
        assert len(smoothed) == 2 * 4 + 1  # what products read: four values of a layer, and the last one
        assert ops(path)["QuantizeLinear"] == len(smoothed) + 1  # and the words
        weights = [tensor for tensor in onnx.load(path).graph.initializer if len(tensor.dims) == 2]
        assert not [tensor.name for tensor in weights if tensor.data_type == onnx.TensorProto.FLOAT and 32 in tensor.dims]
        decoder = converter.Decoder(load(folder), with_past=bool(first_step))
        for inputs, _ in QuantKVDataLoader(arguments, first_step):
            (wanted, *_) = decoder.run(inputs)
            for runtime in (onnxruntime, sardonyx):
                (got,) = runtime.InferenceSession(path, providers=CPU).run(["logits"], inputs)
                assert np.abs(got - wanted).max() < 0.1 * np.abs(wanted).max()  # with noise of 8 bits


def test_texts_as_inputs(folder: Path, convert, tmp_path: Path) -> None:
    arguments = converter.get_args(["-m", "tiny", "--pad_max", "8", "--smooth_quant_dataset", texts(tmp_path / "t.txt")])
    arguments.original_model_name = str(folder)
    loader = QuantKVDataLoader(arguments)
    (first, label), *others = list(loader)
    assert len(others) == 3 and label.tolist() == [5]
    assert first["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 1, 0]]
    assert first["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 0]]
    assert first["input_ids"].shape == (1, 7)
    path = convert("-p", "fp32", "--no_merged")[0]
    later, _ = next(iter(QuantKVDataLoader(arguments, path)))
    assert later["input_ids"].tolist() == [[1]] and later["position_ids"].tolist() == [[7]]
    assert later["attention_mask"].shape == (1, 8)
    wanted = load(folder)(**{name: torch.from_numpy(array) for name, array in first.items()}).past_key_values.layers[1]
    np.testing.assert_allclose(later["past_key_values.1.value"][:, :, :6], wanted.values[:, :, :6].numpy(), atol=1e-5)
    arguments.pad_max = 4
    (words, mask, places), label = next(iter(QuantKVDataLoader(arguments).dataloader))
    assert words.shape == mask.shape == places.shape == (1, 4) and label.tolist() == [3]


def test_files_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "w1 w2"}\n\n{"text": "w3"}\n')
    assert texts_of(str(path)) == ["w1 w2", "w3"]
    if importlib.util.find_spec("datasets") is None:
        with pytest.raises(ImportError, match="pip install datasets"):
            texts_of("no/dataset")


@pytest.mark.parametrize("words", [["--merged"], ["--merged", "--small_gpu"], ["-p"]])
def test_parity(folder: Path, convert, words: list[str], caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (path,) = convert("-p", "fp32")
    command = ["-t", str(folder), "-o", path, "-fp", "fp32", "--cache_dir", str(tmp_path / "cache"), *words]
    with verdicts(caplog) as given:
        llama_parity.main(command)
    assert len(given) == 1 + ("--merged" in words) and all("are close" in text for text in given)
    assert all(float(text.rpartition(" ")[2]) < 1e-4 for text in given)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * 7, tensor.name))
    onnx.save(model, path)
    with verdicts(caplog) as given:
        llama_parity.main(command)
    assert any("are not close" in text for text in given)


@contextlib.contextmanager
def verdicts(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What is said about logits; the program sets up logging anew, so the handler is hung in below."""
    logger = logging.getLogger(llama_parity.__name__)
    given: list[str] = []
    caplog.clear()
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger=logger.name):
        yield given
    logger.removeHandler(caplog.handler)
    given.extend(dict.fromkeys(record.getMessage() for record in caplog.records if "PyTorch's" in record.getMessage()))


def test_copies_are_deep() -> None:
    cache = hub.DynamicCache()
    cache.update(torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2), 0)
    value = {"a": [torch.ones(2), np.ones(2)], "b": (1, "x", {2.0}), "c": cache}
    copy = llama_parity.torch_deepcopy(value)
    value["a"][0][:] = value["a"][1][:] = 5
    cache.layers[0].keys[:] = 5
    assert copy["a"][0].tolist() == copy["a"][1].tolist() == [1, 1] and copy["b"] == (1, "x", {2.0})
    assert copy["c"].layers[0].keys.unique().tolist() == [1]
    with pytest.raises(NotImplementedError, match="object"):
        llama_parity.torch_deepcopy(object())


def test_models_are_loaded_once_and_not_in_parts(folder: Path, tmp_path: Path) -> None:
    arguments = converter.get_args(["-m", str(folder), "--cache_dir", str(tmp_path / "cache")])
    config, model = setup_torch_model(arguments, str(folder), False, torch_dtype=torch.float16, device="cpu")
    assert config.num_hidden_layers == 2 and model.dtype == torch.float16 and not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(NotImplementedError, match="world_size is 2"):
        converter.run_torchscript_merged_export(arguments, config, model, world_size=2)
