"""`sardonyx inspect`."""

from __future__ import annotations

import onnx.parser
import pytest

import sardonyx
from sardonyx.cli.inspect import STAGES
from sardonyx.providers.null import NullExecutionProvider


def test_the_summary_counts_ops_and_parameters(affine, call):
    about = call("inspect", affine, "--json").json
    assert about["ops"] == {"MatMul": 1, "Add": 1}
    assert (about["parameters"], about["parameter_bytes"]) == (8, 32)
    assert about["inputs"] == [{"name": "x", "type": "float[N, 3]"}]
    assert about["outputs"] == [{"name": "y", "type": "float[N, 2]"}]
    assert about["opsets"] == {"ai.onnx": 20}
    assert about["bytes"] == affine.stat().st_size


def test_gradients_stand_behind_the_nodes(affine, call):
    shown = call("inspect", affine, "--after", "gradient").out
    assert shown.index("MatMul") < shown.index("InPlaceAccumulatorV2") and "accumulation.buffer" in shown


def test_the_tables_show_the_same(affine, call):
    result = call("inspect", affine)
    assert result.code == 0
    for words in ("float[N, 3]", "MatMul", "ai.onnx 20", "8 (32 B)", "tests"):
        assert words in result.out


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_can_be_printed(affine, call, stage):
    result = call("inspect", affine, "--after", stage)
    assert result.code == 0
    assert ("MatMul" if STAGES.index(stage) < STAGES.index("optimize") else "Gemm") in result.out


def test_rewrites_are_explained(affine, call):
    result = call("inspect", affine, "--after", "optimize", "--explain")
    assert result.code == 0 and "MatMulAddFusion at Add" in result.out
    summary = [line for line in result.out.splitlines() if line.startswith(("done: ", "refused: "))]
    assert "1 × MatMulAddFusion" in summary[0], "what was done is summed up before it is listed"
    assert "MatMul" in call("inspect", affine, "--after", "optimize", "--level", "disable").out


def test_explaining_needs_the_optimizer(affine, call):
    result = call("inspect", affine, "--after", "infer", "--explain")
    assert result.code == 2 and "--explain goes with --after optimize" in result.err


def test_inference_shows_in_the_text(affine, call):
    assert "product" in call("inspect", affine, "--after", "infer").out


def test_an_unknown_stage_is_exit_code_2(affine, call):
    assert call("inspect", affine, "--after", "never").code == 2


def test_native_steps_show_arguments_by_the_names_that_kernels_declare(tmp_path, call):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 8] x, float[8] s) => (float[N, 8] y) { y = LayerNormalization<epsilon=0.25>(x, s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "norm.onnx")
    shown = call("inspect", tmp_path / "norm.onnx", "--after", "native").out
    (step,) = (line for line in shown.splitlines() if "[LayerNormalization]" in line)
    arguments = step.partition(": ")[2].split(", ")
    assert {"columns=8", "epsilon=0.25", "scale.in0=s", "sources.0.operands.in0=x", "sink.out0=y"} <= set(arguments)
    assert all("=" in argument for argument in arguments)


def test_the_plan_shows_lifetimes_and_draws_them(affine, call, tmp_path):
    page, picture = tmp_path / "plan.html", tmp_path / "plan.svg"
    result = call(
        "inspect", affine, "--after", "plan", "--numpy", "--level", "disable", "--dim", "N=4", "--html", page, "--svg", picture
    )
    assert result.code == 0
    assert "with N=4" in result.out and "product" in result.out and "allocate" in result.out
    assert "<svg" in page.read_text() and "product" in page.read_text()
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("page", "picture"), [("plan.html", "plan.html"), ("affine.onnx", "plan.svg"), ("plan.html", "affine.onnx")]
)
def test_pictures_overwrite_neither_each_other_nor_the_model(affine, call, page, picture):
    folder = affine.parent
    result = call("inspect", affine, "--after", "plan", "--html", folder / page, "--svg", folder / picture)
    assert result.code == 2 and "would both become" in result.err
    assert sorted(folder.iterdir()) == [affine]


def test_pictures_are_of_plans_only(affine, call, tmp_path):
    assert call("inspect", affine, "--html", tmp_path / "plan.html").code == 2
    assert call("inspect", affine, "--after", "plan", "--dim", "Q=4").code == 2


def test_partition_shows_who_runs_what_in_graphs_inside_graphs_too(tmp_path, call):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (bool c, float[2] x) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] p) { p = Sqrt(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }>
        }
    """)
    onnx.save(model, tmp_path / "if.onnx")
    assert call("inspect", tmp_path / "if.onnx", "--after", "partition", "--numpy").out.splitlines() == [
        "CPUExecutionProvider: If 'y'",
        "  then_branch:",
        "    CPUExecutionProvider: Sqrt 'p'",
        "  else_branch:",
        "    CPUExecutionProvider: Abs 'q'",
    ]
    sardonyx.register_provider("NullExecutionProvider", NullExecutionProvider)
    try:
        shown = call("inspect", tmp_path / "if.onnx", "--after", "partition", "--provider", "NullExecutionProvider")
        assert shown.out.splitlines() == ["NullExecutionProvider_cluster_3: If 'y'"]
    finally:
        sardonyx.unregister_provider("NullExecutionProvider")


@pytest.mark.parametrize("size", [3, 1])
def test_native_convolutions_show_from_what_their_algorithm_was_chosen(tmp_path, call, size):
    pads = [size // 2] * 4
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (float[1,32,28,28] x) => (float[1,32,28,28] y)
        <float[1] one = {{1}}, int64[4] shape = {{32, 32, {size}, {size}}}>
        {{ w = Expand(one, shape) y = Conv<pads = {pads}>(x, w) }}"""
    (tmp_path / "conv.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    shown = call("inspect", tmp_path / "conv.onnx", "--after", "native").out
    assert ("cycles: Winograd" in shown) == (size == 3)
