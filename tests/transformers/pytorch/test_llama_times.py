"""Programs that measure decoders: what they run is right, what they write can be read, and GPUs are refused."""

from __future__ import annotations

import csv
import json
import logging
from argparse import Namespace
from pathlib import Path

import pytest

from sardonyx.transformers.models.llama import benchmark, benchmark_all, benchmark_e2e
from sardonyx.transformers.models.llama import convert_to_onnx as converter
from sardonyx.transformers.step_times import StepTimes, peak_memory, processor_share, step_times
from tests.transformers.pytorch import tiny_llama

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
PROMPT = "w05 w06 w07 w08"


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_llama.save(path, key_value_heads=4)
    return path


@pytest.fixture(scope="module")
def files(folder: Path) -> dict[str, str]:
    """A file with MultiHeadAttention, and one with GroupQueryAttention, whose keys and values may share memory."""
    with torch.no_grad():
        common = ["-m", str(folder), "-p", "fp32", "--cache_dir", str(folder)]
        return {
            "plain": converter.main([*common, "-o", str(folder.parent / "plain")])[0],
            "grouped": converter.main([*common, "-o", str(folder.parent / "grouped"), "--use_gqa"])[0],
        }


def test_times_are_means() -> None:
    times = StepTimes([0.1, 0.2, 0.3, 4.0], tokens=6)
    assert times.latency == pytest.approx(1.15) and times.throughput == pytest.approx(6 / 1.15)
    assert times.figures == [pytest.approx(1150), pytest.approx(6 / 1.15)]
    assert times.without_anomalies().seconds == [0.1, 0.2, 0.3]
    assert times.first(2).latency == pytest.approx(0.15) and times.first(0).seconds == [0.1]


def test_runs_are_counted() -> None:
    calls: list[None] = []
    figures = step_times(lambda: calls.append(None), 2, 3).seconds
    assert len(figures) == 3 and len(calls) == 5
    with pytest.raises(ValueError, match="one run at least"):
        step_times(lambda: None, 1, 0)


def test_memory_and_processors() -> None:
    before, peak = peak_memory(lambda: torch.ones(64, 2**20).sum())  # 256 MiB
    assert before > 0 and peak - before > 100
    assert processor_share(lambda: sum(range(100_000))) > 0


def arguments_for_writing(folder: Path, files: dict[str, str], *words: str) -> Namespace:
    common = ["--hf-dir-path", str(folder), "-p", "fp32", "-f", "prompts.json", "-g", "6", "-w", "1", "-n", "2"]
    path = files["grouped" if "--use_buffer_share" in words else "plain"]
    return benchmark_e2e.get_args([*common, "-o", path, *words])


@pytest.mark.parametrize("words", [["-bt", "ort"], ["-bt", "ort", "--use_buffer_share"], ["-bt", "pt-eager"]])
@pytest.mark.parametrize("batch", [1, 2])
def test_texts_are_those_of_the_package(folder: Path, files, words: list[str], batch: int) -> None:
    args = arguments_for_writing(folder, files, *words)
    config, tokenizer = hub.AutoConfig.from_pretrained(folder), hub.AutoTokenizer.from_pretrained(folder)
    model = benchmark_e2e.get_model(args)
    inputs, outputs = benchmark_e2e.prepare_model_for_inference(args, model, config, tokenizer, 4, [PROMPT] * batch)
    writing = benchmark_e2e.write(args, model, config, tokenizer, inputs, outputs)
    module = hub.AutoModelForCausalLM.from_pretrained(folder)
    prompt = torch.tensor([[5, 6, 7, 8]])
    wanted = module.generate(
        prompt, max_new_tokens=7, min_new_tokens=7, do_sample=False, attention_mask=torch.ones_like(prompt)
    )
    assert wanted.shape == (1, 11) and 1 not in wanted  # no end before its time, so that texts may be compared
    assert writing.tokens.tolist() == wanted.tolist() * batch
    assert len(writing.steps) == len(writing.choices) == 7 and writing.seconds > sum(writing.steps)


def test_a_text_that_has_ended_is_filled_up(folder: Path, files) -> None:
    args = arguments_for_writing(folder, files, "-bt", "pt-eager")
    config, tokenizer = hub.AutoConfig.from_pretrained(folder), hub.AutoTokenizer.from_pretrained(folder)
    model = benchmark_e2e.get_model(args)
    inputs, outputs = benchmark_e2e.prepare_model_for_inference(args, model, config, tokenizer, 4, [PROMPT])
    chosen = int(model(**inputs | {"past_key_values": None}).logits[0, -1].argmax())
    tokenizer.eos_token = f"w{chosen:02}" if chosen < 40 else tokenizer.eos_token
    if tokenizer.eos_token_id != chosen:
        tokenizer.add_tokens([f"x{number}" for number in range(40, chosen + 1)])
        tokenizer.eos_token = f"x{chosen}"
    writing = benchmark_e2e.write(args, model, config, tokenizer, inputs, outputs)
    assert writing.tokens[0, 4:].tolist() == [chosen] * 7


def test_tables_of_texts(folder: Path, files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.json").write_text(json.dumps({"4": PROMPT, "6": "w09"}))
    words = ["--hf-dir-path", str(folder), "-o", files["plain"], "-p", "fp32", "-f", "prompts.json", "-g", "4"]
    words += ["-bt", "ort", "-b", "1 2", "-w", "0", "-n", "1", "--anomaly-filtering"]
    with open(benchmark_e2e.main([*words, "-s", "4 6"]), encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert [row[:2] for row in rows] == [["1", "4"], ["1", "6"], ["2", "4"], ["2", "6"]]
    assert header[2:4] == ["Prompt Processing Latency (ms)", "Prompt Processing Throughput (tps)"]
    assert header[8] == "Average Latency of First 2 Tokens Generated (ms)" and header[-1] == "Wall-Clock Throughput (tps)"
    for row in rows:
        line = dict(zip(header, map(float, row), strict=True))
        assert all(figure > 0 for figure in line.values())
        tokens = line["Batch Size"] * (line["Prompt Length"] + 4)
        assert line["Wall-Clock Throughput (tps)"] == pytest.approx(tokens / line["Wall-Clock Latency (s)"])
    with pytest.raises(ValueError, match=r"no prompts for the lengths \[5\], but for \[4, 6\]"):
        benchmark_e2e.main([*words, "-s", "5"])


LOG = """loaded
Evaluating the step to get past_key_values
Batch Size: 2
Sequence Length: 8
Latency: 0.25 s
Throughput: 8.0 tps
CPU usage: 50.0%
CPU memory usage: before=100.0 MB, peak=1500.0 MB
Evaluating the step with past_key_values
Batch Size: 2
Sequence Length: 8
Latency: 1e-2 s
Throughput: 200 tps
"""


def test_logs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(LOG)
    assert benchmark_all.process_log_file(0, str(path), ["m"]) == [["m", 2, 8, "prompt", 0.25, 250.0, 8.0, 1.5]]
    path.write_text(LOG + "CPU memory usage: before=100.0 MB, peak=2000.0 MB\n")
    rows = benchmark_all.process_log_file(0, str(path), [])
    assert rows[1] == [2, 8, "per-token", 0.01, 10.0, 200.0, 2.0]


def test_all_engines_in_one_table(folder: Path, files, tmp_path: Path) -> None:
    words = [
        "--model-name",
        str(folder),
        "--precision",
        "fp32",
        "--device",
        "cpu",
        "-b",
        "1 2",
        "-s",
        "4",
        "-n",
        "2",
        "-w",
        "1",
    ]
    words += ["--log-folder", str(tmp_path / "logs"), "--cache-dir", str(tmp_path / "cache")]
    with pytest.raises(RuntimeError, match="nothing was measured"):
        benchmark_all.main(words)
    table = benchmark_all.main([*words, "--hf-pt-eager", "--ort-convert-to-onnx-model-path", files["plain"]])
    with open(table, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    seen = [(row["config.engine"], row["config.batch_size"], row["config.measure_step"]) for row in rows]
    steps = [(batch, step) for batch in ("1", "2") for step in ("prompt", "per-token")]
    assert seen == [(engine, *step) for engine in ("pytorch-eager", "onnxruntime") for step in steps]
    for row in rows:
        latency, throughput = float(row["metrics.latency_s_mean"]), float(row["metrics.throughput_tps"])
        assert throughput == pytest.approx(int(row["config.batch_size"]) / latency, rel=1e-2)
        assert float(row["metrics.max_memory_usage_GB"]) > 0
    assert [row["metadata.package_name"] for row in rows] == ["torch"] * 4 + ["sardonyx"] * 4
    assert len(json.loads(Path(table.replace(".csv", ".json")).read_text())) == 8


@pytest.mark.parametrize("kind", ["hf-pt-eager", "ort-convert-to-onnx"])
def test_profiles(folder: Path, files, tmp_path: Path, kind: str) -> None:
    words = ["-bt", kind, "-m", str(folder), "--ort-model-path", files["plain"], "-p", "fp32", "-b", "1", "-s", "4"]
    benchmark.main([*words, "--profile", "--log-folder", str(tmp_path), "--cache-dir", str(tmp_path / "cache")])
    profiles = sorted(path for path in tmp_path.iterdir() if path.is_file())
    assert ["prompt" in path.name for path in profiles] == [True, False]
    for path in profiles:
        text = path.read_text()
        assert "aten::" in text if kind == "hf-pt-eager" else len(json.loads(text)) > 10


def test_inputs_of_files_of_microsoft() -> None:
    config = hub.LlamaConfig(**tiny_llama.SHAPE)
    args = Namespace(benchmark_type="ort-msft", batch_size=2, sequence_length=3, config=config)
    args.use_fp16 = args.use_buffer_share = False
    first, later = benchmark.get_inputs(args, 5)
    assert first["x"].shape == (2, 3, 32) and first["k_cache"].shape == (2, 2, 0, 4, 8)
    assert later["x"].shape == (2, 1, 32) and later["v_cache"].shape == (2, 2, 3, 4, 8)
    first, later = benchmark.get_inputs(args, 9)
    assert later["k_1_cache"].shape == (2, 4, 3, 8) and "k_cache" not in later


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (benchmark_all.get_args, ["--model-name", "m", "--precision", "fp32", "--device", "cuda"]),
        (benchmark_e2e.get_args, ["-bt", "ort", "-m", "m", "-o", "f", "-f", "p", "-p", "fp32", "-d", "cuda"]),
        (
            lambda words: benchmark.get_args(0, words),
            ["-bt", "hf-pt-eager", "-m", "m", "-p", "fp32", "--cache-dir", "c", "-d", "cuda"],
        ),
    ],
)
def test_gpus_are_refused(read, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read(words)
    assert "models run on the CPU here, there is no provider for 'cuda'" in capsys.readouterr().err


def test_one_engine_tells_its_figures(folder: Path, files, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = [
        "-bt",
        "ort-convert-to-onnx",
        "-m",
        str(folder),
        "--ort-model-path",
        files["plain"],
        "-p",
        "fp32",
        "-b",
        "2",
        "-s",
        "3",
    ]
    logger = logging.getLogger(benchmark.__name__)
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger=logger.name):
        benchmark.main([*words, "-n", "2", "-w", "0", "--verbose", "--cache-dir", str(tmp_path)])
    logger.removeHandler(caplog.handler)
    path = tmp_path / "log"
    path.write_text("\n".join(dict.fromkeys(record.getMessage() for record in caplog.records)))
    assert "array(" in path.read_text()  # of the logits, with --verbose
    assert [row[:3] for row in benchmark_all.process_log_file(0, str(path), [])][:1] == [[2, 3, "prompt"]]
