"""Rules of QuantizeLinear and DequantizeLinear: moved, merged, removed; dynamically quantized products."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.optimizer.rewrite import Journal, apply_rules
from sardonyx.optimizer.rules.quantize import (
    bias_of_integer_product,
    cancel_dequantize,
    cancel_quantize,
    drop_clip,
    drop_relu,
    dynamic_product,
    move_then_dequantize,
    quantize_once,
    quantize_scalar_branch,
    quantize_then_move,
    scale_integer_product,
)
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.quantized import PARAMETERS, assert_quantizes, full_range_feeds
from tests.optimizer.rewriting import run, typed

P = f"<{PARAMETERS}>"


def reasons(journal: Journal) -> list[str | None]:
    return [event.reason for event in journal.events]


# --- moving ---------------------------------------------------------------------------------------------------------

MOVERS = {
    "Transpose": "Transpose<perm=[0,2,1]>({x})",
    "Reshape": "Reshape({x}, shape)",
    "Squeeze": "Squeeze({x}, zero)",
    "Unsqueeze": "Unsqueeze({x}, zero)",
    "Flatten": "Flatten<axis=2>({x})",
    "Slice": "Slice({x}, one, three, one)",
    "MaxPool": "MaxPool<kernel_shape=[2]>({x})",
    "Gather": "Gather<axis=1>({x}, first)",
}
VECTORS = "int64[2] shape = {-1, 4}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64 first = {0}"
G = f"<{PARAMETERS}, {VECTORS}>"


@pytest.mark.parametrize("name", MOVERS)
def test_whole_numbers_are_moved_and_then_dequantized(name):
    mover = MOVERS[name]
    assert_quantizes(
        move_then_dequantize,
        f"g (uint8[1,3,4] x) => (y) {G} {{ d = DequantizeLinear(x, s, z) y = {mover.format(x='d')} }}",
        f"g (uint8[1,3,4] x) => (y) {G} {{ m = {mover.format(x='x')} y = DequantizeLinear(m, s, z) }}",
        steps=0,
        rtol=0,
    )


def test_a_dequantized_value_that_others_use_stays_for_them():
    assert_quantizes(
        move_then_dequantize,
        f"g (uint8[3,4] x) => (y, d) {P} {{ d = DequantizeLinear(x, s, z) y = Transpose(d) }}",
        f"g (uint8[3,4] x) => (y, d) {P} {{ d = DequantizeLinear(x, s, z) t = Transpose(x) y = DequantizeLinear(t, s, z) }}",
    )


def test_rows_of_a_constant_table_are_looked_up_before_they_are_dequantized():
    table = "<uint8[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float s = {0.5}, uint8 z = {3}>"
    assert_quantizes(
        move_then_dequantize,
        f"g (int64[N] i) => (y) {table} {{ d = DequantizeLinear(w, s, z) y = Gather(d, i) }}",
        f"g (int64[N] i) => (y) {table} {{ r = Gather(w, i) y = DequantizeLinear(r, s, z) }}",
    )
    journal = assert_quantizes(
        move_then_dequantize,
        f"g (uint8[4,2] x, int64[N] k) => (y) {P} {{ d = DequantizeLinear(x, s, z) y = Gather(d, k) }}",
        None,
    )
    assert reasons(journal) == ["more may be gathered than there is"]


@pytest.mark.parametrize(
    ("opset", "body", "reason"),
    [
        (21, "d = DequantizeLinear(x, c, w) y = Transpose(d)", "not one constant scale above zero"),
        (21, "d = DequantizeLinear(x, n, z) y = Transpose(d)", "not one constant scale above zero"),
        (11, "d = DequantizeLinear(x, s, z) y = MaxPool<kernel_shape=[2,2]>(d)", "MaxPool does not do this with uint8"),
        (12, "d = DequantizeLinear(x, s, z) y, k = MaxPool<kernel_shape=[2,2]>(d)", "MaxPool does not do this with uint8"),
    ],
    ids=["a scale per channel", "a negative scale", "an old op", "indices"],
)
def test_not_moved(opset, body, reason):
    extra = "float n = {-0.1}, float[3] c = {1, 2, 3}, uint8[3] w = {0, 1, 2}"
    outputs = "(y, k)" if "y, k" in body else "(y)"
    text = f"g (uint8[1,3,4,4] x) => {outputs} <{PARAMETERS}, {extra}> {{ {body} }}"
    journal = assert_quantizes(move_then_dequantize, text, None, opset=opset)
    assert reasons(journal) == [reason]


@pytest.mark.parametrize("name", ["Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"])
def test_quantizing_comes_before_moving(name):
    mover = MOVERS[name]
    assert_quantizes(
        quantize_then_move,
        f"g (float[1,3,4] x) => (y) {G} {{ m = {mover.format(x='x')} y = QuantizeLinear(m, s, z) }}",
        f"g (float[1,3,4] x) => (y) {G} {{ q = QuantizeLinear(x, s, z) y = {mover.format(x='q')} }}",
        steps=0,
    )


def test_more_is_quantized_only_for_a_unit():
    assert_quantizes(
        quantize_then_move,
        f"g (float[1,1,4,4] x) => (y) {P} {{ a = Add(x, x) m = MaxPool<kernel_shape=[2,2]>(a) y = QuantizeLinear(m, s, z) }}",
        f"g (float[1,1,4,4] x) => (y) {P} {{ a = Add(x, x) q = QuantizeLinear(a, s, z) y = MaxPool<kernel_shape=[2,2]>(q) }}",
        steps=0,
    )
    text = f"g (float[1,1,4,4] x) => (y) {P} {{ m = MaxPool<kernel_shape=[2,2]>(x) y = QuantizeLinear(m, s, z) }}"
    assert reasons(assert_quantizes(quantize_then_move, text, None)) == ["more would be quantized, for nothing"]


# --- merging --------------------------------------------------------------------------------------------------------


def pairs(first: str, second: str) -> str:
    return (
        f"q = QuantizeLinear(x, {first}) d = DequantizeLinear(q, {first})"
        f" r = QuantizeLinear(d, {second}) y = DequantizeLinear(r, {second})"
    )


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_of_two_pairs_the_narrower_one_is_left(opset):
    assert_quantizes(
        quantize_once,
        f"g (float[N] x) => (y) {P} {{ {pairs('s, z', 's2, z2')} }}".replace("s2, z2", "s2, z"),
        f"g (float[N] x) => (y) {P} {{ q = QuantizeLinear(x, s2, z) y = DequantizeLinear(q, s2, z) }}",
        opset=opset,
        rtol=0.1,
    )


def test_equal_pairs_are_one():
    assert_quantizes(
        quantize_once,
        f"g (float[N] x) => (y) {P} {{ {pairs('s, z', 's, z')} }}",
        f"g (float[N] x) => (y) {P} {{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }}",
        steps=0,
    )


def test_pairs_that_overlap_get_the_range_in_common():
    model = typed(f"g (float[100] x) => (y) {P} {{ {pairs('s, z', 's2, z2')} }}")
    feeds = full_range_feeds(model.graph)
    (want,) = run(model, feeds)
    assert apply_rules(model, [quantize_once], evaluate=evaluate, journal=Journal(strict=True))
    assert len(model.graph) == 2
    (got,) = run(model, feeds)
    assert np.abs(got - want).max() <= 1.5 * 0.05
    assert got.min() == pytest.approx(want.min(), abs=0.02)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("s, z", "s, i", "the pairs have not one type and one constant scale each"),
        ("s, low", "s, high", "nothing passes both"),
    ],
)
def test_pairs_that_stay(first, second, reason):
    text = f"g (float[N] x) => (y) <{PARAMETERS}, uint8 low = {{0}}, uint8 high = {{255}}> {{ {pairs(first, second)} }}"
    model = typed(text)
    journal = Journal(strict=True)
    assert not apply_rules(model, [quantize_once], evaluate=evaluate, journal=journal)
    assert reasons(journal) == [reason]


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_a_whole_number_that_becomes_real_and_whole_again_is_itself(opset):
    assert_quantizes(
        cancel_dequantize,
        f"g (uint8[N] x) => (uint8[N] y) {P} {{ d = DequantizeLinear(x, s, z) q = QuantizeLinear(d, s, z) y = Add(q, q) }}",
        f"g (uint8[N] x) => (uint8[N] y) {P} {{ y = Add(x, x) }}",
        opset=opset if opset > 13 else 14,
        steps=0,
    )


def test_sixteen_bits_are_exact_too():
    wide = "<float s = {0.0371}, uint16 z = {32768}>"
    assert_quantizes(
        cancel_dequantize,
        f"g (uint16[S,S] x) => (y) {wide} {{ d = DequantizeLinear(x, s, z) q = QuantizeLinear(d, s, z) y = Transpose(q) }}",
        f"g (uint16[S,S] x) => (y) {wide} {{ y = Transpose(x) }}",
        steps=0,
    )


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("s, z", "s2, z", "the parameters differ"),
        ("s, z", "s, z2", "the parameters differ"),
        ("huge, z", "huge, z", "real numbers may overflow or lose the last bits"),
    ],
)
def test_requantizing_stays(before, after, reason):
    text = f"g (uint8[S] x) => (y) <{PARAMETERS}, float huge = {{3e37}}>"
    text += f" {{ d = DequantizeLinear(x, {before}) y = QuantizeLinear(d, {after}) }}"
    model = typed(text)
    journal = Journal(strict=True)
    assert not apply_rules(model, [cancel_dequantize], evaluate=evaluate, journal=journal)
    assert reasons(journal) == [reason]


def test_rounding_is_left_out_where_the_user_wants_that():
    assert_quantizes(
        cancel_quantize,
        f"g (float[N] x) => (y) {P} {{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Neg(d) }}",
        "g (float[N] x) => (y) { y = Neg(x) }",
        rtol=0.05,
    )


# --- what quantizing does anyway ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("zero_point", "opset"), [("uint8 z = {0}", 10), ("int8 z = {-128}", 13), ("uint16 z = {0}", 21)])
def test_relu_before_a_type_without_negative_numbers_goes(zero_point, opset):
    text = f"g (float[S,S] x) => (y) <float s = {{0.05}}, {zero_point}>"
    assert_quantizes(
        drop_relu,
        text + " { r = Relu(x) y = QuantizeLinear(r, s, z) }",
        text + " { y = QuantizeLinear(x, s, z) }",
        opset=opset,
        steps=0,
    )


def test_relu_stays_where_negative_numbers_have_a_place():
    journal = assert_quantizes(drop_relu, f"g (float[S,S] x) => (y) {P} {{ r = Relu(x) y = QuantizeLinear(r, s, z) }}", None)
    assert reasons(journal) == ["zero is not the least number"]


@pytest.mark.parametrize(
    ("opset", "clip"), [(10, "Clip<min=-6.0, max=7.0>(x)"), (13, "Clip(x, low, high)"), (21, "Clip(x, low)"), (21, "Clip(x)")]
)
def test_a_clip_wider_than_the_type_goes(opset, clip):
    text = f"g (float[S,S] x) => (y) <{PARAMETERS}, float low = {{-6}}, float high = {{7}}>"
    assert_quantizes(
        drop_clip,
        text + f" {{ c = {clip} y = QuantizeLinear(c, s, z) }}",
        text + " { y = QuantizeLinear(x, s, z) }",
        opset=opset,
        steps=0,
    )


@pytest.mark.parametrize(
    ("clip", "reason"),
    [
        ("Clip(x, low, high)", "the clip is narrower than the type's range"),
        ("Clip(x, b)", "the bounds are not constant"),
    ],
)
def test_other_clips_stay(clip, reason):
    text = f"g (float[S,S] x, float b) => (y) <{PARAMETERS}, float low = {{-1}}, float high = {{7}}>"
    journal = assert_quantizes(drop_clip, text + f" {{ c = {clip} y = QuantizeLinear(c, s, z) }}", None)
    assert reasons(journal) == [reason]


@pytest.mark.parametrize(
    ("number", "stored"), [("-100", "{0}, float t = {100}, uint8 o = {1}"), ("2.5", "{1}, float t = {2.5}, uint8 o = {0}")]
)
def test_a_number_in_where_is_stored_exactly(number, stored):
    inputs = "g (bool[N,3] c, uint8[N,3] x) => (y)"
    assert_quantizes(
        quantize_scalar_branch,
        f"{inputs} <{PARAMETERS}, float m = {{{number}}}>"
        "{ d = DequantizeLinear(x, s, z) w = Where(c, d, m) y = QuantizeLinear(w, s2, z2) }",
        f"{inputs} <{PARAMETERS}, uint8 m = {stored}>"
        "{ d = DequantizeLinear(x, s, z) e = DequantizeLinear(m, t, o) w = Where(c, d, e) y = QuantizeLinear(w, s2, z2) }",
        steps=0,
    )


# --- dynamically quantized products ---------------------------------------------------------------------------------

DYNAMIC = (
    "g (float[N,4] x) => (y) <int8[4,2] w = {1, -2, 3, 4, -5, 6, 7, 8}, float[2] t = {0.5, 0.25}, int8[2] o = {1, -1},"
    " float[2] b = {1, 2}>"
)
INTEGER = "q, s, z = DynamicQuantizeLinear(x) m = MatMulInteger(q, w, z, o) c = Cast<to=1>(m)"


@pytest.mark.parametrize("scales", ["Mul(s, t)", "Mul(t, s)"])
@pytest.mark.parametrize("opset", [11, 21])
def test_an_integer_product_and_its_scales_are_one(scales, opset):
    assert_quantizes(
        scale_integer_product,
        DYNAMIC + f"{{ {INTEGER} u = {scales} y = Mul(c, u) }}",
        DYNAMIC + "{ q, s, z = DynamicQuantizeLinear(x) y = com.microsoft.MatMulIntegerToFloat(q, w, s, t, z, o) }",
        opset=opset,
    )


def test_bias_and_quantization_go_into_the_product():
    assert_quantizes(
        [scale_integer_product, bias_of_integer_product, dynamic_product],
        DYNAMIC + f"{{ {INTEGER} u = Mul(s, t) m2 = Mul(c, u) y = Add(b, m2) }}",
        DYNAMIC + "{ y = com.microsoft.DynamicQuantizeMatMul(x, w, t, o, b) }",
    )


def test_a_tensor_quantized_for_two_products_is_quantized_once():
    product = "com.microsoft.MatMulIntegerToFloat(q, w, s, t, z, o)"
    text = DYNAMIC + f"{{ q, s, z = DynamicQuantizeLinear(x) p = {product} r = {product} y = Sub(p, r) }}"
    journal = assert_quantizes(dynamic_product, text, None)
    assert all(reason is not None and reason.endswith("is used elsewhere") for reason in reasons(journal))


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ("float[4,1] t, int8 o", "the scales are not one number, and one or one per column"),
        ("float[2] t, int8[k,2] o", "the zero points are not one number, and one or one per column"),
    ],
)
def test_products_with_other_scales_stay(inputs, reason):
    text = f"g (float[4,4] x, int8[4,2] w, {inputs}) => (y) {{ {INTEGER} u = Mul(s, t) y = Mul(c, u) }}"
    journal = Journal(strict=True)
    assert not apply_rules(typed(text), [scale_integer_product], evaluate=evaluate, journal=journal)
    assert reason in reasons(journal)


def test_what_is_added_to_single_rows_stays_outside():
    text = "g (uint8[N,4] q, int8[4,2] w, float s, float t, float[N,2] b) => (y)"
    text += "{ p = com.microsoft.MatMulIntegerToFloat(q, w, s, t) y = Add(p, b) }"
    journal = assert_quantizes(bias_of_integer_product, text, None)
    assert reasons(journal) == ["what is added is not one number for each column"]


def test_a_number_stored_exactly_is_not_stored_again():
    text = f"g (bool[N,3] c, uint8[N,3] x) => (y) <{PARAMETERS}, uint8 m = {{1}}, uint8 o = {{0}}>"
    text += "{ d = DequantizeLinear(x, s, z) e = DequantizeLinear(m, s2, o) w = Where(c, d, e) y = QuantizeLinear(w, s2, z2) }"
    assert reasons(assert_quantizes(quantize_scalar_branch, text, None)) == ["not one quantized tensor and one constant number"]
