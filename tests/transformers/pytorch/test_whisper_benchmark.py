"""The programs that measure Whisper: what they hear, which words they find, and the rows of the table."""

from __future__ import annotations

import csv
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from sardonyx.transformers.models.whisper import benchmark, benchmark_all, convert_to_onnx

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDTHS = {"vocab_size": 60, "d_model": 32, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SOUND = {"max_source_positions": 50, "max_target_positions": 30, "num_mel_bins": 8, "begin_suppress_tokens": None}
RATE = 16000


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, what makes features of sound, exported files, and a recording of a second."""
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("whisper")
    model = hub.WhisperForConditionalGeneration(hub.WhisperConfig(**LAYERS, **WIDTHS, **TOKENS, **SOUND)).eval()
    for parameter in model.parameters():
        parameter.data *= 3  # so that words differ
    model.save_pretrained(path)
    hub.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(path)
    convert_to_onnx.main(["-m", str(path), "--output", str(path / "files"), "--no_beam_search_op", "-o"])
    record(path / "speech.wav")
    return path


def record(path: Path, rate: int = RATE) -> np.ndarray:
    samples = (np.random.default_rng(0).normal(size=rate) * 3000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return samples


def common(folder: Path, kind: str) -> list[str]:
    lengths = ["--max-length", "12", "--no-repeat-ngram-size", "0", "-w", "1", "-n", "2", "--log-folder", str(folder / "logs")]
    return ["-bt", kind, "-m", str(folder), "-p", "fp32", "-a", str(folder / "speech.wav"), *lengths]


def test_recordings_are_samples(tmp_path: Path) -> None:
    samples = record(tmp_path / "sound.wav")
    np.testing.assert_allclose(benchmark.load_audio(str(tmp_path / "sound.wav"), RATE), samples / 32768, atol=1e-7)
    with pytest.raises(ValueError, match="expected 8000 samples a second"):
        benchmark.load_audio(str(tmp_path / "sound.wav"), 8000)
    with pytest.raises(ImportError, match="pip install librosa"):
        benchmark.load_audio("sound.mp3", RATE)


def test_files_choose_the_words_of_pytorch(folder: Path, capsys) -> None:
    words = benchmark.main([*common(folder, "ort"), "--ort-model-path", str(folder / "files"), "--decoder-input-ids", "[1, 7]"])
    model = hub.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    sound = benchmark.load_audio(str(folder / "speech.wav"), RATE)
    features = hub.WhisperFeatureExtractor.from_pretrained(folder)(
        sound, sampling_rate=RATE, return_tensors="pt"
    ).input_features
    wanted = [1, 7]
    with torch.no_grad():
        while len(wanted) < 12 and wanted[-1] != 2:
            wanted.append(int(model(features, decoder_input_ids=torch.tensor([wanted])).logits[0, -1].argmax()))
    assert words.tolist() == [wanted] and len(set(wanted)) > 3
    log = capsys.readouterr().err
    for line in ("Loaded model in", "Latency:", "Throughput:", "CPU usage:", f"Generated token length: {len(wanted)} tokens"):
        assert line in log


def test_pytorch_is_measured(folder: Path, capsys) -> None:
    words = benchmark.main([*common(folder, "hf-pt-eager"), "--hf-pt-model-path", str(folder)])
    assert words.shape[0] == 1 and words.shape[1] > 1
    assert "Latency:" in capsys.readouterr().err


def test_profiles_are_written(folder: Path) -> None:
    benchmark.main([*common(folder, "ort"), "--ort-model-path", str(folder / "files"), "--profile"])
    benchmark.main([*common(folder, "hf-pt-eager"), "--profile"])
    logs = folder / "logs"
    assert len(list(logs.glob("ort_profile*.json"))) == 2
    (table,) = logs.glob("hf-pt-eager_gen-and-dec_*.log")
    assert "aten::" in table.read_text()


def test_files_of_optimum_need_optimum(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optimum.onnxruntime", None)  # as if it were not installed
    with pytest.raises(ImportError, match="pip install optimum-onnx"):
        benchmark.main([*common(folder, "hf-ort"), "--hf-ort-dir-path", str(tmp_path)])


def test_what_cannot_be_measured_is_an_error(folder: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(ValueError, match="no GPUs"):
        benchmark.main([*common(folder, "hf-pt-eager"), "-d", "cuda"])
    with pytest.raises(SystemExit):
        benchmark.parse_args(common(folder, "ort"))
    assert "--ort-model-path" in capsys.readouterr().err
    with pytest.raises(ValueError, match="expected one file …_encoder_fp32.onnx, got none"):
        benchmark.main([*common(folder, "ort"), "--ort-model-path", str(tmp_path)])
    with pytest.raises(ValueError, match="--num-beams 1"):
        benchmark.main([*common(folder, "ort"), "--ort-model-path", str(folder / "files"), "--num-beams", "2"])


def test_every_recording_has_a_row_for_each_engine(folder: Path, tmp_path: Path) -> None:
    sounds = tmp_path / "sounds"
    sounds.mkdir()
    record(sounds / "a.wav")
    arguments = ["-a", str(sounds), "--model-name", str(folder), "--precision", "fp32", "--device", "cpu", "-w", "1", "-n", "2"]
    engines = ["--hf-ort-dir-path", str(tmp_path / "nothing there"), "--ort-model-path", str(folder / "files")]
    rows = benchmark_all.main([*arguments, *engines, "--log-folder", str(tmp_path / "logs")])
    (table,) = (tmp_path / "logs").glob("*.csv")
    with open(table, newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["Engine"], row["Duration (s)"], row["Warmup Runs"]) == ("ort", "1.0", "1")
    assert float(row["Throughput (qps)"]) == pytest.approx(1 / float(row["Latency (s)"])) and float(row["Token Length"]) > 1
    assert rows[0][3] == "ort" and (tmp_path / "logs" / "hf-ort_a_cpu.log").exists()


def test_logs_become_rows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Loaded model in 1.5 s\nLatency: 0.25 s\nThroughput: 4.0 qps\n")
    assert benchmark_all.process_log_file(0, str(log), ["a"]) == [["a", 1.5, None, None, 0.25, 4.0, None, None]]
    log.write_text("Killed")
    assert benchmark_all.process_log_file(0, str(log), ["a"]) == []
