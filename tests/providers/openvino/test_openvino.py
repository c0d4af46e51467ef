"""OpenVINO as a second provider: models run partly there and partly on the CPU, with the same results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.errors import InvalidArgument
from sardonyx.providers.openvino import provider as module

pytest.importorskip("openvino", reason="the package openvino is not installed")

NAME = "OpenVINOExecutionProvider"
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

CNN = f"""{HEAD} g (float[N, 3, H, W] x) => (float[N, 5] y) {{
    c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w1, b1)
    r = Relu(c)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    d = Conv<kernel_shape = [1, 1]>(p, w2)
    s = Softplus(d)
    t = ThresholdedRelu<alpha = 0.5>(s)
    q = Add(t, p)
    a = GlobalAveragePool(q)
    f = Flatten(a)
    m = Gemm(f, w3, b3)
    y = Softmax<axis = -1>(m)
}}"""

TRANSFORMER = f"""{HEAD} g (int64[B, S] ids, int64[B, S] mask) => (float[B, S, 8] y) {{
    e = Gather(table, ids)
    n = LayerNormalization<axis = -1>(e, scale, shift)
    q = MatMul(n, wq)
    k = MatMul(n, wk)
    kt = Transpose<perm = [0, 2, 1]>(k)
    z = MatMul(q, kt)
    fm = Cast<to = 1>(mask)
    hidden = Sub(one, fm)
    far = Mul(hidden, low)
    row = Unsqueeze(far, axis)
    masked = Add(z, row)
    weights = Softmax<axis = -1>(masked)
    v = MatMul(n, wv)
    o = MatMul(weights, v)
    h = MatMul(o, wo)
    g1 = Gelu(h)
    y = Add(g1, e)
}}"""


def model(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """A model with random weights of these shapes."""
    random = np.random.default_rng(7)
    proto = onnx.parser.parse_model(text)
    for name, shape in shapes.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) / 2, name))
    return proto


def cnn() -> onnx.ModelProto:
    return model(CNN, w1=(6, 3, 3, 3), b1=(6,), w2=(6, 6, 1, 1), w3=(6, 5), b3=(5,))


def transformer() -> onnx.ModelProto:
    weights = dict.fromkeys(("wq", "wk", "wv", "wo"), (8, 8))
    proto = model(TRANSFORMER, table=(20, 8), scale=(8,), shift=(8,), **weights)
    for name, array in (("one", np.float32(1)), ("low", np.float32(-1e9)), ("axis", np.array([1], np.int64))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return proto


def session(proto: onnx.ModelProto, **options: str) -> sardonyx.InferenceSession:
    settings = sardonyx.SessionOptions()
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return sardonyx.InferenceSession(proto, settings, providers=[(NAME, options), "CPUExecutionProvider"])


def split(made: sardonyx.InferenceSession) -> tuple[list[int], list[str]]:
    """Sizes of OpenVINO's clusters, and the ops that the CPU got."""
    found = made.get_provider_graph_assignment_info()
    clusters = sorted(len(part.get_nodes()) for part in found if part.ep_name == NAME)
    return clusters, sorted(node.op_type for part in found if part.ep_name != NAME for node in part.get_nodes())


def on_cpu(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return sardonyx.InferenceSession(proto).run(None, feeds)


def image(n: int = 2, size: int = 8) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(n).standard_normal((n, 3, size, size)).astype(np.float32)}


def tokens(batch: int = 2, length: int = 5) -> dict[str, np.ndarray]:
    random = np.random.default_rng(length)
    mask = np.ones((batch, length), np.int64)
    mask[:, length // 2 + 1 :] = 0
    return {"ids": random.integers(0, 20, (batch, length)), "mask": mask}


def test_it_is_available():
    assert NAME in sardonyx.get_available_providers()
    assert session(cnn()).get_providers() == [NAME, "CPUExecutionProvider"]


def test_a_cnn_with_an_op_that_it_does_not_get_runs_on_both():
    made = session(cnn())
    clusters, left = split(made)
    assert (len(clusters), left) == (2, ["ThresholdedRelu"])
    for feeds in (image(), image(1, 12), image(3, 6)):
        np.testing.assert_allclose(made.run(None, feeds)[0], on_cpu(cnn(), feeds)[0], rtol=1e-4, atol=1e-6)


def test_a_transformer_layer_runs_on_both():
    made = session(transformer(), disabled_ops="Softmax")
    clusters, left = split(made)
    assert len(clusters) == 2 and {"Softmax", "Cast"} == set(left)
    for feeds in (tokens(), tokens(1, 9)):
        np.testing.assert_allclose(made.run(None, feeds)[0], on_cpu(transformer(), feeds)[0], rtol=1e-4, atol=1e-5)


def test_ops_may_be_left_to_others():
    clusters, left = split(session(cnn(), disabled_ops="Conv;Gemm"))
    assert left.count("Conv") == 2 and left.count("Gemm") == 1
    assert sum(clusters) + len(left) == 11


def test_inner_values_of_a_cluster_can_be_fetched():
    made = session(cnn())
    np.testing.assert_allclose(made.run(["p"], image())[0], sardonyx.InferenceSession(cnn()).run(["p"], image())[0], rtol=1e-5)


def test_runs_in_several_threads_do_not_mix():
    made = session(cnn())
    feeds = [image(n) for n in range(1, 9)]
    expected = [made.run(None, feed)[0] for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for got, wanted in zip(pool.map(lambda feed: made.run(None, feed)[0], feeds), expected, strict=True):
                np.testing.assert_array_equal(got, wanted)


def test_results_stay_what_they_are_when_the_session_runs_again():
    made = session(cnn())
    first = made.run(None, image(1))[0]
    kept = first.copy()
    made.run(None, image(1, 16))
    np.testing.assert_array_equal(first, kept)


def test_empty_batches_and_scalars():
    text = f"{HEAD} g (float[N, 2] x, float s) => (float[N, 2] y, float t) {{ e = Sigmoid(x) y = Mul(e, s) t = Sqrt(s) }}"
    made = session(onnx.parser.parse_model(text))
    assert split(made) == ([1, 2], [])
    for n in (0, 1, 4):
        y, t = made.run(None, {"x": np.zeros((n, 2), np.float32), "s": np.array(4, np.float32)})
        np.testing.assert_allclose(y, np.full((n, 2), 2))
        assert t.shape == () and t == 2


def test_subgraphs_get_their_part():
    text = f"""{HEAD} g (bool c, float[4, 4] x) => (float[4, 4] y) {{
        y = If(c) <then_branch = t () => (float[4, 4] p) {{ m = MatMul(x, x) p = Tanh(m) }},
                   else_branch = e () => (float[4, 4] q) {{ q = Neg(x) }}>
    }}"""
    made = session(onnx.parser.parse_model(text))
    assert split(made) == ([1, 2], ["If"])
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    np.testing.assert_allclose(made.run(None, {"c": np.array(True), "x": x})[0], np.tanh(x @ x), rtol=1e-4, atol=1e-6)


def test_what_it_computes_in_other_types_is_left_to_the_cpu():
    text = f"{HEAD} g (double[2] x, int64[2] i) => (double[2] y, int64[2] j) {{ y = Exp(x) j = Add(i, i) }}"
    made = session(onnx.parser.parse_model(text))
    assert split(made) == ([], ["Add", "Exp"])
    big = np.array([2**40, 1])
    np.testing.assert_array_equal(made.run(None, {"x": np.zeros(2), "i": big})[1], 2 * big)


def test_a_cluster_that_cannot_be_compiled_is_given_up(monkeypatch, caplog):
    class Broken:
        def read_model(self, data):
            return data

        def compile_model(self, model, device, settings):
            raise RuntimeError("\nno such thing\nsecond line")

    monkeypatch.setattr(module, "_core", Broken)
    with caplog.at_level("WARNING", "sardonyx.runtime"):
        made = session(cnn())
    assert split(made)[0] == []
    assert f"{NAME} gives up {NAME}_subgraph_1: OpenVINO says no such thing" in caplog.text
    np.testing.assert_array_equal(made.run(None, image())[0], on_cpu(cnn(), image())[0])


def test_fallback_to_the_cpu_can_be_forbidden():
    settings = sardonyx.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(sardonyx.errors.Fail, match="assigned to the default CPU EP"):
        sardonyx.InferenceSession(cnn(), settings, providers=[NAME])
    text = f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Exp(x) }}"
    made = sardonyx.InferenceSession(onnx.parser.parse_model(text), settings, providers=[NAME])
    np.testing.assert_allclose(made.run(None, {"x": np.zeros(2, np.float32)})[0], 1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"thread": "1"}, "has no option 'thread'"),
        ({"precision": "INT3"}, "precision must be one of FP32"),
        ({"num_of_threads": "many"}, "num_of_threads must be a number, not 'many'"),
    ],
)
def test_wrong_options_are_refused(options, reason):
    with pytest.raises(InvalidArgument, match=reason):
        session(cnn(), **options)


def test_options_reach_openvino(tmp_path):
    made = session(cnn(), num_of_threads="1", precision="FP32", device_type="CPU", cache_dir=str(tmp_path))
    np.testing.assert_allclose(made.run(None, image())[0], on_cpu(cnn(), image())[0], rtol=1e-4, atol=1e-6)
    assert any(tmp_path.iterdir())
    assert made.get_provider_options()[NAME]["num_of_threads"] == "1"


def test_constants_may_be_limited():
    _, left = split(session(cnn(), max_constant_bytes="0"))
    assert {"Conv", "Gemm"} <= set(left)
