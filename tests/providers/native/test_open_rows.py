"""Rows and pixels of open length before weights that tell it: native code runs where they fit, and NumPy says what is wrong elsewhere."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import (
    CPUExecutionProvider,
    assert_agrees_or_refuses,
    compare,
    model_of,
    native_plan,
    programs,
    without_fallback,
)

MODELS = {
    "convolution": ("g (float[N,C,H,W] x) => (y) <float[4,3,3,3] w = {W}> { y = Conv<pads=[1,1,1,1]>(x, w) }", (2, 3, 6, 7)),
    "convolution of parts": (
        "g (float[N,C,H,W] x) => (y) <float[32,1,3,3] w = {W}> { n = Neg(x) y = Conv<group=32>(n, w) }",
        (1, 32, 9, 8),
    ),
    "strided convolution of pixels": (
        "g (float[N,H,W,C] x) => (y) <float[24,3,4,4] w = {W}> { t = Transpose<perm=[0,3,1,2]>(x) y = Conv<strides=[4,4]>(t, w) }",
        (1, 16, 12, 3),
    ),
    "transposed convolution": (
        "g (float[N,C,H,W] x) => (y) <float[3,20,2,2] w = {W}> { y = ConvTranspose<strides=[2,2]>(x, w) }",
        (2, 3, 4, 5),
    ),
    "pixels that others read, too": (
        "g (float[N,C,M] x) => (y, z) <float[3,4,2] w = {W}> { n = Neg(x) y = ConvTranspose<strides=[2]>(n, w) z = Softmax(n) }",
        (2, 3, 7),
    ),
    "layer norm": ("g (float[N,M] x) => (y) <float[5] w = {W}> { y = LayerNormalization(x, w, w) }", (3, 5)),
    "layer norm over two axes": (
        "g (float[N,H,W] x) => (y) <float[4,5] w = {W}> { y = LayerNormalization<axis=1>(x, w) }",
        (3, 4, 5),
    ),
    "skip layer norm": (
        "g (float[N,L,M] x) => (y) <float[8] w = {W}> { y = com.microsoft.SkipLayerNormalization(x, x, w) }",
        (2, 3, 8),
    ),
    "rms norm": (
        "g (float[N,M] x) => (y) <float[9] w = {W}> { n = Exp(x) y = SimplifiedLayerNormalization(n, w) }",
        (4, 9),
    ),
    "scaler": (
        "g (float[N,M] x) => (y) { y = ai.onnx.ml.Scaler<offset=[1.0,2.0,3.0], scale=[0.5]>(x) }",
        (4, 3),
    ),
    "imputer": (
        "g (float[N,M] x) => (y) { y = ai.onnx.ml.Imputer<imputed_value_floats=[1.0,2.0,3.0], replaced_value_float=0.0>(x) }",
        (4, 3),
    ),
    "linear": (
        "g (float[N,M] x) => (y) { y = ai.onnx.ml.LinearRegressor<coefficients=[1.0,2.0,3.0,4.0], targets=2>(x) }",
        (4, 2),
    ),
    "linear classes": (
        """g (float[N,M] x) => (l, y) { l, y = ai.onnx.ml.LinearClassifier<classlabels_ints=[4,5,6],
            coefficients=[1.0,-2.0,3.0,4.0,-5.0,6.0], intercepts=[0.1,0.2,0.3]>(x) }""",
        (4, 2),
    ),
    "support vectors": (
        """g (float[N,M] x) => (y) { y = ai.onnx.ml.SVMRegressor<coefficients=[1.0,-2.0], n_supports=2, rho=[0.5],
            kernel_params=[0.3,0.0,3.0], kernel_type="RBF", support_vectors=[1.0,0.0,0.5,0.0,1.0,-0.5]>(x) }""",
        (4, 3),
    ),
    "features side by side": (
        "g (float[N,A] x) => (y) { n = Neg(x) y = ai.onnx.ml.FeatureVectorizer<inputdimensions=[3,3]>(x, n) }",
        (4, 3),
    ),
}


def model_text(name: str) -> str:
    """The model with some numbers for its weights."""
    text, _ = MODELS[name]
    sizes = re.search(r"float\[([\d,]+)\] w", text)
    if sizes is None:
        return text
    count = math.prod(int(size) for size in sizes[1].split(","))
    numbers = np.random.default_rng(0).normal(size=count).round(3)
    return text.replace("{W}", "{" + ",".join(map(str, numbers)) + "}")


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_weights_tell_how_long_rows_are(name: str) -> None:
    text, shape = model_text(name), MODELS[name][1]
    plan, reference = native_plan(text), make_plan(model_of(text).graph, [CPUExecutionProvider()])
    assert len(plan.steps) == len(programs(plan)) == 1
    without_fallback(plan)
    for batch in (0, 1, shape[0]):
        feeds = {"x": images(batch, *shape[1:])}
        compare(execute(plan, feeds), execute(reference, feeds))


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_another_length_are_left_to_numpy(name: str) -> None:
    text, shape = model_text(name), MODELS[name][1]
    plan, reference = native_plan(text), make_plan(model_of(text).graph, [CPUExecutionProvider()])
    for axis in range(1, len(shape)):
        for change in (-1, 1):
            feeds = {"x": images(*(size + change * (number == axis) for number, size in enumerate(shape)))}
            assert_agrees_or_refuses(plan, reference, feeds)
