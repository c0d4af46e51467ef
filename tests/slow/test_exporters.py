"""Decoders of the transformers package as files: what they give, with and without a cache, is what PyTorch gives.

Only sardonyx has these programs for the versions of PyTorch and transformers of the environment, so PyTorch is the measure.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.slow import environment

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("exported_decoders.py")


def test_exported_decoders_give_what_pytorch_gives(tmp_path: Path) -> None:
    command = [environment.interpreter(environment.TORCH), PROGRAM, tmp_path]
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    results = json.loads(process.stdout.splitlines()[-1])
    assert results["gpt2 fp16"].pop("is_within_tolerance") and results["gpt2 int8"].pop("is_within_tolerance")
    assert results["gpt2 fused"]["FastGelu"] == 2 and "Tanh" not in results["gpt2 fused"]
    assert {name: value < 1e-5 for name, value in results["differences"].items()} == dict.fromkeys(
        ("gpt2 raw", "gpt2 fp32", "llama", "llama with past"), True
    )
    assert results["gpt2 fp16"]["onnx_size_in_bytes"] < 0.6 * results["gpt2 raw size"]
