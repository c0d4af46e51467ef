"""A node's operands are read by their names in the spec, in whichever way the node's version gives them."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.dtypes import float32
from sardonyx.ir import Node, Tensor, TensorType, Value
from sardonyx.ir.text import parse_model
from sardonyx.ops import reading


def node_of(opset: int, text: str) -> Node:
    header = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2, 1, 3] x, int64[1] n) => (float[2, 3] y)'
    return next(parse_model(f"{header} <int64[1] one = {{1}}> {{ {text} }}").graph.nodes)


@pytest.mark.parametrize(("opset", "text"), [(11, "y = Squeeze<axes = [1]>(x)"), (13, "y = Squeeze(x, one)")])
def test_an_attribute_that_became_an_input_is_one_operand(opset: int, text: str) -> None:
    assert reading.operand(node_of(opset, text), "axes") == [1]


def test_an_absent_attribute_has_the_default_of_its_version() -> None:
    assert reading.operand(node_of(11, "y = Softmax(x)"), "axis") == 1
    assert reading.operand(node_of(13, "y = Softmax(x)"), "axis") == -1


def test_an_input_that_depends_on_data_has_no_content_but_can_be_named() -> None:
    node = node_of(13, "y = Squeeze(x, n)")
    assert reading.operand(node, "axes") is None
    assert reading.input_named(node, "axes") is node.inputs[1]
    assert reading.input_named(node, "data") is node.inputs[0]


def test_operands_that_are_not_there_are_none() -> None:
    node = node_of(13, "y = Squeeze(x)")
    assert reading.operand(node, "axes") is None and reading.input_named(node, "axes") is None
    assert reading.operand(node, "nothing") is None and reading.input_named(node, "nothing") is None
    stranger = Node("Stranger", [Value("x", TensorType(float32))], ["y"], domain="nobody's", version=1)
    assert reading.operand(stranger, "x") is None and reading.input_named(stranger, "x") is None


def test_words_have_a_default_where_a_version_lacks_them() -> None:
    assert reading.word(node_of(11, "y = DepthToSpace<blocksize = 1>(x)"), "mode", "none") == "DCR"
    assert reading.word(node_of(10, "y = DepthToSpace<blocksize = 1>(x)"), "mode", "none") == "none"
    assert reading.word(node_of(11, 'y = DepthToSpace<blocksize = 1, mode = "">(x)'), "mode", "none") == ""


def test_tensors_among_attributes_are_read_as_arrays() -> None:
    node = Node("ConstantOfShape", [Value("n")], ["y"], {"value": Tensor.of(np.array([2.5], np.float32))}, version=9)
    np.testing.assert_array_equal(reading.operand(node, "value"), np.array([2.5], np.float32))
    assert reading.all_attributes(node)["value"].tolist() == [2.5]


def test_attributes_come_as_given_or_with_their_defaults() -> None:
    node = node_of(13, "y = Gemm<alpha = 2.0>(x, x)")
    assert reading.given_attributes(node) == {"alpha": 2.0}
    assert reading.all_attributes(node) == {"alpha": 2.0, "beta": 1.0, "transA": 0, "transB": 0}
