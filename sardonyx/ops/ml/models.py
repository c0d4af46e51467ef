"""Type and shape inference of ai.onnx.ml's trained models: linear, support vectors, trees."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.table import in_domain

ml = in_domain("ai.onnx.ml")


def row_count(X):
    """How many rows there are to score; a vector is one."""
    if X.shape is None:
        return dim.fresh()
    if not X.shape:
        raise InferenceError("Input shape needs to be at least a single dimension.")
    return 1 if len(X.shape) == 1 else X.shape[0]


def labelled(X, strings, scores):
    """Types of a classifier's labels and scores."""
    rows = row_count(X)
    return [TensorType(dtypes.string if strings else dtypes.int64, (rows,)), (rows, scores)]


@ml("LinearRegressor")
def linear_regressor(X, targets):
    return (row_count(X), targets)


@ml("LinearClassifier")
def linear_classifier(X, coefficients, intercepts, classlabels_strings, classlabels_ints):
    labels = len(classlabels_strings or classlabels_ints or ())
    scores = len(intercepts or ())
    if not scores:
        features = X.shape[-1] if X.shape else None
        scores = len(coefficients or ()) // features if isinstance(features, int) and features else dim.fresh()
    return labelled(X, classlabels_strings, 2 if scores == 1 and labels == 2 else scores)


@ml("SVMRegressor")
def svm_regressor(X):
    return (row_count(X), 1)


@ml("SVMClassifier")
def svm_classifier(X, classlabels_strings, classlabels_ints, vectors_per_class, prob_a):
    """Without probabilities there is a score for each pair of classes."""
    classes = len(classlabels_strings or classlabels_ints or ())
    in_pairs = bool(vectors_per_class) and sum(vectors_per_class) > 0 and not prob_a and classes > 2
    return labelled(X, classlabels_strings, classes * (classes - 1) // 2 if in_pairs else classes)


@ml("TreeEnsemble")
def tree_ensemble(X, n_targets, leaf_targetids):
    return (row_count(X), n_targets or max(leaf_targetids, default=0) + 1)


@ml("TreeEnsembleRegressor")
def tree_ensemble_regressor(X, n_targets, target_ids):
    return (row_count(X), n_targets or max(target_ids or (), default=0) + 1)


@ml("TreeEnsembleClassifier")
def tree_ensemble_classifier(X, classlabels_strings, classlabels_int64s):
    return labelled(X, classlabels_strings, len(classlabels_strings or classlabels_int64s or ()))
