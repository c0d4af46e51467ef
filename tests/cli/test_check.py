"""`sardonyx check`."""

from __future__ import annotations

import numpy as np

from tests.providers.native.networks import Network


def test_a_good_model_is_all_right(affine, call):
    result = call("check", affine)
    assert result.code == 0 and "all right: 2 nodes" in result.out


def test_an_unknown_op_is_named_with_its_place(branching, call):
    result = call("check", branching, "--json")
    assert result.code == 1
    assert "1 problem in " in call("check", branching).out
    (problem,) = result.json["problems"]
    assert problem["stage"] == "ops"
    assert problem["where"].startswith("If 'y' > NoSuchOp")
    assert "NoSuchOp" in problem["reason"]


def test_bytes_that_are_no_model_are_a_problem_of_loading(tmp_path, call):
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07\xff\xff\xff")
    result = call("check", tmp_path / "bad.onnx", "--json")
    assert result.code == 1
    assert [problem["stage"] for problem in result.json["problems"]] == ["load"]
    assert call("check", tmp_path / "bad.onnx").out.splitlines()[-1] == "1 problem"


def test_what_is_left_to_numpy_is_listed_with_the_reason(tmp_path, call):
    net = Network()
    ids, scores = net.input("ids", ["N", 4], np.int64), net.input("scores", ["N", 8])
    blocked = net.NGramRepeatBlock(ids, scores, domain="com.microsoft", ngram_size=2)
    (tmp_path / "block.onnx").write_bytes(net.model(net.Relu(blocked)))
    assert "all right: 2 nodes of 2 ops" in call("check", tmp_path / "block.onnx").out
    result = call("check", tmp_path / "block.onnx", "--json")
    assert result.code == 0
    (left,) = result.json["numpy"]
    assert left["where"] == "com.microsoft::NGramRepeatBlock 'NGramRepeatBlock_0'" and "no native code" in left["reason"]
    assert "no native code" in call("inspect", tmp_path / "block.onnx", "--after", "native").out
    assert "no native code" in call("inspect", tmp_path / "block.onnx", "--after", "partition").out
