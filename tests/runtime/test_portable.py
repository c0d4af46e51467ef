"""Models made ready for onnxruntime before they are saved in the ORT format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.ir.text import parse_model
from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.saving import files as saving
from sardonyx.runtime.saving import portable
from tests import onnxruntime_kernels


def prepared(text: str, *, fold: bool = False, opset: int = 18) -> ir.Model:
    model = parse_model(f'<ir_version: 9, opset_import: ["": {opset}]>' + text)
    saving.make_savable(model, Level.DISABLE_ALL)
    portable.make_portable(model, fold=fold)
    return model


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph.all_nodes()]


def test_the_table_of_kernels_is_that_of_the_installed_onnxruntime() -> None:
    assert onnxruntime_kernels.text() == Path(portable.TABLE).read_text()


def test_an_open_range_of_versions_is_one_version() -> None:
    kernels = portable.known_kernels()
    relu = ir.Node("Relu", [ir.Value("x", ir.TensorType(dtypes.float32))], ["y"], version=14)
    assert kernels.computes(relu)
    relu.version = 13
    assert kernels.computes(relu)
    unknown = ir.Node("NoSuchOp", [], ["y"], version=14)
    assert not kernels.computes(unknown)


def test_ops_without_a_kernel_are_put_into_other_words() -> None:
    model = prepared("g (float[2,4] x) => (float[2,4] y) { y = Mish(x) }")
    assert "Mish" not in ops(model) and "Tanh" in ops(model)


def test_float16_is_cast_around_what_computes_in_float32() -> None:
    model = prepared("g (float16[2] x) => (float16[2] y) { t = Sin(x) y = Exp(t) }")
    assert ops(model) == ["Cast", "Sin", "Exp", "Cast"]
    names = [value.name for node in model.graph.nodes for value in node.outputs]
    assert names == [f"InsertedPrecisionFreeCast_{name}" for name in "xty"] + ["y"]


def test_what_only_moves_float16_stays_unless_it_stands_between() -> None:
    model = prepared("g (float16[2,3] x) => (float16[3,2] y) { y = Transpose<perm=[1,0]>(x) }")
    assert ops(model) == ["Transpose"]
    model = prepared("""
    g (float16[2,3] x) => (float16[6] y) {
        a = Exp(x)
        b = Transpose<perm=[1,0]>(a)
        s = Constant<value_ints=[6]>()
        c = Reshape(b, s)
        y = Exp(c)
    }""")
    assert [op for op in ops(model) if op != "Constant"] == ["Cast", "Exp", "Transpose", "Reshape", "Exp", "Cast"]


def test_weights_are_stored_in_the_type_they_are_used_in_if_that_is_wanted() -> None:
    text = "g (float16[2] x) => (float16[2] y) <float16[2] w = {1, 2}> { y = Add(x, w) }"
    assert ops(prepared(text)).count("Cast") == 3
    model = prepared(text, fold=True)
    assert ops(model).count("Cast") == 2
    assert list(model.graph.initializers) == ["InsertedPrecisionFreeCast_w"]
    (value,) = model.graph.initializers.values()
    assert value.constant is not None and value.constant.numpy().dtype == np.float32


def test_float16_inside_branches_is_cast_there() -> None:
    model = prepared("""
    g (bool c, float16[2] x) => (float16[2] y) {
        y = If (c) <
            then_branch = yes () => (float16[2] a) { a = Neg(x) },
            else_branch = no () => (float16[2] b) { b = Identity(x) }
        >
    }""")
    (node,) = model.graph.nodes
    assert node.op_type == "If"
    inner = [[one.op_type for one in graph.nodes] for graph in node.subgraphs]
    assert inner == [["Cast", "Neg", "Cast"], ["Identity"]]


def test_the_model_that_is_saved_stays_as_it_is() -> None:
    model = parse_model('<ir_version: 9, opset_import: ["": 18]> g (float16[2] x) => (float16[2] y) { y = Sin(x) }')
    saving.make_savable(model, Level.DISABLE_ALL)
    assert ops(saving.as_saved(model).model) == ["Cast", "Sin", "Cast"]
    assert ops(saving.as_saved(model, portable=False).model) == ["Sin"]
    assert ops(model) == ["Sin"]
