"""Types of a session's values by other names; optimum asks for them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.transformers.io_binding_helper import TypeHelper

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
g (float[N] x, int64[N] i) => (float16[N] y, bool[N] z) { y = Cast<to = 10>(x) z = Cast<to = 9>(i) }
"""


def test_types_of_inputs_and_outputs() -> None:
    session = sardonyx.InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString())
    assert TypeHelper.get_input_type(session, "i") == "tensor(int64)"
    assert TypeHelper.get_output_type(session, "y") == "tensor(float16)"
    assert TypeHelper.get_io_numpy_type_map(session) == {"x": np.float32, "i": np.int64, "y": np.float16, "z": bool}
    assert TypeHelper.get_io_onnx_type_map(session) == {"x": 1, "i": 7, "y": 10, "z": 9}
    with pytest.raises(ValueError, match="no input 'y'"):
        TypeHelper.get_input_type(session, "y")
    with pytest.raises(ValueError, match="tensor"):
        TypeHelper.ort_type_to_numpy_type("tensor(string)")


def test_types_of_torch_are_those_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that the caller has imported is asked, here another one with names of the same kind."""
    monkeypatch.setitem(__import__("sys").modules, "torch", np)
    assert TypeHelper.ort_type_to_torch_type("tensor(int32)") is np.int32
    assert TypeHelper.numpy_type_to_torch_type(np.float16) is np.float16
    assert TypeHelper.torch_type_to_numpy_type(np.int8) is np.int8
    monkeypatch.delitem(__import__("sys").modules, "torch")
    with pytest.raises(ImportError, match="torch was not imported"):
        TypeHelper.ort_type_to_torch_type("tensor(float)")
