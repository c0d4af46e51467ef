"""Converters of the transformers package's models: PyTorch is the measure of what both runtimes make of the files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.slow import environment

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("converted_models.py")
EXACT = 1e-5
LIMITS = {"fp16": 2e-2, "int8": 5e-2, "int4": 0.2}
"""How far files of fewer bits may be from PyTorch, whose outputs are about 1 at most."""
FUSED = {
    "t5 encoder": {"MultiHeadAttention": 2},
    "t5 decoder": {"MultiHeadAttention": 6, "SkipSimplifiedLayerNormalization": 9},
    "whisper encoder fp32": {"MultiHeadAttention": 2, "BiasGelu": 2},
    "whisper decoder fp32": {"MultiHeadAttention": 4, "SkipLayerNormalization": 6},
    "whisper decoder fp16": {"MultiHeadAttention": 4},
    "whisper decoder_init alone": {"MultiHeadAttention": 4},
    "GPT2LMHeadModel fp32": {"EmbedLayerNormalization": 1, "MultiHeadAttention": 2, "FastGelu": 2, "SkipLayerNormalization": 4},
    "llama fp32": {"MultiHeadAttention": 2, "RotaryEmbedding": 4},
    "grouped fp16": {"MultiHeadAttention": 2},
    "llama of groups": {"GroupQueryAttention": 2},
}
"""Blocks that are one node in a file."""


def test_converted_models_give_what_pytorch_gives(tmp_path: Path) -> None:
    command = [environment.interpreter(environment.TORCH), PROGRAM, tmp_path]
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    results = json.loads(process.stdout.splitlines()[-1])
    refusal = results.pop("bart refusal")
    assert "decoder_past.onnx" in refusal and "--no_chain --no_inference" in refusal
    too_far = {
        name: result["differences"]
        for name, result in results.items()
        if max(result["differences"]) > next((limit for kind, limit in LIMITS.items() if kind in name), EXACT)
    }
    assert not too_far
    assert {name: {op: results[name]["ops"].get(op) for op in ops} for name, ops in FUSED.items()} == FUSED
