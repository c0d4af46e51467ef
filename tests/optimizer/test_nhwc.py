"""Quantized convolutions written with channels last: onnxruntime runs what we save, and the numbers stay the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest

import sardonyx
from sardonyx.settings import NHWC_TRANSFORMER as KEY

CONV = "QLinearConv<{attributes}>({x}, s, z, {w}, ws, wz, s, z)"


def conv(x: str, w: str, attributes: str = "pads=[1,1,1,1]") -> str:
    return CONV.format(x=x, w=w, attributes=attributes)


GRAPHS: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, int]]] = {
    "one": (
        f"g (uint8[1,8,6,6] x) => (uint8 y) {{ y = {conv('x', 'w')} }}",
        {"w": (8, 8, 3, 3)},
        {"Transpose": 2, "QLinearConv": 1},
    ),
    "two, of a batch": (
        f"g (uint8[N,8,H,W] x) => (uint8 y) {{ a = {conv('x', 'w')} y = {conv('a', 'v', 'group=2, strides=[2,1]')} }}",
        {"w": (8, 8, 3, 3), "v": (4, 4, 1, 1)},
        {"Transpose": 2, "QLinearConv": 2},
    ),
    "bars": (
        f"g (uint8[2,8,9] x) => (uint8 y) {{ y = {conv('x', 'w', 'dilations=[2]')} }}",
        {"w": (6, 8, 3)},
        {"Transpose": 2, "QLinearConv": 1},
    ),
    "spaces": (
        f"g (uint8[1,4,5,4,6] x) => (uint8 y) {{ y = {conv('x', 'w', 'pads=[0,1,0,0,1,0]')} }}",
        {"w": (6, 4, 3, 3, 3)},
        {"Transpose": 2, "QLinearConv": 1},
    ),
    "a pool of maxima": (
        f"g (uint8[1,8,6,6] x) => (uint8 y) {{ a = {conv('x', 'w')}"
        f" m = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], storage_order=0>(a) y = {conv('m', 'w')} }}",
        {"w": (8, 8, 3, 3)},
        {"Transpose": 2, "QLinearConv": 2, "NhwcMaxPool": 1},
    ),
    "pools of means": (
        f"g (uint8[2,8,6,6] x) => (uint8 y) {{ a = {conv('x', 'w')}"
        " p = com.microsoft.QLinearAveragePool<kernel_shape=[2,2]>(a, s, z, s, z)"
        " y = com.microsoft.QLinearGlobalAveragePool<channels_last=0>(p, s, z, s, z) }",
        {"w": (8, 8, 3, 3)},
        {"Transpose": 1, "QLinearConv": 1, "QLinearAveragePool": 1, "QLinearGlobalAveragePool": 1, "Reshape": 1},
    ),
    "sums and joins": (
        f"g (uint8[1,8,6,6] x) => (uint8 y) {{ a = {conv('x', 'w')} b = {conv('x', 'u')}"
        " q = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z) k = com.microsoft.QLinearConcat<axis=1>(s, z, a, s, z, q, s, z)"
        f" m = MaxPool<kernel_shape=[2,2]>(k) y = {conv('m', 'v')} }}",
        {"w": (8, 8, 3, 3), "u": (8, 8, 3, 3), "v": (8, 16, 3, 3)},
        {"Transpose": 2, "QLinearConv": 3, "QLinearAdd": 1, "QLinearConcat": 1, "NhwcMaxPool": 1},
    ),
    "a pool whose operand is an output": (
        f"g (uint8[1,8,6,6] x) => (uint8 a, uint8 y) {{ a = {conv('x', 'w')} y = MaxPool<kernel_shape=[2,2]>(a) }}",
        {"w": (8, 8, 3, 3)},
        {"Transpose": 2, "QLinearConv": 1, "MaxPool": 1},
    ),
    "positions of maxima": (
        f"g (uint8[1,8,6,6] x) => (uint8 y, int64 i) {{ a = {conv('x', 'w')} y, i = MaxPool<kernel_shape=[2,2]>(a) }}",
        {"w": (8, 8, 3, 3)},
        {"Transpose": 2, "QLinearConv": 1, "MaxPool": 1},
    ),
    "no convolution": ("g (uint8[1,8,6,6] x) => (uint8 y) { y = MaxPool<kernel_shape=[2,2]>(x) }", {}, {"MaxPool": 1}),
}


def built(text: str, weights: dict[str, tuple[int, ...]]) -> bytes:
    """Weights are few bits wide: onnxruntime's products of 8 bits are exact then, on every machine."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> {text}')
    rng = np.random.default_rng(3)
    arrays = {name: rng.integers(-15, 16, shape).astype(np.int8) for name, shape in weights.items()}
    arrays |= {"s": np.array(0.03, np.float32), "z": np.array(101, np.uint8)}
    arrays |= {"ws": np.array(0.02, np.float32), "wz": np.array(0, np.int8)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model.SerializeToString()


def saved(model: bytes, path, switch: str = "1") -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry(KEY, switch)
    return sardonyx.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def plain(model: bytes, feeds) -> list[np.ndarray]:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    return sardonyx.InferenceSession(model, options).run(None, feeds)


def feeds_of(session) -> dict[str, np.ndarray]:
    sizes = {"N": 2, "H": 7, "W": 6}
    shape = [sizes.get(size, size) for size in session.get_inputs()[0].shape]
    return {"x": np.random.default_rng(4).integers(0, 256, shape).astype(np.uint8)}


@pytest.mark.parametrize("name", GRAPHS)
def test_numbers_stay_the_same(name, tmp_path):
    text, weights, ops = GRAPHS[name]
    model, path = built(text, weights), tmp_path / "last.onnx"
    session = saved(model, path)
    feeds = feeds_of(session)
    want = plain(model, feeds)
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    for mine, other, wanted in zip(session.run(None, feeds), theirs, want, strict=True):
        np.testing.assert_array_equal(mine, wanted)
        if wanted.dtype == np.uint8:  # onnxruntime's means may fall to the other side of a tie
            assert np.abs(other.astype(int) - wanted).max() <= ("means" in name)
        else:
            np.testing.assert_array_equal(other, wanted)
    assert Counter(node.op_type for node in onnx.load(path).graph.node) == ops


def test_it_is_off_unless_asked_for(tmp_path):
    text, weights, _ = GRAPHS["one"]
    saved(built(text, weights), tmp_path / "first.onnx", switch="0")
    assert [node.op_type for node in onnx.load(tmp_path / "first.onnx").graph.node] == ["QLinearConv"]


def test_a_quantized_network_keeps_its_transposes_at_the_borders(tmp_path):
    """Residual blocks as a QDQ model has them after its units are fused."""
    text = (
        f"g (uint8[1,8,8,8] x) => (uint8 y) {{ a = {conv('x', 'w')} b = {conv('a', 'w')}"
        f" c = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z) d = {conv('c', 'w')} e = {conv('d', 'w')}"
        " f = com.microsoft.QLinearAdd(c, s, z, e, s, z, s, z) y = com.microsoft.QLinearSigmoid(f, s, z, s, z) }"
    )
    saved(built(text, {"w": (8, 8, 3, 3)}), tmp_path / "last.onnx")
    ops = Counter(node.op_type for node in onnx.load(tmp_path / "last.onnx").graph.node)
    assert ops == {"Transpose": 2, "QLinearConv": 4, "QLinearAdd": 2, "QLinearSigmoid": 1}
