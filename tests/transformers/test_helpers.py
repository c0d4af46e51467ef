"""Small modules beside the optimizer: machines, measurements, profiles, inputs, bindings, dynamo's models, exports."""

from __future__ import annotations

import csv
import inspect
import json
import os
import random
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.transformers import (
    affinity_helper,
    benchmark_helper,
    bert_perf_test,
    bert_test_data,
    compare_bert_results,
    constants,
    import_utils,
    io_binding_helper,
    machine_info,
    metrics,
    onnx_exporter,
    onnx_utils,
    past_helper,
    profile_result_processor,
    profiler,
    shape_optimizer,
    torch_onnx_export_helper,
)
from sardonyx.transformers.dynamo_onnx_helper import DynamoOnnxHelper
from sardonyx.transformers.models.llama import dist_settings
from sardonyx.transformers.models.sam2 import sam2_utils
from sardonyx.transformers.onnx_model import OnnxModel

WORDS = """<ir_version: 8, opset_import: ["": 17]>
g (int64[batch, seq] input_ids, int64[batch, seq] token_type_ids, int64[batch, seq] attention_mask) => (float[batch, seq, 4] y)
<float[10000, 4] table, float[2, 4] kinds> {
    words = Gather(table, input_ids)
    segments = Gather(kinds, token_type_ids)
    both = Add(words, segments)
    mask = Cast<to = 1>(attention_mask)
    axis = Constant<value = int64[1] {2}>()
    column = Unsqueeze(mask, axis)
    y = Mul(both, column)
}"""


@pytest.fixture
def words(tmp_path) -> str:
    model = onnx.parser.parse_model(WORDS)
    rng = np.random.default_rng(3)
    for name, shape in (("table", (10000, 4)), ("kinds", (2, 4))):
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    path = tmp_path / "words.onnx"
    onnx.save(model, path)
    return str(path)


# --- machines and measurements


def test_a_machine_tells_of_its_cpu_and_packages():
    info = json.loads(machine_info.get_machine_info())
    assert info["cpu"]["cores"] == os.cpu_count() and info["packages"]["onnx"] == onnx.__version__
    assert info["onnxruntime"]["version"] == sardonyx.__version__ and "CPUExecutionProvider" in info["onnxruntime"]["providers"]
    assert set(json.loads(machine_info.get_device_info())) == {"gpu", "cpu", "memory"}
    assert import_utils.is_installed("onnx") and not import_utils.is_installed("no_such_package_here")


def test_figures_of_times():
    figures = benchmark_helper.get_latency_result([0.001, 0.002, 0.003, 0.002], 4)
    assert (figures["test_times"], figures["average_latency_ms"], figures["QPS"]) == (4, "2.00", "2000.00")
    assert figures["latency_90_percentile"] == "2.70"


def test_sessions_are_measured_with_and_without_bound_memory(words):
    session = benchmark_helper.create_onnxruntime_session(words, False, num_threads=1)
    feeds = {name: np.ones((2, 3), np.int64) for name in ("input_ids", "token_type_ids", "attention_mask")}
    plain = benchmark_helper.inference_ort(session, feeds, {"engine": "here"}, 3, 2, warm_up_repeat=1)
    assert plain["engine"] == "here" and plain["test_times"] == 3 and not plain["io_binding"]
    expected, buffers = session.run(None, feeds), []
    bound = benchmark_helper.inference_ort_with_io_binding(
        session, feeds, {}, 2, ["y"], expected, buffers, [expected[0].size], 2, "cpu"
    )
    assert bound["io_binding"] and len(buffers) == 1
    got = buffers[0].view(np.float32)[: expected[0].size].reshape(expected[0].shape)
    np.testing.assert_array_equal(got, expected[0])


def test_a_model_that_cannot_be_opened_gives_no_session(tmp_path, caplog):
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert benchmark_helper.create_onnxruntime_session(str(tmp_path / "broken.onnx"), False) is None
    assert "there is no session" in caplog.text


def test_tables_are_appended_to(tmp_path):
    path = str(tmp_path / "times.csv")
    base = {"model_name": "m", "engine": "sardonyx"}
    results = [base | {"batch_size": size, "sequence_length": 8, "average_latency_ms": f"{size}.00"} for size in (1, 2)]
    benchmark_helper.output_details(results, path)
    benchmark_helper.output_details(results, path)
    with open(path) as file:
        assert [row["average_latency_ms"] for row in csv.DictReader(file)] == ["1.00", "2.00"] * 2
    summary = str(tmp_path / "summary.csv")
    benchmark_helper.output_summary(results, summary, None)
    with open(summary) as file:
        (row,) = csv.DictReader(file)
    assert (row["b1_s8"], row["b2_s8"]) == ("1.00", "2.00")
    benchmark_helper.output_fusion_statistics({"m.onnx": {"Attention": 2}}, str(tmp_path / "fused.csv"))
    assert (tmp_path / "fused.csv").read_text().splitlines() == ["model_filename,Attention", "m.onnx,2"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell only the most that a process ever had")
def test_memory_that_a_function_needs_is_seen():
    def needs_memory():
        held.append(np.ones(64 << 17))  # 64 MB, touched

    held: list[np.ndarray] = []
    grown = benchmark_helper.measure_memory(False, needs_memory)
    assert grown is not None and grown >= 60
    assert benchmark_helper.measure_memory(True, needs_memory) is None
    assert benchmark_helper.measure_memory(False, None) > 60


def test_seeds_repeat_random_numbers():
    benchmark_helper.set_random_seed(5)
    first = random.random(), np.random.rand()
    benchmark_helper.set_random_seed(5)
    assert (random.random(), np.random.rand()) == first
    assert str(benchmark_helper.Precision.FLOAT16) == "fp16" and str(benchmark_helper.OptimizerInfo.BYORT) == "by_ort"
    config = SimpleNamespace(num_hidden_layers=12)
    benchmark_helper.ConfigModifier(None).modify(config)
    assert config.num_hidden_layers == 12
    benchmark_helper.ConfigModifier(2).modify(config)
    assert config.num_hidden_layers == 2


def test_affinities_are_restored():
    setting = affinity_helper.AffinitySetting()
    setting.get_affinity()
    if sys.platform == "linux":
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        setting.set_affinity()
        assert os.sched_getaffinity(0) == before


def test_records_are_written_as_json_and_as_tables(tmp_path):
    record = metrics.BenchmarkRecord("bert", "fp32", "sardonyx", "cpu", "sardonyx", "1", 2, 3, 4, "today")
    record.metrics.latency_ms_mean = 1.5
    record.config.customized["note"] = "warm"
    assert json.loads(record.to_json())["config"]["model_info"]["full_name"] == "bert"
    metrics.BenchmarkRecord.save_as_csv(str(tmp_path / "r.csv"), [record])
    with open(tmp_path / "r.csv") as file:
        (row,) = csv.DictReader(file)
    assert row["metrics.latency_ms_mean"] == "1.5" and row["config.note"] == "warm" and row["config.batch_size"] == "2"
    metrics.BenchmarkRecord.save_as_json(str(tmp_path / "r.json"), [record, record])
    assert len(json.loads((tmp_path / "r.json").read_text())) == 2


# --- profiles


def test_profiles_tell_which_nodes_took_the_time(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    for kind in ("bert", "default"):
        profiler.main(
            ["--model", words, "--samples", "2", "--sequence_length", "2", "--dummy_inputs", kind, "--threshold", "0"]
        )
        shown = capsys.readouterr().out.splitlines()
        titles = [line.split()[-1] for line in shown if "total µs" in line]
        assert titles in (["kernel", "node", "op"], ["node", "op"])  # machine code has kernels of its own
        assert any("%" in line for line in shown[1:])


def test_shares_of_a_profile_add_up(tmp_path):
    def event(name, op, duration):
        args = {"op_name": op, "provider": "CPU"}
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": duration, "args": args}

    events = [event("a", "Add", 30), event("b", "Add", 50), event("m", "MatMul", 20), event("a", "Add", 0)]
    (tmp_path / "p.json").write_text(json.dumps(events))
    loaded = profile_result_processor.load_profile_json(str(tmp_path / "p.json"))
    nodes = profile_result_processor.parse_node_results(loaded, threshold=0.25)
    assert [line.split()[-1] for line in nodes[1:]] == ["b", "a"]
    ops = profile_result_processor.group_node_results(loaded)
    assert ops[1].split()[:3] == ["80", "80.0%", "3"] and ops[2].split()[:3] == ["20", "20.0%", "1"]
    assert profile_result_processor.parse_kernel_results(loaded) == []


def test_inputs_of_decoders_have_the_sizes_that_their_names_tell():
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["past_0"], ["y"])],
        "g",
        [
            value("past_0", TensorProto.FLOAT, [2, "batch_size", 4, "past_seq_len", 8]),
            value("mask", TensorProto.INT64, ["batch_size", "total_seq_len"]),
        ],
        [value("y", TensorProto.FLOAT, None)],
    )
    (feeds,) = profiler.create_gpt2_inputs(OnnxModel(helper.make_model(graph)), 3, 5, 7, 1)
    assert feeds["past_0"].shape == (2, 3, 4, 7, 8) and feeds["mask"].shape == (3, 12) and feeds["mask"].dtype == np.int64


# --- inputs of BERT


def test_inputs_of_bert_are_found_by_their_names(words):
    found = bert_test_data.get_bert_inputs(words)
    assert [value.name for value in found] == ["input_ids", "token_type_ids", "attention_mask"]
    model = OnnxModel(onnx.load(words))
    named = bert_test_data.find_bert_inputs(model, "input_ids", None, "attention_mask")
    assert named[1] is None and named[2].name == "attention_mask"
    with pytest.raises(ValueError, match="no input nothing"):
        bert_test_data.find_bert_inputs(model, "nothing")


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_masks_agree_about_lengths(kind):
    value = helper.make_tensor_value_info("m", TensorProto.INT32, ["b", "s"])
    random.seed(1)
    mask = bert_test_data.fake_input_mask_data(value, 4, 9, 5, True, kind)
    random.seed(1)
    lengths = [bert_test_data.get_random_length(9, 5) for _ in range(4)]
    assert all(1 <= length <= 9 for length in lengths) and mask.dtype == np.int32
    if kind == 2:
        assert mask.shape == (4, 9) and mask.sum(axis=1).tolist() == lengths
    else:
        assert mask[:4].tolist() == lengths and mask.shape == ((4,) if kind == 1 else (14,))


def test_written_data_is_what_the_model_makes_of_it(words, tmp_path, capsys):
    bert_test_data.main(["--model", words, "--output_dir", str(tmp_path / "data"), "--samples", "2", "--sequence_length", "3"])
    session = sardonyx.InferenceSession(words)
    for number in range(2):
        folder = tmp_path / "data" / f"test_data_set_{number}"
        feeds = dict(tensor(folder / f"input_{place}.pb") for place in range(3))
        name, expected = tensor(folder / "output_0.pb")
        assert name == "y"
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


def tensor(path) -> tuple[str, np.ndarray]:
    proto = TensorProto.FromString(path.read_bytes())
    return proto.name, numpy_helper.to_array(proto)


def test_models_are_compared(words, tmp_path, capsys):
    common = ["--baseline_model", words, "--samples", "3", "--sequence_length", "4"]
    compare_bert_results.main([*common, "--optimized_model", words])
    assert "3 of 3 cases agree" in capsys.readouterr().out
    other = onnx.load(words)
    other.graph.node[2].op_type = "Sub"
    onnx.save(other, tmp_path / "other.onnx")
    compare_bert_results.main([*common, "--optimized_model", str(tmp_path / "other.onnx")])
    assert "0 of 3 cases agree" in capsys.readouterr().out


# --- values and models


def test_bound_decoders_write_into_buffers():
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 3] input_ids, float[2, n] past_0) => (float[2, 3] y, float16[2, n] present_0)
    { y = Neg(input_ids) present_0 = Cast<to = 10>(past_0) }"""
    session = sardonyx.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    types = io_binding_helper.TypeHelper
    assert types.get_io_numpy_type_map(session) == {
        "input_ids": np.float32,
        "past_0": np.float32,
        "y": np.float32,
        "present_0": np.float16,
    }
    assert types.get_io_onnx_type_map(session)["present_0"] == TensorProto.FLOAT16
    with pytest.raises(ValueError, match="there is no z"):
        types.get_output_type(session, "z")
    binder = io_binding_helper.IOBindingHelper
    shapes = {"y": [2, 3], "present_0": [2, 4]}
    buffers = binder.get_output_buffers(session, {"y": [2, 3], "present_0": [2, 9]})
    words, past = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(8, dtype=np.float32).reshape(2, 4)
    session.run_with_iobinding(binder.prepare_io_binding(session, words, None, None, [past], buffers, shapes))
    y, present = binder.get_outputs_from_io_binding_buffer(session, buffers, shapes)
    np.testing.assert_array_equal(y, -words)
    np.testing.assert_array_equal(present, past.astype(np.float16))


def test_types_of_pytorch_are_named_without_importing_it(monkeypatch):
    types = io_binding_helper.TypeHelper
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ImportError, match="not imported"):
        types.ort_type_to_torch_type("tensor(float)")
    names = ("float32", "float64", "float16", "bfloat16", "bool", "int64", "float8_e4m3fn")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**{name: f"torch.{name}" for name in names}))
    assert types.ort_type_to_torch_type("tensor(float)") == "torch.float32"
    assert types.ort_type_to_torch_type("tensor(float8e4m3fn)") == "torch.float8_e4m3fn"
    assert types.numpy_type_to_torch_type(np.float64) == "torch.float64"
    assert types.torch_type_to_numpy_type("torch.int64") is np.int64
    for unknown in ("tensor(string)", "seq(tensor(float))"):
        with pytest.raises(ValueError, match="no type"):
            types.ort_type_to_torch_type(unknown)


def test_data_that_was_taken_out_of_a_model_can_be_given_to_sessions(words):
    model = onnx.load(words)
    expected = sardonyx.InferenceSession(words)
    assert not onnx_utils.has_external_data(model)
    names, values = onnx_utils.extract_raw_data_from_model(model)
    assert sorted(names) == ["kinds", "table"] and onnx_utils.has_external_data(model) and model.ByteSize() < 2000
    options = sardonyx.SessionOptions()
    options.add_external_initializers(list(names), list(values))
    feeds = {name: np.ones((1, 2), np.int64) for name in ("input_ids", "token_type_ids", "attention_mask")}
    session = sardonyx.InferenceSession(model.SerializeToString(), options)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected.run(None, feeds)[0])


def test_groups_of_keys_and_values_come_back():
    helper_class = past_helper.PastKeyValuesHelper
    names = helper_class.get_past_names(2)
    assert names[:4] == ["past_key_self_0", "past_value_self_0", "past_key_self_1", "past_value_self_1"]
    layers = helper_class.group_by_layer(names, 2)
    assert layers[1] == ["past_key_self_1", "past_value_self_1", "past_key_cross_1", "past_value_cross_1"]
    assert list(helper_class.back_group_by_layer(layers)) == names
    assert helper_class.group_by_self_and_cross(layers, concat=True) == names
    assert helper_class.get_past_names(1, present=True)[-1] == "present_value_cross_0"
    assert constants.MultiHeadAttentionInputIDs.PAST_VALUE == 7 and constants.AttentionInputIDs.MASK_INDEX == 3


DYNAMO = """<ir_version: 8, opset_import: ["": 17, "pkg": 1]>
g (float[2, 3] x) => (float[2, 2] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> {
    two = Constant<value = float {2.0}>()
    long = Constant<value = float[3] {1.0, 2.0, 3.0}>()
    a = Mul(x, two)
    b = pkg.Inner(a)
    c = pkg.Dropout_7(b)
    d = Add(c, long)
    t = Transpose<perm = [1, 0]>(w)
    y = MatMul(d, t)
}
<domain: "pkg", opset_import: ["": 17]> Inner (p) => (q) { h = Neg(p) q = Abs(h) }
<domain: "pkg", opset_import: ["": 17]> Dropout_7 (p) => (q) { q = Identity(p) }
"""


def test_models_of_dynamo_become_plain_and_stay_the_same():
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    expected = sardonyx.InferenceSession(onnx.parser.parse_model(DYNAMO)).run(None, feeds)[0]
    helping = DynamoOnnxHelper(onnx.parser.parse_model(DYNAMO))
    helping.unroll_function("Inner")
    helping.remove_dropout_layer()
    helping.convert_constants_to_initializers(min_size=2)
    DynamoOnnxHelper.fold_transpose_initializers(helping.model.model)
    helping.model.model.graph.node[0].metadata_props.add(key="a", value="b")
    helping.clear_metadata()
    assert [node.op_type for node in helping.model.model.graph.node] == ["Constant", "Mul", "Neg", "Abs", "Add", "MatMul"]
    assert not helping.model.model.graph.node[0].metadata_props
    added = helping.add_initializer("more", TensorProto.INT64, [2], [1, 2])
    assert numpy_helper.to_array(added).tolist() == [1, 2]
    del helping.model.model.functions[:]
    np.testing.assert_array_equal(sardonyx.InferenceSession(helping.model.model).run(None, feeds)[0], expected)


def test_a_layer_before_an_output_leaves_the_output_its_name():
    text = """<ir_version: 8, opset_import: ["": 17, "pkg": 1]>
    g (float[2] x) => (float[2] y) { a = Neg(x) b = pkg.Dropout(a) y = pkg.Dropout(b) }
    <domain: "pkg", opset_import: ["": 17]> Dropout (p) => (q) { q = Identity(p) }"""
    helping = DynamoOnnxHelper(onnx.parser.parse_model(text))
    helping.remove_dropout_layer()
    (node,) = helping.model.model.graph.node
    assert node.op_type == "Neg" and list(node.output) == ["y"]


# --- exports


def test_examples_and_names_for_an_export(tmp_path):
    config = SimpleNamespace(model_type="bert", is_encoder_decoder=False)
    inputs = onnx_exporter.create_onnxruntime_input(30, 2, 5, ["input_ids", "attention_mask"], config)
    assert list(inputs) == ["input_ids", "attention_mask"] and inputs["input_ids"].max() < 30
    image = SimpleNamespace(model_type="vit", image_size=8)
    assert onnx_exporter.create_onnxruntime_input(0, 2, 0, [], image)["pixel_values"].shape == (2, 3, 8, 8)
    outputs = onnx_exporter.update_flatten_list(onnx_exporter.flatten((np.ones((2, 5, 4)), [np.ones((2, 4))])), [])
    axes, names = onnx_exporter.build_dynamic_axes(inputs, outputs)
    assert names == ["output_1", "output_2"] and axes["output_1"] == {0: "batch_size", 1: "seq_len"}
    assert axes["output_2"] == {0: "batch_size"}
    path = onnx_exporter.get_onnx_file_path(
        str(tmp_path), "a/b-c", 2, True, False, benchmark_helper.Precision.FLOAT16, False, True
    )
    assert path == str(tmp_path / "a_b_c_2_fp16_cpu" / "a_b_c_2_fp16_cpu.onnx")
    assert onnx_exporter.add_filename_suffix("x/m.onnx", "_ort") == os.path.join("x", "m_ort.onnx")


@pytest.mark.parametrize("how", list(benchmark_helper.OptimizerInfo))
def test_an_exported_model_is_optimized_and_checked(words, tmp_path, how):
    feeds = {name: np.ones((2, 3), np.int64) for name in ("input_ids", "token_type_ids", "attention_mask")}
    outputs = sardonyx.InferenceSession(words).run(None, feeds)
    statistics = {}

    def checked(examples):
        return onnx_exporter.validate_and_optimize_onnx(
            "words", False, "bert", str(tmp_path), list(feeds), False, benchmark_helper.Precision.FLOAT32, how, True, False, True,
            SimpleNamespace(vocab_size=10), statistics, words, feeds, examples, None, None,
        )  # fmt: skip

    path, is_valid, vocabulary = checked(outputs)
    assert is_valid and vocabulary == 10 and os.path.exists(path)
    assert (path == words) == (how is benchmark_helper.OptimizerInfo.NOOPT)
    assert checked([outputs[0] + 1])[1] is False


def test_the_class_of_a_model_is_given_or_told_by_its_name():
    names = ("bert-base-cased", "bert-large-squad", "roberta-mprc", "my-gpt2")
    assert [onnx_exporter.modelclass_dispatcher(name, None) for name in names] == [
        "AutoModel",
        "AutoModelForQuestionAnswering",
        "AutoModelForSequenceClassification",
        "AutoModelForCausalLM",
    ]
    assert onnx_exporter.modelclass_dispatcher("any", "AutoModelForMaskedLM") == "AutoModelForMaskedLM"
    with pytest.raises(ValueError, match="Nothing is none of the classes AutoModel, AutoModelForCausalLM"):
        onnx_exporter.modelclass_dispatcher("any", "Nothing")


def test_exports_say_which_packages_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ImportError, match="pip install transformers torch"):
        onnx_exporter.load_pt_model("bert-base-cased", None, None, benchmark_helper.ConfigModifier(None))
    with pytest.raises(ImportError, match="it is not loaded: import torch first"):
        torch_onnx_export_helper.torch_onnx_export(None, (), "model.onnx")


@pytest.mark.parametrize("knows", [True, False], ids=["newer", "older"])
def test_what_pytorch_does_not_know_is_not_handed_on(knows, monkeypatch):
    calls = []

    def older(model, args, f, *, export_params, input_names, output_names, do_constant_folding, opset_version=None):
        calls.append((model, args, f, opset_version, "dynamo" in locals()))

    def newer(model, args, f, *, dynamo=True, training=None, dynamic_axes=None, **options):
        calls.append((model, args, f, options["opset_version"], dynamo))

    torch = SimpleNamespace(onnx=SimpleNamespace(export=newer if knows else older))
    newer.__signature__ = inspect.Signature(
        [*inspect.signature(newer).parameters.values()][:-1]
        + [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            for name in ("export_params", "input_names", "output_names", "do_constant_folding", "opset_version")
        ]
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    options = {"opset_version": 17, "dynamic_axes": {"x": {0: "n"}}, "verbose": False, "training": None}
    if knows:
        torch_onnx_export_helper.torch_onnx_export("module", (1,), "file", **options)
    else:
        with pytest.warns(UserWarning, match="PyTorch exports without dynamic_axes, which it does not know"):
            torch_onnx_export_helper.torch_onnx_export("module", (1,), "file", **options)
    assert calls == [("module", (1,), "file", 17, False)]


@pytest.mark.parametrize("bound", [False, True], ids=["arrays", "bound memory"])
def test_a_model_is_measured_by_batch_and_threads(words, bound, capsys):
    flags = ["--use_io_binding"] if bound else []
    arguments = ["--model", words, "-b", "1", "2", "-s", "5", "--samples", "2", "-t", "2", "-n", "1", *flags]
    results = bert_perf_test.main(arguments)
    assert [key.partition("batch_size=")[2][0] for key in results] == ["1", "2"]
    assert all(figures["test_times"] == 4 and "intra_op_num_threads=1," in key for key, figures in results.items())
    (path,) = [line.removeprefix("written to ") for line in capsys.readouterr().out.splitlines() if "written to" in line]
    with open(path, newline="") as file:
        assert {line["measured"] for line in csv.DictReader(file)} == set(results)


def test_measured_runs_give_the_results_of_runs(words):
    session = bert_perf_test.create_session(words, False, None, 1, 0)
    values = bert_test_data.get_bert_inputs(words)
    feeds = bert_test_data.generate_test_data(2, 5, 2, 3, False, *values, 5, False, 2)
    wanted = [sardonyx.InferenceSession(words).run(["y"], inputs) for inputs in feeds]
    plain, times = bert_perf_test.onnxruntime_inference(session, feeds, ["y"])
    bound, _ = bert_perf_test.onnxruntime_inference_with_io_binding(session, feeds, ["y"], None)
    assert len(times) == 2
    for mine, other, right in zip(plain, bound, wanted, strict=True):
        np.testing.assert_array_equal(mine[0], right[0])
        np.testing.assert_array_equal(other[0], right[0])
    with pytest.raises(ValueError, match="there are no GPU providers here"):
        bert_perf_test.create_session(words, True, None, None)


BERT = """
<ir_version: 8, opset_import: ["": 17]>
bert (int64[batch, length] ids, int64[batch, length] kinds, int64[batch, length] mask) => (int64[a, b] y, float[c, d] z)
<int64[1] one = {1}, int64[1] rest = {-1}> {
    size = Shape (ids)
    rows = Slice (size, zero, one)
    form = Concat <axis = 0> (rows, rest)
    sum = Add (ids, kinds)
    flat = Reshape (sum, form)
    y = Mul (flat, mask)
    z = Cast <to = 1> (y)
    zero = Constant <value_ints = [0]> ()
}
"""
NAMES = ["--input_ids", "ids", "--segment_ids", "kinds", "--input_mask", "mask"]


def test_bert_for_one_size(tmp_path):
    source, target = tmp_path / "bert.onnx", tmp_path / "fixed.onnx"
    model = onnx.parser.parse_model(BERT)
    nodes = [*model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend([nodes[-1], *nodes[:-1]])
    onnx.save(model, source)
    words = ["--input", str(source), "--output", str(target), *NAMES, "--batch_size", "2", "--sequence_length", "5"]
    shape_optimizer.main([*words, "--enable_shape_opt", "--enable_reshape_opt", "--output_names", "y"])
    fixed = onnx.load(target)
    assert not {node.op_type for node in fixed.graph.node} & {"Shape", "Slice", "Concat", "Cast"}
    assert [[size.dim_value for size in value.type.tensor_type.shape.dim] for value in fixed.graph.input] == [[2, 5]] * 3
    feeds = {name: np.random.default_rng(0).integers(0, 9, (2, 5)) for name in ("ids", "kinds", "mask")}
    wanted = onnxruntime.InferenceSession(source).run(["y"], feeds)[0]
    np.testing.assert_array_equal(onnxruntime.InferenceSession(target).run(None, feeds)[0], wanted)
    optimizer = shape_optimizer.BertOnnxModelShapeOptimizer(OnnxModel(fixed))
    with pytest.raises(ValueError, match="ids has 5 columns already, 6 are wanted"):
        optimizer.use_static_input(["ids"], 2, 6)
    with pytest.raises(ValueError, match="no input words, it has ids, kinds, mask"):
        optimizer.optimize(None, "words", "kinds", "mask", True, True)
    with pytest.raises(ValueError, match="no output w, it has y"):
        optimizer.optimize(None, "ids", "kinds", "mask", True, True, ["w"])
    asked = shape_optimizer.BertOnnxModelShapeOptimizer(OnnxModel(model))
    assert asked.get_shape_outputs() == ["size"] and asked.get_reshape_shape_inputs() == ["form"]


def test_parts_of_sam2():
    encoder = sam2_utils.encoder_shape_dict(2, 1024, 1024)
    decoder = sam2_utils.decoder_shape_dict(600, 900, num_labels=3, num_masks=4)
    assert encoder["image"] == [2, 3, 1024, 1024] and encoder["image_features_1"] == [2, 64, 128, 128]
    assert decoder["image_embeddings"] == [1, 256, 64, 64] and decoder["masks"] == [3, 4, 600, 900]
    path = sam2_utils.sam2_onnx_path("there", "sam2_hiera_tiny", "image_decoder", True, "_fp16")
    assert path == os.path.join("there", "sam2_hiera_tiny_image_decoder_multi_fp16.onnx")
    assert sam2_utils.sam2_onnx_path("", "m", "mask_decoder", True) == "m_mask_decoder.onnx"
    with pytest.raises(ValueError, match="1024 rows and columns, not 512 and 1024"):
        sam2_utils.encoder_shape_dict(1, 512, 1024)
    with pytest.raises(ValueError, match="'head' is not one of image_encoder"):
        sam2_utils.sam2_onnx_path("", "m", "head")


def test_tensors_may_differ_in_few_places(caplog):
    first = np.zeros(10_000, np.float32)
    second = first.copy()
    second[:9] = 1
    assert sam2_utils.compare_tensors_with_tolerance("few", first, second)
    second[:10] = 1  # a tenth of a percent
    assert not sam2_utils.compare_tensors_with_tolerance("many", first, second) and "many: 0.10 percent" in caplog.text
    with pytest.raises(ValueError, match=r"shapes \(10000,\) and \(2,\) differ"):
        sam2_utils.compare_tensors_with_tolerance("other", first, second[:2])


def test_sam2_is_loaded_from_its_clone(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="checkpoints does not exist"):
        sam2_utils.load_sam2_model(str(tmp_path), "sam2_hiera_base_plus")
    with pytest.raises(ValueError, match="'vit' is not one of sam2_hiera_tiny"):
        sam2_utils.load_sam2_model(str(tmp_path), "vit")
    for folder in ("checkpoints", "sam2_configs", "sam2"):
        (tmp_path / folder).mkdir()
    (tmp_path / "checkpoints" / "sam2_hiera_base_plus.pt").touch()
    (tmp_path / "sam2" / "build_sam.py").write_text("def build_sam2(*given, device): return given, device")
    monkeypatch.setattr(sys, "path", list(sys.path))
    given, device = sam2_utils.load_sam2_model(str(tmp_path), "sam2_hiera_base_plus", "cpu")
    for name in ("sam2", "sam2.build_sam"):
        monkeypatch.delitem(sys.modules, name)
    assert given == ("sam2_hiera_b+.yaml", str(tmp_path / "checkpoints" / "sam2_hiera_base_plus.pt")) and device == "cpu"


def test_one_process_alone(capsys):
    assert (dist_settings.get_rank(), dist_settings.get_size()) == (0, 1)
    dist_settings.init_dist()
    dist_settings.barrier()
    dist_settings.print_out("once", 2)
    assert capsys.readouterr().out == "once 2\n"
