"""Errors of real models against float64: what docs/accuracy.md promises of layers, and what benchmarks/README.md says of whole models.

The models are all *.onnx files below the directory that SARDONYX_CORPUS names.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from benchmarks.accuracy import MEAN_GOAL, WORST_GOAL, Errors, Skipped, measure, summary
from benchmarks.accuracy_layers import PROMISED, layer_ratios

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("SARDONYX_CORPUS"), reason="SARDONYX_CORPUS is not set: it names a directory of models"
    ),
]
MODELS = {path.stem: path for path in sorted(Path(os.environ.get("SARDONYX_CORPUS") or "nowhere").glob("**/*.onnx"))}
LARGEST_LAYERS = 60e6
"""Bytes of models whose layers are computed one by one in float64, which takes long."""


@functools.cache
def errors_of(name: str) -> Errors | Skipped:
    return measure(MODELS[name], "default")


@pytest.mark.parametrize("name", MODELS or ["any"])
def test_the_error_is_not_far_above_onnxruntimes(name: str) -> None:
    errors = errors_of(name)
    if isinstance(errors, Skipped):
        pytest.skip(f"there is no float64 form to compare with: {errors.reason}")
    # onnxruntime leaves out the roundings to 16 bits that such a model asks for
    assert errors.is_narrow or errors.ratio <= WORST_GOAL, errors


def test_the_mean_error_is_near_onnxruntimes() -> None:
    mean = summary([errors_of(name) for name in MODELS])["mean"]
    assert mean is not None and mean <= MEAN_GOAL


@pytest.mark.parametrize("name", [name for name, path in MODELS.items() if path.stat().st_size < LARGEST_LAYERS] or ["any"])
def test_transformed_layers_keep_the_promise(name: str) -> None:
    assert {layer: ratio for layer, ratio in layer_ratios(MODELS[name]) if ratio > PROMISED} == {}
