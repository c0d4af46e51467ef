"""Gradients that users define as lists of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from sardonyx.errors import InvalidArgument
from sardonyx.ops.gradients.table import gradients
from sardonyx.training import artifacts
from sardonyx.training.api import CheckpointState, Module
from sardonyx.training.gradient_definitions import register_gradient

MODEL = """
    <ir_version: 10, opset_import: ["" : 18]>
    g () => (float loss) <float[3] w = {1.0, -2.0, 3.0}> { h = Hardmax(w) m = Mul(h, w) loss = ReduceSum<keepdims = 0>(m) }
"""


@pytest.fixture
def without_hardmax() -> Iterator[None]:
    yield
    gradients.remove("", "Hardmax")


def _gradient(folder: Path) -> np.ndarray:
    artifacts.generate_artifacts(onnx.parser.parse_model(MODEL), ["w"], artifact_directory=folder)
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    Module(folder / "training_model.onnx", state)()
    return state.parameters["w"].grad


def test_a_gradient_is_a_list_of_nodes(tmp_path: Path, without_hardmax: None) -> None:
    with pytest.raises(RuntimeError, match="there is no gradient for Hardmax"):
        _gradient(tmp_path)

    @register_gradient("", "Hardmax")
    def straight_through() -> list[tuple]:
        two = {"value": {"value": [2.0], "dtype": "IElemType(0)", "is_tensor": True}}
        return [("Constant", [], ["two"], two), ("Mul", ["GO(0)", "two"], ["part"]), ("Add", ["part", "O(0)"], ["GI(0)"])]

    # by the product: h, and by h through the list: 2 w + h
    np.testing.assert_allclose(_gradient(tmp_path), [0 + 2, 0 - 4, 1 + 6 + 1])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("Mul", ["GO(0)"])], "a node is"),
        ([("Mul", ["GO(0)", "nowhere"], ["GI(0)"])], "'nowhere' is no output of a node before 'Mul'"),
        ([("Neg", ["GO(0)"], ["part"])], r"no node makes the gradient of an input, GI\(i\)"),
    ],
)
def test_wrong_definitions_are_refused(nodes: list[tuple], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        register_gradient("", "Hardmax")(lambda: nodes)
    assert not gradients.candidates("", "Hardmax")


def test_places_that_a_node_does_not_have_are_named(tmp_path: Path, without_hardmax: None) -> None:
    register_gradient("", "Hardmax")(lambda: [("Mul", ["GO(0)", "I(3)"], ["GI(0)"])])
    with pytest.raises(RuntimeError, match=r"Hardmax 'h': its gradient names I\(3\), the node has 1 of these"):
        _gradient(tmp_path)
