"""The comparison of memory: rows are in bytes that both sides really count, and a larger plan is an error."""

from __future__ import annotations

import json

import pytest

from benchmarks.memory import MARKS, Row, Setting, main, measure, table
from tests.runtime.models import parsed

CHAIN = parsed("g (float[N,1024] x) => (float y) { a = Softplus(x) b = Sin(a) c = Mul(a, b) y = ReduceSum<keepdims=0>(c) }")


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "chain.onnx").write_bytes(CHAIN)
    (tmp_path / "carried.json").write_text(json.dumps({"chain": {"file": "chain.onnx", "family": "rows"}}))
    monkeypatch.setenv("SARDONYX_CORPUS", str(tmp_path))
    return tmp_path


def test_both_peaks_are_measured(directory):
    row = measure(directory, "chain", Setting())
    assert row.ours <= 2 * 4096 + 64  # less if the sum is taken while the numbers are made
    assert row.ours <= row.theirs
    assert 2 * 4096 <= row.values <= row.theirs


def test_the_command_says_who_is_larger(directory, capsys):
    assert main([]) == 0
    assert "1 models, larger than onnxruntime's: none" in capsys.readouterr().out


def test_the_table_goes_between_its_marks():
    text = table([Row("m", 500, 1000, 900, 2000)])
    assert "| m | 500 B | 1.0 kB | 0.50 | 900 B | 2.0 kB |" in text
    assert MARKS.sub(lambda marks: f"{marks[1]}\n{text}\n{marks[2]}", "a <!-- memory -->old<!-- end --> b").count("old") == 0
