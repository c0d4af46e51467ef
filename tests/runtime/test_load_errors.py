"""Models that cannot be loaded: the class of the error and the words of it are onnxruntime's, with the way out added where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import Fail
from tests.runtime import models
from tests.runtime.side_by_side import assert_same


def edited(change: Callable[[onnx.ModelProto], Any], base: bytes = models.DOUBLE) -> bytes:
    model = onnx.load_model_from_string(base)
    change(model)
    return model.SerializeToString()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_ort_model_and_nobody_waits(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(Fail, match="not a regular file"):
        sardonyx.InferenceSession(tmp_path / "pipe", options)


def set_ir_version(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def set_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 99


def rename_op(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "Foo"


def rename_domain(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type, model.graph.node[0].domain = "Foo", "my.dom"
    model.opset_import.add(domain="my.dom", version=1)


def add_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("foo", 1))


def drop_input(model: onnx.ModelProto) -> None:
    model.graph.node[0].input.pop()


def unknown_input(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "q"


def unknown_output(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("zz", TensorProto.FLOAT, [1]))


def defined_twice(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Neg", ["x"], ["y"]))


def declared_otherwise(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64


def mixed_types(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, [1]))
    model.graph.node[0].input[1] = "i"


def without_opsets(model: onnx.ModelProto) -> None:
    del model.opset_import[:]


@pytest.mark.parametrize(
    "model",
    [
        b"",
        b"abc",
        b"\xff" * 100,
        edited(set_ir_version),
        edited(rename_op),
        edited(add_attribute),
        edited(drop_input),
        edited(unknown_input),
        edited(unknown_output),
        edited(without_opsets),
    ],
    ids=[
        "empty",
        "text",
        "noise",
        "ir version",
        "unknown op",
        "unknown attribute",
        "too few inputs",
        "unknown input",
        "unknown output",
        "no opset",
    ],
)
def test_errors_of_models_in_memory(model: bytes) -> None:
    theirs, ours = _raised(model)
    assert type(ours).__name__ == type(theirs).__name__, f"onnxruntime: {theirs}\nsardonyx:    {ours}"


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (set_ir_version, "Fail", "Unsupported model IR version: 99, max supported IR version: "),
        (set_opset, "Fail", r"Opset 99 is under development.* Current official support for domain ai.onnx is till opset "),
        (rename_op, "InvalidGraph", r'In Node, \("", Foo, "", .*Error No Op registered for Foo with domain_version of 17'),
        (rename_domain, "Fail", r"Fatal error: my.dom:Foo\(.*\) is not a registered function/op"),
        (add_attribute, "InvalidGraph", "Unrecognized attribute: foo for operator Add"),
        (drop_input, "InvalidGraph", r"has input size 1 not in range \[min=2, max=2\]"),
        (mixed_types, "Fail", r"Type Error: Type parameter \(T\) of Optype \(Add\) bound to different types"),
        (declared_otherwise, "Fail", r"Type \(tensor\(int64\)\) of output arg \(y\) of node"),
    ],
)
def test_the_words_that_users_know(change: Callable[[onnx.ModelProto], None], kind: str, words: str) -> None:
    with pytest.raises(getattr(sardonyx.errors, kind), match=words):
        sardonyx.InferenceSession(edited(change))


def _raised(model: bytes) -> list[Exception]:
    from tests.runtime.side_by_side import BOTH

    found = []
    for ort in BOTH:
        with pytest.raises(Exception) as caught:
            ort.InferenceSession(model)
        found.append(caught.value)
    return found


def test_errors_of_files(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "noise.onnx").write_bytes(b"\xff" * 50)
    for path in (tmp_path / "missing.onnx", tmp_path / "empty.onnx", tmp_path / "noise.onnx", tmp_path):
        assert_same(lambda ort, path=path: ort.InferenceSession(str(path)))
        assert_same(lambda ort, path=path: ort.InferenceSession(path))


@pytest.mark.parametrize("given", [None, 3, 1.5, ["a"]], ids=repr)
def test_what_is_no_model(given: Any) -> None:
    assert_same(lambda ort: ort.InferenceSession(given))


def test_missing_external_data(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(models.external_weight())
    with pytest.raises(
        sardonyx.errors.Fail, match=r"External data path validation failed for initializer: w\..*does not exist"
    ):
        sardonyx.InferenceSession(tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(b"\0" * 4)
    with pytest.raises(sardonyx.errors.Fail, match="are out of bounds or can not be read in full"):
        sardonyx.InferenceSession(tmp_path / "m.onnx")


def test_a_failing_kernel_names_its_node() -> None:
    model = models.parsed("g (float[N] x, int64[K] s) => (float[M] y) { [rs] y = Reshape(x, s) }")
    assert_same(
        lambda ort: ort.InferenceSession(model).run(None, {"x": [1.0, 2.0, 3.0, 4.0], "s": [3]}),
        begins=True,
    )


def test_errors_have_no_common_base() -> None:
    from sardonyx.capi import onnxruntime_pybind11_state as state

    for name in ("Fail", "InvalidArgument", "NoSuchFile", "InvalidGraph", "NotImplemented", "EPFail", "RuntimeException"):
        assert getattr(state, name).__mro__[1] is Exception


def test_an_unknown_attribute_of_constant_beside_its_value_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g () => (float[1] y) { y = Constant <value = float[1] {3}> () }'
    )
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("dtype", 1))
    ((y,),) = sardonyx.InferenceSession(model).run(None, {})
    assert y == 3 and any("'dtype' is unknown" in record.getMessage() for record in caplog.records)
