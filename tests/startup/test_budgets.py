"""What start-up loads, counted: modules of ours, bytes of their sources, and modules of others. No clock is asked.

A budget that is exceeded tells of an import that can wait (`python -X importtime` shows where it came from), or of code that was added:
then raise it. One that is no longer needed is lowered, so that it keeps its meaning.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import onnx
import onnx.parser
import pytest

PROGRAM = """
import json, os, sys
before = set(sys.modules)
import sardonyx
if sys.argv[1:]:
    sardonyx.InferenceSession(sys.argv[1])
loaded = set(sys.modules) - before
ours = [sys.modules[name].__file__ for name in loaded if name.partition(".")[0] == "sardonyx"]
print(json.dumps([len(ours), sum(map(os.path.getsize, ours)), len(loaded) - len(ours)]))
"""


class Loaded(NamedTuple):
    """What a process has loaded, or may load."""

    modules: int
    """Of the package itself."""
    source: int
    """Their bytes."""
    others: int
    """Modules of NumPy and the standard library; how many differs a little between versions of Python."""


def measure(*arguments: object, **environment: str) -> Loaded:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
    return Loaded(*json.loads(finished.stdout))


HEAD = '<ir_version: 10, opset_import: ["": 21]>'
TINY = HEAD + " g (float[N] x) => (float[N] y) { y = Relu(x) }"
TEN = (
    HEAD
    + """
g (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4, 10] m, float[10] b) => (float[10, N] y) <int64[2] flat = {0, -1}> {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    r = Relu(c)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    s = Sigmoid(p)
    t = Mul(p, s)
    a = GlobalAveragePool(t)
    f = Reshape(a, flat)
    l = Gemm(f, m, b)
    o = Softmax(l)
    y = Transpose(o)
}
"""
)
BUDGETS = {
    "import": ("", Loaded(1, 6_300, 11)),
    "tiny": (TINY, Loaded(230, 1_509_000, 175)),
    "ten nodes": (TEN, Loaded(305, 2_180_000, 175)),
}
REMEMBERED = Loaded(130, 800_000, 175)
LEAST_USED = 0.9
"""How much of a budget, of its modules and their sources, is used at least."""


@pytest.mark.parametrize(("text", "budget"), BUDGETS.values(), ids=BUDGETS)
def test_startup_stays_within_its_budget(text: str, budget: Loaded, tmp_path: Path) -> None:
    arguments = []
    if text:
        arguments.append(tmp_path / "model.onnx")
        onnx.save(onnx.parser.parse_model(text), arguments[0])
        measure(*arguments)  # compiles what the cache does not have
    loaded = measure(*arguments)
    assert all(count <= most for count, most in zip(loaded, budget, strict=True)), f"{loaded} exceeds {budget}"
    assert loaded.modules >= LEAST_USED * budget.modules and loaded.source >= LEAST_USED * budget.source, f"lower to {loaded}"


def test_a_remembered_model_stays_within_its_budget(tmp_path: Path) -> None:
    """Neither what ops are nor any format is loaded: an entry has programs and words."""
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEN), model)
    environment = {"SARDONYX_CACHE_DIR": str(tmp_path / "cache"), "SARDONYX_REMEMBER": "small"}
    warm = [sys.executable, "-m", "sardonyx", "warm", str(model)]
    subprocess.run(warm, capture_output=True, check=True, env=os.environ | environment)
    loaded = measure(model, **environment)
    assert all(count <= most for count, most in zip(loaded, REMEMBERED, strict=True)), f"{loaded} exceeds {REMEMBERED}"
    assert loaded.modules >= LEAST_USED * REMEMBERED.modules and loaded.source >= LEAST_USED * REMEMBERED.source, (
        f"lower to {loaded}"
    )
