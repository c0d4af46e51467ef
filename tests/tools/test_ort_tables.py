"""Readers of single tables of ORT files: onnxruntime's own readers are the measure, on a file that onnxruntime wrote."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper

from sardonyx import formats
from sardonyx.ops.inference import infer
from sardonyx.runtime.saving.files import save_ort
from sardonyx.tools.ort_format_model.ort_flatbuffers_py.readers import CLASSES, ENUMS
from sardonyx.tools.ort_format_model.types import FbsTypeInfo, value_name_to_typestr

OURS = "sardonyx.tools.ort_format_model.ort_flatbuffers_py.fbs"
THEIRS = "onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs"

MODEL = """
<ir_version: 8, opset_import: ["": 17], producer_name: "test", metadata_props: ["a": "b"]>
g (float[N,3] x, bool c) => (float[?,3] y, string[1] names) <float[3] w = {1.0, -2.0, 0.5}, string[1] s = {"text"}>
{
   [sum] z = Add (x, w)
   [choice] y = If (c) <
      then_branch = t () => (float[?,3] a) { a = Relu (z) },
      else_branch = e () => (float[?,3] b) { b = Neg (z) }>
   [copy] names = Identity (s)
}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    model = onnx.parser.parse_model(MODEL)
    model.graph.doc_string = "a graph"
    model.graph.node.append(helper.make_node("Flatten", ["x"], ["unused"], name="flat", axis=1))
    path = tmp_path_factory.mktemp("ort") / "model.ort"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Path(path).read_bytes()


def class_of(package: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{package}.{name}"), name)


def members(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


@pytest.fixture(autouse=True)
def _path_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # theirs append to it


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_classes_have_the_members_of_the_original(name: str) -> None:
    theirs, ours = class_of(THEIRS, name), class_of(OURS, name)
    assert set(members(theirs)) <= set(members(ours))
    if name in ENUMS:
        assert {member: getattr(ours, member) for member in members(theirs)} == {
            member: getattr(theirs, member) for member in members(theirs)
        }


def assert_same(ours: Any, theirs: Any, seen: set[str]) -> None:
    """Compare all that two readers of one table give, and the tables below."""
    if not hasattr(theirs, "Init"):
        assert ours == theirs and type(ours) is type(theirs)
        return
    seen.add(type(theirs).__name__)
    for name in members(type(theirs)):
        method = getattr(theirs, name)
        if name in ("Init", "SizeOf") or name.startswith("GetRootAs") or name.endswith("BufferHasIdentifier"):
            continue
        if f"{name}Length" in members(type(theirs)):
            for index in range(getattr(theirs, f"{name}Length")()):
                assert_same(getattr(ours, name)(index), method(index), seen)
        elif name.endswith("AsNumpy"):
            np.testing.assert_array_equal(getattr(ours, name)(), method())
        elif name == "Value" and type(theirs).__name__ == "TypeInfo":
            assert_same_union(ours, theirs, seen)
        else:
            assert_same(getattr(ours, name)(), method(), seen)


def assert_same_union(ours: Any, theirs: Any, seen: set[str]) -> None:
    assert theirs.ValueType() == class_of(OURS, "TypeInfoValue").tensor_type
    pair = []
    for package, reader in ((OURS, ours), (THEIRS, theirs)):
        value = class_of(package, "TensorTypeAndShape")()
        value.Init(reader.Value().Bytes, reader.Value().Pos)
        pair.append(value)
    assert_same(*pair, seen)


def test_a_file_reads_as_with_the_original(written: bytes) -> None:
    seen: set[str] = set()
    buffer = bytearray(written)
    session = class_of(OURS, "InferenceSession").GetRootAs(buffer, 0)
    assert class_of(OURS, "InferenceSession").InferenceSessionBufferHasIdentifier(buffer, 0)
    assert session.Model().ProducerName() == b"test"
    assert_same(session, class_of(THEIRS, "InferenceSession").GetRootAs(buffer, 0), seen)
    assert {
        "Model",
        "Graph",
        "Node",
        "NodeEdge",
        "EdgeEnd",
        "Attribute",
        "Tensor",
        "Dimension",
        "KernelTypeStrResolver",
    } <= seen


def test_types_have_the_names_that_cpp_gives_them(written: bytes) -> None:
    theirs = importlib.import_module("onnxruntime.tools.ort_format_model.types").FbsTypeInfo
    assert theirs.tensordatatype_to_string == FbsTypeInfo.tensordatatype_to_string
    graph = class_of(OURS, "InferenceSession").GetRootAs(bytearray(written), 0).Model().Graph()
    values = (graph.NodeArgs(number) for number in range(graph.NodeArgsLength()))
    types = {value.Name().decode(): value.Type() for value in values}
    assert [value_name_to_typestr(name, types) for name in ("x", "c", "names")] == ["float", "bool", "std::string"]
    with pytest.raises(RuntimeError, match="Missing TypeInfo entry for nobody"):
        value_name_to_typestr("nobody", types)


SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.INT8, None))
MAP = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))


@pytest.mark.parametrize(("type", "name"), [(SEQUENCE, "int8_t"), (MAP, "std::map<int64_t,float>")], ids=["sequence", "map"])
def test_types_of_many_values(type: Any, name: str, tmp_path: Path) -> None:
    op, domain = ("Identity", "") if type is SEQUENCE else ("CastMap", "ai.onnx.ml")
    y = helper.make_value_info("y", type) if type is SEQUENCE else helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(op, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", type)], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    model = formats.load(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    infer(model)
    save_ort(model, tmp_path / "model.ort", fold=False)
    buffer = bytearray((tmp_path / "model.ort").read_bytes())
    found = class_of(OURS, "InferenceSession").GetRootAs(buffer, 0).Model().Graph()
    values = [found.NodeArgs(number) for number in range(found.NodeArgsLength())]
    assert FbsTypeInfo.typeinfo_to_str(next(value.Type() for value in values if value.Name() == b"x")) == name
