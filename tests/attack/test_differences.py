"""What is said of onnxruntime is so: it gives something else than we do, and than the standard or float64 has."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats
from tests import onnxruntime_peer
from tests.attack.differences import HAS_VNNI, WINDOWS, known
from tests.attack.subject import session_of

HEADER = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "ai.onnx.ml": 5]> g '
THIRDS = np.array([1 / 3, 2 / 3, 4 / 3])
NAN_FIRST = np.array([np.nan, 1, 2], np.float32)
HARDMAX_BODY = """{ n = Constant<value = int64 {1}>() on = Constant<value = bool {1}>()
    y = Loop(n, on, x) <body = b (int64 i, bool k, float[3] s) => (bool l, float[3] t) { l = Identity(k) t = Hardmax(s) }> }"""
STUMP = """<nodes_splits = float[1] {0}, nodes_featureids = [0], nodes_modes = uint8[1] {0}, nodes_truenodeids = [0],
    nodes_falsenodeids = [1], nodes_trueleafs = [1], nodes_falseleafs = [1], leaf_targetids = [0, 1], leaf_weights = float[2] {1, 1},
    tree_roots = [0], n_targets = 2, post_transform = 1>"""
BOTH_CLASSES = """<nodes_treeids = [0], nodes_nodeids = [0], nodes_featureids = [0], nodes_values = [0.0], nodes_modes = ["LEAF"],
    nodes_truenodeids = [0], nodes_falsenodeids = [0], class_treeids = [0, 0], class_nodeids = [0, 0], class_ids = [0, 1],
    class_weights = [0.75, 0.25], classlabels_int64s = [0, 1]>"""
CAUSAL = "{ y = com.microsoft.MultiHeadAttention<num_heads = 1, unidirectional = 1>(q, k, k) }"
QUERIES = np.arange(24, dtype=np.float32).reshape(1, 3, 8) / 24
FREQUENCIES = np.array([[[1, 0], [0.5, 0.25]]], np.float32)
TOKENS = np.array([[1.0] * 15 + [0.003]], np.float32)  # the last element is less than half of a 127th
UNITS = ", ".join(
    str(number) for number in (128 + np.eye(16, dtype=np.int64)).reshape(-1)
)  # a unit matrix, above its zero point
ONES = ", ".join(["1"] * 16)
EXPECTED: list[tuple[str, dict[str, Any], Any]] = [
    ("(int32[2] x) => (int32 y) { y = ReduceSum<keepdims = 0>(x) }", {"x": np.array([2**31 - 1, 1], np.int32)}, -(2**31)),
    (
        """(double[1,1,9] x) => (double[1,1,3] y)
        { y, i = MaxPool<auto_pad = "SAME_UPPER", kernel_shape = [1], strides = [3]>(x) }""",
        {"x": np.arange(9.0).reshape(1, 1, 9)},
        np.array([[[0.0, 3.0, 6.0]]]),
    ),
    ("(int64[2] x) => (int64 y) { y = ReduceSum<keepdims = 0>(x) }", {"x": np.array([2**62, 1])}, 2**62 + 1),
    ("(int32[2] x) => (int32 y) { y = ReduceProd<keepdims = 0>(x) }", {"x": np.array([2**30, 2], np.int32)}, -(2**31)),
    (
        "(int32[1] x, int32 n) => (int32[1] y) { y = Pow(x, n) }",
        {"x": np.array([-1581], np.int32), "n": np.int32(3)},
        [343161355],
    ),
    ("(int64[1] x, int64 n) => (int64[1] y) { y = Pow(x, n) }", {"x": np.array([3]), "n": np.array(39)}, np.array([3**39])),
    (
        """(float[1,2] x) => (float[1,2] v, float[2,1] y) <float s = {0.05}, int8 z = {0}>
        { v = Neg(x) t = Transpose(v) q = QuantizeLinear(t, s, z) y = DequantizeLinear(q, s, z) }""",
        {"x": np.array([[0.03, 0.07]], np.float32)},
        np.array([[-0.03, -0.07]], np.float32),
    ),
    (
        "(float[1] x, int64 d, int64[2] v) => (int64[1,2] y) { y = OneHot(x, d, v) }",
        {"x": np.array([0.75], np.float32), "d": np.array(2), "v": np.array([2, 7])},
        np.array([[7, 2]]),
    ),
    (
        "(float[2] x, int64[1] k) => (float[1] y) { y, i = TopK<largest = 0>(x, k) }",
        {"x": np.array([np.nan, 0], np.float32), "k": np.array([1])},
        np.zeros(1, np.float32),
    ),
    (
        """(string[1] x) => (int64[1] y)
        { y = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "a"], values_int64s = [1, 2]>(x) }""",
        {"x": np.array(["a"], object)},
        [2],
    ),
    (
        "(float[2] x, float[3,2] slope) => (int64[n] y) { p = PRelu(x, slope) y = Shape(p) }",
        {"x": np.ones(2, np.float32), "slope": np.ones((3, 2), np.float32)},
        [3, 2],
    ),
    (
        "(float[100] x) => (float y) { y = ReduceProd<keepdims = 0>(x) }",
        {"x": np.array([0] + [1e3] * 99, np.float32)},
        0,
    ),
    (
        "(uint32[1] x) => (uint32[1] y) { y = Shrink<lambd = 0.0, bias = 3e9>(x) }",
        {"x": np.array([5], np.uint32)},
        [1294967301],
    ),
    ("(int64[9] x) => (int64 y) { y = ReduceLogSumExp<keepdims = 0>(x) }", {"x": np.array([3] + [2] * 8)}, 4),
    ("(double[3] x) => (double[3] y) { y = Shrink<lambd = 0.25, bias = 0.125>(x) }", {"x": THIRDS}, THIRDS - 0.125),
    ("(float[1] x) => (float[1] y) { y = Gelu(x) }", {"x": np.array([-np.inf], np.float32)}, np.zeros(1, np.float32)),
    (
        """(double[3] x) => (double[3] y) { y = Gelu<approximate = "tanh">(x) }""",
        {"x": THIRDS},
        THIRDS / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (THIRDS + 0.044715 * THIRDS**3))),
    ),
    (
        "(int64 n) => (double[N] y) { y = HammingWindow<output_datatype = 11>(n) }",
        {"n": np.array(3)},
        25 / 46 - 21 / 46 * np.cos(2 * np.pi * np.arange(3) / 3),
    ),
    (
        """(float[1,2,2] x, int64 n) => (float[1,4,1] y)
        { axis = Constant<value = int64 {1}>() y = DFT<inverse = 1, onesided = 1>(x, n, axis) }""",
        {"x": FREQUENCIES, "n": np.array(4)},
        np.fft.irfft(FREQUENCIES[..., 0] + 1j * FREQUENCIES[..., 1], 4)[..., None],
    ),
    *(
        (f"(int64 n) => (float[1] y) {{ y = {window}<periodic = 0>(n) }}", {"n": np.array(1)}, np.ones(1))  # as in SciPy
        for window in WINDOWS
    ),
    (
        f"""(float[1,16] x, float[1,1] r) => (float[1,16] y) <uint8[1,16,16] w = {{{UNITS}}}, float[1,16,1] s = {{{ONES}}}>
        {{ y = com.microsoft.QMoE<expert_weight_bits = 8, block_size = 16, activation_type = "identity">(x, r, w, s, "", w, s) }}""",
        {"x": TOKENS, "r": np.zeros((1, 1), np.float32)},
        TOKENS,
    ),
    (
        "(float[1,2,3] theta, int64[4] size) => (float[1,1,2,2] y) { y = AffineGrid<align_corners = 1>(theta, size) }",
        {"theta": np.array([[[1, 0, 0], [0, 1, 0]]], np.float32), "size": np.array([1, 1, 1, 2])},
        [[[[-1, 0], [1, 0]]]],  # as in PyTorch
    ),
    (
        "(float[1,1,2,2] x, float[1,1,2,2] grid) => (float[1,1,1,2] y) { y = GridSample(x, grid) }",
        {"x": np.ones((1, 1, 2, 2), np.float32), "grid": np.array([[[[np.nan, 0], [-np.inf, 1e30]]]], np.float32)},
        [[[[0, 0]]]],
    ),
    (
        "(float[1,2] a, float[1,2] b) => (float[1,1] y) { y = com.microsoft.CDist(a, b) }",
        {"a": np.array([[1, np.inf]], np.float32), "b": np.ones((1, 2), np.float32)},
        [[np.inf]],
    ),
    *(
        (
            """(float[1,4,1,1] x) => (float[1,2,1,1] y) <int64[1] from = {2}, int64[1] to = {4}, int64[1] axis = {1}>
            { z = LRN<size = 1>(x) y = Slice(z, from, to, axis) }""",
            {"x": np.array([1, heavy, 3, 4], np.float32).reshape(1, 4, 1, 1)},
            np.reshape([x / (1 + 1e-4 * x**2) ** 0.75 for x in (3, 4)], (1, 2, 1, 1)),
        )
        for heavy in (np.inf, 1e7)
    ),
    (
        "(float[0,3] x, int64[0] t) => (float y) { y = NegativeLogLikelihoodLoss(x, t) }",
        {"x": np.zeros((0, 3), np.float32), "t": np.zeros(0, np.int64)},
        np.nan,  # as in PyTorch
    ),
    (
        "(float[1,2,2] x) => (float[1,2,2] y) { y = com.microsoft.Inverse(x) }",
        {"x": np.zeros((1, 2, 2), np.float32)},
        np.full((1, 2, 2), np.nan),
    ),
    (
        """(float[1,4] x) => (float[1,4] y) <uint8[8] b = {1, 0, 0, 0, 0, 0, 0, 0}, float[1] s = {1}>
        { y = com.microsoft.MatMulBnb4<K = 4, N = 4, block_size = 16, quant_type = 0, transB = 0>(x, b, s) }""",
        {"x": np.array([[1, 2, 3, 4]], np.float32)},
        [[0, 0.005208333, 0, 0]],  # the second weight of the first row is the only one that is not 0
    ),
    (
        "(float[2,0] a, float[0,2] b, float[2] c) => (float[2,2] y) { y = Gemm<beta = 2.0>(a, b, c) }",
        {"a": np.zeros((2, 0), np.float32), "b": np.zeros((0, 2), np.float32), "c": np.array([1, 2], np.float32)},
        np.array([[2, 4], [2, 4]]),
    ),
    *(
        (f"(float[3] x) => (float y) {{ y = {op}<keepdims = 0>(x) }}", {"x": np.array([1, np.nan, 2], np.float32)}, np.nan)
        for op in ("ReduceMax", "ReduceMin")
    ),
    *(
        (
            f"""(float[1,1,1] x) => (float[1,1,1,1] y) <float[1,1,1] w = {{1}}, float[1,1,1] r = {{0}}>
            {{ y = RNN<hidden_size = 1, activations = ["{activation}"]>(x, w, r) }}""",
            {"x": np.full((1, 1, 1), 0.5, np.float32)},
            [[[[result]]]],
        )
        for activation, result in (("ThresholdedRelu", 0), ("Affine", 0.5), ("ScaledTanh", np.tanh(0.5)))
    ),
    *(
        (
            f"(float[1] x) => (float[1] y) {{ y = {call}(x) }}",
            {"x": np.array([x], np.float32)},
            [factor / (1 + np.exp(-slope * x))],
        )
        for call, x, factor, slope in (("Sigmoid", -17.0, 1, 1), ("com.microsoft.QuickGelu", -10.5, -10.5, 1.702))
    ),
    (
        "(float[2] x, float low, float high) => (float[2] y) { y = Clip(x, low, high) }",
        {"x": np.array([-1, 5], np.float32), "low": np.float32(np.nan), "high": np.float32(2)},
        [np.nan, np.nan],
    ),
    (
        """(uint8[1,8] x) => (uint8[1,4] y) <int64[2] sizes = {1, 4}>
        { y = Resize<mode = "linear", antialias = 1>(x, "", "", sizes) }""",
        {"x": np.array([[8, 222, 56, 117, 63, 132, 211, 65]], np.uint8)},
        [[94, 100, 114, 128]],  # the second is 100.5
    ),
    (
        """(float[1,3] x) => (float[1,3] y) <float[4] roi = {0, 1, 1, 0}, int64[2] sizes = {1, 3}>
        { y = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">(x, roi, "", sizes) }""",
        {"x": np.arange(3, dtype=np.float32).reshape(1, 3)},
        [[2, 1, 0]],
    ),
    ("(float x) => (int64[N, M] y) { y = NonZero(x) }", {"x": np.float32(2)}, np.zeros((0, 1), np.int64)),
    ("(float[3] x) => (float[3] y) { y = Hardmax(x) }", {"x": NAN_FIRST}, [1, 0, 0]),
    (f"(float[3] x) => (float[3] y) {HARDMAX_BODY}", {"x": NAN_FIRST}, [1, 0, 0]),
    (
        """(float[1,1,2] x, float[1,1,1] w) => (float[1,1,N] y) {
            y = ConvTranspose<strides = [3], auto_pad = "SAME_UPPER">(x, w) }""",
        {"x": np.array([[[1, 2]]], np.float32), "w": np.ones((1, 1, 1), np.float32)},
        np.array([[[1, 0, 0, 2, 0, 0]]]),
    ),
    (
        """(float[1,1,9] x) => (float[1,1,3] y) { y = LpPool<kernel_shape = [1], strides = [3], auto_pad = "SAME_UPPER">(x) }""",
        {"x": np.arange(9, dtype=np.float32).reshape(1, 1, 9)},
        [[[0, 3, 6]]],
    ),
    (
        """(uint8[1,2] x) => (float[1,2] y) <float s = {0.5}, float t = {0.013}, uint8 z = {0}>
        { d = DequantizeLinear(x, s, z) p = Softmax(d) q = QuantizeLinear(p, t, z) y = DequantizeLinear(q, t, z) }""",
        {"x": np.array([[0, 2]], np.uint8)},
        [[21 * 0.013, 56 * 0.013]],  # 20.7 and 56.2 rounded
    ),
    (
        f"(float[1,1,2] q, float[1,3,2] k) => (float[1,1,2] y) {CAUSAL}",
        {"q": np.ones((1, 1, 2), np.float32), "k": np.arange(6, dtype=np.float32).reshape(1, 3, 2)},
        [[[0, 1]]],
    ),
    (
        f"(float[1,1] x) => (float[1,2] y) {{ y = ai.onnx.ml.TreeEnsemble {STUMP} (x) }}",
        {"x": np.zeros((1, 1), np.float32)},
        [[np.e / (1 + np.e), 1 / (1 + np.e)]],  # SOFTMAX of [1, 0]
    ),
    (
        """(float[1,3,8] q, int32[1] last) => (float[1,3,8] y) <int32[1] total = {3}>
        { y = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1, local_window_size = 1>(q, q, q, "", "", last, total) }""",
        {"q": QUERIES, "last": np.array([1], np.int32)},
        [[*QUERIES[0, :2], np.zeros(8)]],  # the row has two tokens
    ),
    (
        "(float[1,1,1] x, float[1] s, float[1] b) => (float[1,1,1] y) { y = InstanceNormalization<epsilon = 0.01>(x, s, b) }",
        {"x": np.float32([[[100.1]]]), "s": np.float32([0.6517256]), "b": np.float32([0.01119691])},
        [[[np.float32(0.01119691)]]],
    ),
    (
        """(float[1,1,2] q, float[1,1,2,2] past) => (float[1,1,2] y)
        { y = com.microsoft.MultiHeadAttention<num_heads = 1>(q, q, q, "", "", "", past, past) }""",
        {"q": np.zeros((1, 1, 2), np.float32), "past": np.ones((1, 1, 2, 2), np.float32)},
        [[[2 / 3, 2 / 3]]],
    ),
]


@pytest.mark.parametrize(("text", "feeds", "expected"), EXPECTED)
def test_onnxruntime_differs_where_it_is_not_asked(text: str, feeds: dict[str, Any], expected: Any) -> None:
    assert_differs(onnx.parser.parse_model(HEADER + text), feeds, expected)


def assert_differs(model: onnx.ModelProto, feeds: dict[str, Any], expected: Any, **inner: Any) -> None:
    """That the first output does. `inner` are values that nodes compute, by name, as far as it counts what they are."""
    feeds = {name: np.asarray(value) for name, value in feeds.items()}
    ours, *_ = session_of(model).run(None, feeds)
    theirs, *_ = onnxruntime_peer.run(formats.load(model.SerializeToString()), feeds)
    wanted = np.asarray(expected)
    tolerance = 1e-6 if ours.dtype == np.float32 else 1e-12
    assert ours.shape == wanted.shape and _equal(ours, wanted, tolerance)
    assert known(model, {**feeds, **inner})
    assert theirs.shape != wanted.shape or not _equal(theirs, wanted, tolerance)


def _equal(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if a.dtype.kind in "iu":
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=tolerance, atol=0, equal_nan=True)


def test_onnxruntime_does_not_add_zero_points_of_float8() -> None:
    text = """(float[1] x, float s, float z) => (float[1] y)
        { w = Cast<to = 17>(z) q = QuantizeLinear(x, s, w) y = Cast<to = 1>(q) }"""
    feeds = {"x": np.array([5], np.float32), "s": np.float32(1), "z": np.float32(1)}
    assert_differs(onnx.parser.parse_model(HEADER + text), feeds, [6], w=np.array(1.0))


def test_onnxruntime_goes_by_the_sign_of_the_second_of_two_classes() -> None:
    text = f"(float[1,1] x) => (int64[1] y) {{ y, scores = ai.onnx.ml.TreeEnsembleClassifier {BOTH_CLASSES} (x) }}"
    model = onnx.parser.parse_model(HEADER.replace('"ai.onnx.ml": 5', '"ai.onnx.ml": 3') + text)
    assert_differs(model, {"x": np.zeros((1, 1), np.float32)}, [0])  # of 0.75 and 0.25


def test_onnxruntime_does_not_heed_the_precision_of_a_quantization() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 11, opset_import: ["": 23]> g (float[1] x) => (int8[1] y) <float s = {0.33333334}, int8 z = {1}>
        { y = QuantizeLinear<precision = 10>(x, s, z) }"""
    )
    assert_differs(model, {"x": np.array([-26.494991], np.float32)}, [-79])  # -79.5 in float16, and 1


@pytest.mark.skipif(HAS_VNNI, reason="this CPU adds four products of bytes in 32 bits")
@pytest.mark.parametrize(
    "text",
    [
        "{ y = MatMulInteger(a, b) }",
        """<float one = {1}> { x = DequantizeLinear(a, one) w = DequantizeLinear(b, one) z = MatMul(x, w) y = Cast<to = 6>(z) }""",
    ],
)
def test_onnxruntime_adds_two_products_of_bytes_in_16_bits(text: str) -> None:
    model = onnx.parser.parse_model(f"{HEADER} (uint8[1,2] a, int8[2,1] b) => (int32[1,1] y) {text}")
    assert_differs(model, {"a": np.full((1, 2), 255, np.uint8), "b": np.full((2, 1), 127, np.int8)}, [[2 * 255 * 127]])


def test_onnxruntime_is_asked_about_the_same_ops_elsewhere() -> None:
    text = "(float[3] x, int32[3] i) => (float[3] y, int32 s) { y = Softmax(x) s = ReduceSum<keepdims = 0>(i) }"
    feeds = {"x": np.ones(3, np.float32), "i": np.ones(3, np.int32)}
    assert known(onnx.parser.parse_model(HEADER + text), feeds) is None
