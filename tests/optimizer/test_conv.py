"""Rules that let convolutions and pools take over what stands around them."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.optimizer.rewrite import Journal, apply_rules
from sardonyx.optimizer.rules import conv
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites, random_feeds, run, typed

W = "float[2,1,1,1] w = {2, 3}"
IMAGE = "g (float[N,1,H,W] x) => (float[N,C,K,L] y) "


def reasons(journal):
    return [event.reason for event in journal.events if event.reason]


def rewritten(rules, text, opset=21, rtol=1e-5):
    """How many nodes of each op are left; outputs stay the same."""
    model = typed(text, opset)
    feeds = random_feeds(model.graph)
    want = run(model, feeds)
    journal = Journal(strict=True)
    apply_rules(model, rules, evaluate=evaluate, journal=journal)
    for got, wanted in zip(run(model, feeds), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
    return sorted(node.op_type for node in model.graph.nodes), journal


@pytest.mark.parametrize("shape", ["[2,1,1]", "[1,2,1,1]"])
def test_a_constant_per_channel_joins_the_bias(shape):
    assert_rewrites(
        conv.add_to_bias,
        IMAGE + f"<{W}, float[2] b = {{1, 2}}, float{shape} c = {{10, 20}}> {{ t = Conv(x, w, b) y = Add(c, t) }}",
        IMAGE + f"<{W}, float[2] b = {{11, 22}}> {{ y = Conv(x, w, b) }}",
    )


def test_one_number_joins_an_absent_bias():
    assert_rewrites(
        conv.add_to_bias,
        IMAGE + f"<{W}, float c = {{5}}> {{ t = Conv(x, w) y = Add(t, c) }}",
        IMAGE + f"<{W}, float[2] b = {{5, 5}}> {{ y = Conv(x, w, b) }}",
    )


@pytest.mark.parametrize("constant", ["float[1,1,2] c = {1, 2}", "float[1,1,2,1,1] c = {1, 2}", "float[2,1,1,1] c = {1, 2}"])
def test_what_is_not_per_channel_is_not_taken(constant):
    text = (
        f"g (float[1,1,2,2] x) => (float y) <{W}, {constant}> {{ t = Conv(x, w) s = Add(t, c) y = ReduceSum<keepdims=0>(s) }}"
    )
    assert reasons(assert_rewrites(conv.add_to_bias, text, None)) == ["the operands are not constants per channel"]


def test_a_factor_per_channel_joins_the_weights():
    assert_rewrites(
        conv.scale_weights,
        IMAGE + f"<{W}, float[2] b = {{1, 2}}, float[2,1,1] c = {{10, 100}}> {{ t = Conv(x, w, b) y = Mul(t, c) }}",
        IMAGE + "<float[2,1,1,1] w = {20, 300}, float[2] b = {10, 200}> { y = Conv(x, w, b) }",
    )


def test_weights_that_would_overflow_stay():
    text = IMAGE + "<float[2,1,1,1] w = {2e30, 3e30}, float c = {1e30}> { t = Conv(x, w) y = Mul(t, c) }"
    journal = assert_rewrites(conv.scale_weights, text, None, compare=False)
    assert reasons(journal) == ["the weights would not be finite"]


BN = "float[2] s = {2, 4}, float[2] o = {1, 2}, float[2] m = {3, 5}, float[2] v = {3.99999, 15.99999}"


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization_joins_a_convolution(opset):
    assert_rewrites(
        conv.fold_batch_normalization,
        IMAGE + f"<{W}, {BN}> {{ t = Conv(x, w) y = BatchNormalization<epsilon=0.00001>(t, s, o, m, v) }}",
        IMAGE + "<float[2,1,1,1] w = {2, 3}, float[2] b = {-2, -3}> { y = Conv(x, w, b) }",
        opset=opset,
    )


def test_batch_normalization_joins_a_transposed_convolution_in_groups():
    weights = ",".join(str(i % 7 - 3) for i in range(32))
    constants = "float[4] s = {1,2,3,4}, float[4] o = {4,3,2,1}, float[4] m = {1,1,2,2}, float[4] v = {1,2,1,2}"
    text = f"g (float[N,4,H,W] x) => (float[N,C,K,L] y) <float[4,2,2,2] w = {{{weights}}}, {constants}>"
    text += "{ t = ConvTranspose<group=2, strides=[2,2]>(x, w) y = BatchNormalization(t, s, o, m, v) }"
    ops, _ = rewritten([conv.fold_batch_normalization], text)
    assert ops == ["ConvTranspose"]


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("y, a, b = BatchNormalization<training_mode=1>(t, s, o, m, v)", 15),
        ("y, a, b, c, d = BatchNormalization(t, s, o, m, v)", 9),
    ],
)
def test_batch_normalization_that_trains_stays(text, opset):
    journal = assert_rewrites(
        conv.fold_batch_normalization, IMAGE + f"<{W}, {BN}> {{ t = Conv(x, w) {text} }}", None, opset=opset
    )
    assert reasons(journal) == ["the batch normalization trains"]


def test_a_convolution_that_is_used_elsewhere_stays():
    text = "g (float[1,1,2,2] x) => (float[1,2,2,2] y, float[1,2,2,2] t) "
    journal = assert_rewrites(
        conv.fold_batch_normalization, text + f"<{W}, {BN}> {{ t = Conv(x, w) y = BatchNormalization(t, s, o, m, v) }}", None
    )
    assert reasons(journal) == ["'t' is used elsewhere"]


# --- padding

PADS = "int64[8] p = {0, 0, 1, 2, 0, 0, 3, 0}"
KERNEL = "float[1,1,3,3] k = {1, 2, 3, 4, 5, 6, 7, 8, 9}"
FIXED = "g (float[N,1,7,8] x) => (float[N,1,K,L] y) "


def test_a_convolution_pads_itself():
    assert_rewrites(
        conv.pad_in_convolution,
        FIXED + f"<{KERNEL}, {PADS}> {{ t = Pad(x, p) y = Conv<pads=[1,1,1,1], dilations=[2,1]>(t, k) }}",
        FIXED + f'<{KERNEL}> {{ y = Conv<auto_pad="NOTSET", dilations=[2,1], pads=[2,3,4,1]>(x, k) }}',
    )


def test_pads_come_as_attribute_or_by_axes_too():
    assert_rewrites(
        conv.pad_in_convolution,
        FIXED + f"<{KERNEL}> {{ t = Pad<pads=[0,0,1,2,0,0,3,0]>(x) y = Conv(t, k) }}",
        FIXED + f'<{KERNEL}> {{ y = Conv<auto_pad="NOTSET", pads=[1,2,3,0]>(x, k) }}',
        opset=10,
    )
    assert_rewrites(
        conv.pad_in_convolution,
        FIXED + f"<{KERNEL}, int64[4] p = {{1, 2, 3, 0}}, int64[2] a = {{2, -1}}> {{ t = Pad(x, p, , a) y = Conv(t, k) }}",
        FIXED + f'<{KERNEL}> {{ y = Conv<auto_pad="NOTSET", pads=[1,2,3,0]>(x, k) }}',
    )


def test_a_cast_may_stand_between():
    assert_rewrites(
        conv.pad_in_convolution,
        f"g (float16[1,1,7,8] x) => (float[1,1,K,L] y) <{KERNEL}, {PADS}> {{ t = Pad(x, p) c = Cast<to=1>(t) y = Conv(c, k) }}",
        "g (float16[1,1,7,8] x) => (float[1,1,K,L] y) "
        f'<{KERNEL}> {{ c = Cast<to=1>(x) y = Conv<auto_pad="NOTSET", pads=[1,2,3,0]>(c, k) }}',
    )


@pytest.mark.parametrize(
    ("pad", "attributes"),
    [
        ("Pad(x, p, one)", ""),
        ('Pad<mode="edge">(x, p)', ""),
        ("Pad(x, crop)", ""),
        ("Pad(x, channels)", ""),
        ("Pad(x, p)", '<auto_pad="SAME_UPPER">'),
    ],
)
def test_other_padding_stays(pad, attributes):
    constants = (
        f"<float[1,C,3,3] k = {{{','.join(['1'] * 9)}}}, {PADS}, float one = {{1}},"
        "int64[8] crop = {0, 0, -1, 0, 0, 0, 0, 0}, int64[8] channels = {0, 1, 0, 0, 0, 1, 0, 0}>"
    ).replace("[1,C,", "[1,1,")
    attributes = attributes or ("<group=1>" if "channels" not in pad else "")
    if "channels" in pad:
        constants = constants.replace(
            "float[1,1,3,3] k = {1,1,1,1,1,1,1,1,1}", f"float[1,3,3,3] k = {{{','.join(['1'] * 27)}}}"
        )
    assert_rewrites(conv.pad_in_convolution, FIXED + constants + f"{{ t = {pad} y = Conv{attributes}(t, k) }}", None)


def test_an_average_over_padding_counts_it():
    assert_rewrites(
        conv.pad_in_average,
        FIXED + f"<{PADS}> {{ t = Pad(x, p) y = AveragePool<kernel_shape=[4,4]>(t) }}",
        FIXED + '{ y = AveragePool<auto_pad="NOTSET", count_include_pad=1, kernel_shape=[4,4], pads=[1,2,3,0]>(x) }',
    )
    for attributes in (
        "kernel_shape=[4,4], pads=[1,1,1,1]",
        "kernel_shape=[2,2]",
        "kernel_shape=[4,4], strides=[2,2], ceil_mode=1",
    ):
        text = FIXED + f"<{PADS}> {{ t = Pad(x, p) y = AveragePool<{attributes}>(t) }}"
        assert_rewrites(conv.pad_in_average, text, None)


@pytest.mark.parametrize("pixels", ["Relu(x)", "Abs(x)", "Sigmoid(x)", "Mul(a, a2)", "Clip(x, zero)"])
def test_zeros_around_pixels_that_are_not_below_zero_are_like_no_pixels(pixels):
    constants = f"<{PADS}, float zero = {{0}}>"
    first = f"a = Relu(x) a2 = Exp(x) r = {pixels}"
    ops, _ = rewritten(
        [conv.pad_in_maximum], FIXED + constants + f"{{ {first} t = Pad(r, p) y = MaxPool<kernel_shape=[4,4]>(t) }}"
    )
    assert "Pad" not in ops


def test_zeros_around_pixels_that_may_be_below_zero_stay():
    text = FIXED + f"<{PADS}> {{ t = Pad(x, p) y = MaxPool<kernel_shape=[4,4]>(t) }}"
    assert reasons(assert_rewrites(conv.pad_in_maximum, text, None)) == ["pixels may be below the 0.0 around them"]


def test_minus_infinity_around_pixels_is_like_no_pixels():
    text = FIXED + f"<{PADS}, float zero = {{0}}> {{ low = Log(zero) t = Pad(x, p, low) y = MaxPool<kernel_shape=[4,4]>(t) }}"
    ops, _ = rewritten([conv.pad_in_maximum], text)
    assert "Pad" not in ops


def test_a_pool_with_indices_stays():
    text = "g (float[1,1,7,8] x) => (float[1,1,K,L] y, int64[1,1,K,L] i) "
    text += f"<{PADS}> {{ r = Relu(x) t = Pad(r, p) y, i = MaxPool<kernel_shape=[4,4]>(t) }}"
    assert_rewrites(conv.pad_in_maximum, text, None)


# --- space to depth

SLICES = "int64[2] a = {2, 3}, int64[2] two = {2, 2}, int64[2] e = {100, 9223372036854775807}, "
CORNERS = "int64[2] p = {0, 0}, int64[2] q = {1, 0}, int64[2] r = {0, 1}, int64[2] s = {1, 1}"
FOCUS = "g (float[N,3,4,6] x) => (float[N,12,2,3] y) "


def quarters(order):
    slices = " ".join(f"{corner}1 = Slice(x, {corner}, e, a, two)" for corner in "pqrs")
    return FOCUS + f"<{SLICES}{CORNERS}> {{ {slices} y = Concat<axis=1>({', '.join(f'{c}1' for c in order)}) }}"


def test_four_quarters_are_space_to_depth():
    ops, _ = rewritten([conv.space_to_depth], quarters("prqs"))
    assert ops.count("SpaceToDepth") == 1
    assert "Gather" not in ops


def test_quarters_in_another_order_are_gathered():
    ops, _ = rewritten([conv.space_to_depth], quarters("pqrs"))
    assert ops.count("SpaceToDepth") == ops.count("Gather") == 1


def test_slices_by_rows_then_columns():
    parts = []
    for row in "01":
        parts.append(f"h{row} = Slice(x, s{row}, e, two, two)")
        parts += [f"c{row}{column} = Slice(h{row}, s{column}, e, three, two)" for column in "01"]
    text = FOCUS + (
        "<int64[1] s0 = {0}, int64[1] s1 = {1}, int64[1] e = {9223372036854775807}, int64[1] two = {2}, int64[1] three = {3}> {"
        f"{' '.join(parts)} y = Concat<axis=1>(c00, c10, c01, c11) }}"
    )
    ops, _ = rewritten([conv.space_to_depth], text)
    assert ops.count("SpaceToDepth") == ops.count("Gather") == 1


def test_three_different_quarters_are_not_enough():
    _, journal = rewritten([conv.space_to_depth], quarters("pqqs"))
    assert reasons(journal) == ["these are not the four quarters of one image"]


def test_channels_change_places_in_the_weights():
    text = (
        "g (float[N,3,4,6] x) => (float[N,2,4,6] y) <int64[3] i = {2, 0, 1}, float[2,3,1,1] w = {1, 2, 3, 4, 5, 6}>"
        "{ t = Gather<axis=1>(x, i) y = Conv(t, w) }"
    )
    ops, _ = rewritten([conv.reorder_weights], text)
    assert ops == ["Conv"]
    ops, _ = rewritten([conv.reorder_weights], text.replace("{2, 0, 1}", "{2, 2, 1}"))
    assert ops == ["Conv", "Gather"]
