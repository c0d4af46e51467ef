"""Every gradient against central differences in float64: shapes, broadcasts, axes of size 1, all attributes that change a result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sardonyx.ops.gradients.table import gradients
from sardonyx.runtime.execution.executor import execute
from tests.training.numeric import check, planned

Sizes = tuple[int, ...]
CASES: dict[str, dict[str, object]] = {}


def case(body: str, constants: str = "", opset: int = 21, low: float = -2, high: float = 2, **shapes: Sizes) -> None:
    name = f"{body} {shapes} {constants} {opset}"
    assert name not in CASES
    CASES[name] = {"body": body, "constants": constants, "opset": opset, "low": low, "high": high, "shapes": shapes}


@pytest.mark.parametrize("name", CASES)
def test_gradients_agree_with_differences(name: str) -> None:
    _check(**CASES[name])  # type: ignore[arg-type]


def _check(body: str, constants: str, opset: int, low: float, high: float, shapes: dict[str, Sizes]) -> None:
    rng = np.random.default_rng(len(body))
    arrays = {name: rng.uniform(low, high, shape) for name, shape in shapes.items()}
    check(body, arrays, constants, opset)


def chain(*ops: str) -> str:
    """Ops of one input, each of `a`, one behind the other in the sum `y`: few sessions for many rules."""
    lines = [f"t{number} = {op}" for number, op in enumerate(ops)]
    return " ".join([*lines, f"y = Sum({', '.join(f't{number}' for number in range(len(ops)))})"])


# --- elementwise

case(chain("Neg(a)", "Abs(a)", "Exp(a)", "Erf(a)", "Sin(a)", "Cos(a)", "Atan(a)", "Sinh(a)", "Cosh(a)", "Asinh(a)"), a=(3, 4))
case(chain("Identity(a)", "Tanh(a)", "Sigmoid(a)", "Relu(a)", "Softplus(a)", "Softsign(a)", "Mish(a)", "HardSwish(a)"), a=(9,))
case(
    chain("LeakyRelu<alpha = 0.3>(a)", "Elu<alpha = 0.7>(a)", "Selu(a)", "HardSigmoid<alpha = 0.3>(a)"),
    a=(2, 7),
)
case(chain("ThresholdedRelu<alpha = 0.5>(a)", "Gelu(a)", 'Gelu<approximate = "tanh">(a)'), a=(11,))
case(chain("com.microsoft.Gelu(a)", "com.microsoft.FastGelu(a)", "com.microsoft.QuickGelu<alpha = 1.3>(a)"), a=(11,))
case("s = com.microsoft.FastGelu(a, b) t = com.microsoft.BiasGelu(a, b) y = Mul(s, t)", a=(3, 4), b=(4,))
case(chain("Log(a)", "Sqrt(a)", "Reciprocal(a)", "Acosh(b)", "Pow(a, c)"), a=(5,), b=(5,), c=(5,), low=1.2, high=2)
case(chain("Tan(a)", "Asin(a)", "Acos(a)", "Atanh(a)"), a=(5,), low=-0.9, high=0.9)
case("f = Cast<to = 1>(a) g = Cast<to = 11>(f) h = CastLike(b, a) y = Add(h, b)", b=(3,), a=(3,))
case("y = Swish<alpha = 1.3>(a)", a=(5,), opset=24)
case("y = PRelu(a, b)", a=(2, 3, 4), b=(3, 1))
for op in ("Add", "Sub", "Mul", "Div"):
    case(f"y = {op}(a, b)", a=(2, 3), b=(2, 3), low=0.5)
    case(f"y = {op}(a, b)", a=(2, 1, 3), b=(4, 1), low=0.5)
case("y = Mul(a, a)", a=(2, 3))
case("y = Pow(a, b)", a=(2, 3), b=(3,), low=0.5)
case("y = Pow(a, k)", constants="int64[3] k = {0, 2, 3}", a=(2, 3))
case("y = Sum(a, b, a)", a=(2, 3), b=(1, 3))
case("y = Mean(a, b, c)", a=(2, 3), b=(1, 3), c=(3,))
case("p = Max(a, b, c) q = Min(a, b) y = Mul(p, q)", a=(2, 3), b=(1, 3), c=(3,))
case("m = Greater(a, b) p = Where(m, a, b) y = Mul(p, p)", a=(2, 3), b=(2, 1))
case("y = Clip(a, k, l)", constants="double k = {-0.5}, double l = {0.7}", a=(9,))
case("y = Clip<min = -0.5>(a)", a=(9,), opset=7)
case("f = Floor(a) y = Add(a, f)", a=(3,))

# --- reductions

for op in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"):
    low = 0.3 if op == "LogSum" else -2
    body = f"s = Reduce{op}<keepdims = 0>(a, k) t = Reduce{op}(a, l) u = Reduce{op}<keepdims = 0>(a)"
    case(
        f"{body} v = Add(s, u) w = Unsqueeze(v, l) y = Mul(w, t)",
        constants="int64[2] k = {0, -1}, int64[1] l = {1}",
        a=(2, 3, 4),
        low=low,
    )
case("s = ReduceMean<axes = [1], keepdims = 0>(a) t = ReduceSum<axes = [0]>(a) y = MatMul(t, s)", a=(3, 3), opset=11)
case("z = Mul(a, k) y = ReduceProd(z, l)", constants="double[4] k = {1, 0, 2, 3}, int64[1] l = {-1}", a=(3, 4))
case("z = Mul(a, k) y = ReduceProd(z, l)", constants="double[4] k = {1, 0, 0, 3}, int64[1] l = {-1}", a=(3, 4))
case("y = CumSum(a, k)", constants="int64 k = {1}", a=(2, 5))
case("y = CumSum<exclusive = 1, reverse = 1>(a, k)", constants="int64 k = {1}", a=(2, 5))
case("y, i = TopK<axis = 0>(a, k)", constants="int64[1] k = {2}", a=(5, 3))

# --- shape

case("r = Reshape(a, k) f = Flatten(r) t = Transpose(f) y = MatMul(t, f)", constants="int64[3] k = {2, 3, 2}", a=(3, 4))
case(
    "u = Unsqueeze(a, k) s = Squeeze(u, l) t = Transpose<perm = [2, 0, 1]>(u) y = Mul(t, s)",
    constants="int64[1] k = {0}, int64[1] l = {0}",
    a=(3, 3),
)
case(
    "e = Expand(a, k) t = Tile(b, l) y = Mul(e, t)", constants="int64[3] k = {2, 3, 4}, int64[2] l = {3, 2}", a=(3, 1), b=(1, 2)
)
case("c = Concat<axis = -1>(a, b, a) p, q = Split<axis = 1, num_outputs = 2>(c) y = Mul(p, q)", a=(2, 3), b=(2, 2))
case("p, q, r = Split<axis = 0>(a, k) y = Mul(r, r)", constants="int64[3] k = {1, 2, 2}", a=(5, 2))
case(
    "y = Slice(a, s, e, x, t)",
    constants="int64[2] s = {-1, 0}, int64[2] e = {-100, 3}, int64[2] x = {0, 2}, int64[2] t = {-2, 2}",
    a=(5, 2, 4),
)
case("y = Slice<starts = [1], ends = [3]>(a)", a=(5, 2), opset=9)
case("y = Pad(a, k)", constants="int64[4] k = {1, -1, 2, 3}", a=(3, 4))
case("y = Pad(a, k, v, x)", constants="int64[2] k = {1, 2}, double v = {3}, int64[1] x = {1}", a=(3, 4))
case("t = Trilu<upper = 0>(a) u = Trilu(a, k) y = Mul(t, u)", constants="int64 k = {-1}", a=(4, 4))
case("y = DepthToSpace<blocksize = 2>(a)", a=(1, 8, 2, 3))
case('y = DepthToSpace<blocksize = 2, mode = "CRD">(a)', a=(2, 8, 2, 3))
case("y = SpaceToDepth<blocksize = 2>(a)", a=(1, 2, 4, 6))

# --- indexing

case("y = Gather(a, k)", constants="int64[2,2] k = {0, 2, -1, 0}", a=(3, 4))
case("y = Gather<axis = 1>(a, k)", constants="int64[3] k = {0, 2, 0}", a=(2, 3, 2))
case("y = Gather<axis = -1>(a, k)", constants="int64 k = {1}", a=(2, 3))
case("y = GatherElements<axis = 1>(a, k)", constants="int64[2,3] k = {0, 2, 0, -1, 1, 1}", a=(2, 4))
case("y = GatherND(a, k)", constants="int64[3,1] k = {0, 2, 0}", a=(3, 4))
case("y = GatherND<batch_dims = 1>(a, k)", constants="int64[2,1] k = {2, 0}", a=(2, 3, 4))
for reduction in ("none", "add"):
    case(
        f'y = ScatterElements<axis = 1, reduction = "{reduction}">(a, k, b)',
        constants="int64[2,2] k = {0, 2, 1, 0}",
        a=(2, 4),
        b=(2, 2),
    )
    case(f'y = ScatterND<reduction = "{reduction}">(a, k, b)', constants="int64[2,1] k = {0, 2}", a=(3, 4), b=(2, 4))

# --- products

for a, b in [
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 1, 2, 3), (5, 3, 4)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((5, 2, 3), (3,)),
]:
    case("y = MatMul(a, b)", a=a, b=b)
for left in (0, 1):
    for right in (0, 1):
        shapes = {"a": (3, 2) if left else (2, 3), "b": (4, 3) if right else (3, 4)}
        case(f"y = Gemm<transA = {left}, transB = {right}, alpha = 0.5, beta = 2.0>(a, b, c)", **shapes, c=(1, 4))
        case(f"y = com.microsoft.FusedMatMul<transA = {left}, transB = {right}, alpha = 0.5>(a, b)", **shapes)
case('y = Einsum<equation = "bij,bjk->bik">(a, b)', a=(2, 3, 4), b=(2, 4, 2))
case('y = Einsum<equation = "ij,jk,k">(a, b, c)', a=(2, 3), b=(3, 4), c=(4,))

# --- convolutions and pools

IMAGE = {"a": (2, 4, 7, 6), "b": (4, 2, 3, 2), "c": (4,)}
case("y = Conv<group = 2>(a, b, c)", **IMAGE)
case("y = Conv<group = 2, pads = [1, 0, 2, 1], strides = [2, 3]>(a, b, c)", **IMAGE)
case("y = Conv<group = 2, dilations = [2, 1], pads = [3, 3, 3, 3]>(a, b)", a=IMAGE["a"], b=IMAGE["b"])
case('y = Conv<group = 2, auto_pad = "SAME_LOWER", strides = [2, 2]>(a, b)', a=IMAGE["a"], b=IMAGE["b"])
case("y = Conv<group = 3, strides = [2], dilations = [2]>(a, b)", a=(2, 3, 9), b=(6, 1, 3))
case("y = Conv<strides = [2, 1, 2]>(a, b)", a=(1, 2, 4, 3, 4), b=(3, 2, 2, 1, 1))
case(
    "y = ConvTranspose<strides = [2, 1], pads = [1, 0, 0, 1], output_padding = [1, 0]>(a, b, c)",
    a=(2, 3, 3, 4),
    b=(3, 2, 3, 2),
    c=(2,),
)
case("y = ConvTranspose<group = 2, dilations = [2, 1]>(a, b)", a=(1, 4, 3, 4), b=(4, 2, 2, 2))
case("y = MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 1, 1, 0]>(a)", a=(2, 2, 5, 4))
case("y = MaxPool<kernel_shape = [2], dilations = [2], ceil_mode = 1, strides = [2]>(a)", a=(2, 2, 8))
case("y = AveragePool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 1, 1, 0]>(a)", a=(2, 2, 5, 4))
case("y = AveragePool<kernel_shape = [2, 2], pads = [1, 1, 0, 0], count_include_pad = 1>(a)", a=(2, 2, 3, 4))
case("p = GlobalAveragePool(a) q = GlobalMaxPool(a) y = Mul(p, q)", a=(2, 3, 3, 2))

# --- normalizations and losses

case("y = Softmax<axis = 1>(a)", a=(2, 3, 2))
case("y = Softmax<axis = 1>(a)", a=(2, 3, 2), opset=11)
case("y = LogSoftmax(a)", a=(2, 3))
case("y = LogSoftmax<axis = 1>(a)", a=(2, 3, 2), opset=11)
case("y = LayerNormalization(a, b, c)", a=(2, 3, 5), b=(5,), c=(5,))
case("y, m, i = LayerNormalization<axis = 1>(a, b)", a=(2, 3, 4), b=(3, 4))
case("y = SimplifiedLayerNormalization(a, b)", a=(2, 3, 5), b=(5,))
case("y = RMSNormalization(a, b)", a=(2, 3, 5), b=(5,), opset=23)
case("y = GroupNormalization<num_groups = 2>(a, b, c)", a=(2, 4, 3), b=(4,), c=(4,))
case("y = InstanceNormalization(a, b, c)", a=(2, 3, 4, 2), b=(3,), c=(3,))
case("y = MeanVarianceNormalization<axes = [0, 2]>(a)", a=(2, 3, 4))
case("y = LpNormalization<axis = 1>(a)", a=(2, 3, 2))
case("y = LpNormalization<p = 1>(a)", a=(2, 3))
STATISTICS = "double[3] m = {0.1, 0.2, -0.3}, double[3] v = {1, 2, 0.5}"
case("y = BatchNormalization(a, b, c, m, v)", constants=STATISTICS, a=(2, 3, 4), b=(3,), c=(3,))
case("y, n, w = BatchNormalization<training_mode = 1>(a, b, c, m, v)", constants=STATISTICS, a=(3, 3, 2, 2), b=(3,), c=(3,))
case("y = Dropout(a)", a=(4,))
LABELS = "int64[4] k = {0, 2, 1, 2}, double[3] w = {0.5, 2, 1}"
for reduction in ("mean", "sum", "none"):
    case(f'y = SoftmaxCrossEntropyLoss<reduction = "{reduction}">(a, k)', constants=LABELS, a=(4, 3))
    case(f'y = SoftmaxCrossEntropyLoss<reduction = "{reduction}", ignore_index = 2>(a, k, w)', constants=LABELS, a=(4, 3))
    case(f'l = LogSoftmax(a) y = NegativeLogLikelihoodLoss<reduction = "{reduction}">(l, k, w)', constants=LABELS, a=(4, 3))
case("l, p = SoftmaxCrossEntropyLoss(a, k) y = Mul(p, l)", constants="int64[2,2] k = {0, 2, 1, 2}", a=(2, 3, 2))

# --- recurrent layers and attention

LENGTHS = "int32[3] n = {4, 2, 3}"
for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
    lstm = {"a": (4, 3, 2), "b": (count, 8, 2), "c": (count, 8, 2), "d": (count, 16), "e": (count, 3, 2), "f": (count, 3, 2)}
    case(
        f'o, h, s = LSTM<hidden_size = 2, direction = "{direction}">(a, b, c, d, n, e, f) p = Mul(h, s) y = Mul(o, p)',
        constants=LENGTHS,
        **lstm,
    )
    gru = {"a": (4, 3, 2), "b": (count, 6, 2), "c": (count, 6, 2), "d": (count, 12), "e": (count, 3, 2)}
    case(f'o, h = GRU<hidden_size = 2, direction = "{direction}">(a, b, c, d, n, e) y = Mul(o, h)', constants=LENGTHS, **gru)
case("o, h, y = LSTM<hidden_size = 2>(a, b, c)", a=(3, 2, 2), b=(1, 8, 2), c=(1, 8, 2))
case("y = GRU<hidden_size = 2, linear_before_reset = 1>(a, b, c, d)", a=(3, 2, 2), b=(1, 6, 2), c=(1, 6, 2), d=(1, 12))
case("y = Attention(a, b, c)", a=(1, 2, 3, 4), b=(1, 2, 3, 4), c=(1, 2, 3, 4), opset=23)
for direction in ("forward", "reverse", "bidirectional"):
    count = 2 if direction == "bidirectional" else 1
    layer = {"a": (4, 3, 2), "b": (count, 2, 2), "c": (count, 2, 2), "d": (count, 4), "e": (count, 3, 2)}
    case(f'o, h = RNN<hidden_size = 2, direction = "{direction}">(a, b, c, d, n, e) y = Mul(o, h)', constants=LENGTHS, **layer)
    case(
        f'o, h = RNN<hidden_size = 2, direction = "{direction}">(a, b, c) y = Mul(o, h)',
        a=(3, 2, 2),
        b=(count, 2, 2),
        c=(count, 2, 2),
    )
case('y = RNN<hidden_size = 2, activations = ["Sigmoid"]>(a, b, c)', a=(3, 2, 2), b=(1, 2, 2), c=(1, 2, 2))

# --- images

for mode in ("reflect", "edge", "wrap"):
    case(f'y = Pad<mode = "{mode}">(a, k)', "int64[4] k = {1, 2, 0, 1}", a=(3, 4))
    case(f'y = Pad<mode = "{mode}">(a, k, , x)', "int64[2] k = {1, -1}, int64[1] x = {1}", a=(3, 4))
SCALES = "float[4] s = {1.0, 1.0, 2.0, 1.5}"
for mode in ("nearest", "linear", "cubic"):
    case(f'y = Resize<mode = "{mode}">(a, , s)', constants=SCALES, a=(1, 2, 3, 4))
    case(
        f'y = Resize<mode = "{mode}", coordinate_transformation_mode = "align_corners">(a, , , s)',
        "int64[4] s = {1, 2, 2, 5}",
        a=(1, 2, 3, 4),
    )
case('y = Resize<mode = "linear", antialias = 1, axes = [2]>(a, , s)', "float[1] s = {0.5}", a=(1, 2, 6))
case(
    'y = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">(a, r, , s)',
    "int64[2] s = {3, 2}, double[4] r = {0.1, 0.2, 0.7, 1.3}",
    a=(4, 3),
)
for padding in ("zeros", "border"):
    for corners in (0, 1):
        case(
            f'y = GridSample<padding_mode = "{padding}", align_corners = {corners}>(a, b)',
            a=(2, 2, 4, 3),
            b=(2, 3, 2, 2),
            low=-1.3,
            high=1.3,
        )
case("y = com.microsoft.ScaledSum<scale_0 = 0.5, scale_1 = 2.0>(a, b)", a=(3,), b=(3,))
case("y = com.microsoft.SoftmaxCrossEntropyLossInternal(a, k, , i)", "int64[3] k = {0, 2, 1}, int64 i = {2}", a=(3, 3))
case("y = LRN<size = 3, alpha = 0.5>(a)", a=(2, 5, 3))
case("y = LRN<size = 4, alpha = 0.5, bias = 2.0>(a)", a=(2, 3))
case("y = Det(a)", a=(2, 3, 3))
case("y = ReverseSequence<time_axis = 0, batch_axis = 1>(a, k)", "int64[2] k = {2, 3}", a=(3, 2))
case("y = Compress<axis = 1>(a, k)", "bool[3] k = {1, 0, 1}", a=(2, 3))
case("y = Compress(a, k)", "bool[5] k = {1, 0, 1, 0, 1}", a=(2, 3))
case("y, m, v, s = com.microsoft.SkipLayerNormalization(a, b, c, d, e)", a=(1, 2, 3), b=(1, 2, 3), c=(3,), d=(3,), e=(3,))
case("x = com.microsoft.SkipSimplifiedLayerNormalization(a, b, c) y = Identity(x)", a=(1, 2, 3), b=(1, 2, 3), c=(3,))


def test_celu_which_takes_float_alone() -> None:
    x = np.array([-3, -0.5, 0.5, 200], np.float32)
    plan = planned(
        'y = Celu<alpha = 1.5>(x) d = ai.onnx.preview.training.Gradient<xs = ["x"], y = "y">(x)', "float[4] x", "float[4] d"
    )
    expected = np.where(x > 0, 1, np.exp(np.minimum(x, 0) / 1.5))
    np.testing.assert_allclose(execute(plan, {"x": x})[0], expected, rtol=1e-6)


def test_every_rule_has_a_case() -> None:
    control = (Path(__file__).parent / "test_control_gradients.py").read_text(encoding="utf-8")
    text = " ".join((*CASES, control, "SplitTraining Scale Scatter BatchNormInternal Celu MultiHeadAttention FakeQuant"))
    ops = {op for _, op in gradients.operators()}
    ends = {entry.op for entry in gradients if entry.function.__name__ == "<lambda>"}
    assert not {op for op in ops - ends if op not in text}


WRITTEN_OUT = """
    p, q, r = Split<axis = 0, num_outputs = 3>(d) i = Add(a, p) j = Add(b, q) k = Add(c, r)
    i4 = Reshape(i, heads) j4 = Reshape(j, heads) k4 = Reshape(k, heads)
    i5 = Transpose<perm = [0, 2, 1, 3]>(i4) j5 = Transpose<perm = [0, 2, 3, 1]>(j4) k5 = Transpose<perm = [0, 2, 1, 3]>(k4)
    raw = MatMul(i5, j5) scores = Mul(raw, half) seen = Add(scores, m) weights = Softmax(seen) mixed = MatMul(weights, k5)
    back = Transpose<perm = [0, 2, 1, 3]>(mixed) y = Reshape(back, rows)
"""
CAUSAL = "float[3, 3] m = {0.0, -1e9, -1e9, 0.0, 0.0, -1e9, 0.0, 0.0, 0.0}"


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_which_takes_float_alone(causal: int) -> None:
    rng = np.random.default_rng(5)
    arrays = {name: rng.normal(size=(2, 3, 8)).astype(np.float32) for name in "abc"}
    arrays["d"] = rng.normal(size=24).astype(np.float32)
    inputs = "float[2, 3, 8] a, float[2, 3, 8] b, float[2, 3, 8] c, float[24] d"
    outputs = "float[2, 3, 8] e, float[2, 3, 8] f, float[2, 3, 8] g, float[24] h"
    mask = CAUSAL if causal else "float m = {0.0}"
    constants = f"int64[4] heads = {{0, 0, 2, 4}}, int64[3] rows = {{0, 0, 8}}, float half = {{0.5}}, {mask}"
    gradient = 'z = Sin(y) e, f, g, h = ai.onnx.preview.training.Gradient<xs = ["a", "b", "c", "d"], y = "z">(a, b, c, d)'
    whole = f"y = com.microsoft.MultiHeadAttention<num_heads = 2, unidirectional = {causal}>(a, b, c, d)"
    found = execute(planned(f"{whole} {gradient}", inputs, outputs, constants), arrays)
    expected = execute(planned(f"{WRITTEN_OUT} {gradient}", inputs, outputs, constants), arrays)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_rotary_embeddings_which_take_float_alone() -> None:
    rng = np.random.default_rng(6)
    x, angles = rng.normal(size=(1, 2, 3, 4)).astype(np.float32), rng.normal(size=(1, 3, 2))
    body = 'y = RotaryEmbedding(x, c, s) z = Mul(y, y) d = ai.onnx.preview.training.Gradient<xs = ["x"], y = "z">(x)'
    plan = planned(body, "float[1, 2, 3, 4] x, float[1, 3, 2] c, float[1, 3, 2] s", "float[1, 2, 3, 4] d", opset=23)
    feeds = {"x": x, "c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}
    np.testing.assert_allclose(execute(plan, feeds)[0], 2 * x, rtol=1e-5)  # turning keeps lengths


def test_rounding_to_few_numbers_passes_gradients_on_between_the_bounds() -> None:
    body = "y, m = com.microsoft.FakeQuant<quant_max = 3>(x, scale, zero) z = Mul(y, y)"
    gradient = 'd = ai.onnx.preview.training.Gradient<xs = ["x"], y = "z">(x)'
    plan = planned(f"{body} {gradient}", "double[4] x", "double[4] d", "double scale = {0.5}, double zero = {1.0}")
    found = execute(plan, {"x": np.array([-2, -0.4, 0.6, 5])})[0]
    np.testing.assert_allclose(found, [0, 2 * -0.5, 2 * 0.5, 0])
