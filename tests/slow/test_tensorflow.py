"""Models of TensorFlow: loaded, exported, measured and converted, in an environment with TensorFlow and transformers 4."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.slow import environment

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("tensorflow_models.py")


def test_models_of_tensorflow_give_what_they_gave_there(tmp_path: Path) -> None:
    command = [environment.interpreter(environment.TENSORFLOW), PROGRAM, tmp_path]
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    results = json.loads(process.stdout.splitlines()[-1])
    assert sorted(results["differences"]) == ["bert", "checkpoint", "gpt2", "pipeline", "xla"]
    assert not {name: difference for name, difference in results["differences"].items() if difference > 1e-5}
    files = [("onnxruntime", *sizes) for sizes in (("bert", 1, 4), ("bert", 1, 8), ("bert", 2, 4), ("bert", 2, 8))]
    files += [("onnxruntime", "gpt2", 1, 4), ("onnxruntime", "gpt2", 1, 8)]
    models = [("tensorflow", name, 1, length) for name in ("bert", "gpt2") for length in (4, 8)]
    assert [tuple(row) for row in results["rows"]] == files + models
