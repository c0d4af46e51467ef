"""`sardonyx bench`."""

from __future__ import annotations

import numpy as np
import onnx.parser

from sardonyx.cli.bench import largest_difference


def test_it_measures_the_runs_asked_for(affine, call):
    result = call("bench", affine, "--runs", 3, "--json")
    assert result.code == 0
    (ours,) = result.json["runtimes"]
    assert result.json["runs"] == 3 and 0 <= ours["min"] <= ours["median"]


def test_it_compares_with_onnxruntime(affine, call):
    found = call("bench", affine, "--runs", 2, "--against", "onnxruntime", "--dim", "N=4", "--json").json
    assert [one["runtime"].split()[0] for one in found["runtimes"]] == ["sardonyx", "onnxruntime"]
    assert found["ratio"] > 0 and found["largest_difference"] < 1e-5


def test_threads_are_set_in_a_process_of_its_own(affine, call):
    result = call("bench", affine, "--runs", 1, "--threads", 1, "--json")
    assert result.code == 0 and len(result.json["runtimes"]) == 1


def test_a_runtime_that_is_not_installed_is_exit_code_2(affine, call):
    result = call("bench", affine, "--against", "no_such_runtime")
    assert result.code == 2 and "not installed" in result.err


def test_the_largest_difference_looks_into_sequences():
    ours, theirs = [np.array([1.0, 2.0]), [np.array([3])]], [np.array([1.0, 2.5]), [np.array([4])]]
    assert largest_difference(ours, theirs) == 1.0


def test_a_profile_names_the_nodes_that_take_longest(call, tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[N, 64] x) => (float[N, 64] y)
    <float[64, 64] w = {1}> { [wide] h = MatMul(x, w) [gate] r = Relu(h) [narrow] y = LayerNormalization(r, s) }"""
    text = text.replace(
        "<float[64, 64] w = {1}>",
        f"<float[64, 64] w = {{{', '.join(['0.01'] * 4096)}}}, float[64] s = {{{', '.join(['1'] * 64)}}}>",
    )
    (tmp_path / "layers.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    out = call("bench", tmp_path / "layers.onnx", "--profile", "--runs", "1", "--dim", "N=50").out
    listed = out[out.index("slowest nodes") :]
    assert "MatMul 'wide', Relu 'gate'" in listed and "LayerNormalization 'narrow'" in listed
