"""The programs under examples/ run as they stand, and their models give what onnxruntime gives."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from tests.tolerance import assert_close

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples"
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if "__main__" in path.read_text() and path.stem != "make_demo_model")
ELSEWHERE = {"train_ddp"}
"""Programs of several processes, which need PyTorch: tests/training/pytorch runs them."""


@pytest.mark.parametrize("program", [path for path in PROGRAMS if path.stem not in ELSEWHERE], ids=lambda path: path.stem)
def test_program_runs(program: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", program]
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout and not any(tmp_path.iterdir()), "it says something and leaves nothing behind"


def test_all_programs_are_in_the_list() -> None:
    page = (FOLDER / "README.md").read_text()
    assert all(f"`{path.name}`" in page for path in PROGRAMS)


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module(request.param)


def sessions(model: onnx.ModelProto) -> tuple[sardonyx.InferenceSession, onnxruntime.InferenceSession]:
    peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return sardonyx.InferenceSession(model), peer


@pytest.mark.parametrize("example", ["bert_embedding"], indirect=True)
def test_embeddings_agree_and_do_not_depend_on_padding(example: ModuleType) -> None:
    ours, theirs = sessions(example.make_model())
    batch = example.encode(["A short one", "A sentence that is quite a bit longer than the other one"])
    assert_close(ours.run(None, batch), theirs.run(None, batch), rtol=1e-4, atol=1e-5)
    alone = example.encode(["A short one"])
    assert_close(ours.run(None, batch)[0][:1], ours.run(None, alone)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("example", ["decoder"], indirect=True)
def test_a_decoder_says_what_it_says_in_onnxruntime(example: ModuleType) -> None:
    ours, theirs = sessions(example.make_model())
    prompt = [72, 101, 108, 108, 111]
    assert example.generate(ours, prompt, 12) == example.generate(theirs, prompt, 12)


@pytest.mark.parametrize("example", ["pipeline"], indirect=True)
def test_a_pipeline_classifies_as_onnxruntime_does(example: ModuleType) -> None:
    ours, theirs = sessions(example.make_model(example.fit()))
    numbers, cities, _ = example.data(200, seed=9)
    assert np.isnan(numbers).any()
    (labels, probabilities), (their_labels, theirs_too) = (
        run.run(None, {"numbers": numbers, "city": cities}) for run in (ours, theirs)
    )
    assert labels.tolist() == their_labels.tolist()
    assert_close(probabilities, theirs_too)
