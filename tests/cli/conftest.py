"""Small models on disk, and a way to call the command line as a user does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from sardonyx.cli import main

AFFINE = """
<ir_version: 9, opset_import: ["": 20], producer_name: "tests">
affine (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {0.5, -0.5}>
{
    product = MatMul(x, w)
    y = Add(product, b)
}
"""

BRANCHING = """
<ir_version: 9, opset_import: ["": 20]>
branching (bool flag, int64[2] n) => (int64[2] y)
{
    y = If (flag) <
        then_branch = yes () => (int64[2] a) { a = Neg(n) },
        else_branch = no () => (int64[2] b) { b = NoSuchOp(n) }
    >
}
"""


@dataclass(frozen=True)
class Result:
    """What one call of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def _write(path: Path, text: str) -> Path:
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


@pytest.fixture
def affine(tmp_path: Path) -> Path:
    return _write(tmp_path / "affine.onnx", AFFINE)


@pytest.fixture
def branching(tmp_path: Path) -> Path:
    """A model with an op that nobody knows, inside a branch."""
    return _write(tmp_path / "branching.onnx", BRANCHING)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def run(*arguments: object) -> Result:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Result(code, *capfd.readouterr())

    return run
