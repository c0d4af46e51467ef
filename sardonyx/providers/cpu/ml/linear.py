"""LinearClassifier and LinearRegressor of ai.onnx.ml, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.ml.scores import as_rows, class_labels, transform, transform_single, with_second_class
from sardonyx.providers.cpu.table import cpu

ml = cpu.in_domain("ai.onnx.ml")


@ml("LinearRegressor")
def linear_regressor(X, *, coefficients, intercepts=None, post_transform="NONE", targets=1):
    scores = _scores(as_rows(X), coefficients, intercepts, targets)
    return transform(scores, post_transform) if targets > 1 else transform_single(scores, post_transform)


@ml("LinearClassifier")
def linear_classifier(
    X,
    *,
    coefficients,
    classlabels_ints=None,
    classlabels_strings=None,
    intercepts=None,
    multi_class=0,
    post_transform="NONE",
):
    """`multi_class` tells how the model was trained; the scores are computed the same way."""
    rows, labels = as_rows(X), class_labels(classlabels_strings, classlabels_ints)
    scores = _scores(rows, coefficients, intercepts, len(intercepts or ()) or len(coefficients) // rows.shape[1])
    if scores.shape[1] > 1:
        return labels[scores.argmax(axis=1)], transform(scores, post_transform)
    if len(labels) != 2:
        named = np.array(["0", "1"], dtype=object) if labels.dtype == object else np.array([0, 1])
        return named[(scores[:, 0] > 0).astype(int)], transform_single(scores, post_transform)
    return labels[(scores[:, 0] > 0).astype(int)], with_second_class(scores, post_transform, signed=False)


def _scores(rows, coefficients, intercepts, targets):
    count = targets * rows.shape[1]
    if len(coefficients) < count:
        raise KernelError(
            f"{targets} targets of {rows.shape[1]} features need {count} coefficients, there are {len(coefficients)}"
        )
    # onnxruntime reads what it needs and ignores surplus coefficients; models in the wild have them
    weights = np.asarray(coefficients[:count], dtype=np.float32).reshape(targets, -1)
    scores = rows @ weights.T
    return scores if not intercepts else scores + np.asarray(intercepts, dtype=np.float32)
