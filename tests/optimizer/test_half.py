"""float16 computed in float32: which nodes are widened, where Casts stand, and how exact whole networks are then."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import sardonyx
from sardonyx import dtypes
from sardonyx.ir import Graph, Model, Tensor, verify
from sardonyx.optimizer.passes.half import compute_in_float32
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.widening import is_half
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import typed

NAME = "CastFloat16Transformer"


def widened(text: str, opset: int = 21) -> Model:
    """A model after the pass, in all its graphs."""
    model = typed(text, opset)
    rewriting = Rewriting(model, evaluate)
    for graph in rewriting.graphs:
        compute_in_float32(graph, rewriting)
    verify.verify(model)
    return model


def counted(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for node in graph.nodes)


def in_half(graph: Graph) -> set[str]:
    """Ops, other than Cast, that still read or make float16."""
    return {node.op_type for node in graph.nodes if node.op_type != "Cast" and any(map(is_half, (*node.inputs, *node.outputs)))}


# --- structure


def test_a_convolutional_network_has_one_cast_at_each_end_and_float32_weights():
    graph = widened("""g (float16[N,3,8,8] x, float16[4] v, float16[4,3,3,3] w) => (float16[N,2] y)
        <float16[4] s = {1,1,1,1}, float16[2,4] m = {1,2,3,4,5,6,7,8}> {
        a = Conv(x, w)
        b = BatchNormalization(a, s, s, s, v)
        c = Relu(b)
        d = GlobalAveragePool(c)
        e = Flatten(d)
        y = Gemm<transB=1>(e, m)
    }""").graph
    assert not in_half(graph)
    assert counted(graph)["Cast"] == 4  # x, v, w and y
    assert {value.type.dtype for value in graph.initializers.values()} == {dtypes.float32}
    assert [value.type.dtype for value in (*graph.inputs, *graph.outputs)] == [dtypes.float16] * 4


def test_attention_is_widened_from_end_to_end():
    graph = widened("""g (float16[2,5,8] x, float16[8] s) => (float16[2,5,8] y) {
        n = LayerNormalization(x, s)
        t = Transpose<perm=[0,2,1]>(n)
        a = MatMul(n, t)
        p = Softmax(a)
        c = MatMul(p, n)
        y = Add(x, c)
    }""").graph
    assert not in_half(graph)
    assert counted(graph)["Cast"] == 3  # x once, s, y


def test_mere_movement_stays_in_float16():
    graph = widened("""g (float16[2,6] x, int64[6] i) => (float16[2,2,3] y) {
        shape = Constant<value = int64[3] {2, 2, 3}>()
        a = Relu(x)
        b = Concat<axis=1>(a, x)
        c = Gather<axis=1>(b, i)
        d = Max(c, x)
        y = Reshape(d, shape)
    }""").graph
    assert "Cast" not in counted(graph)


@pytest.mark.parametrize("op", ["Exp", "Softmax", "Sqrt"])
def test_a_single_node_stays_in_float16_since_no_rounding_would_be_spared(op):
    graph = widened(f"g (float16[4] x) => (float16[4] y) {{ a = {op}(x) y = Relu(a) }}").graph
    assert "Cast" not in counted(graph)


def test_a_large_table_of_embeddings_stays_in_float16():
    model = typed("g (int64[2] i, float16[2,8] x) => (float16[2,8] y) { a = Gather(x, i) b = Exp(a) y = Exp(b) }")
    graph = model.graph
    table = graph.add_initializer("table", Tensor.of(np.ones((400, 8), np.float16)))
    next(graph.nodes).set_input(0, table)
    compute_in_float32(graph, Rewriting(model, evaluate))
    assert in_half(graph) == {"Gather"}
    assert counted(graph)["Cast"] == 2


def test_bodies_are_widened_and_what_they_capture_stays_float16_outside():
    model = widened("""g (float16[4] x, bool c) => (float16[4] z) {
        a = Exp(x)
        b = Exp(a)
        y = If (c) <
            then_branch = t () => (float16[4] q) { p = Exp(b) q = Exp(p) },
            else_branch = e () => (float16[4] r) { r = Identity(b) }>
        d = Exp(y)
        z = Exp(d)
    }""")
    graph = model.graph
    assert in_half(graph) == {"If"}
    assert counted(graph)["Cast"] == 4  # x, b for the bodies, y, z
    then = next(node for node in graph.nodes if node.op_type == "If").attributes["then_branch"].value
    assert not in_half(then)
    assert counted(then) == {"Exp": 2, "Cast": 2}
    assert then.outputs[0].type.dtype is dtypes.float16


def test_casts_to_float16_and_back_with_nothing_between_are_kept():
    graph = widened("""g (float[4] x) => (float[4] y, float16[4] z) {
        h = Cast<to=10>(x)
        y = Cast<to=1>(h)
        a = Exp(h)
        z = Exp(a)
    }""").graph
    first, second = [node for node in graph.nodes if node.op_type == "Cast" and not node.name.startswith("Inserted")][:2]
    assert (first.attribute("to"), second.attribute("to")) == (dtypes.float16.code, dtypes.float32.code)
    assert second.inputs[0] is first.outputs[0]


def test_casts_around_computing_nodes_round_nothing_like_onnxruntimes():
    text = "g (float[2] x) => (float[2] y) { h = Cast<to=10>(x) a = Exp(h) y = Cast<to=1>(a) }"
    graph = widened(text).graph
    assert not in_half(graph)
    assert not any(is_half(value) for value in graph.values())
    x = np.array([1.00005, 1.0001], np.float32)
    want = onnxruntime.InferenceSession(serialized(text), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    got = sardonyx.InferenceSession(serialized(text)).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=1e-6)


def test_overflow_of_float16_is_seen_by_isinf_as_in_onnxruntime():
    text = "g (float16[2] x) => (bool[2] y, bool[2] z) { a = Mul(x, x) h = Mul(a, x) y = IsInf(h) z = IsNaN(h) }"
    x = np.array([2, 700], np.float16)
    want = onnxruntime.InferenceSession(serialized(text), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    got = sardonyx.InferenceSession(serialized(text)).run(None, {"x": x})
    assert [array.tolist() for array in got] == [array.tolist() for array in want] == [[False, True], [False, False]]


def test_numbers_that_are_equal_in_float16_are_one_to_unique():
    text = "g (float16[2000] x) => (float16[n] y) { a = Sqrt(x) h = Sqrt(a) y = Unique(h) }"
    x = np.linspace(1, 2, 2000).astype(np.float16)
    (got,) = sardonyx.InferenceSession(serialized(text)).run(None, {"x": x})
    roots = np.sqrt(np.sqrt(x.astype(np.float32)))
    assert np.array_equal(got, np.unique(roots.astype(np.float16))) and len(got) < len(np.unique(roots))


def test_numbers_that_are_0_in_float16_are_passed_over_by_nonzero():
    text = "g (float16[3] x) => (int64[1,n] y) { a = Exp(x) h = Mul(a, a) y = NonZero(h) }"
    (got,) = sardonyx.InferenceSession(serialized(text)).run(None, {"x": np.array([0, -12, 1], np.float16)})
    assert got.tolist() == [[0, 2]]


def test_shapes_are_read_without_a_cast():
    graph = widened(
        "g (float16[N,4] x) => (float16[N,4] y, int64[2] s) { a = Exp(x) b = Exp(a) s = Shape(a) y = Exp(b) }"
    ).graph
    assert counted(graph)["Cast"] == 2


@pytest.mark.parametrize(
    "nodes",
    [
        "k = Constant<value = float16[1] {2}>() a = Exp(k) b = IsInf(x) y = Exp(a)",
        "a = RandomNormalLike<dtype=10>(x) y = Exp(a)",
        "a = EyeLike<dtype=10>(z) y = Exp(a)",
        "i = Cast<to=3>(x) a = DequantizeLinear(i, h) y = Exp(a)",
        "q = SequenceConstruct(x, x) a = ConcatFromSequence<axis=0>(q) y = Exp(a)",
        "o = Optional(x) a = OptionalGetElement(o) y = Exp(a)",
    ],
)
def test_models_with_what_cannot_be_widened_stay_valid(nodes):
    model = widened(f"g (float16[4,4] x, float16 h, float[4,4] z) => (float16[d,e] y) {{ {nodes} }}")
    assert model.graph.outputs[0].type.dtype is dtypes.float16


def test_bfloat16_stays_as_it_is():
    graph = widened("g (bfloat16[4] x) => (bfloat16[4] y) { a = Exp(x) b = Exp(a) y = Exp(b) }").graph
    assert "Cast" not in counted(graph)


# --- whole networks


def serialized(text: str) -> bytes:
    header = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
    return onnx.parser.parse_model(header + text).SerializeToString()


LAYERS = 10
SIZE = 64


def weights() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [(rng.standard_normal((SIZE, SIZE)) * 1.4 / SIZE**0.5).astype(np.float16) for _ in range(LAYERS)]


def network() -> bytes:
    """Ten layers in float16 between inputs and outputs of float32."""
    text = [f"g (float[8,{SIZE}] x) => (float[8,{SIZE}] y) {{ h0 = Cast<to=10>(x)"]
    for layer in range(LAYERS):
        text.append(f"m{layer} = MatMul(h{layer}, w{layer}) r{layer} = Tanh(m{layer}) h{layer + 1} = Add(r{layer}, h{layer})")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>' + " ".join([*text, f"y = Cast<to=1>(h{LAYERS}) }}"])
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, f"w{n}") for n, array in enumerate(weights()))
    return model.SerializeToString()


def truth(x: np.ndarray) -> np.ndarray:
    h = x.astype(np.float64)
    for array in weights():
        h = np.tanh(h @ array.astype(np.float64)) + h
    return h


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)))


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(6).standard_normal((8, SIZE)).astype(np.float32)


def test_a_float16_network_is_as_exact_as_in_onnxruntime(x):
    peer = onnxruntime.InferenceSession(network(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    got = sardonyx.InferenceSession(network()).run(None, {"x": x})[0]
    assert error(got, truth(x)) <= 4 * error(peer, truth(x))


def test_who_disables_the_optimizer_computes_in_float16(x):
    got = sardonyx.InferenceSession(network(), disabled_optimizers=[NAME]).run(None, {"x": x})[0]
    assert 1e-4 < error(got, truth(x)) < 1e-2


@pytest.mark.parametrize("suffix", ["onnx", "ort"])
def test_saved_networks_run_in_onnxruntime(x, suffix, tmp_path):
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / f"saved.{suffix}")
    sardonyx.InferenceSession(network(), options)
    if suffix == "onnx":
        onnx.checker.check_model(onnx.load(options.optimized_model_filepath), full_check=True)
    peer = onnxruntime.InferenceSession(options.optimized_model_filepath, providers=["CPUExecutionProvider"])
    assert error(peer.run(None, {"x": x})[0], truth(x)) < 1e-5
    again = sardonyx.InferenceSession(options.optimized_model_filepath)
    assert error(again.run(None, {"x": x})[0], truth(x)) < 1e-5
