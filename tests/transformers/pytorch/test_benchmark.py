"""The program that measures models of the transformers package: what it measures, and which rows it writes."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import sardonyx
from sardonyx.transformers import benchmark
from sardonyx.transformers.benchmark_helper import ConfigModifier, Precision
from sardonyx.transformers.huggingface_models import described_model
from sardonyx.transformers.model_timing import measured_sizes

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of the transformers package, when PyTorch looks at its modules
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
SIZES = {"vocab_size": 50, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 16}
WIDTHS = {"hidden_size": 20, "intermediate_size": 24}


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bert")
    hub.BertModel(hub.BertConfig(**SIZES, **WIDTHS)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("vit")
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 12, "patch_size": 4}
    hub.ViTModel(hub.ViTConfig(**sizes, **WIDTHS)).save_pretrained(folder)
    return str(folder)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def run(folder: Path, *arguments: str) -> list[dict]:
    places = ["-c", str(folder / "cache"), "--onnx_dir", str(folder / "onnx"), "-t", "3"]
    tables = ["-f", str(folder / "fused.csv"), "-d", str(folder / "details.csv"), "-r", str(folder / "summary.csv")]
    return benchmark.main([*places, *tables, *arguments])


def test_every_engine_has_a_row_for_each_size_it_can_take(bert: str, tmp_path: Path, monkeypatch) -> None:
    calls = []
    measured = benchmark.function_figures
    monkeypatch.setattr(benchmark, "function_figures", lambda *given: calls.append(given) or measured(*given))
    sizes = ["-b", "1", "2", "-s", "4", "8", "64", "-n", "1", "-v"]
    rows = run(tmp_path, "-m", bert, "-e", "onnxruntime", "torch", "torchscript", *sizes)
    wanted = [
        (engine, batch, length) for engine in ("onnxruntime", "torch", "torchscript") for batch in (1, 2) for length in (4, 8)
    ]
    assert [(row["engine"], row["batch_size"], row["sequence_length"]) for row in rows] == wanted
    assert {row["version"] for row in rows} == {sardonyx.__version__, torch.__version__}
    assert all(row["test_times"] == 3 and row["threads"] == 1 and float(row["average_latency_ms"]) > 0 for row in rows)
    assert [float(row["QPS"]) for row in rows] == pytest.approx(
        [row["batch_size"] * 1000 / float(row["average_latency_ms"]) for row in rows], rel=0.2
    )  # figures have two digits behind the point
    assert len(calls) == 8
    details, summary = rows_of(tmp_path / "details.csv"), rows_of(tmp_path / "summary.csv")
    assert [row["average_latency_ms"] for row in details] == [row["average_latency_ms"] for row in rows]
    assert [row["engine"] for row in summary] == ["onnxruntime", "torch", "torchscript"]
    assert summary[1]["b2_s8"] == rows[7]["average_latency_ms"]


def test_files_are_fused_and_run_with_as_many_inputs_as_asked(bert: str, tmp_path: Path) -> None:
    rows = run(tmp_path, "-m", bert, "-b", "1", "-s", "8", "-i", "1", "2", "3", "-v", "--disable_ort_io_binding")
    assert [(row["inputs"], row["io_binding"], row["optimizer"].value) for row in rows] == [
        (count, False, "by_script") for count in (1, 2, 3)
    ]
    assert {row["providers"] for row in rows} == {"CPUExecutionProvider"}
    fused = rows_of(tmp_path / "fused.csv")
    assert [int(row["Attention"]) + int(row["MultiHeadAttention"]) for row in fused] == [2, 2, 2]
    sessions = [sardonyx.InferenceSession(row["model_filename"]) for row in fused]
    names = ["input_ids", "attention_mask", "token_type_ids"]
    assert [[value.name for value in session.get_inputs()] for session in sessions] == [names[:count] for count in (1, 2, 3)]
    words = np.random.default_rng(0).integers(0, 50, (2, 5))
    wanted = hub.BertModel.from_pretrained(bert).eval()(torch.from_numpy(words))[0].detach().numpy()
    np.testing.assert_allclose(sessions[0].run(None, {"input_ids": words})[0], wanted, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_precisions(bert: str, tmp_path: Path, precision: str) -> None:
    rows = run(tmp_path, "-m", bert, "-e", "onnxruntime", "torch", "-s", "8", "-p", precision, "--force_num_layers", "1")
    assert [(str(row["precision"]), row["custom_layer_num"]) for row in rows] == [(precision, 1)] * 2


def test_pictures_have_one_size(pictures: str, tmp_path: Path) -> None:
    rows = run(tmp_path, "-m", pictures, "-e", "onnxruntime", "torch", "-b", "2", "-s", "4", "8", "-o", "by_ort")
    assert [(row["engine"], row["sequence_length"]) for row in rows] == [("onnxruntime", 12), ("torch", 12)]


def test_modules_are_compiled_for_torch2(bert: str, monkeypatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)  # compiling takes minutes
    sizes = Precision.FLOAT32, 0, [1], [4], 1
    (row,) = benchmark.run_pytorch(False, [bert], None, ConfigModifier(None), *sizes, False, True, None, False)
    assert row["engine"] == "torch2" and len(compiled) == 1 and isinstance(compiled[0], hub.BertModel)


def test_threads_of_pytorch_are_given_back(bert: str) -> None:
    before = torch.get_num_threads()
    seen = []
    with benchmark.torch_threads(1):
        seen.append(torch.get_num_threads())
    assert (*seen, torch.get_num_threads()) == (1, before)


def test_lengths_that_a_model_cannot_take_are_left_out() -> None:
    rows = measured_sizes(lambda batch, length: {"product": batch * length}, [1, 3], [4, 9], 8, {"model_name": "m"})
    assert [(row["batch_size"], row["sequence_length"], row["product"]) for row in rows] == [(1, 4, 4), (3, 4, 12)]


def test_models_without_a_line_are_described_by_their_kind() -> None:
    assert described_model("gpt2", "gpt2")[3] == "gpt2"
    assert described_model("folder", "vit")[0] == ["pixel_values"]
    assert described_model("folder", "unheard of")[0] == ["input_ids", "attention_mask"]


def test_what_cannot_be_measured_is_an_error(bert: str, tmp_path: Path, capsys, caplog) -> None:
    with pytest.raises(ValueError, match="no GPUs"):
        run(tmp_path, "-g")
    with pytest.raises(SystemExit):
        benchmark.parse_arguments(["-p", "fp16", "-o", "no_opt"])
    assert "written by_script" in capsys.readouterr().err
    with pytest.raises(ValueError, match="int4"):
        benchmark.run_pytorch(
            False, [bert], None, ConfigModifier(None), Precision.INT4, 0, [1], [4], 1, False, False, None, False
        )
    with pytest.raises(ValueError, match="graphs alone"):
        benchmark.run_with_tf_optimizations(do_eager_mode=True, use_xla=True)
    with pytest.raises(SystemExit, match="nothing was measured"):
        run(tmp_path, "-m", str(tmp_path / "nothing there"), "-e", "torch")


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="tells what is missing where TensorFlow is")
def test_tensorflow_is_named_where_it_is_missing(bert: str) -> None:
    with pytest.raises(ImportError, match="pip install tensorflow"):
        benchmark.run_tensorflow(False, [bert], None, ConfigModifier(None), Precision.FLOAT32, 0, [1], [4], 1, None, False)
    with pytest.raises(ImportError, match="pip install tensorflow"):
        benchmark.load_tf_model(bert, None, None, ConfigModifier(None))
