"""Tools under onnxruntime's names: sizes made fixed, opsets, ORT files, lists of ops, and what their command lines take."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.errors import Fail
from sardonyx.tools import convert_onnx_models_to_ort as to_ort
from sardonyx.tools import offline_tuning, onnx_model_utils, onnx_randomizer, onnxruntime_test, pytorch_export_helpers
from sardonyx.tools.file_utils import files_from_file_or_dir, path_match_suffix_ignore_case
from sardonyx.tools.ort_format_model import create_config_from_models
from sardonyx.tools.reduced_build_config_parser import parse_config
from sardonyx.tools.remove_initializer_from_input import remove_initializer_from_input

TEXT = """
<ir_version: 8, opset_import: ["": 11]>
g (float[N, 4] x, bool[1] flag) => (float[N, M] y) <float[4, 30] w, float[30] b = {BIAS}> {
    product = MatMul(x, w)
    sum = Add(product, b)
    y = If (flag) <
        then_branch = yes () => (float[N, M] t) { t = Relu(sum) },
        else_branch = no () => (float[N, M] e) { e = Neg(sum) }
    >
}
""".replace("BIAS", ", ".join(map(str, range(30))))


@pytest.fixture
def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(TEXT)
    weights = np.linspace(-1, 1, 120, dtype=np.float32).reshape(4, 30)
    made.graph.initializer.insert(0, numpy_helper.from_array(weights, "w"))
    return made


@pytest.fixture
def path(model: onnx.ModelProto, tmp_path: Path) -> Path:
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def shapes(values) -> dict[str, list[object]]:
    sizes = {value.name: value.type.tensor_type.shape.dim for value in values}
    return {name: [size.dim_param or size.dim_value for size in dims] for name, dims in sizes.items()}


def test_a_symbol_becomes_a_number_everywhere(model):
    onnx_model_utils.make_dim_param_fixed(model.graph, "N", 3)
    assert shapes(model.graph.input)["x"] == [3, 4] and shapes(model.graph.output)["y"] == [3, "M"]
    onnx_model_utils.fix_output_shapes(model)
    assert shapes(model.graph.output)["y"] == [3, 30]


def test_an_input_gets_a_shape_and_others_with_its_symbols_too(model):
    onnx_model_utils.make_input_shape_fixed(model.graph, "x", [5, 4])
    assert shapes(model.graph.output)["y"] == [5, "M"]
    for name, shape, reason in (("x", [5], "Rank"), ("x", [5, 3], "fixed size"), ("z", [1], "Valid input names are: x,flag")):
        with pytest.raises(ValueError, match=reason):
            onnx_model_utils.make_input_shape_fixed(model.graph, name, shape)


@pytest.mark.parametrize(
    ("shape", "is_fixed"), [([1, 2], True), (["n", 2], False), ([], True), ([0, 2], False), ([-1, 2], False)]
)
def test_sizes_above_zero_are_fixed(shape, is_fixed):
    value = helper.make_tensor_value_info("a", TensorProto.FLOAT, shape)
    assert onnx_model_utils.is_fixed_size_tensor(value) == is_fixed


def test_nodes_are_connected_through_the_bodies_that_read_from_around_them(model):
    producers, consumers = onnx_model_utils.get_producer_consumer_maps(model.graph)
    product, total, branch = model.graph.node
    assert producers.of(total) == [product] and producers.of(branch) == [total] and consumers.of(total) == [branch]
    seen: list[str] = []
    onnx_model_utils.iterate_graph_per_node_func(model.graph, lambda node, mark: seen.append(node.op_type + mark), mark="!")
    assert seen == ["MatMul!", "Add!", "If!", "Relu!", "Neg!"]


@pytest.mark.parametrize(
    ("module", "function", "words", "check"),
    [
        ("update_onnx_opset", "update_onnx_opset_helper", ["--opset", "15"], lambda new: new.opset_import[0].version == 15),
        ("optimize_onnx_model", "optimize_model_helper", ["--opt_level", "extended"], lambda new: len(new.graph.node) < 3),
        (
            "make_dynamic_shape_fixed",
            "make_dynamic_shape_fixed_helper",
            ["--input_name", "x", "--input_shape", "2,4"],
            lambda new: shapes(new.graph.output)["y"] == [2, 30],
        ),
        ("qdq_helpers.optimize_qdq_model", "optimize_qdq_model", [], lambda new: len(new.graph.node) == 3),
    ],
)
def test_scripts_write_models_that_onnxruntime_runs(path, monkeypatch, module, function, words, check):
    monkeypatch.setattr(sys, "argv", ["script", *words, str(path), str(path.with_name("new.onnx"))])
    getattr(importlib.import_module(f"sardonyx.tools.{module}"), function)()
    assert check(onnx.load(path.with_name("new.onnx")))
    feeds = {"x": np.ones((2, 4), np.float32), "flag": np.array([True])}
    sessions = [onnxruntime.InferenceSession(file) for file in (path, path.with_name("new.onnx"))]
    np.testing.assert_allclose(*(session.run(None, feeds)[0] for session in sessions), rtol=1e-6)


@pytest.mark.parametrize(("style", "suffix"), [("Fixed", ""), ("Runtime", ".with_runtime_opt")])
@pytest.mark.parametrize("level", ["all", "basic"])
def test_models_become_ort_files_with_the_ops_that_they_need(path, monkeypatch, style, suffix, level):
    monkeypatch.setenv("ORT_CONVERT_ONNX_MODELS_TO_ORT_OPTIMIZATION_LEVEL", level)
    out = path.with_name("out")
    words = ["--output_dir", str(out), "--optimization_style", style, "--enable_type_reduction", "--save_optimized_onnx_model"]
    to_ort.main([*words, str(path)])
    suffix = ("" if level == "all" else f".{level}") + suffix
    config = out / f"model.required_operators_and_types{suffix}.config"
    names = {f"model{suffix}.ort", f"model{suffix}.optimized.onnx", config.name}
    assert {file.name for file in out.iterdir()} == names
    feeds = {"x": np.ones((2, 4), np.float32), "flag": np.array([False])}
    wanted = onnxruntime.InferenceSession(path).run(None, feeds)[0]
    np.testing.assert_allclose(onnxruntime.InferenceSession(out / f"model{suffix}.ort").run(None, feeds)[0], wanted, rtol=1e-6)
    operators, _ = parse_config(str(config))
    assert operators is not None and "If" in operators["ai.onnx"][11]
    create_config_from_models([out / f"model{suffix}.ort"], out / "again.config", True)
    assert parse_config(str(out / "again.config"))[0] == operators


def test_what_cannot_be_converted_is_told(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        to_ort.convert_onnx_models_to_ort(tmp_path / "missing.onnx")
    with pytest.raises(Fail, match="custom_op"):
        to_ort.convert_onnx_models_to_ort(path, custom_op_library_path=tmp_path / "ops.so")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(Exception, match="rotobuf|model"):
        to_ort.convert_onnx_models_to_ort(tmp_path)
    to_ort.convert_onnx_models_to_ort(tmp_path, allow_conversion_failures=True)
    assert (tmp_path / "model.ort").exists() and not (tmp_path / "broken.ort").exists()


def test_a_list_of_ops_says_all_or_some(tmp_path):
    file = tmp_path / "ops.config"
    file.write_text('# some\nai.onnx;11,13;Conv,Add{"inputs": {"0": ["float"]}}\ncom.microsoft;1;FusedConv\n')
    operators, types = parse_config(str(file), True)
    assert operators == {"ai.onnx": {11: {"Conv", "Add"}, 13: {"Conv", "Add"}}, "com.microsoft": {1: {"FusedConv"}}}
    assert types is not None and types.types == {("", "Add"): {"inputs": {"0": {"float"}}}}
    file.write_text("!no_ops_specified_means_all_ops_are_required\n")
    assert parse_config(str(file)) == (None, None)


def test_initializers_leave_the_inputs(model):
    model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [30]))
    assert remove_initializer_from_input(model) and not remove_initializer_from_input(model)
    assert [value.name for value in model.graph.input] == ["x", "flag"]


def test_tuning_results_are_embedded_merged_and_extracted(path, tmp_path, capsys):
    results = [{"ep": "E", "validators": {"v": "1"}, "results": {"op": {"k": 3}}}]
    others = [{"ep": "E", "validators": {"v": "1"}, "results": {"op": {"k": 4, "j": 5}}}]
    for name, content in (("a.json", results), ("b.json", others)):
        (tmp_path / name).write_text(json.dumps(content))
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    offline_tuning.main(["embed", str(tmp_path / "tuned.onnx"), str(path), *files])
    offline_tuning.main(["extract", str(tmp_path / "tuned.onnx"), str(tmp_path / "out.json")])
    merged = [{"ep": "E", "validators": {"v": "1"}, "results": {"op": {"k": 3, "j": 5}}}]
    assert json.loads((tmp_path / "out.json").read_text()) == merged
    offline_tuning.main(["pprint", str(tmp_path / "tuned.onnx")])
    assert "'j': 5" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no tuning results"):
        offline_tuning.main(["extract", str(path), str(tmp_path / "out.json")])


def test_weights_become_random_and_small_tensors_stay(path):
    onnx_randomizer.main(["-m", str(path), "-o", str(path.with_name("new.onnx"))])
    old, new = (
        {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(file).graph.initializer}
        for file in (path, path.with_name("new.onnx"))
    )
    assert (old["b"] == new["b"]).all() and not (old["w"] == new["w"]).any()


def test_a_model_is_run_on_inputs_that_are_made_up(path, capsys):
    assert onnxruntime_test.main([str(path), "2", "--symbolic_dims", "N=3"]) == 0
    assert "iterations: 2" in capsys.readouterr().out
    feeds = onnxruntime_test.generate_feeds(sardonyx.InferenceSession(path), {"N": 3})
    assert {name: (value.shape, value.dtype) for name, value in feeds.items()} == {
        "x": ((3, 4), np.float32),
        "flag": ((1,), bool),
    }


def test_arguments_of_a_module_are_named_in_their_order():
    class Module:
        def forward(self, a, b=None, c=None, *, d=None): ...

    assert pytorch_export_helpers.infer_input_info(Module(), 1, c=3) == (["a", "c"], (1, None, 3))
    with pytest.raises(ValueError, match="forward takes a, b, c, d"):
        pytorch_export_helpers.infer_input_info(Module(), 1, e=3)


def test_files_are_found_by_their_endings(tmp_path):
    for name in ("a.onnx", "b.ONNX", "c.ort", "sub/d.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = files_from_file_or_dir(tmp_path, lambda file: path_match_suffix_ignore_case(file, ".onnx"))
    assert [file.name for file in found] == ["a.onnx", "b.ONNX", "d.onnx"]


def test_tools_are_there_under_onnxruntimes_name():
    program = (
        "import sardonyx; sardonyx.install_as_onnxruntime()\n"
        "from onnxruntime.tools.onnx_model_utils import optimize_model\n"
        "print(optimize_model.__module__)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "sardonyx.tools.onnx_model_utils\n"
