"""Convolutions rewritten for onnxruntime's blocked layout: it runs what we save, and both give what the plain model gives."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest

import sardonyx
from sardonyx.errors import InvalidArgument
from sardonyx.ops.contrib.nchwc import DOMAIN, block_size
from sardonyx.settings import NCHWC_BLOCK_SIZE
from sardonyx.settings import NCHWC_TRANSFORMER as KEY

BLOCK = block_size()
OTHER = 24 - BLOCK
S = np.array([1, 1, 2, 3], np.float32)

GRAPHS: dict[str, tuple[str, dict[str, object], list[str]]] = {
    "an image of few channels": (
        "g (float[2,3,9,8] x) => (float y) { a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w, b) y = Relu(a) }",
        {"w": (20, 3, 3, 3), "b": (20,)},
        ["Conv", "ReorderOutput"],
    ),
    "channels that do not fill the last block": (
        'g (float[N,20,9,8] x) => (float y) { a = Conv<auto_pad="SAME_UPPER">(x, w) c = LeakyRelu<alpha=0.2>(a) y = Conv(c, v) }',
        {"w": (18, 20, 3, 3), "v": (6, 18, 1, 1)},
        ["ReorderInput", "Conv", "Conv", "ReorderOutput"],
    ),
    "groups": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv<group=2>(x, w, b) y = Sigmoid(a) }",
        {"w": (64, 16, 3, 3), "b": (64,)},
        ["ReorderInput", "Conv", "ReorderOutput"],
    ),
    "a filter for each channel": (
        "g (float[1,32,H,W] x) => (float y) { a = Conv(x, v) y = Conv<group=20, pads=[1,1,1,1], dilations=[2,1]>(a, w, b) }",
        {"v": (20, 32, 1, 1), "w": (20, 1, 3, 3), "b": (20,)},
        ["ReorderInput", "Conv", "Conv", "ReorderOutput"],
    ),
    "a residual": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv(x, w) c = Conv(a, v) s = Add(a, c) r = Relu(s) y = Conv(r, w) }",
        {"w": (32, 32, 1, 1), "v": (32, 32, 1, 1)},
        ["ReorderInput", "Conv", "Conv", "Conv", "ReorderOutput"],
    ),
    "what is added comes from outside": (
        "g (float[1,32,6,6] x, float[1,20,6,6] z) => (float y) { a = Conv(x, w) s = Add(a, z) y = Clip(s, low, high) }",
        {"w": (20, 32, 1, 1), "low": np.array(0, np.float32), "high": np.array(6, np.float32)},
        ["ReorderInput", "ReorderInput", "Conv", "ReorderOutput"],
    ),
    "products, and functions after functions": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv(x, w) c = Conv(x, v) s = Sigmoid(a) h = HardSwish(s) m = Mul(h, c) y = Elu(m) }",
        {"w": (20, 32, 1, 1), "v": (20, 32, 1, 1)},
        ["ReorderInput", "Conv", "Conv", "HardSwish", "Mul", "Elu", "ReorderOutput"],
    ),
    "a normalization that does not fold": (
        "g (float[1,32,6,6] x) => (float y, float z) { a = Conv(x, w) c = Conv(x, v) f = Add(a, c)"
        " n = BatchNormalization(f, scale, bias, mean, var) y = Relu(n) z = Conv(f, u) }",
        {"w": (20, 32, 1, 1), "v": (20, 32, 1, 1), "u": (16, 20, 1, 1), "scale": (20,), "bias": (20,), "mean": (20,)}
        | {"var": np.linspace(0.5, 2, 20, dtype=np.float32)},
        ["ReorderInput", "Conv", "Conv", "Conv", "Conv", "ReorderOutput", "ReorderOutput"],
    ),
    "pools": (
        "g (float[1,32,9,9] x) => (float y, float z) { a = Conv(x, w)"
        " m = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(a)"
        " v = AveragePool<kernel_shape=[2,2], count_include_pad=1, pads=[0,0,1,1]>(m)"
        " e = AveragePool<kernel_shape=[3,2], pads=[1,0,1,1]>(v)"
        " y = GlobalAveragePool(e) z = GlobalMaxPool(m) }",
        {"w": (20, 32, 1, 1)},
        ["ReorderInput", "Conv", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"]
        + ["ReorderOutput"] * 2,
    ),
    "larger images": (
        "g (float[1,32,4,4] x) => (float y) { a = Conv(x, w)"
        ' u = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(a, , s)'
        ' l = Resize<mode="linear">(a, , s) c = Concat<axis=1>(u, l) y = Conv(c, v) }',
        {"w": (32, 32, 1, 1), "v": (32, 64, 1, 1), "s": S},
        ["ReorderInput", "Conv", "Upsample", "Upsample", "Concat", "Conv", "ReorderOutput"],
    ),
    "interpolation of other coordinates": (
        "g (float[1,32,4,4] x) => (float y) { a = Conv(x, w)"
        ' u = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(a, , s)'
        ' y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(u, , s) }',
        {"w": (32, 32, 1, 1), "s": S},
        ["ReorderInput", "Conv", "Upsample", "Upsample", "ReorderOutput"],
    ),
    "channels last outside": (
        "g (float[1,6,5,32] t) => (float y, float z) { x = Transpose<perm=[0,3,1,2]>(t)"
        " a = Conv(x, w) y = Transpose<perm=[0,2,3,1]>(a) z = Flatten(a) }",
        {"w": (20, 32, 1, 1)},
        ["ReorderInput", "Conv", "ReorderOutput", "ReorderOutput", "Flatten"],
    ),
    "shapes that broadcast": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv(x, w) p = GlobalAveragePool(a)"
        " q = Conv(p, v) s = Sigmoid(q) m = Mul(a, s) y = Conv(m, w) }",
        {"w": (32, 32, 1, 1), "v": (32, 32, 1, 1)},
        [
            "ReorderInput",
            "Conv",
            "GlobalAveragePool",
            "Conv",
            "ReorderOutput",
            "ReorderOutput",
            "Mul",
            "ReorderInput",
            "Conv",
            "ReorderOutput",
        ],
    ),
    "channels joined that do not fill blocks": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv(x, w) c = Conv(x, v) y = Concat<axis=1>(a, c) }",
        {"w": (20, 32, 1, 1), "v": (20, 32, 1, 1)},
        ["ReorderInput", "Conv", "Conv", "ReorderOutput", "ReorderOutput", "Concat"],
    ),
}


def built(text: str, weights: dict[str, object]) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    rng = np.random.default_rng(5)
    for name, given in weights.items():
        array = given if isinstance(given, np.ndarray) else (rng.normal(size=given) / 4).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model.SerializeToString()


def feeds_of(session) -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(6), {"N": 2, "H": 7, "W": 6}
    return {
        value.name: rng.normal(size=[sizes.get(size, size) for size in value.shape]).astype(np.float32)
        for value in session.get_inputs()
    }


def saved(model: bytes, path, **entries: str) -> sardonyx.InferenceSession:
    """A session of a model in blocks, which is in the file `path` then."""
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(path)
    for key, value in ({KEY: "1"} | entries).items():
        options.add_session_config_entry(key, value)
    return sardonyx.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def plain(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def assert_close(got, want) -> None:
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max(initial=0))


@pytest.mark.parametrize("name", GRAPHS)
def test_onnxruntime_gives_the_same_for_what_we_save(name, tmp_path):
    text, weights, ops = GRAPHS[name]
    model, path = built(text, weights), tmp_path / "blocks.onnx"
    session = saved(model, path)
    feeds = feeds_of(session)
    want = plain(model).run(None, feeds)
    assert_close(session.run(None, feeds), want)
    assert_close(sardonyx.InferenceSession(str(path)).run(None, feeds), want)
    assert_close(onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds), want)
    written = onnx.load(path)
    assert Counter(node.op_type for node in written.graph.node) == Counter(ops)
    assert DOMAIN in {entry.domain for entry in written.opset_import}


@pytest.mark.parametrize("name", GRAPHS)
def test_blocks_of_another_machine_give_the_same_here(name, tmp_path):
    text, weights, _ = GRAPHS[name]
    model, path = built(text, weights), tmp_path / "blocks.onnx"
    session = saved(model, path, **{NCHWC_BLOCK_SIZE: str(OTHER)})
    feeds = feeds_of(session)
    want = plain(model).run(None, feeds)
    assert_close(session.run(None, feeds), want)
    assert_close(sardonyx.InferenceSession(str(path)).run(None, feeds), want)


@pytest.mark.parametrize("name", ["an image of few channels", "a residual", "groups", "a filter for each channel"])
def test_filters_are_those_that_onnxruntime_makes(name, tmp_path):
    text, weights, _ = GRAPHS[name]
    model = built(text, weights)
    saved(model, tmp_path / "ours.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "theirs.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ours, theirs = (filters_in(tmp_path / file) for file in ("ours.onnx", "theirs.onnx"))
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def filters_in(path) -> list[np.ndarray]:
    graph = onnx.load(path).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return [arrays[node.input[1]] for node in graph.node if node.domain == DOMAIN and node.op_type == "Conv"]


REFUSED = {
    "channels that onnxruntime does not reorder": (
        "g (float[1,18,6,6] x) => (float y) { y = Conv(x, w) }",
        {"w": (32, 18, 1, 1)},
    ),
    "groups smaller than a block": ("g (float[1,8,6,6] x) => (float y) { y = Conv<group=2>(x, w) }", {"w": (8, 4, 1, 1)}),
    "several filters for each channel": ("g (float[1,8,6,6] x) => (float y) { y = Conv<group=8>(x, w) }", {"w": (16, 1, 3, 3)}),
    "filters that change": ("g (float[1,32,6,6] x, float[32,32,1,1] w) => (float y) { y = Conv(x, w) }", {}),
    "bars": ("g (float[1,32,6] x) => (float y) { y = Conv(x, w) }", {"w": (32, 32, 3)}),
    "no convolution": ("g (float[1,32,6,6] x) => (float y) { a = MaxPool<kernel_shape=[2,2]>(x) y = Relu(a) }", {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_as_it_is(name, tmp_path):
    model, path = built(*REFUSED[name]), tmp_path / "blocks.onnx"
    session = saved(model, path)
    assert not any(node.domain == DOMAIN for node in onnx.load(path).graph.node)
    feeds = feeds_of(session)
    assert_close(session.run(None, feeds), plain(model).run(None, feeds))


STOPS = {
    "interpolation by a fraction": 'y = Resize<mode="linear">(a, , s)',
    "repetition about half pixels": 'y = Resize<mode="nearest">(a, , t)',
    "averages that count what is beyond": "y = AveragePool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1, count_include_pad=1>(a)",
    "positions of the largest": "y, i = MaxPool<kernel_shape=[2,2]>(a)",
    "a function that is not finite at zero": "y = Reciprocal(a)",
}


@pytest.mark.parametrize("name", STOPS)
def test_blocks_end_before(name, tmp_path):
    outputs = "float y, int64 i" if "i =" in STOPS[name] else "float y"
    text = f"g (float[1,32,5,5] x) => ({outputs}) {{ a = Conv(x, w) {STOPS[name]} }}"
    weights = {"w": (20, 32, 1, 1)} | {"s": np.array([1, 1, 1.5, 2], np.float32), "t": S}
    model, path = built(text, weights), tmp_path / "blocks.onnx"
    session = saved(model, path)
    ops = [node.op_type for node in onnx.load(path).graph.node if node.domain == DOMAIN]
    assert ops == ["ReorderInput", "Conv", "ReorderOutput"]
    feeds = feeds_of(session)
    assert_close(session.run(None, feeds), plain(model).run(None, feeds))
    assert_close(onnxruntime.InferenceSession(str(path)).run(None, feeds), plain(model).run(None, feeds))


def test_it_is_off_unless_asked_for(tmp_path):
    text, weights, _ = GRAPHS["a residual"]
    path = tmp_path / "plain.onnx"
    saved(built(text, weights), path, **{KEY: "0"})
    assert not any(node.domain == DOMAIN for node in onnx.load(path).graph.node)


def test_a_block_size_that_no_machine_has_is_refused(tmp_path):
    text, weights, _ = GRAPHS["a residual"]
    with pytest.raises(InvalidArgument, match=f"{NCHWC_BLOCK_SIZE} must be one of 8, 16, not '12'"):
        saved(built(text, weights), tmp_path / "plain.onnx", **{NCHWC_BLOCK_SIZE: "12"})
