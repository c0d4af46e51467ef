"""Real models with open axes: every step that is left to NumPy has an op and a reason that are listed here.

The models are all *.onnx files below the directory that SARDONYX_CORPUS names. Each is prepared in a process of its own, as it is declared
and with the axes open that an exporter would leave open; nothing runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = Path(os.environ.get("SARDONYX_CORPUS") or "nowhere").resolve()
MODELS = {str(path.relative_to(DIRECTORY)): path for path in sorted(DIRECTORY.rglob("*.onnx"))}
UNSET = pytest.mark.skipif(
    not os.environ.get("SARDONYX_CORPUS"), reason="SARDONYX_CORPUS is not set: it names a directory of models"
)
SECONDS = 900

QUANTIZED = r"QuantizeLinear|DequantizeLinear|Dynamic\w+|\w+Integer\w*|QLinear\w+|QGemm|Q\w+|MatMulNBits"
ALLOWED = (
    (r"\w+", r"\S* ?is (string|seq|map|optional)\S*.*", "text, sequences and maps have no native form"),
    (
        r"If|Loop|Scan",
        r"graphs inside a node are run by themselves",
        "control flow is the runtime's; what is inside is compiled",
    ),
    (r"\w+", r"nothing is computed here, .*", "a few views or sizes between such nodes are not worth a call"),
    (
        r"\w+",
        r".* is \w+\[\.\.\.\]",
        "branches of an If give other ranks, or a Squeeze without axes: not even the rank is known",
    ),
    (QUANTIZED, r"there is no native code .*", "int8 has no native code yet"),
    (
        r"SkipLayerNormalization",
        r"there is no native code .*",
        "skip with axis names of its own: the lowering wants equal sizes",
    ),
    (r"ArrayFeatureExtractor", r"there is no native code .*", "no lowering yet"),
    (r"Resize", r"there is no native code .*", "sizes that come as an input of the model"),
    (r"Range|Slice|ConstantOfShape", r"there is no native code .*", "bounds and shapes that a loop or a branch computes"),
    (r"\w+", r"(sizes that it makes|the size .*) depends? on data", "NonZero, Compress, sizes that are inputs"),
)
"""Op, reason, and the fact behind it."""
OPENED = {"mtcnn_r.onnx": "Conv"}
"""Ops that miss native code only because the test opens the axis of channels, which stands in the place of the height."""


def is_allowed(step: str, opened_too: str | None) -> bool:
    op_type, _, reason = step.partition(": NativeExecutionProvider: ")
    return op_type == opened_too or any(re.fullmatch(ops, op_type) and re.fullmatch(why, reason) for ops, why, _ in ALLOWED)


@UNSET
def test_the_directory_holds_models() -> None:
    assert MODELS, f"{DIRECTORY} holds no models"


@pytest.mark.parametrize("name", MODELS or [pytest.param("any", marks=UNSET)])
def test_what_is_left_to_numpy_is_listed(name: str) -> None:
    command = [sys.executable, "-m", "tests.slow.open_axes", str(MODELS[name])]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    report = json.loads(process.stdout.splitlines()[-1])
    for axes, opened_too in (("declared", None), ("open", OPENED.get(name))):
        left = report[axes] or {}
        print(f"{axes}: {sum(left.values())} steps in NumPy")
        assert {step: count for step, count in left.items() if not is_allowed(step, opened_too)} == {}
