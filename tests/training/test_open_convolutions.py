"""Gradients of convolutions where a model does not say how large images or filters are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from tests.tolerance import assert_close

FORMS = {
    "plain": ((2, 3, 5, 5), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strided": ((2, 3, 6, 5), (4, 3, 3, 2), {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
    "grouped": ((2, 4, 7, 6), (6, 2, 3, 2), {"group": 2, "dilations": [1, 3], "strides": [2, 1], "pads": [0, 1, 0, 2]}),
    "depthwise": ((1, 4, 6, 6), (4, 1, 3, 3), {"group": 4, "strides": [2, 2]}),
    "pointwise": ((2, 3, 4, 4), (5, 3, 1, 1), {}),
    "same upper": ((1, 3, 4, 5), (2, 3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 3, 4, 5), (2, 3, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "wide pads": ((1, 2, 3, 3), (2, 2, 2, 2), {"pads": [3, 3, 3, 3]}),
}
NATIVE = {"native": ["CPUExecutionProvider"], "NumPy": [("CPUExecutionProvider", {"native": "0"})]}


def model_of(shapes, is_open, **attributes):
    """A convolution and its gradients; open sizes have names."""
    names = {name: [f"{name}{axis}" for axis in range(len(shape))] if is_open else shape for name, shape in shapes.items()}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, names[name]) for name in shapes]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("dX", "dW", "dB")]
    nodes = [
        helper.make_node("Conv", ["X", "W"], ["Y"], **attributes),
        helper.make_node("Tanh", ["Y"], ["dY"]),
        helper.make_node("ConvGrad", ["dY", "X", "W"], ["dX", "dW", "dB"], domain="com.microsoft", **attributes),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=10)
    return onnx.ModelProto.SerializeToString(model)


@pytest.mark.parametrize("providers", NATIVE.values(), ids=NATIVE)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_open_sizes_change_nothing(form, providers) -> None:
    image, filters, attributes = form
    rng = np.random.default_rng(0)
    feeds = {"X": rng.standard_normal(image, np.float32), "W": rng.standard_normal(filters, np.float32)}
    shapes = {name: array.shape for name, array in feeds.items()}
    fixed, opened = (
        sardonyx.InferenceSession(model_of(shapes, is_open, **attributes), providers=providers).run(None, feeds)
        for is_open in (False, True)
    )
    for ours, theirs, shape in zip(opened, fixed, (image, filters, filters[:1]), strict=True):
        assert ours.shape == shape
        assert_close(ours, theirs)
