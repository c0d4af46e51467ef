"""`sardonyx train`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sardonyx.cli import main
from tests.training.test_files import DATA


def test_artifacts_are_made_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(DATA / "cnn_batchnorm" / "forward.onnx", tmp_path / "m.onnx")
    made = ["train", "artifacts", str(tmp_path / "m.onnx"), "--loss", "cross-entropy", "-o", str(tmp_path / "out"), "--json"]
    assert main([*made, "--freeze", "conv2.weight"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["frozen"] == ["conv2.weight", "bn1.running_mean", "bn1.running_var"]
    assert answer["trained"] == ["conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias", "fc.weight", "fc.bias"]
    names = {"checkpoint", "eval_model.onnx", "optimizer_model.onnx", "training_model.onnx"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert main(["train", "inspect", str(tmp_path / "out"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["trained"], answer["frozen"]) == (36 + 4 + 4 + 4 + 120 + 5, 216 + 8)
    assert answer["inputs"] == ["input float[batch, 1, 8, 8]", "labels int64[batch]"]
    assert main([*made, "--train", "nowhere"]) == 2
    assert "'nowhere' is no initializer of the model" in capsys.readouterr().err


def test_what_crosses_between_the_halves_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(DATA / "mlp_ce_adamw" / "forward.onnx")
    assert main(["train", "artifacts", model, "--loss", "cross-entropy", "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["train", "inspect", str(tmp_path), "--json", "--size", "batch=8"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["crossing"][0] == "a1"  # of Relu, 8 x 16; then the log-probabilities, 8 x 4
    assert answer["crossing_bytes"] == 4 * 8 * (16 + 4)
    assert answer["crossing_bytes_with_recompute"] == 4 * 8 * 4
    assert main(["train", "inspect", str(tmp_path)]) == 0
    assert "80 B cross (batch = 1), 16 B if what is cheap were computed again" in capsys.readouterr().out


def test_wrong_sizes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(DATA / "mlp_ce_adamw" / "forward.onnx")
    assert main(["train", "artifacts", model, "--loss", "cross-entropy", "-o", str(tmp_path)]) == 0
    assert main(["train", "inspect", str(tmp_path), "--size", "batch"]) == 2
    assert "--size takes NAME=N" in capsys.readouterr().err
    assert main(["train", "inspect", str(tmp_path), "--size", "length=3"]) == 2
    assert "--size length: no value that crosses has this size; there are batch" in capsys.readouterr().err
