"""Cases of ai.onnx.ml's linear models and of the transforms that all classifiers there share."""

import numpy as np

from sardonyx.dtypes import float32, float64, int32, int64
from sardonyx.providers.cpu.ml.scores import probit
from tests.ops.cases import case, f32, f64, i64, refuse

ML = "ai.onnx.ml"
INPUTS = {float32, float64, int32, int64}
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


def transformed(scores, post_transform):
    scores = scores.astype(np.float64)
    if post_transform == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if post_transform.startswith("SOFTMAX"):
        weights = np.exp(scores)
        if post_transform == "SOFTMAX_ZERO":
            weights = np.where(scores == 0, 0, weights)
        return weights / weights.sum(axis=1, keepdims=True)
    return scores


def product(X, coefficients, intercepts):
    return X.astype(np.float64) @ np.reshape(coefficients, (len(intercepts), -1)).T + intercepts


# --- LinearRegressor

ONE = {"coefficients": [0.5, -1.0, 2.0], "domain": ML}
case("LinearRegressor", X=f32(4, 3), **ONE, types={"T": INPUTS}, expect=lambda X: X @ np.array([[0.5], [-1], [2]]))
case("LinearRegressor", X=f32(4, 3), **ONE, intercepts=[0.25], expect=lambda X: X @ np.array([[0.5], [-1], [2]]) + 0.25)
case("LinearRegressor", X=f32(3), **ONE, expect=lambda X: X[None] @ np.array([[0.5], [-1], [2]]))
case("LinearRegressor", X=f32(0, 3), **ONE, expect=lambda X: np.zeros((0, 1)))
TWO = {"coefficients": [0.5, -1.0, 2.0, 1.0, 0.0, -0.5], "intercepts": [0.25, -0.5], "targets": 2, "domain": ML}
for post_transform in TRANSFORMS:
    case(
        "LinearRegressor",
        X=f32(4, 3),
        **TWO,
        post_transform=post_transform,
        against_onnxruntime=True,
        expect=lambda X, coefficients, intercepts, post_transform: transformed(
            product(X, coefficients, intercepts), post_transform
        ),
    )
refuse("LinearRegressor", X=f32(), **ONE, match="at least a single dimension")

# --- LinearClassifier


def classified(X, coefficients, intercepts, post_transform="NONE", classlabels_ints=None, classlabels_strings=None):
    scores = product(X, coefficients, intercepts)
    labels = np.array(classlabels_ints or classlabels_strings, dtype=np.int64 if classlabels_ints else object)
    if scores.shape[1] > 1:
        return labels[scores.argmax(axis=1)], transformed(scores, post_transform)
    positive = transformed(scores, post_transform) if post_transform == "LOGISTIC" else scores
    return labels[(scores[:, 0] > 0).astype(int)], np.concatenate([1 - positive, positive], axis=1)


THREE = {"coefficients": f32(9).tolist(), "intercepts": f32(3).tolist(), "domain": ML}
case("LinearClassifier", X=f32(5, 3), **THREE, classlabels_ints=[7, 5, 9], types={"T1": INPUTS}, expect=classified)
case("LinearClassifier", X=f32(5, 3), **THREE, classlabels_strings=["a", "b", "c"], multi_class=1, expect=classified)
for post_transform in TRANSFORMS:
    settings = {"post_transform": post_transform, "against_onnxruntime": True, "expect": classified}
    case("LinearClassifier", X=f32(5, 3), **THREE, classlabels_ints=[0, 1, 2], **settings)
    binary = {"coefficients": [0.5, -1.0, 2.0], "intercepts": [0.125], "domain": ML}
    case("LinearClassifier", X=f32(5, 3), **binary, classlabels_ints=[4, 6], **settings)
    case("LinearClassifier", X=f32(5, 3), **binary, classlabels_strings=["no", "yes"], **settings)
case("LinearClassifier", X=f32(0, 3), **THREE, classlabels_ints=[7, 5, 9], expect=(np.zeros(0, np.int64), np.zeros((0, 3))))
case(
    "LinearClassifier",
    X=np.array([[1.0], [-1.0]], np.float32),
    coefficients=[2.0],
    intercepts=[0.0],
    classlabels_strings=["only"],
    domain=ML,
    expect=(np.array(["1", "0"], dtype=object), [[2.0], [-2.0]]),
)
case(
    "LinearClassifier",
    X=i64(5, 2),
    coefficients=[1.0, 0.0, 0.0, 1.0],
    classlabels_ints=[0, 1],
    domain=ML,
    expect=lambda X: (X.argmax(axis=1), X),
)


def test_probit_inverts_the_normal_distribution():
    p = np.array([[0.1, 0.25, 0.5, 0.9]])
    np.testing.assert_allclose(probit(p), [[-1.28155157, -0.67448975, 0, 1.28155157]], rtol=3e-3, atol=1e-9)
    assert np.isnan(probit(np.array([[2.0]]))).all()


def test_probit_keeps_the_shape_of_two_classes():
    from sardonyx.providers.cpu.ml.linear import linear_classifier

    X = np.array([[0.3], [0.8]], np.float32)
    _, scores = linear_classifier(X, coefficients=[1.0], intercepts=[0.0], classlabels_ints=[0, 1], post_transform="PROBIT")
    np.testing.assert_allclose(scores, [[0.5244, -0.5244], [-0.8416, 0.8416]], rtol=1e-3)


def test_doubles_are_scored_in_single_precision():
    from sardonyx.providers.cpu.ml.linear import linear_regressor

    assert linear_regressor(f64(2, 3), coefficients=[1.0, 2.0, 3.0]).dtype == np.float32
