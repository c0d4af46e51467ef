"""Generated matrix products agree with NumPy's for all ranks, layouts, types and what follows them."""

import numpy as np
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.compiler.types import of_elements
from sardonyx.providers.native.kernels.linalg import packing
from sardonyx.providers.native.kernels.linalg.packing import pack_columns
from sardonyx.providers.native.program.weights import WeightMemory
from sardonyx.runtime.execution.executor import execute
from tests.compiler.functions import levels
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import use_level

SIZES = st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 127, 130]))
NUMPY = {"float": np.float32, "double": np.float64, "float16": np.float16}


def random(*shape, dtype=np.float32, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


def with_weights(text, **weights):
    """A model of ONNX text whose inputs named in `weights` are constant."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>' + text,
    )
    kept = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


PRODUCT = "g (float[M,K] a, float[K,N] b) => (float[M,N] y) { y = MatMul(a, b) }"


@settings(max_examples=25, deadline=None)
@given(SIZES, SIZES, SIZES)
def test_products_of_any_size(rows, inner, columns):
    assert_agrees(PRODUCT, {"a": random(rows, inner), "b": random(inner, columns, seed=1)})


@pytest.mark.parametrize("rows", range(1, 32))
def test_every_number_of_rows(rows):
    assert_agrees(PRODUCT, {"a": random(rows, 21), "b": random(21, 37, seed=1)})


def test_large_products_are_cut_into_blocks():
    assert_agrees(PRODUCT, {"a": random(300, 1030), "b": random(1030, 130, seed=1)})


@pytest.mark.parametrize("type", ["float", "double", "float16", "bfloat16"])
def test_types(type):
    import ml_dtypes

    dtype = NUMPY.get(type) or ml_dtypes.bfloat16
    text = f"g ({type}[M,K] a, {type}[K,N] b, {type}[N] c) => ({type}[M,N] y) {{ t = MatMul(a, b) y = Add(t, c) }}"
    feeds = [
        {"a": random(m, k, dtype=dtype), "b": random(k, n, dtype=dtype), "c": random(n, dtype=dtype)}
        for m, k, n in [(1, 9, 5), (7, 33, 70), (40, 16, 64)]
    ]
    assert_agrees(text, feeds)
    feed = feeds[1]
    weights = {"b": feed.pop("b"), "c": feed.pop("c")}
    fixed = with_weights(text.replace("[K,N]", "[33,70]").replace("[N]", "[70]").replace("[M,K]", "[M,33]"), **weights)
    assert_agrees(fixed, feed, steps=1 if dtype in (np.float32, np.float64) else 2)


@pytest.mark.parametrize(
    "a, b",
    [
        ((7,), (7,)),
        ((7,), (7, 5)),
        ((3, 7), (7,)),
        ((4, 3, 7), (7,)),
        ((7,), (4, 7, 5)),
        ((4, 3, 7), (7, 5)),
        ((2, 4, 3, 7), (7, 5)),
        ((3, 7), (4, 7, 5)),
        ((4, 3, 7), (4, 7, 5)),
        ((2, 1, 3, 7), (1, 4, 7, 5)),
        ((2, 3, 4, 3, 7), (3, 1, 7, 5)),
        ((2, 4, 20, 7), (2, 4, 7, 40)),
        ((4, 3, 7), (1, 7, 5)),
        ((1, 3, 7), (4, 7, 5)),
        ((3, 7), (1, 1, 7, 5)),
        ((0, 3, 7), (0, 7, 5)),
        ((2, 3, 1, 70), (2, 3, 70, 40)),
        ((2, 3, 3, 70), (2, 3, 70, 1)),
        ((2, 1, 40, 70), (1, 3, 70, 1)),
        ((5, 40, 70), (70, 1)),
        ((4, 7, 40), (4, 40, 70)),
        ((4, 20, 40), (4, 40, 33)),
        ((4, 3, 0), (4, 0, 5)),
    ],
)
def test_ranks_and_batches(a, b):
    text = f"g (float{list(a)} a, float{list(b)} b) => (float y) {{ y = MatMul(a, b) }}"
    feeds = {"a": random(*a), "b": random(*b, seed=1)}
    shape = list(np.matmul(feeds["a"], feeds["b"]).shape)
    text = text.replace("float y", f"float{shape} y")
    assert_agrees(text, feeds)
    assert_agrees(with_weights(text, b=feeds.pop("b")), feeds)


@pytest.mark.parametrize("transA", [0, 1])
@pytest.mark.parametrize("transB", [0, 1])
@pytest.mark.parametrize("C", [None, (), (1,), (37,), (20, 1), (1, 37), (20, 37)])
def test_gemm(transA, transB, C):
    a, b = (33, 20) if transA else (20, 33), (37, 33) if transB else (33, 37)
    third, more = (f", float{list(C) or ''} c", ", c") if C is not None else ("", "")
    text = (
        f"g (float{list(a)} a, float{list(b)} b{third}) => (float[20,37] y)"
        f" {{ y = Gemm<alpha=0.5, beta=2.0, transA={transA}, transB={transB}>(a, b{more}) }}"
    )
    feeds = {"a": random(*a), "b": random(*b, seed=1)} | (
        {} if C is None else {"c": np.asarray(random(*C, seed=2), np.float32)}
    )
    assert_agrees(text, feeds)
    assert_agrees(with_weights(text, b=feeds.pop("b")), feeds, steps=1)


@pytest.mark.parametrize(
    "activation",
    ["Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "LeakyRelu", "LeakyRelu:0.3", "Elu:0.7", "HardSigmoid:0.3", "Selu"],
)
def test_activations(activation):
    name, _, number = activation.partition(":")
    attributes = f'activation="{name}"' + (f", activation_alpha={number}" if number else "")
    feeds = {"a": random(20, 33), "b": random(33, 37, seed=1), "c": random(37)}
    signature = "g (float[20,33] a, float[33,37] b, float[37] c) => (float[20,37] y)"
    text = f"{signature} {{ y = com.microsoft.FusedGemm<{attributes}>(a, b, c) }}"
    assert_agrees(text, feeds, steps=1)


def test_activations_of_matmul():
    text = """g (float[20,33] a, float[33,37] b, float[37] c) => (float[20,37] y) {
        t = com.microsoft.FusedMatMulActivation<alpha=0.5, activation="LeakyRelu", activation_alpha=0.3>(a, b) y = Add(t, c) }"""
    assert_agrees(text, {"a": random(20, 33), "b": random(33, 37, seed=1), "c": random(37)}, steps=1)


@pytest.mark.parametrize("bias", ["", ", c"])
def test_gemm_fast_gelu(bias):
    text = (
        "g (float[2,20,33] a, float[33,37] b, float[37] c) => (float[2,20,37] y)"
        f" {{ y = com.microsoft.GemmFastGelu(a, b{bias}) }}"
    )
    assert_agrees(text, {"a": random(2, 20, 33), "b": random(33, 37, seed=1), "c": random(37)}, steps=1)


def test_gemm_ignores_c_without_a_factor():
    text = "g (float[3,4] a, float[4,5] b, float[5] c) => (float[3,5] y) { y = Gemm<beta=0.0>(a, b, c) }"
    assert_agrees(text, {"a": random(3, 4), "b": random(4, 5), "c": np.full(5, np.nan, np.float32)})


@pytest.mark.parametrize("attributes", ["transA=1", "transB=1", "transA=1, transB=1, alpha=0.125"])
def test_fused_matmul(attributes):
    a = [2, 9, 5] if "transA" in attributes else [2, 5, 9]
    b = [2, 6, 9] if "transB" in attributes else [2, 9, 6]
    text = f"g (float{a} a, float{b} b) => (float[2,5,6] y) {{ y = com.microsoft.FusedMatMul<{attributes}>(a, b) }}"
    assert_agrees(text, {"a": random(*a), "b": random(*b, seed=1)})
    assert_agrees(text.replace("FusedMatMul", "TransposeMatMul"), {"a": random(*a), "b": random(*b, seed=1)})


@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("a, b", [((2, 3), (2, 3)), ((), (2, 3)), ((2, 3), ()), ((2, 1), (1, 3)), ((), ())])
def test_few_rows_against_columns_that_lie_along_k(rows, a, b):
    """As a query against cached keys."""
    left, right = [*a, rows, 37], [*b, 41, 37]
    batch = list(np.broadcast_shapes(a, b))
    text = (
        f"g (float{left} a, float{right} b, float[41] c) => (float{[*batch, rows, 41]} y)"
        " { t = com.microsoft.FusedMatMul<transB=1>(a, b) y = Add(t, c) }"
    )
    assert_agrees(text, {"a": random(*left), "b": random(*right, seed=1), "c": random(41)}, steps=1)


def test_batches_between_rows_and_columns():
    text = (
        "g (float[5,2,3,9] a, float[9,2,3,6] b) => (float[2,3,5,6] y)"
        " { y = com.microsoft.FusedMatMul<transBatchA=1, transBatchB=1>(a, b) }"
    )
    assert_agrees(text, {"a": random(5, 2, 3, 9), "b": random(9, 2, 3, 6, seed=1)})


def test_transposes_are_read_where_they_are():
    text = """g (float[2,S,4,8] q, float[2,S,4,8] k) => (float[2,4,S,S] y) {
        a = Transpose<perm=[0,2,1,3]>(q) b = Transpose<perm=[0,2,3,1]>(k) y = MatMul(a, b) }"""
    assert_agrees(text, {"q": random(2, 21, 4, 8), "k": random(2, 21, 4, 8, seed=1)}, steps=2)


def test_what_follows_is_part_of_the_product():
    text = """g (float[2,S,33] x, float[33,40] w, float[40] c, float[2,S,40] r) => (float[2,S,40] y) {
        t = MatMul(x, w) u = Add(t, c) y = Add(u, r) }"""
    for length in (1, 5, 30):
        feeds = {"x": random(2, length, 33), "c": random(40), "r": random(2, length, 40)}
        assert_agrees(with_weights(text, w=random(33, 40)), feeds, steps=1)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 8, 9, 12, 16])
def test_few_columns(monkeypatch, columns, level):
    """Few columns fill a part of a vector; what lies beside them must not change."""
    use_level(monkeypatch, level)
    text = """g (float[2,S,9] x, float[2,S,N] r, float[9,N] w, float[N] c, float[N,N] d) => (float[2,S,N] y, float[2,S,N] z) {
        t = MatMul(x, w) u = Add(t, c) y = Add(u, r) v = MatMul(r, d) z = Exp(v) }"""
    weights = {"w": random(9, columns), "c": random(columns, seed=1), "d": random(columns, columns, seed=2)}
    model = with_weights(text.replace("N]", f"{columns}]").replace("[N,", f"[{columns},"), **weights)
    for length in (1, 5, 30):
        assert_agrees(model, {"x": random(2, length, 9), "r": random(2, length, columns, seed=3)})


def test_inner_sizes_that_only_a_run_tells():
    text = "g (float[M,K] a, float[L,N] b) => (float[M,N] y) { y = MatMul(a, b) }"
    assert_agrees(text, {"a": random(5, 9), "b": random(9, 6)})
    plan = native_plan(text)
    with pytest.raises(Exception, match="inner sizes differ"):
        execute(plan, {"a": random(5, 9), "b": random(8, 6)})


def test_products_share_what_is_packed():
    text = """g (float[20,1024] x, float[1024,70] v, float[1024,70] w) => (float[20,70] y) {
        q = MatMul(x, v) k = MatMul(x, w) y = Add(q, k) }"""
    model = with_weights(text, v=random(1024, 70), w=random(1024, 70, seed=1))
    assert_agrees(model, {"x": random(20, 1024)}, steps=3, tolerance=4e-6)


def test_infinities_do_not_spread():
    a, b = random(20, 40), random(40, 45)
    a[3, 5], b[7, 44], b[8, 0] = np.inf, np.nan, -np.inf
    assert_agrees(PRODUCT, {"a": a, "b": b})


def test_weights_are_packed_in_panels():
    weights = random(5, 7)
    packed = pack_columns(weights, 4)
    assert packed.shape == (2, 5, 4) and packed.ctypes.data % 64 == 0
    np.testing.assert_array_equal(packed[0], weights[:, :4])
    np.testing.assert_array_equal(packed[1], np.pad(weights[:, 4:], ((0, 0), (0, 1))))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("piece", [0, 1 << 23])
@pytest.mark.parametrize(
    "shape, axes", [((40, 70), (0, 1)), ((70, 40), (1, 0)), ((3, 40, 33), (0, 1, 2)), ((2, 3, 33, 40), (1, 0, 3, 2))]
)
def test_large_weights_are_packed_by_generated_code(monkeypatch, dtype, width, piece, shape, axes):
    monkeypatch.setattr(packing, "WORTH_A_KERNEL", 0)
    monkeypatch.setattr(packing, "PIECE_BYTES", piece)
    weights = random(*shape, dtype=dtype).transpose(axes)
    inner, columns = weights.shape[-2:]
    found, stride = packing.packed_constant(WeightMemory(), weights, of_elements(dtypes.from_numpy(np.dtype(dtype))), width)
    assert found.shape == (*weights.shape[:-2], -(-columns // width), stride)
    panels = np.moveaxis(found.reshape(*found.shape[:-1], stride // width, width), -3, -2)
    got = panels.reshape(*weights.shape[:-2], stride // width, -1)[..., :inner, :columns]
    np.testing.assert_array_equal(got, weights)


def test_one_kernel_serves_all_shapes():
    plan = native_plan(PRODUCT)
    (program,) = programs(plan)
    before = program.jit.compilations
    for size in (1, 20, 100):
        a = random(size, size + 1)
        np.testing.assert_allclose(execute(plan, {"a": a, "b": a.T.copy()})[0], a @ a.T, rtol=1e-4, atol=1e-4)
    assert program.jit.compilations == before


@pytest.mark.parametrize("rows", [1, 3, 14, 20])
@pytest.mark.parametrize("inner", [512, 513, 1031, 4096])
@pytest.mark.parametrize("constant", [False, True])
def test_errors_of_long_sums_are_near_those_of_onnxruntime(rows, inner, constant):
    a, b = random(rows, inner), random(inner, 40, seed=1)
    model = with_weights(PRODUCT, **({"b": b} if constant else {}))
    feeds = {"a": a} if constant else {"a": a, "b": b}
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    results = execute(native_plan(model), feeds)[0], theirs.run(None, feeds)[0]
    ours, reference = (np.sqrt(np.square(result - wanted).mean()) for result in results)
    assert ours <= 2 * reference
