"""`sardonyx bench`."""

from __future__ import annotations

import numpy as np

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
