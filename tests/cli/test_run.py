"""`sardonyx run`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from sardonyx.cli.run import save, storable, summary

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = X @ np.array([[1, 2], [3, 4], [5, 6]], np.float32) + np.array([0.5, -0.5], np.float32)


def test_inputs_left_out_are_random_and_symbolic_sizes_are_one(affine, call):
    result = call("run", affine, "--json")
    assert result.code == 0
    assert result.json["inputs"] == {"x": {"value": "float[1, 3]", "from": "random"}}
    assert result.json["outputs"]["y"]["shape"] == [1, 2]
    assert result.json["providers"] == ["CPUExecutionProvider"]


def test_dim_sets_a_symbolic_size(affine, call):
    assert call("run", affine, "--dim", "N=5", "--json").json["outputs"]["y"]["shape"] == [5, 2]


def test_the_seed_makes_random_inputs_repeatable(affine, call):
    values = [call("run", affine, "--seed", seed, "--json").json["outputs"]["y"]["values"] for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("kind", ["npy", "npz", "pb", "literal"])
def test_inputs_come_from_files_and_literals(affine, call, tmp_path, kind):
    if kind == "npy":
        np.save(tmp_path / "x.npy", X)
    elif kind == "npz":
        np.savez(tmp_path / "x.npz", x=X)
    elif kind == "pb":
        (tmp_path / "x.pb").write_bytes(onnx.numpy_helper.from_array(X).SerializeToString())
    spec = json.dumps(X.tolist()) if kind == "literal" else tmp_path / f"x.{kind}"
    result = call("run", affine, "--input", f"x={spec}", "--json")
    assert result.json["outputs"]["y"]["values"] == Y.reshape(-1).tolist()


def test_outputs_are_saved(affine, call, tmp_path):
    np.save(tmp_path / "x.npy", X)
    result = call("run", affine, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out")
    assert result.code == 0 and "y.npy" in result.out
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), Y)


NAMES = [
    "a/b",
    "a_b",
    "a:b",
    "a b",
    "A_B",
    "..",
    "../up",
    "CON",
    "nul.txt",
    "%",
    "a%2Fb",
    "é" * 200,
    "n" * 300,
    "n" * 301,
    ".hidden",
    "-",
]


def test_every_output_has_a_file_of_its_own_whatever_its_name(call, tmp_path):
    nodes = [onnx.helper.make_node("Add", ["x", f"c{number}"], [name]) for number, name in enumerate(NAMES)]
    outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in NAMES]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    constants = [onnx.numpy_helper.from_array(np.array([n], np.float32), f"c{n}") for n in range(len(NAMES))]
    graph = onnx.helper.make_graph(nodes, "g", [x], outputs, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    result = call("run", tmp_path / "m.onnx", "--input", "x=zeros", "--output", tmp_path / "out", "--json")
    assert result.code == 0
    saved = {name: Path(paths[0]) for name, paths in result.json["saved"].items()}
    assert [np.load(saved[name]).item() for name in NAMES] == list(range(len(NAMES)))
    assert {path.parent for path in saved.values()} == {tmp_path / "out"}
    files = [path.name for path in (tmp_path / "out").iterdir()]
    assert len({name.casefold() for name in files}) == len(files) == len(NAMES)
    assert not any(re.match(r"(?i)(con|nul)\b|\.|-", name) for name in files)
    for name in ("a/b", "a_b", "a:b", "..", "CON", "%", "a%2Fb"):
        assert unquote(saved[name].stem) == name


def test_the_listing_says_which_output_is_in_which_file(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """<ir_version: 9, opset_import: ["": 20]>
    g (float[1] x) => (float[1] y, seq(float[1]) s) { y = Neg(x) s = SequenceConstruct(x, y) }"""
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    result = call("run", tmp_path / "m.onnx", "--output", "out")
    rows = [line.split()[1:4:2] for line in result.out.splitlines() if ".npy" in line]
    assert rows == [["y", "out/y.npy"], ["s", "out/s_0.npy"], ["s", "out/s_1.npy"]]


def test_elements_of_a_sequence_do_not_overwrite_other_outputs(call, tmp_path):
    saved = save({"s": [np.zeros(1), np.ones(1)], "s_1": np.full(1, 2.0)}, tmp_path)
    assert [[np.load(path).item() for path in paths] for paths in saved.values()] == [[0, 1], [2]]


def test_any_inner_value_can_be_fetched(affine, call):
    result = call("run", affine, "--input", "x=ones", "--fetch", "product", "--json")
    assert result.json["outputs"] == {"product": summary(np.array([[9, 12]], np.float32))}


def test_tables_name_inputs_outputs_and_provider(affine, call):
    result = call("run", affine)
    assert result.code == 0
    assert "float[1, 3]" in result.out and "float[1, 2]" in result.out and "CPUExecutionProvider" in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--input", "z=random"), "the model's inputs are x"),
        (("--input", "x"), "write NAME=VALUE"),
        (("--input", "x=nothing.npy"), "there is no such file"),
        (("--input", "x=something"), "nor JSON"),
        (("--dim", "M=2"), "symbolic dims are N"),
        (("--dim", "N=few"), "a size is a number"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(affine, call, arguments, words):
    result = call("run", affine, *arguments)
    assert result.code == 2
    assert words in result.err and "Traceback" not in result.err


def test_a_wrong_value_is_one_line_and_exit_code_1(affine, call):
    result = call("run", affine, "--input", "x=[[1, 2]]")
    assert result.code == 1
    assert len(result.err.strip().splitlines()) == 1 and "Traceback" not in result.err


def test_a_failing_node_is_named_in_one_line(tmp_path, call):
    text = """<ir_version: 9, opset_import: ["": 20]>
    g (float[2] data, int64[1] i) => (float[1] y) { [pick] y = Gather(data, i) }"""
    (tmp_path / "g.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    result = call("run", tmp_path / "g.onnx", "--input", "i=[5]")
    assert result.code == 1
    assert "Name:'pick'" in result.err and "idx=5" in result.err and len(result.err.strip().splitlines()) == 1


def test_a_missing_file_is_one_line_and_exit_code_1(tmp_path, call):
    result = call("run", tmp_path / "none.onnx")
    assert result.code == 1
    assert "File doesn't exist" in result.err and len(result.err.strip().splitlines()) == 1


def test_debug_shows_the_traceback(tmp_path, call):
    with pytest.raises(Exception, match="doesn't exist"):
        call("run", tmp_path / "none.onnx", "--debug")


def test_files_hold_types_that_numpy_lacks_in_wider_ones():
    assert storable(np.array([1.5], ml_dtypes.bfloat16)).dtype == np.float32
    assert storable(np.array([1], ml_dtypes.int4)).dtype == np.int8
    assert storable(np.array(["ab"], object)).dtype == np.dtype("<U2")


def test_json_survives_nan_and_infinity():
    assert json.loads(json.dumps(summary(np.array([np.nan, np.inf])), allow_nan=False))["values"] == ["nan", "inf"]


def saved(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


TABLES = """
<ir_version: 10, opset_import: ["": 21]>
g (int64[N, 30] ids, int32[N, 30] kinds, int64[N, 30] free, int64[2] shape) => (float[N, 30, 1] y, int64[N, 30] z)
<float[40, 1] words = {0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9}>
{
    two = Constant <value = float[2, 1] {5, 6}> ()
    wide = Cast <to = 7> (kinds)
    a = Gather(words, ids)
    b = Gather(two, wide)
    y = Add(a, b)
    z = Neg(free)
}
"""


def test_random_ids_stay_within_the_tables_that_they_are_looked_up_in(call, tmp_path):
    model = saved(tmp_path / "tables.onnx", TABLES)
    result = call("run", model, "--dim", "N=4", "--fetch", "wide", "--fetch", "ids", "--fetch", "z", "--json")
    assert result.code == 0, result.err
    outputs = result.json["outputs"]
    assert outputs["wide"]["max"] == 1 and 1 < outputs["ids"]["max"] < 10 and outputs["z"]["min"] < -1


def test_a_run_that_fails_on_random_numbers_says_what_to_try(call, tmp_path):
    model = saved(
        tmp_path / "reshape.onnx",
        '<ir_version: 10, opset_import: ["": 21]> g (float[7] x, int64[2] size) => (float[A, B] y) { y = Reshape(x, size) }',
    )
    result = call("run", model)
    assert result.code == 1 and "try --input size=zeros" in result.err and "Reshape" in result.err
    assert "FAIL : FAIL" not in result.err and "sizes that were left out" not in result.err
    assert "may be the reason" not in call("run", model, "--input", "size=[2, 2]").err


def test_a_run_that_fails_on_sizes_says_what_to_try(call, tmp_path):
    model = saved(
        tmp_path / "sizes.onnx",
        '<ir_version: 10, opset_import: ["": 21]> g (float[N, 4] x, float[M, 4] z) => (float[A, B] y) { y = Concat<axis=1>(x, z) }',
    )
    result = call("run", model, "--dim", "N=2")
    assert result.code == 1 and "sizes that were left out may be the reason: try --dim M=SIZE)" in result.err
    assert "may be the reason" not in call("run", model, "--dim", "N=2", "--dim", "M=3").err
    assert call("run", model, "--dim", "N=2", "--dim", "M=2").code == 0


def test_a_decoder_begins_without_a_past(call, tmp_path):
    """The mask has as many positions as keys: those of the past and of the ids."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[N, S, 8] x, float[N, T] mask, float[N, P, 8] past_key) => (float[N, K, 9] y) {
        key = Concat<axis = 1>(past_key, x) axes = Constant<value_ints = [2]>() column = Unsqueeze(mask, axes)
        y = Concat<axis = 2>(key, column)
    }"""
    model = saved(tmp_path / "decoder.onnx", text)
    for sizes, keys in (((), 1), (("S=3", "T=3"), 3), (("P=2", "S=3", "T=5"), 5)):
        result = call("run", model, *(word for size in sizes for word in ("--dim", size)), "--json")
        assert result.code == 0, result.err
        assert result.json["outputs"]["y"]["shape"] == [1, keys, 9]


NANS = """
<ir_version: 10, opset_import: ["": 21]>
g (float[3] x) => (float[3] y) <float[3] zero = {0, 0, 0}> {
    shifted = Add(x, zero)
    [ratio] quotient = Div(shifted, zero)
    root = Sqrt(quotient)
    y = Neg(root)
}
"""


def test_the_first_nan_is_found_with_what_its_node_was_given(call, tmp_path):
    model = saved(tmp_path / "nans.onnx", NANS)
    result = call("run", model, "--input", "x=[0, 4, 9]", "--find-nan")
    assert result.code == 1 and "first NaN: Div 'ratio'" in result.out
    found = call("run", model, "--input", "x=[0, 4, 9]", "--find-nan", "--json").json["nan"]
    assert found["values"]["quotient"] == ["float[3]", "1", "2", "", ""] and found["given"] is None
    assert found["values"]["shifted"] == ["float[3]", "0", "0", "0", "9"]
    fine = call("run", model, "--input", "x=[1, 4, 9]", "--find-nan")
    assert fine.code == 0 and "no NaN" in fine.out


def test_nan_that_was_fed_is_told_from_nan_that_was_made(call, tmp_path):
    model = saved(tmp_path / "nans.onnx", NANS)
    found = call("run", model, "--input", "x=[1, NaN, 9]", "--find-nan", "--json").json["nan"]
    assert found["node"].startswith("Add") and found["given"] == "x"


def test_a_pipe_gets_each_row_of_a_table_in_one_line(call, tmp_path):
    name = "encoder.layer.11.attention.self.query.weight.with.a.name.of.more.than.a.hundred.characters/" + "x" * 40
    node = onnx.helper.make_node("Neg", ["x"], [name])
    values = [onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [1]) for value in ("x", name)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:1], values[1:]))
    onnx.save(model, tmp_path / "long.onnx")
    assert any(name in line for line in call("run", tmp_path / "long.onnx").out.splitlines())


def test_inputs_that_are_given_tell_the_sizes_of_others(call, tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[N, M] x, float[M, N] z, float[N] b) => (float[N, N] y) { p = MatMul(x, z) y = Add(p, b) }"""
    model = saved(tmp_path / "product.onnx", text)
    shapes = call("run", model, "--input", "z=[[1, 2], [3, 4], [5, 6]]", "--json").json["inputs"]
    assert {name: shape["value"] for name, shape in shapes.items()} == {"x": "float[2, 3]", "z": "float[3, 2]", "b": "float[2]"}
    assert call("run", model, "--input", "b=[1, 2]", "--dim", "M=4", "--json").json["inputs"]["z"]["value"] == "float[4, 2]"


def test_a_run_that_fails_on_sizes_of_one_name_says_which(call, tmp_path):
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[N] x, float[N] z, float[N] b) => (float[A] y) { c = Add(x, z) y = Add(c, b) }'
    result = call("run", saved(tmp_path / "sum.onnx", text), "--input", "x=[1, 2]", "--input", "z=[1, 2, 3]")
    assert result.code == 1 and "(the size N is 2 in x and 3 in z)" in result.err
