"""A pipeline of scikit-learn's kind as ONNX: missing numbers imputed, numbers scaled, categories as columns, a logistic regression.

Converters such as skl2onnx write these very ops (domain ai.onnx.ml). Here the model is fitted with a few lines of NumPy and written by
hand, so that the example needs nothing else.
"""

from __future__ import annotations

import numpy as np
import onnx
from networks import Network
from onnx import TensorProto, helper

import sardonyx

CITIES = ["Basel", "Oslo", "Porto"]
ML = "ai.onnx.ml"


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two numbers, some of them missing, a city, and a label that depends on all of them."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal([40, 3000], [10, 800], (count, 2))
    cities = rng.integers(0, len(CITIES), count)
    score = (numbers[:, 0] - 40) / 10 - (numbers[:, 1] - 3000) / 800 + np.array([1, -1, 0])[cities]
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    return numbers.astype(np.float32), np.array(CITIES, object)[cities][:, None], score + rng.normal(0, 0.5, count) > 0


def fit(count: int = 2000) -> dict[str, np.ndarray]:
    """What the pipeline's parts have learnt: means, scales, and the weights of a logistic regression by Newton's method."""
    numbers, cities, labels = data(count, seed=3)
    means = np.nanmean(numbers, axis=0)
    filled = np.where(np.isnan(numbers), means, numbers)
    scales = filled.std(axis=0)
    columns = np.hstack([(filled - means) / scales, cities == np.array(CITIES, object), np.ones((count, 1))]).astype(np.float64)
    weights = np.zeros(columns.shape[1])
    for _ in range(8):
        chances = 1 / (1 + np.exp(-columns @ weights))
        curvature = columns.T @ (columns * (chances * (1 - chances))[:, None]) + 1e-3 * np.eye(len(weights))
        weights += np.linalg.solve(curvature, columns.T @ (labels - chances))
    return {"means": means, "scales": scales, "weights": weights}


def make_model(fitted: dict[str, np.ndarray]) -> onnx.ModelProto:
    net = Network(seed=0)
    means, scales, weights = fitted["means"], fitted["scales"], fitted["weights"]
    filled = net.add("Imputer", "numbers", domain=ML, imputed_value_floats=means.tolist(), replaced_value_float=float("nan"))
    scaled = net.add("Scaler", filled, domain=ML, offset=means.tolist(), scale=(1 / scales).tolist())
    columns = net.add("OneHotEncoder", "city", domain=ML, cats_strings=CITIES, zeros=1)
    columns = net.add("Reshape", columns, net.constant([-1, len(CITIES)], np.int64))
    features = net.add("Concat", scaled, columns, axis=1)
    label, scores = net.add(
        "LinearClassifier",
        features,
        outputs=2,
        domain=ML,
        classlabels_strings=["no", "yes"],
        coefficients=[*(-weights[:-1]), *weights[:-1]],
        intercepts=[-weights[-1], weights[-1]],
        multi_class=1,
        post_transform="LOGISTIC",
    )
    inputs = [
        helper.make_tensor_value_info("numbers", TensorProto.FLOAT, ["N", 2]),
        helper.make_tensor_value_info("city", TensorProto.STRING, ["N", 1]),
    ]
    outputs = [
        (label, helper.make_tensor_value_info("label", TensorProto.STRING, ["N"])),
        (scores, helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 2])),
    ]
    return net.model(inputs, outputs, ai_onnx_ml=3)


def main() -> None:
    session = sardonyx.InferenceSession(make_model(fit()))
    numbers, cities, truth = data(500, seed=4)
    labels, probabilities = session.run(None, {"numbers": numbers, "city": cities})
    for row in range(3):
        print(f"{cities[row, 0]:6} {numbers[row]}  {labels[row]:4} {probabilities[row, 1]:.1%}")
    right = np.mean((labels == "yes") == truth)
    print(f"{right:.1%} of {len(truth)} rows are right")
    assert right > 0.8


if __name__ == "__main__":
    main()
