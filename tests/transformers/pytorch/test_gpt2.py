"""The programs around GPT-2: measurements, generation side by side, and statistics of differences."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.models.gpt2 import benchmark_gpt2, convert_to_onnx, gpt2_parity, parity_check_helper
from sardonyx.transformers.models.gpt2.gpt2_helper import MODEL_CLASSES, Gpt2Helper
from sardonyx.transformers.models.gpt2.gpt2_tester import Gpt2Metric, Gpt2Tester

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of the transformers package, when PyTorch looks at its modules
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
SIZES = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40, "bos_token_id": 1, "eos_token_id": 2}


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("gpt2")
    hub.GPT2LMHeadModel(hub.GPT2Config(**SIZES)).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path):
    return MODEL_CLASSES["GPT2LMHeadModel"][0].from_pretrained(folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def file(model, folder: Path) -> str:
    path = str(folder / "plain.onnx")
    with torch.no_grad():
        Gpt2Helper.export_onnx(model, "cpu", path)
    return path


def rows_of(path: str | Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_each_size_is_measured(folder: Path, tmp_path: Path, capsys, precision: str) -> None:
    common = ["-m", str(folder), "--onnx_dir", str(tmp_path), "-r", str(tmp_path / "times.csv"), "--test_times", "2", "-o"]
    sizes = ["-b", "1", "2", "-s", "3", "39", "--sequence_lengths", "1", "2", "-v", "-p", precision]
    path = benchmark_gpt2.main(benchmark_gpt2.parse_arguments([*common, *sizes, "--thread_num", "1"]))
    rows = rows_of(path)
    names = "batch_size", "past_sequence_length", "sequence_length"
    sizes = [tuple(int(row[name]) for name in names) for row in rows]
    assert sizes == [(1, 3, 1), (1, 39, 1), (1, 3, 2), (2, 3, 1), (2, 39, 1), (2, 3, 2)]
    assert all(float(row["torch_latency"]) > 0 and float(row["onnxruntime_latency"]) > 0 for row in rows)
    assert "differ by more" not in capsys.readouterr().err  # where the log goes


def test_stages_and_ways_of_measuring(folder: Path, tmp_path: Path) -> None:
    common = ["-m", str(folder), "--onnx_dir", str(tmp_path), "-s", "4", "--sequence_lengths", "3", "--test_times", "1"]
    pasts = []
    for number, options in enumerate((["--stage", "1", "--torchscript", "-v"], ["--stage", "2", "--disable_io_binding"])):
        arguments = benchmark_gpt2.parse_arguments([*common, *options, "-r", str(tmp_path / f"{number}.csv")])
        (row,) = rows_of(benchmark_gpt2.main(arguments))
        pasts.append((row["past_sequence_length"], row["sequence_length"], row["torch_latency"] == "None"))
    assert pasts == [("0", "3", False), ("4", "1", True)]
    with pytest.raises(ValueError, match="--optimize_onnx"):
        benchmark_gpt2.main(benchmark_gpt2.parse_arguments([*common, "-p", "fp16"]))


def test_generation_chooses_the_words_of_pytorch(model, file: str, folder: Path, tmp_path: Path, capsys) -> None:
    words = torch.tensor([[5, 9, 33], [8, 8, 1]])
    inputs = {
        "input_ids": words.int(),
        "position_ids": torch.arange(3).repeat(2, 1).int(),
        "attention_mask": torch.ones(2, 3).int(),
    }
    options = {"top_k": 5, "max_steps": 6, "save_test_data": 1, "save_test_data_dir": str(tmp_path)}
    metrics = Gpt2Tester.test_generation(sardonyx.InferenceSession(file), model, "cpu", [inputs], **options)
    assert [metric.total_samples for metric in metrics] == [2, 2, 2]
    for metric in metrics[1:]:
        assert metric.top_1_error == metric.top_k_error == 0
        assert metric.max_logits_diff < 1e-5 and metric.max_logits_diff_no_past < 1e-5
        assert sorted(metric.seq_len_latency) == [-1, 1, 2]  # no past, 3 words, 4 to 7
    assert "other top 5 words in 0" in capsys.readouterr().out
    saved = onnx.TensorProto.FromString((tmp_path / "test_data_set_0" / "output_0.pb").read_bytes())
    wanted = hub.GPT2LMHeadModel.from_pretrained(folder).eval()(words).logits.numpy()
    np.testing.assert_allclose(onnx.numpy_helper.to_array(saved), wanted, atol=1e-5)
    assert len(list((tmp_path / "test_data_set_0").glob("input_*.pb"))) == 5


def test_testers_go_the_way_of_the_package(model, folder: Path) -> None:
    words = torch.tensor([[5, 9, 33], [8, 8, 1]])
    tester = Gpt2Tester(words, torch.arange(3).repeat(2, 1), torch.ones(2, 3).long(), 4, 32, 2, "cpu", top_k=3)
    chosen = []
    for step in range(5):
        tester.update(Gpt2Helper.pytorch_inference(model, tester.get_inputs()), step, "cpu")
        chosen.append(tester.top_1_tokens)
    plain = hub.GPT2LMHeadModel.from_pretrained(folder).eval()
    wanted = plain.generate(words, attention_mask=torch.ones(2, 3).long(), max_new_tokens=5, do_sample=False, eos_token_id=59)
    assert torch.equal(torch.cat(chosen, 1), wanted[:, 3:])
    other = Gpt2Tester(words, None, None, 4, 32, 2, "cpu")
    assert tester.diff(tester) == [] and "input_ids" in other.diff(Gpt2Tester(words + 1, None, None, 4, 32, 2, "cpu"))


def test_words_that_differ_are_counted_once_for_each_row() -> None:
    logits = np.zeros((3, 1, 4))
    logits[:, 0, 2], logits[:, 0, 3] = 2, 1
    assert Gpt2Tester.predict_next_token(logits).tolist() == [[2]] * 3
    assert Gpt2Tester.predict_next_token(logits[..., ::-1], 2).tolist() == [[0, 1]] * 3
    assert Gpt2Tester.predict_next_token(logits[..., ::-1], 2, required_order=True).tolist() == [[1, 0]] * 3
    words = torch.zeros(3, 1).long()
    baseline, treatment = (Gpt2Tester(words, None, None, 1, 2, 0, "cpu", top_k=2) for _ in range(2))
    metric = Gpt2Metric("ours", top_k=2)
    metric.start_batch(3)
    for step, shift in enumerate((0.0, 5.0)):
        other = logits.copy()
        other[1, 0, 3] += shift  # becomes the likeliest
        other[2, 0, 0] += shift  # becomes one of the two
        baseline.update((logits, ()), step, "cpu")
        treatment.update((other, ()), step, "cpu")
        metric.eval_batch(baseline, treatment, step)
        metric.eval_batch(baseline, treatment, step)
    metric.end_batch()
    assert (metric.top_1_error, metric.top_k_error, metric.max_logits_diff, metric.max_logits_diff_no_past) == (2, 1, 5.0, 0.0)


def test_presents_are_compared_by_layer() -> None:
    outputs = [np.zeros(1), np.array([1.0, 2.0]), np.array([3.0])]
    assert Gpt2Tester.diff_present(outputs, [np.ones(1), np.array([1.0, 2.5]), np.array([3.0])], 2) == [0.5, 0.0]


@pytest.mark.parametrize("kind", list(MODEL_CLASSES))
def test_converted_files_have_figures_of_parity(folder: Path, tmp_path: Path, kind: str) -> None:
    table = str(tmp_path / "table.csv")
    common = ["-m", str(folder), "--output", str(tmp_path), "-o", "-t", "4", "-r", "2", "--model_class", kind]
    line = convert_to_onnx.main(common, "plain", "7", table)
    assert line["is_within_tolerance"] and line["diff_pass_rate"] == 1.0 and line["nan_rate"] == 0.0
    assert line["top1_match_rate"] == 1.0 and line["top1_match_rate_per_run"] == [1.0, 1.0]
    assert "SkipLayerNormalization" in line["optimized_operators"].split(",") and "MatMul" in line["operators"].split(",")
    assert float(line[convert_to_onnx.get_latency_name(8, 1, 32)]) > 0
    (row,) = rows_of(table)
    assert (row["run_id"], row["experiment"], row["runs"], row["test_cases"]) == ("7", "plain", "2", "4")


def test_what_stays_in_float32_is_chosen(folder: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "half.onnx")
    common = ["-m", str(folder), "--output", path, "-o", "-p", "fp16", "-t", "2", "-r", "1"]
    blocked = ["--io_block_list", "logits", "--op_block_list", "LayerNormalization", "SkipLayerNormalization"]
    line = convert_to_onnx.main([*common, *blocked], csv_filename=str(tmp_path / "table.csv"))
    session = sardonyx.InferenceSession(path)
    assert {value.name: value.type for value in session.get_outputs()}["logits"] == "tensor(float)"
    assert {value.name: value.type for value in session.get_inputs()}["past_0"] == "tensor(float16)"
    graph = onnx.load(path).graph
    widened = {
        node.output[0] for node in graph.node if node.op_type == "Cast" and node.attribute[0].i == onnx.TensorProto.FLOAT
    }
    assert all(node.input[2] in widened for node in graph.node if node.op_type == "SkipLayerNormalization")
    assert line["op_block_list"] == blocked[3:] and line["is_within_tolerance"]
    assert not Gpt2Tester.is_quantized_onnx_model(path)


def test_words_of_a_file_are_compared(folder: Path, tmp_path: Path, capsys) -> None:
    lines = {"input_ids": [[3, 4]], "position_ids": [[0, 1]], "attention_mask": [[1, 1]]}
    (tmp_path / "words.json").write_text(json.dumps(lines) + "\n")
    common = ["-m", str(folder), "--output", str(tmp_path), "-t", "1", "-r", "1", "-i", str(tmp_path / "words.json")]
    convert_to_onnx.main([*common, "-o", "-p", str(Precision.INT8)], csv_filename=str(tmp_path / "table.csv"))
    assert "session int8 beside Torch: 1 rows" in capsys.readouterr().out
    assert Gpt2Tester.is_quantized_onnx_model(str(tmp_path / f"{folder.name}_past_int8.onnx"))


# --- inner values


def test_inner_values_of_two_files_are_compared(model, file: str, tmp_path: Path, capsys) -> None:
    inputs = Gpt2Helper.get_dummy_inputs(2, 3, 2, 4, 32, 2, 60, "cpu")
    changed = onnx.load(file)
    weight = next(tensor for tensor in changed.graph.initializer if tensor.name.endswith("h.1.mlp.c_proj.weight"))
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(9), weight.name))
    onnx.save(changed, tmp_path / "changed.onnx")
    folders = [tmp_path / "first", tmp_path / "second"]
    for path, folder in zip((file, str(tmp_path / "changed.onnx")), folders, strict=True):
        parity_check_helper.generate_outputs_files(path, inputs, str(folder), False)
    assert not [name for name in os.environ if name.startswith("ORT_DEBUG_NODE_IO")]
    rows = parity_check_helper.post_processing(*map(str, folders))
    assert len(rows) > 50 and capsys.readouterr().out.startswith("Node\tDiff\tClose")
    apart = {name for name, difference, is_close in rows if not is_close}
    assert "logits" in apart and any("h.1/mlp/c_proj" in name for name in apart)
    assert not [name for name in apart if "/h.0/" in name or "/h.1/attn" in name]
    file_of_logits = onnx.TensorProto.FromString((folders[0] / "logits.tensorproto").read_bytes())
    wanted = Gpt2Helper.pytorch_inference(model, inputs)[0].numpy()
    np.testing.assert_allclose(onnx.numpy_helper.to_array(file_of_logits), wanted, atol=1e-5)


def test_nodes_are_chosen_by_names_and_ops(file: str, tmp_path: Path) -> None:
    inputs = Gpt2Helper.get_dummy_inputs(1, 0, 2, 4, 32, 2, 60, "cpu")
    nodes = onnx.load(file).graph.node
    tanhs = [node for node in nodes if node.op_type == "Tanh"]
    try:
        parity_check_helper.environ_setting_nodes(node_type_filter="Tanh;Softmax")
        parity_check_helper.inference(file, inputs, str(tmp_path / "ops"), False)
        parity_check_helper.environ_setting_nodes(node_name_filter=tanhs[0].name)
        parity_check_helper.inference(file, inputs, str(tmp_path / "names"), False)
    finally:
        parity_check_helper.environ_reset()
    chosen = sum(node.op_type in ("Tanh", "Softmax") for node in nodes)
    assert len(list((tmp_path / "ops").iterdir())) == chosen == 4
    (path,) = (tmp_path / "names").iterdir()
    assert onnx.TensorProto.FromString(path.read_bytes()).name == tanhs[0].output[0]
    with pytest.raises(ValueError, match="no GPUs"):
        parity_check_helper.inference(file, inputs, str(tmp_path), True)


# --- what stays in float32


def row(run_id: int, rates: list[float], latency: float = 1.0, size: float = 100.0) -> dict[str, str]:
    figures = {
        "top1_match_rate": str(np.mean(rates)),
        "top1_match_rate_per_run": json.dumps(rates),
        "onnx_size_in_MB": str(size),
    }
    name = convert_to_onnx.get_latency_name(8, 1, 32)
    kind = {"run_id": str(run_id), "experiment": f"e{run_id}", "model_name": "m", "test_cases": "5", "runs": "6"}
    return {**kind, name: str(latency), **figures}


def test_scores_count_words_then_time_then_size() -> None:
    assert gpt2_parity.get_latency(row(0, [0.5], 2.5)) == 2.5
    assert gpt2_parity.score(row(0, [0.5], 2.5, 300.0)) == pytest.approx(500 - 25 - 3)
    with pytest.raises(ValueError, match="no average latency"):
        gpt2_parity.get_latency({"run_id": "1"})


def test_significant_pairs(tmp_path: Path, capsys) -> None:
    pytest.importorskip("scipy", reason="the tests of significance are scipy's, which nothing else needs")
    good, bad, same = [0.9, 0.92, 0.91, 0.93, 0.9, 0.94], [0.5, 0.52, 0.51, 0.53, 0.5, 0.54], [0.9, 0.93, 0.91, 0.92, 0.9, 0.94]
    rows = [row(1, good), row(2, bad), row(3, same), row(4, bad) | {"runs": "9"}]
    pairs = gpt2_parity.run_significance_test(rows, str(tmp_path / "stats.csv"))
    assert [(pair["run_id_1"], pair["run_id_2"]) for pair in pairs] == [("1", "2"), ("1", "3"), ("2", "3")]
    assert [pair["U_statistic"] for pair in pairs] == [36.0, 18.0, 0.0]  # of 6 * 6 pairs, those in which the first is larger
    pooled = (np.var(good, ddof=1) + np.var(bad, ddof=1)) / 2
    assert pairs[0]["T_statistic"] == pytest.approx((np.mean(good) - np.mean(bad)) / np.sqrt(pooled * 2 / 6))
    assert pairs[0]["T_pvalue"] < 1e-6 and pairs[1]["T_pvalue"] == pytest.approx(1.0)
    assert len(gpt2_parity.load_results_from_csv(str(tmp_path / "stats.csv"))) == 3
    printed = capsys.readouterr().out
    assert "ranking by t test" in printed and "run 1, better than 1" in printed and "run 2, better than 0" in printed


def test_last_products_are_found(file: str, tmp_path: Path) -> None:
    name = gpt2_parity.get_last_matmul_node_name(file)
    logits = next(node for node in onnx.load(file).graph.node if "logits" in node.output)
    assert name == logits.name and logits.op_type == "MatMul"
    relu = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {y = Relu(x)}')
    onnx.save(relu, tmp_path / "relu.onnx")
    assert gpt2_parity.get_last_matmul_node_name(str(tmp_path / "relu.onnx")) is None


def test_mixtures_are_converted_and_ranked(folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("scipy", reason="the tests of significance are scipy's, which nothing else needs")
    monkeypatch.chdir(tmp_path)
    rows = gpt2_parity.main(["-m", str(folder), "--test_cases", "3", "--runs", "2", "--csv", "table.csv"])
    assert [row["experiment"] for row in rows[:3]] == ["FP32 baseline", "FP16 baseline", "Mixed precision: logits in FP32"]
    assert [row["run_id"] for row in rows] == [str(number) for number in range(7)]
    half, mixed = rows[1:3]
    assert half["node_block_list"] == "[]"
    assert float(rows[0]["onnx_size_in_bytes"]) > 1.5 * float(half["onnx_size_in_bytes"])
    graph = onnx.load(mixed["onnx_path"]).graph
    (product,) = [node for node in graph.node if "logits" in node.output]
    assert product.op_type == "MatMul" and mixed["node_block_list"] == f"['{product.name}']"
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    assert types[product.input[1]] == onnx.TensorProto.FLOAT and onnx.TensorProto.FLOAT16 in types.values()
    assert Path("table.stats.csv").exists()
    assert len(gpt2_parity.main(["-m", "x", "--skip_test", "--csv", "table.csv"])) == 7
    assert "ranking by U test" in capsys.readouterr().out


def test_each_op_is_tried_alone(monkeypatch) -> None:
    tried = []
    task = gpt2_parity.ParityTask(5, 2, "table.csv")
    monkeypatch.setattr(convert_to_onnx, "main", lambda argv, *rest: tried.append((argv, *rest)) or {"run": rest[1]})
    args = SimpleNamespace(model_name_or_path="m", use_external_data_format=False)
    _, half = gpt2_parity.get_baselines(args)
    gpt2_parity.run_tuning_step0(task, half, ["Add", "FastGelu"], ["FastGelu"])
    gpt2_parity.run_tuning_step1(task, gpt2_parity.get_mixed_precision_parameters(args, "last", []), ["FastGelu"])
    gpt2_parity.run_tuning_step2(task, half, ["FastGelu", "Attention"])
    assert [name for _, name, _, _ in tried][3:] == [
        "FP32 except FastGelu in FP16",
        "Mixed precision baseline + FastGelu in FP32",
        "Mixed precision baseline + FastGelu,Attention in FP32",
    ]
    parsed = [convert_to_onnx.parse_arguments(argv) for argv, *_ in tried]
    assert parsed[3].op_block_list == ["Add"] and parsed[4].node_block_list == ["last"]
    assert [number for _, _, number, _ in tried] == [str(number) for number in range(6)] and len(task.results) == 6


def test_a_conversion_that_fails_leaves_no_row(tmp_path: Path, capsys) -> None:
    task = gpt2_parity.ParityTask(1, 1, str(tmp_path / "table.csv"))
    assert task.run(["-m", str(tmp_path / "nothing there")], "fails") is None
    assert task.results == [] and "fails: the file cannot be converted" in capsys.readouterr().err
