"""Rules that make FusedConv and FusedGemm."""

from __future__ import annotations

import pytest

from sardonyx.optimizer.rules import epilogue
from tests.optimizer.rewriting import assert_rewrites

IMAGE = "g (float[N,1,H,W] x) => (float[N,2,K,L] y) <float[2,1,1,1] w = {2, -3}, float[2] b = {1, -2}, float low = {-1}, float high = {2}> "
SUM = IMAGE.replace("float[N,1,H,W] x", "float[N,1,H,W] x, float[N,2,H,W] z")


def reasons(journal):
    return [event.reason for event in journal.events if event.reason]


@pytest.mark.parametrize(
    ("act", "attributes"),
    [
        ("Relu(t)", 'activation="Relu"'),
        ("Sigmoid(t)", 'activation="Sigmoid"'),
        ("Tanh(t)", 'activation="Tanh"'),
        ("LeakyRelu<alpha=0.25>(t)", 'activation="LeakyRelu", activation_params=[0.25]'),
        ("HardSigmoid<alpha=0.5, beta=0.25>(t)", 'activation="HardSigmoid", activation_params=[0.5,0.25]'),
        ("Clip(t, low, high)", 'activation="Clip", activation_params=[-1.0,2.0]'),
    ],
)
def test_a_convolution_takes_the_activation_after_it(act, attributes):
    assert_rewrites(
        [epilogue.fuse_activation, epilogue.fuse_clip],
        IMAGE + f"{{ t = Conv<strides=[2,1]>(x, w, b) y = {act} }}",
        IMAGE + f"{{ y = com.microsoft.FusedConv<{attributes}, strides=[2,1]>(x, w, b) }}",
    )


def test_clip_by_attributes():
    assert_rewrites(
        epilogue.fuse_clip,
        IMAGE + "{ t = Conv(x, w) y = Clip<min=0.0, max=6.0>(t) }",
        IMAGE + '{ y = com.microsoft.FusedConv<activation="Clip", activation_params=[0.0,6.0]>(x, w) }',
        opset=10,
    )


def test_clip_between_computed_bounds_stays():
    text = IMAGE.replace("float[N,1,H,W] x", "float[N,1,H,W] x, float m") + "{ t = Conv(x, w) y = Clip(t, m) }"
    assert reasons(assert_rewrites(epilogue.fuse_clip, text, None)) == ["its bounds are not constant"]


def test_other_types_stay():
    text = "g (double[1,1,2,2] x, double[2,1,1,1] w) => (double[1,2,2,2] y) { t = Conv(x, w) y = Relu(t) }"
    assert reasons(assert_rewrites(epilogue.fuse_activation, text, None)) == ["FusedConv is for float32"]


@pytest.mark.parametrize("order", ["Add(t, z)", "Add(z, t)"])
@pytest.mark.parametrize(
    ("act", "attributes"),
    [("Relu(s)", 'activation="Relu"'), ("Clip(s, low, high)", 'activation="Clip", activation_params=[-1.0,2.0]')],
)
def test_a_sum_and_its_activation_go_in_together(order, act, attributes):
    assert_rewrites(
        [epilogue.fuse_sum, epilogue.fuse_activation_of_sum, epilogue.fuse_clip_of_sum],
        SUM + f"{{ t = Conv(x, w, b) s = {order} y = {act} }}",
        SUM + f"{{ y = com.microsoft.FusedConv<{attributes}>(x, w, b, z) }}",
    )


def test_a_sum_alone_goes_in_too():
    assert_rewrites(
        epilogue.fuse_sum,
        SUM + "{ t = Conv(x, w) y = Add(t, z) }",
        SUM + "{ y = com.microsoft.FusedConv(x, w, , z) }",
    )


def test_what_would_be_broadcast_stays():
    text = SUM.replace("float[N,2,H,W] z", "float[N,2,1,1] z") + "{ t = Conv(x, w) y = Add(t, z) }"
    assert reasons(assert_rewrites(epilogue.fuse_sum, text, None)) == ["what is added may have another shape"]


def test_one_activation_is_enough():
    text = SUM + '{ t = com.microsoft.FusedConv<activation="Tanh">(x, w, b, z) y = Relu(t) }'
    assert reasons(assert_rewrites(epilogue.fuse_activation_of_sum, text, None)) == ["it has an activation already"]


GEMM = "g (float[N,3] a, float[2,3] b) => (float[N,2] y) <float[2] c = {1, -2}> "


@pytest.mark.parametrize(
    ("act", "attributes"),
    [
        ("Relu(t)", ""),
        ("Softsign(t)", ""),
        ("Elu<alpha=0.5>(t)", ", activation_alpha=0.5"),
        ("LeakyRelu<alpha=0.25>(t)", ", activation_alpha=0.25"),
        ("ThresholdedRelu<alpha=0.5>(t)", ", activation_alpha=0.5"),
        ("HardSigmoid<alpha=0.5, beta=0.25>(t)", ", activation_alpha=0.5, activation_beta=0.25"),
        ("Selu<alpha=2.0, gamma=0.5>(t)", ", activation_alpha=2.0, activation_gamma=0.5"),
    ],
)
def test_a_gemm_takes_the_activation_after_it(act, attributes):
    name = act.split("<")[0].split("(")[0]
    assert_rewrites(
        epilogue.fuse_gemm_activation,
        GEMM + f"{{ t = Gemm<alpha=0.5, transB=1>(a, b, c) y = {act} }}",
        GEMM + f'{{ y = com.microsoft.FusedGemm<activation="{name}"{attributes}, alpha=0.5, transB=1>(a, b, c) }}',
    )


def test_a_gemm_without_bias_stays_without():
    assert_rewrites(
        epilogue.fuse_gemm_activation,
        GEMM + "{ t = Gemm<transB=1>(a, b) y = Tanh(t) }",
        GEMM + '{ y = com.microsoft.FusedGemm<activation="Tanh", transB=1>(a, b) }',
    )
