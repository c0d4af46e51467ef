"""Node units: ops between DequantizeLinear and QuantizeLinear that become one op on whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.optimizer.rewrite import Journal, apply_rules
from sardonyx.optimizer.rules.quantize_units import UNITS
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.quantized import PARAMETERS, assert_quantizes, full_range_feeds
from tests.optimizer.rewriting import described, run, typed

P = f"<{PARAMETERS}>"
X = "d = DequantizeLinear(x, s, z)"


def assert_refused(text: str, reason: str, opset: int = 21) -> None:
    model = typed(text, opset)
    before = described(model.graph)
    journal = Journal(strict=True)
    assert not apply_rules(model, UNITS, evaluate=evaluate, journal=journal)
    assert described(model.graph) == before
    assert reason in {event.reason for event in journal.events}, journal.events


# --- ops that only move ---------------------------------------------------------------------------------------------

VECTORS = (
    "int64[2] shape = {-1, 4}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[5] wide = {2,1,1,1,1},"
    " int64[4] twice = {1,1,2,1}, int64[4] sizes = {1,4,8,8}, int64[1,4,1,1] pick = {0,1,2,3}"
)
MOVERS = {
    "Transpose": "Transpose<perm=[0,2,3,1]>({x})",
    "Reshape": "Reshape({x}, shape)",
    "Squeeze": "Squeeze({x}, zero)",
    "Unsqueeze": "Unsqueeze({x}, zero)",
    "Flatten": "Flatten<axis=2>({x})",
    "Slice": "Slice({x}, one, three, one)",
    "Gather": "Gather<axis=1>({x}, one)",
    "GatherElements": "GatherElements<axis=2>({x}, pick)",
    "Expand": "Expand({x}, wide)",
    "Tile": "Tile({x}, twice)",
    "MaxPool": "MaxPool<kernel_shape=[2,2], pads=[1,1,0,0]>({x})",
    "ReduceMax": "ReduceMax<keepdims=0>({x}, one)",
    "ReduceMin": "ReduceMin({x}, one)",
    "Resize": 'Resize<mode="nearest">({x}, , , sizes)',
    "DepthToSpace": "DepthToSpace<blocksize=2>({x})",
}


@pytest.mark.parametrize("name", MOVERS)
def test_what_moves_numbers_moves_whole_ones(name):
    inputs = f"g (uint8[1,4,4,4] x) => (y) <{PARAMETERS}, {VECTORS}>"
    assert_quantizes(
        UNITS,
        f"{inputs} {{ {X} m = {MOVERS[name].format(x='d')} y = QuantizeLinear(m, s, z) }}",
        f"{inputs} {{ y = {MOVERS[name].format(x='x')} }}",
        steps=0,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Pad(d, pads)", "Pad(x, pads, z)"),
        ("Pad(d, pads, high)", "Pad(x, pads, top)"),
        ("Pad(d, two, low, last)", "Pad(x, two, bottom, last)"),
        ('Pad<mode="reflect">(d, pads)', 'Pad<mode="reflect">(x, pads, z)'),
    ],
)
def test_padding_is_quantized(before, after):
    inputs = f"g (uint8[1,4,4,4] x) => (y) <{PARAMETERS}, int64[8] pads = {{0,0,1,1,0,0,2,0}}, int64[2] two = {{1,2}}, float low = {{-1}},"
    inputs += " float high = {100}, int64[1] last = {3}, uint8 bottom = {100}, uint8 top = {255}>"
    assert_quantizes(
        UNITS, f"{inputs} {{ {X} m = {before} y = QuantizeLinear(m, s, z) }}", f"{inputs} {{ y = {after} }}", steps=0
    )


@pytest.mark.parametrize(
    ("opset", "mover"),
    [
        (10, "Squeeze<axes=[0]>({x})"),
        (12, "MaxPool<kernel_shape=[2,2]>({x})"),
        (12, "ReduceMax<axes=[1], keepdims=0>({x})"),
        (13, "Transpose<perm=[0,2,3,1]>({x})"),
    ],
)
def test_in_older_opsets_too(opset, mover):
    inputs = f"g (uint8[1,4,4,4] x) => (y) {P}"
    assert_quantizes(
        UNITS,
        f"{inputs} {{ {X} m = {mover.format(x='d')} y = QuantizeLinear(m, s, z) }}",
        f"{inputs} {{ y = {mover.format(x='x')} }}",
        opset=opset,
        steps=0,
    )


@pytest.mark.parametrize(
    ("body", "reason", "opset"),
    [
        ("m = Transpose(d) y = QuantizeLinear(m, s2, z)", "not the same constant scale above zero before and after", 21),
        ('m = Resize<mode="linear">(d, , , sizes) y = QuantizeLinear(m, s, z)', "numbers between two are computed", 21),
        ("m = MaxPool<kernel_shape=[2,2]>(d) y = QuantizeLinear(m, s, z)", "MaxPool does not do this with uint8", 11),
    ],
)
def test_movers_that_stay(body, reason, opset):
    assert_refused(f"g (uint8[1,4,4,4] x) => (y) <{PARAMETERS}, {VECTORS}> {{ {X} {body} }}", reason, opset)


def test_the_greatest_is_found_among_whole_numbers():
    assert_quantizes(
        UNITS,
        f"g (uint8[3,40] x) => (y) {P} {{ {X} y = ArgMax<axis=1>(d) }}",
        f"g (uint8[3,40] x) => (y) {P} {{ y = ArgMax<axis=1>(x) }}",
        steps=0,
    )


def test_parts_quantized_again_are_parts_of_whole_numbers():
    body = f"{X} a, b = Split<axis=1, num_outputs=2>(d)"
    assert_quantizes(
        UNITS,
        f"g (uint8[3,40] x) => (y) {P} {{ {body} p = QuantizeLinear(a, s, z) q = QuantizeLinear(b, s, z) y = Concat<axis=0>(q, p) }}",
        f"g (uint8[3,40] x) => (y) {P} {{ a, b = Split<axis=1, num_outputs=2>(x) y = Concat<axis=0>(b, a) }}",
        steps=0,
    )
    assert_refused(
        f"g (uint8[3,40] x) => (y) {P} {{ {body} p = QuantizeLinear(a, s, z) q = QuantizeLinear(b, s2, z) y = Concat<axis=0>(q, p) }}",
        "not all parts are quantized again in the same way",
    )


# --- arithmetic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f = Sigmoid(d) y = QuantizeLinear(f, s2, z2)", "QLinearSigmoid(x, s, z, s2, z2)"),
        ("f = LeakyRelu<alpha=0.2>(d) y = QuantizeLinear(f, s2, z2)", "QLinearLeakyRelu<alpha=0.2>(x, s, z, s2, z2)"),
        ("f = Softmax<axis=1>(d) y = QuantizeLinear(f, s2, z2)", "QLinearSoftmax<axis=1, opset=21>(x, s, z, s2, z2)"),
        ("f = GlobalAveragePool(d) y = QuantizeLinear(f, s2, z2)", "QLinearGlobalAveragePool(x, s, z, s2, z2)"),
        (
            "f = AveragePool<kernel_shape=[2,2], strides=[2,2]>(d) y = QuantizeLinear(f, s2, z2)",
            "QLinearAveragePool<kernel_shape=[2,2], strides=[2,2]>(x, s, z, s2, z2)",
        ),
        (
            "e = DequantizeLinear(w, s3, z3) f = Add(d, e) y = QuantizeLinear(f, s2, z2)",
            "QLinearAdd(x, s, z, w, s3, z3, s2, z2)",
        ),
        (
            "e = DequantizeLinear(w, s3, z3) f = Mul(e, d) y = QuantizeLinear(f, s2, z2)",
            "QLinearMul(w, s3, z3, x, s, z, s2, z2)",
        ),
        ("f = Mul(d, d) y = QuantizeLinear(f, s2, z2)", "QLinearMul(x, s, z, x, s, z, s2, z2)"),
        (
            "e = DequantizeLinear(w, s3, z3) f = Concat<axis=1>(d, e, d) y = QuantizeLinear(f, s2, z2)",
            "QLinearConcat<axis=1>(s2, z2, x, s, z, w, s3, z3, x, s, z)",
        ),
        (
            "e = DequantizeLinear(w, s3, z3) f = Where(c, d, e) y = QuantizeLinear(f, s2, z2)",
            "QLinearWhere(c, x, s, z, w, s3, z3, s2, z2)",
        ),
    ],
    ids=lambda text: text.split("(")[0] if text.startswith("QL") else "",
)
def test_arithmetic_on_bytes(before, after):
    inputs = f"g (uint8[2,3,4,4] x, uint8[2,3,4,4] w, bool[4,4] c) => (y) {P}"
    assert_quantizes(UNITS, f"{inputs} {{ {X} {before} }}", f"{inputs} {{ y = com.microsoft.{after} }}")


def test_results_of_convolutions_get_the_scale_of_what_they_are_joined_to():
    inputs = f"g (uint8[2,3,4,4] x, uint8[2,3,4,4] w) => (y) <{PARAMETERS}, int8[3,3,1,1] k = {{1,2,3,4,5,6,7,8,9}}>"
    convolution = "a = QLinearConv(x, s, z, k, s, i, s3, z3)"
    assert_quantizes(
        UNITS,
        f"{inputs} {{ {convolution} b = DequantizeLinear(a, s3, z3) e = DequantizeLinear(w, s2, z2) f = Concat<axis=1>(b, e)"
        " y = QuantizeLinear(f, s2, z2) }",
        f"{inputs} {{ {convolution} b = DequantizeLinear(a, s3, z3) q = QuantizeLinear(b, s2, z2) y = Concat<axis=1>(q, w) }}",
    )


def test_older_opsets_average_and_normalize_rows():
    inputs = f"g (int8[2,3,4,4] x) => (y) {P}"
    assert_quantizes(
        UNITS,
        f"{inputs} {{ d = DequantizeLinear(x, s, i) f = Softmax(d) y = QuantizeLinear(f, s2, i2) }}",
        f"{inputs} {{ y = com.microsoft.QLinearSoftmax<axis=1, opset=12>(x, s, i, s2, i2) }}",
        opset=12,
    )


def test_a_zero_point_that_is_left_out_is_written():
    assert_quantizes(
        UNITS,
        f"g (uint8[2,30] x) => (y) {P} {{ d = DequantizeLinear(x, s) f = Sigmoid(d) y = QuantizeLinear(f, s2) }}",
        f"g (uint8[2,30] x) => (y) <{PARAMETERS}, uint8 o = {{0}}> {{ y = com.microsoft.QLinearSigmoid(x, s, o, s2, o) }}",
    )


def test_bytes_of_one_scale_are_joined_as_they_are():
    inputs = f"g (uint8[2,3] x, uint8[2,4] w) => (y) {P}"
    assert_quantizes(
        UNITS,
        f"{inputs} {{ {X} e = DequantizeLinear(w, s, z) f = Concat<axis=1>(d, e) y = QuantizeLinear(f, s, z) }}",
        f"{inputs} {{ y = Concat<axis=1>(x, w) }}",
        steps=0,
    )


NOT_BYTES = "not all are 8-bit numbers with one constant scale"


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("uint8[2,3] x, int8[2,3] w", "e = DequantizeLinear(w, s, i) f = Add(d, e) y = QuantizeLinear(f, s2, z2)"),
        ("uint8[2,3] x, float r", "e = DequantizeLinear(x, r, z) f = Add(d, e) y = QuantizeLinear(f, s2, z2)"),
        ("uint8[2,3] x", "e = DequantizeLinear(x, c, k) f = Add(d, e) y = QuantizeLinear(f, s2, z2)"),
        ("uint8[2,3] x, float[2,3] w", "f = Concat<axis=0>(d, w) y = QuantizeLinear(f, s2, z2)"),
        ("uint8[2,3] x", "f = Sigmoid(d) y = QuantizeLinear(f, s2, u)"),
    ],
    ids=["two types", "a scale that is not constant", "a scale per channel", "a float among them", "16 bits"],
)
def test_arithmetic_that_stays(inputs, body):
    extra = "float[3] c = {1, 2, 3}, uint8[3] k = {0, 1, 2}, uint16 u = {0}"
    assert_refused(f"g ({inputs}) => (y) <{PARAMETERS}, {extra}> {{ {X} {body} }}", NOT_BYTES)


def test_a_result_that_is_needed_in_floats_too_stays():
    text = f"g (uint8[2,3] x) => (y, f) {P} {{ {X} f = Sigmoid(d) y = QuantizeLinear(f, s2, z2) }}"
    assert_refused(text, "'f' is used elsewhere")


def test_both_domains_have_quantization():
    assert_quantizes(
        UNITS,
        f"g (uint8[2,30] x) => (y) {P}"
        "{ d = com.microsoft.DequantizeLinear(x, s, z) f = Sigmoid(d) y = com.microsoft.QuantizeLinear(f, s2, z2) }",
        f"g (uint8[2,30] x) => (y) {P} {{ y = com.microsoft.QLinearSigmoid(x, s, z, s2, z2) }}",
    )


# --- products -------------------------------------------------------------------------------------------------------

WEIGHTS = (
    "int8[2,3,1,1] w = {1, -20, 35, 42, -127, 6}, float v = {0.01}, int8 o = {0}, float[2] vs = {0.01, 0.03}, int8[2] os = {0, 2},"
    " int32[2] b = {100, -300}, float bs = {0.0005}, float[2] bv = {0.0005, 0.0015}, float[2] r = {0.05, -0.45}"
)
CONV = f"g (uint8[2,3,4,4] x) => (y) <{PARAMETERS}, {WEIGHTS}>"


@pytest.mark.parametrize(
    ("before", "after", "opset"),
    [
        ("e = DequantizeLinear(w, v, o) f = Conv(d, e)", "x, s, z, w, v, o, s2, z2", 10),
        ("e = DequantizeLinear<axis=0>(w, vs, os) f = Conv(d, e)", "x, s, z, w, vs, os, s2, z2", 13),
        ("e = DequantizeLinear(w, v, o) a = DequantizeLinear(b, bs) f = Conv(d, e, a)", "x, s, z, w, v, o, s2, z2, b", 21),
        (
            "e = DequantizeLinear<axis=0>(w, vs, os) a = DequantizeLinear<axis=0>(b, bv) f = Conv(d, e, a)",
            "x, s, z, w, vs, os, s2, z2, b",
            21,
        ),
    ],
    ids=["no bias", "a scale per channel", "bias", "bias per channel"],
)
def test_a_convolution_of_whole_numbers(before, after, opset):
    assert_quantizes(
        UNITS, f"{CONV} {{ {X} {before} y = QuantizeLinear(f, s2, z2) }}", f"{CONV} {{ y = QLinearConv({after}) }}", opset=opset
    )


def test_a_bias_in_floats_is_brought_to_the_scale_of_the_product():
    assert_quantizes(
        UNITS,
        f"{CONV} {{ {X} e = DequantizeLinear(w, v, o) f = Conv<pads=[1,1,1,1]>(d, e, r) y = QuantizeLinear(f, s2, z2) }}",
        CONV[:-1] + ", int32[2] bb = {100, -900}> { y = QLinearConv<pads=[1,1,1,1]>(x, s, z, w, v, o, s2, z2, bb) }",
    )


@pytest.mark.parametrize("bias", ["r", "a"])
def test_a_convolution_whose_result_stays_real(bias):
    """Quantized behind an activation, too."""
    graph = CONV[:-1] + ", float[2,1,1] t = {0.0005, 0.0015}, float[2,1,1] rr = {0.05, -0.45}>"
    assert_quantizes(
        UNITS,
        f"{graph} {{ {X} e = DequantizeLinear<axis=0>(w, vs, os) a = DequantizeLinear<axis=0>(b, bv)"
        f" f = Conv<pads=[1,1,1,1]>(d, e, {bias}) h = Tanh(f) y = QuantizeLinear(h, s2, z2) }}",
        f"{graph} {{ c = ConvInteger<pads=[1,1,1,1]>(x, w, z, os) g = Cast<to=1>(c) l = Mul(g, t) f = Add(l, rr) h = Tanh(f)"
        " y = QuantizeLinear(h, s2, z2) }",
    )


@pytest.mark.parametrize(
    ("inputs", "body", "reason"),
    [
        ("uint8[2,3,4,4] x, float[2] m", "e = DequantizeLinear(w, v, o) f = Conv(d, e, m)", "the bias is neither constant nor"),
        ("uint8[2,3,4,4] x", "e = DequantizeLinear(w, v, o) f = Conv(d, e, g)", "the bias does not fit into 32 bits"),
        ("uint8[2,3,4,4] x", "e = DequantizeLinear<axis=1>(w, k, l) f = Conv(d, e)", "the second factor's scales are not one"),
    ],
)
def test_convolutions_that_stay(inputs, body, reason):
    extra = "float[3] k = {1, 2, 3}, int8[3] l = {0, 0, 0}, float[2] g = {1e9, 0}"
    text = f"g ({inputs}) => (y) <{PARAMETERS}, {WEIGHTS}, {extra}> {{ {X} {body} y = QuantizeLinear(f, s2, z2) }}"
    model = typed(text)
    journal = Journal(strict=True)
    assert not apply_rules(model, UNITS, evaluate=evaluate, journal=journal)
    assert any(event.reason is not None and event.reason.startswith(reason) for event in journal.events)


MATRIX = (
    "int8[4,2] w = {1, -20, 35, 42, -127, 6, 7, 8}, float v = {0.01}, int8 o = {1}, float[2] vs = {0.01, 0.03}, int8[2] os = {0, 2},"
    " int32[2] b = {100, -300}, float[2] bv = {0.0005, 0.0015}, float[2] r = {0.05, -0.45}"
)
MATMUL = f"g (uint8[5,4] x) => (y) <{PARAMETERS}, {MATRIX}>"


@pytest.mark.parametrize(
    ("before", "after", "opset"),
    [
        (
            "e = DequantizeLinear(w, v, o) f = MatMul(d, e) y = QuantizeLinear(f, s2, z2)",
            "QLinearMatMul(x, s, z, w, v, o, s2, z2)",
            10,
        ),
        (
            "e = DequantizeLinear<axis=1>(w, vs, os) f = MatMul(d, e) y = QuantizeLinear(f, s2, z2)",
            "QLinearMatMul(x, s, z, w, vs, os, s2, z2)",
            13,
        ),
        ("e = DequantizeLinear(w, v, o) y = MatMul(d, e)", "com.microsoft.MatMulIntegerToFloat(x, w, s, v, z, o)", 21),
        (
            "e = DequantizeLinear<axis=1>(w, vs, os) y = MatMul(d, e)",
            "com.microsoft.MatMulIntegerToFloat(x, w, s, vs, z, os)",
            21,
        ),
        ("e = DequantizeLinear(w, v, o) y = Gemm(d, e)", "com.microsoft.QGemm(x, s, z, w, v, o)", 11),
        (
            "e = DequantizeLinear<axis=1>(w, vs, os) a = DequantizeLinear<axis=0>(b, bv) y = Gemm(d, e, a)",
            "com.microsoft.QGemm(x, s, z, w, vs, os, b)",
            13,
        ),
        (
            "e = DequantizeLinear<axis=1>(w, vs, os) a = DequantizeLinear<axis=0>(b, bv) f = Gemm(d, e, a)"
            " y = QuantizeLinear(f, s2, z2)",
            "com.microsoft.QGemm(x, s, z, w, vs, os, b, s2, z2)",
            21,
        ),
        ("e = DequantizeLinear(w, v, o) y = Gemm<alpha=0.5>(d, e)", "com.microsoft.QGemm<alpha=0.5>(x, s, z, w, v, o)", 21),
    ],
)
def test_products_of_matrices_of_whole_numbers(before, after, opset):
    assert_quantizes(UNITS, f"{MATMUL} {{ {X} {before} }}", f"{MATMUL} {{ y = {after} }}", opset=opset)


def test_a_factor_that_gemm_transposes_has_its_channels_first():
    graph = "g (uint8[4,5] x, int8[2,4] w) => (y) <float s = {0.05}, uint8 z = {3}, float[2] vs = {0.01, 0.03}, int8[2] os = {0, 2}>"
    assert_quantizes(
        UNITS,
        f"{graph} {{ {X} e = DequantizeLinear<axis=0>(w, vs, os) y = Gemm<transA=1, transB=1>(d, e) }}",
        f"{graph} {{ y = com.microsoft.QGemm<transA=1, transB=1>(x, s, z, w, vs, os) }}",
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "e = DequantizeLinear<axis=0>(w, k, l) y = MatMul(d, e)",
            "the second factor's scales are not one, or one along axis 1",
        ),
        ("e = DequantizeLinear(w, v, o) y = Gemm<beta=0.5>(d, e, r)", "the sum is weighted"),
        ("y = MatMul(d, h)", None),
    ],
)
def test_products_that_stay(body, reason):
    extra = "float[4] k = {1, 2, 3, 4}, int8[4] l = {0, 0, 0, 0}, float[4,2] h = {1, 2, 3, 4, 5, 6, 7, 8}"
    text = f"g (uint8[5,4] x) => (y) <{PARAMETERS}, {MATRIX}, {extra}> {{ {X} {body} }}"
    journal = Journal(strict=True)
    assert not apply_rules(typed(text), UNITS, evaluate=evaluate, journal=journal)
    assert [event.reason for event in journal.events][1:] == ([] if reason is None else [reason])  # the first: not few bits


def test_weights_of_few_bits_are_multiplied_as_bytes():
    graph = "g (uint8[5,4] x) => (y, u)"  # as files have them, two or four in a byte
    few = "int4[4,2] w = {129, 67, 105, 7}, float[2] vs = {0.01, 0.03}, int4[2] os = {32}, uint2[4,2] n = {228, 27},"
    few += " float t = {0.1}, uint2 o = {1}"
    wide = "int8[4,2] w = {1, -8, 3, 4, -7, 6, 7, 0}, int8[2] os = {0, 2}, uint8[4,2] n = {0,1,2,3,3,2,1,0}, uint8 o = {1}"
    assert_quantizes(
        UNITS,
        f"{graph} <{PARAMETERS}, {few}> {{ {X} e = DequantizeLinear<axis=1>(w, vs, os) f = MatMul(d, e) y = QuantizeLinear(f, s2, z2)"
        " h = DequantizeLinear(n, t, o) u = MatMul(d, h) }",
        f"{graph} <{PARAMETERS}, {wide}, float[2] vs = {{0.01, 0.03}}, float t = {{0.1}}> {{ y = QLinearMatMul(x, s, z, w, vs, os, s2, z2)"
        " u = com.microsoft.MatMulIntegerToFloat(x, n, s, t, z, o) }",
        opset=25,
    )


def test_a_dequantized_tensor_serves_several_units():
    graph = MATMUL.replace("=> (y)", "=> (y, u)")
    assert_quantizes(
        UNITS,
        f"{graph} {{ {X} e = DequantizeLinear(w, v, o) f = MatMul(d, e) y = QuantizeLinear(f, s2, z2)"
        " g = Sigmoid(d) u = QuantizeLinear(g, s2, z2) }",
        f"{graph} {{ y = QLinearMatMul(x, s, z, w, v, o, s2, z2) u = com.microsoft.QLinearSigmoid(x, s, z, s2, z2) }}",
    )


# --- any scales -----------------------------------------------------------------------------------------------------

SCALES = st.integers(1, 2000).map(lambda thousandths: thousandths / 1000)
BODIES = {
    "Add": "e = DequantizeLinear(w, sw, zw) f = Add(d, e)",
    "Mul": "e = DequantizeLinear(w, sw, zw) f = Mul(d, e)",
    "Concat": "e = DequantizeLinear(w, sw, zw) f = Concat<axis=1>(d, e)",
    "MatMul": "e = DequantizeLinear(w, sw, zw) f = MatMul(d, e)",
    "Conv": "e = DequantizeLinear(w, sw, zw) f = Conv(d, e)",
    "Sigmoid": "f = Sigmoid(d)",
    "LeakyRelu": "f = LeakyRelu(d)",
    "Softmax": "f = Softmax(d)",
    "AveragePool": "f = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1]>(d)",
}


@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["uint8", "int8"]), SCALES, SCALES, SCALES, st.tuples(*[st.integers(0, 255)] * 3))
def test_results_are_at_most_one_step_apart(name, dtype, scale, other, result, zeros):
    a, b, c = (zero - 128 if dtype == "int8" else zero for zero in zeros)
    parameters = f"float s = {{{scale}}}, {dtype} z = {{{a}}}, float sw = {{{other}}}, {dtype} zw = {{{b}}}"
    text = f"g ({dtype}[2,2,3,3] x, {dtype}[2,2,3,3] w) => (y) <{parameters}, float r = {{{result}}}, {dtype} q = {{{c}}}>"
    model = typed(f"{text} {{ {X} {BODIES[name]} y = QuantizeLinear(f, r, q) }}")
    feeds = full_range_feeds(model.graph)
    (want,) = run(model, feeds)
    assert apply_rules(model, UNITS, evaluate=evaluate, journal=Journal(strict=True))
    (got,) = run(model, feeds)
    assert got.dtype == want.dtype
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
