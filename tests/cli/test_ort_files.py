"""The commands on models in the ORT format."""

from __future__ import annotations

from tests.formats.ort_fixtures import HERE

MODELS, MUTANTS = HERE / "models", HERE / "mutants"


def test_inspect_tells_the_version_of_the_format(call):
    result = call("inspect", MODELS / "if_outer_scope.noopt.ort", "--json")
    assert result.code == 0
    assert result.json["ort_version"] == 6 and result.json["ops"] == {"If": 1, "Add": 1}
    assert "ORT format" in call("inspect", MODELS / "basic.opt.ort").out


def test_inspect_shows_that_no_stage_optimizes(call):
    texts = [call("inspect", MODELS / "conv_relu.noopt.ort", "--after", stage).out for stage in ("infer", "optimize")]
    assert texts[0] == texts[1] and "Conv" in texts[0] and "Relu" in texts[0]


def test_inspect_reaches_the_last_stage(call):
    for stage in ("partition", "plan"):
        assert call("inspect", MODELS / "matmul_gemm.opt.ort", "--after", stage, "--numpy").code == 0


def test_check_looks_at_kernels_through_the_stored_type_strings(call):
    assert "all right" in call("check", MODELS / "qdq_conv.opt.ort").out
    result = call("check", MUTANTS / "resolver_missing_op.ort", "--json")
    assert result.code == 1
    assert [(one["stage"], ":Mul:14" in one["reason"]) for one in result.json["problems"]] == [("types", True)]


def test_check_says_what_is_wrong_with_a_file(call):
    result = call("check", MUTANTS / "truncated.ort", "--json")
    assert [problem["stage"] for problem in result.json["problems"]] == ["load"]
    assert "ORT model verification failed" in result.json["problems"][0]["reason"]


def test_run_runs(call):
    result = call("run", MODELS / "conv_relu.opt.ort", "--json")
    assert result.code == 0 and "Y" in str(result.json["outputs"])
