"""What the classifiers and regressors of ai.onnx.ml do with raw scores: transforms, the second class, labels."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError


def as_rows(X):
    """Features as float32 in two dimensions; a vector is one row."""
    if X.ndim == 0:
        raise KernelError("Input shape needs to be at least a single dimension.", InvalidArgument)
    return X.reshape(1 if X.ndim == 1 else X.shape[0], -1 if X.size else X.shape[-1]).astype(np.float32, copy=False)


def class_labels(strings, integers):
    """The labels as an array, of strings if there are any."""
    return np.array(list(strings), dtype=object) if strings else np.array(list(integers or ()), dtype=np.int64)


def transform(scores, post_transform):
    """Apply a post_transform to rows of two scores or more."""
    return _transforms()[post_transform](scores)


def transform_single(scores, post_transform):
    """A column of single scores knows but one transform."""
    return probit(scores) if post_transform == "PROBIT" else scores


def with_second_class(score, post_transform, signed):
    """Columns for (negative, positive) out of the positive class's score alone: a probability p is completed by 1 - p, a signed
    score by its negative. SOFTMAX needs two scores to begin with and changes nothing here.
    """
    if post_transform in ("PROBIT", "LOGISTIC"):
        positive = transform(score, post_transform)
        return np.concatenate([1 - positive if post_transform == "LOGISTIC" else -positive, positive], axis=1)
    return np.concatenate([-score if signed else 1 - score, score], axis=1)


def logistic(scores):
    with np.errstate(under="ignore"):
        positive = 1 / (1 + np.exp(-np.abs(scores)))
    return np.where(scores < 0, 1 - positive, positive)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(axis=1, keepdims=True)


def softmax_zero(scores):
    """Softmax that leaves scores of zero out."""
    counts = np.abs(scores) > 1e-7
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        peak = scores.max(axis=1, keepdims=True, initial=-np.inf)
        weights = np.where(counts, np.exp(scores - peak), scores * np.exp(-peak))
        return weights / np.where(counts, weights, 0).sum(axis=1, keepdims=True)


def probit(scores):
    """The normal quantile √2·erf⁻¹(2p - 1), erf⁻¹ by Winitzki's approximation as in onnxruntime."""
    x = 2 * scores - 1
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        log = np.log((1 - x) * (1 + x))
        half = scores.dtype.type(2 / (3.14159 * 0.147)) + log / 2
        root = np.sqrt(np.sqrt(half * half - log / scores.dtype.type(0.147)) - half)
        return np.where(x < 0, -root, root) * scores.dtype.type(np.sqrt(2))


def _transforms():
    return {"NONE": lambda s: s, "SOFTMAX": softmax, "LOGISTIC": logistic, "SOFTMAX_ZERO": softmax_zero, "PROBIT": probit}
