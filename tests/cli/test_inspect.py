"""`sardonyx inspect`."""

from __future__ import annotations

import pytest

from sardonyx.cli.inspect import STAGES


def test_the_summary_counts_ops_and_parameters(affine, call):
    about = call("inspect", affine, "--json").json
    assert about["ops"] == {"MatMul": 1, "Add": 1}
    assert (about["parameters"], about["parameter_bytes"]) == (8, 32)
    assert about["inputs"] == [{"name": "x", "type": "float[N, 3]"}]
    assert about["outputs"] == [{"name": "y", "type": "float[N, 2]"}]
    assert about["opsets"] == {"ai.onnx": 20}
    assert about["bytes"] == affine.stat().st_size


def test_the_tables_show_the_same(affine, call):
    result = call("inspect", affine)
    assert result.code == 0
    for words in ("float[N, 3]", "MatMul", "ai.onnx 20", "8 (32 B)", "tests"):
        assert words in result.out


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_can_be_printed(affine, call, stage):
    result = call("inspect", affine, "--after", stage)
    assert result.code == 0 and "MatMul" in result.out


def test_inference_shows_in_the_text(affine, call):
    assert "product" in call("inspect", affine, "--after", "infer").out


def test_an_unknown_stage_is_exit_code_2(affine, call):
    assert call("inspect", affine, "--after", "never").code == 2
