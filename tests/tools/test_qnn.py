"""The program that brings models into the form that QNN likes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from sardonyx.tools.qnn import preprocess

WEIGHTS = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)


def convolution() -> onnx.ModelProto:
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(WEIGHTS, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def test_channels_go_last_and_sizes_are_fixed(tmp_path: Path) -> None:
    before, after = str(tmp_path / "before.onnx"), str(tmp_path / "after.onnx")
    onnx.save(convolution(), before)
    arguments = ["-i", before, "-o", after, "--inputs_to_make_channel_last", "x", "--dynamic_input_shapes", "x", "2,3,6,8"]
    assert preprocess.main(arguments)
    x = np.random.default_rng(1).normal(size=(2, 3, 6, 8)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(before).run(None, {"x": x})
    session = onnxruntime.InferenceSession(after)
    assert session.get_inputs()[0].shape == [2, 6, 8, 3]
    (got,) = session.run(None, {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_arguments_of_the_function_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "after.onnx"
    assert preprocess.qnn_preprocess_model(convolution(), path, False, True, True, "weights.bin", 0)
    assert (tmp_path / "weights.bin").stat().st_size >= WEIGHTS.nbytes
