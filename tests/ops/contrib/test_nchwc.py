"""Models that onnxruntime saved in its blocked layout run here, and the ops of that layout by themselves."""

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.ops.contrib.nchwc import DOMAIN, block_size
from sardonyx.providers.cpu.contrib.nchwc import conv
from tests.ops.cases import case, f32, refuse

BLOCK = block_size()


def saved(tmp_path, text, weights):
    """The path of a model as onnxruntime optimizes it for this machine, and a session of it."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return options.optimized_model_filepath, session


GRAPHS = {
    "an image with few channels": (
        "g (float[2,3,9,8] x) => (float y) { a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w, b) y = Relu(a) }",
        {"w": (20, 3, 3, 3), "b": (20,)},
    ),
    "more channels than blocks": (
        "g (float[2,20,9,8] x) => (float y) { a = Conv<pads=[1,1,1,1]>(x, w) y = LeakyRelu<alpha=0.2>(a) }",
        {"w": (36, 20, 3, 3)},
    ),
    "groups": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv<group=2>(x, w, b) y = Sigmoid(a) }",
        {"w": (64, 16, 3, 3), "b": (64,)},
    ),
    "a filter for each channel": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv<group=32, pads=[1,1,1,1]>(x, w, b) y = HardSigmoid(a) }",
        {"w": (32, 1, 3, 3), "b": (32,)},
    ),
    "a sum": (
        "g (float[1,32,6,6] x) => (float y) { a = Conv(x, w) c = Conv(a, v) s = Add(a, c) y = Relu(s) }",
        {"w": (32, 32, 1, 1), "v": (32, 32, 1, 1)},
    ),
    "pools": (
        "g (float[1,32,9,9] x) => (float y, float z) { a = Conv(x, w) m = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(a)"
        " v = AveragePool<kernel_shape=[2,2], count_include_pad=1, pads=[0,0,1,1]>(m) y = GlobalAveragePool(v) z = GlobalMaxPool(m) }",
        {"w": (32, 32, 1, 1)},
    ),
    "larger images": (
        "g (float[1,32,4,4] x) => (float y) { a = Conv(x, w)"
        ' u = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(a, , s)'
        ' l = Resize<mode="linear">(a, , s) c = Concat<axis=1>(u, l) y = Conv(c, v) }',
        {"w": (32, 32, 1, 1), "v": (32, 64, 1, 1)},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_models_saved_in_blocks_give_what_onnxruntime_gives(tmp_path, name):
    text, shapes = GRAPHS[name]
    rng = np.random.default_rng(5)
    weights = {key: (rng.normal(size=shape) / 4).astype(np.float32) for key, shape in shapes.items()}
    if "larger" in name:
        weights["s"] = np.array([1, 1, 2, 3], np.float32)
    path, theirs = saved(tmp_path, text, weights)
    assert any(node.domain == DOMAIN for node in onnx.load(path).graph.node)
    feeds = {"x": rng.normal(size=theirs.get_inputs()[0].shape).astype(np.float32)}
    for mine, expected in zip(sardonyx.InferenceSession(path).run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-4)


COMMON = {"domain": DOMAIN}
rounded = lambda X: np.pad(X, [(0, 0), (0, -X.shape[1] % BLOCK), (0, 0), (0, 0)])  # noqa: E731
case("ReorderInput", X=f32(2, 20, 3, 4), **COMMON, expect=lambda X: rounded(X))
case("ReorderInput", X=f32(2, 2 * BLOCK, 3, 4), **COMMON, expect=lambda X: X)
case("ReorderInput", X=f32(2, 3, 4, 20), channels_last=1, **COMMON, expect=lambda X: rounded(X.transpose(0, 3, 1, 2)))
case("ReorderInput", X=f32(0, 20, 3, 4), **COMMON, expect=lambda X: rounded(X))
case("ReorderOutput", X=f32(2, 32, 3, 4), channels=20, **COMMON, expect=lambda X: X[:, :20])
case(
    "ReorderOutput",
    X=f32(2, 32, 3, 4),
    channels=20,
    channels_last=1,
    **COMMON,
    expect=lambda X: X[:, :20].transpose(0, 2, 3, 1),
)
case("ReorderOutput", X=f32(2, 32, 3, 4), **COMMON, expect=lambda X: X)
case("MaxPool", X=f32(1, 16, 4, 4), kernel_shape=[4, 4], **COMMON, expect=lambda X: X.max(axis=(2, 3), keepdims=True))
case("AveragePool", X=f32(1, 16, 4, 4), kernel_shape=[4, 4], **COMMON, expect=lambda X: X.mean(axis=(2, 3), keepdims=True))
case("GlobalMaxPool", X=f32(1, 16, 4, 4), **COMMON, expect=lambda X: X.max(axis=(2, 3), keepdims=True))
case("GlobalAveragePool", X=f32(1, 16, 4, 4), **COMMON, expect=lambda X: X.mean(axis=(2, 3), keepdims=True))
case("Upsample", X=f32(1, 16, 2, 2), scales=[1, 1, 2, 3], **COMMON, expect=lambda X: X.repeat(2, axis=2).repeat(3, axis=3))
case("Upsample", X=f32(1, 16, 2, 2), **COMMON, expect=lambda X: X)
refuse("ReorderInput", X=f32(2, 20, 3), **COMMON, match="rank 4")


def blocked(filters, block, inputs_too):
    """Filters (O, I, H, W) as onnxruntime stores them."""
    outer = filters.reshape(len(filters) // block, block, *filters.shape[1:])
    if not inputs_too:
        return outer.transpose(0, 2, 3, 4, 1).reshape(filters.shape)
    both = outer.reshape(outer.shape[0], block, filters.shape[1] // block, block, *filters.shape[2:])
    return both.transpose(0, 2, 4, 5, 3, 1).reshape(filters.shape)


@pytest.mark.parametrize(("block", "inputs"), [(BLOCK, 2 * BLOCK), (BLOCK, 3), (8, 24)])
def test_filters_are_taken_out_of_their_blocks(block, inputs):
    filters = f32(3 * block, inputs, 1, 1)
    image = f32(1, inputs, 2, 2)
    expected = np.einsum("nchw,mc->nmhw", image, filters[:, :, 0, 0])
    np.testing.assert_allclose(conv(image, blocked(filters, block, inputs >= block)), expected, rtol=1e-4, atol=1e-5)


def test_filters_that_stand_in_no_blocks_are_refused():
    with pytest.raises(errors.KernelError, match="do not stand in blocks"):
        conv(f32(1, 16, 2, 2), f32(12, 16, 1, 1))
