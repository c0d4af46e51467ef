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
