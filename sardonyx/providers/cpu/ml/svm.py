"""SVMClassifier and SVMRegressor of ai.onnx.ml, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.elementwise import pow
from sardonyx.providers.cpu.ml.scores import as_rows, class_labels, logistic, transform, transform_single, with_second_class
from sardonyx.providers.cpu.prepared import prepared
from sardonyx.providers.cpu.table import cpu

ml = cpu.in_domain("ai.onnx.ml")


@ml("SVMRegressor")
def svm_regressor(
    X,
    *,
    coefficients,
    rho=(0.0,),
    kernel_params=None,
    kernel_type="LINEAR",
    n_supports=0,
    one_class=0,
    post_transform="NONE",
    support_vectors=None,
):
    """onnxruntime takes a `post_transform` here and never applies it; no trainer writes one."""
    rows, weights = as_rows(X), np.asarray(coefficients, dtype=np.float32)
    if n_supports:
        vectors = prepared(_float_array, support_vectors).reshape(n_supports, -1)
        scores = kernel_values(rows, vectors, kernel_type, kernel_params) @ weights[:n_supports]
    else:
        scores = rows @ weights
    scores = (scores + np.float32(rho[0]))[:, None]
    return np.where(scores > 0, np.float32(1), np.float32(-1)) if one_class else scores


@ml("SVMClassifier")
def svm_classifier(
    X,
    *,
    coefficients,
    rho,
    classlabels_ints=None,
    classlabels_strings=None,
    kernel_params=None,
    kernel_type="LINEAR",
    post_transform="NONE",
    prob_a=None,
    prob_b=None,
    support_vectors=None,
    vectors_per_class=None,
):
    """With support vectors the classes are compared in pairs and vote; without, each class has its own linear score."""
    rows, labels = as_rows(X), class_labels(classlabels_strings, classlabels_ints)
    weights = prepared(_float_array, coefficients)
    if not vectors_per_class or not sum(vectors_per_class):
        scores = rows @ weights.reshape(len(labels), -1).T + np.float32(rho[0])
        winner = scores.argmax(axis=1)
        chosen = labels[winner] if prob_a else _prefer_positive(scores, winner, labels, (weights >= 0).all())
        return chosen, transform(scores, post_transform) if len(labels) > 1 else transform_single(scores, post_transform)
    vectors = prepared(_float_array, support_vectors).reshape(sum(vectors_per_class), -1)
    duels = prepared(duel_weights, coefficients, vectors_per_class)
    values = kernel_values(rows, vectors, kernel_type, kernel_params)
    scores = _duel_scores(values, duels, vectors_per_class) + np.asarray(rho[: duels.shape[1]], np.float32)
    winner = _votes(scores, len(labels)).argmax(axis=1)
    if prob_a:
        won = 1 - logistic(scores * np.asarray(prob_a, np.float32) + np.asarray(prob_b, np.float32))
        return labels[winner], transform(_coupled_probabilities(won, len(labels)), post_transform)
    if len(labels) > 2:
        return labels[winner], transform(scores, post_transform)
    return labels[winner], with_second_class(scores, post_transform, signed=post_transform == "NONE")


def _float_array(values):
    return np.asarray(values, dtype=np.float32)


def _prefer_positive(scores, winner, labels, all_positive):
    """With two classes the better score decides by its sign, or, if no weight is negative, by whether it reaches one half."""
    if len(labels) != 2:
        return labels[winner]
    best = scores.max(axis=1)
    positive = best >= 0.5 if all_positive else best > 0
    return labels[np.where(positive, 1, winner)]


def kernel_values(rows, vectors, kernel_type, kernel_params):
    """The kernel between every row and every support vector."""
    gamma, coef0, degree = np.asarray([*(kernel_params or ()), 0.0, 0.0, 0.0][:3], dtype=np.float32)
    if kernel_type == "LINEAR":
        return rows @ vectors.T
    if kernel_type == "POLY":
        return pow(gamma * (rows @ vectors.T) + coef0, degree)
    if kernel_type == "RBF":
        return np.exp(-gamma * _squared_distances(rows, vectors))
    if kernel_type == "SIGMOID":
        return np.tanh(gamma * (rows @ vectors.T) + coef0)
    raise KernelError(f"kernel_type must be LINEAR, POLY, RBF or SIGMOID, not {kernel_type!r}", InvalidArgument)


def _squared_distances(rows, vectors):
    """|a - b|² through the products, in double precision because the terms cancel; infinities do not, and are subtracted one by one."""
    rows, vectors = rows.astype(np.float64), vectors.astype(np.float64)
    squares = np.square(rows).sum(axis=1)[:, None] + np.square(vectors).sum(axis=1)
    distances = np.maximum(squares - 2 * (rows @ vectors.T), 0)
    for row in np.flatnonzero(~np.isfinite(distances).all(axis=1)):
        distances[row] = np.square(rows[row] - vectors).sum(axis=1)
    return distances.astype(np.float32)


def _duel_scores(values, duels, vectors_per_class):
    """The scores of pairs of classes. Vectors of other classes do not count, and 0 times an infinity would be NaN."""
    scores = values @ duels
    infinite = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if infinite.size:
        own = _vectors_of(vectors_per_class)
        for pair, classes in enumerate(_pairs(len(own))):
            some = np.r_[tuple(own[one] for one in classes)]
            scores[infinite, pair] = values[np.ix_(infinite, some)] @ duels[some, pair]
    return scores


def _vectors_of(vectors_per_class):
    """Which support vectors each class has."""
    ends = np.cumsum(vectors_per_class)
    return [slice(end - size, end) for end, size in zip(ends, vectors_per_class, strict=True)]


def duel_weights(coefficients, vectors_per_class, absent=0.0):
    """Weights (support vector, pair of classes): a pair's score is a sum over the vectors of its two classes; others have `absent`.

    `coefficients` has a row for each opponent; a class's own place among its opponents is left out.
    """
    count, total = len(vectors_per_class), sum(vectors_per_class)
    table = _float_array(coefficients)[: (count - 1) * total].reshape(count - 1, total)
    own = _vectors_of(vectors_per_class)
    weights = np.full((total, count * (count - 1) // 2), absent, np.float32)
    for pair, (i, j) in enumerate(_pairs(count)):
        weights[own[i], pair] = table[j - 1, own[i]]
        weights[own[j], pair] = table[i, own[j]]
    return weights


def _pairs(count):
    return [(i, j) for i in range(count - 1) for j in range(i + 1, count)]


def _votes(scores, count):
    votes = np.zeros((len(scores), count), np.int64)
    for pair, (i, j) in enumerate(_pairs(count)):
        first = scores[:, pair] > 0
        votes[:, i] += first
        votes[:, j] += ~first
    return votes


def _coupled_probabilities(won, count):
    """Class probabilities from pairwise ones: the second method of Wu, Lin and Weng, JMLR 5 (2004), with libsvm's tolerance."""
    pairwise = np.zeros((len(won), count, count), np.float32)
    for pair, (i, j) in enumerate(_pairs(count)):
        pairwise[:, i, j] = np.clip(won[:, pair], 1e-7, 1 - 1e-7)
        pairwise[:, j, i] = 1 - pairwise[:, i, j]
    diagonal = np.arange(count)
    Q = -pairwise * pairwise.swapaxes(1, 2)
    Q[:, diagonal, diagonal] = np.square(pairwise).sum(axis=1)
    p = np.full((len(won), count), np.float32(1) / np.float32(count))
    active = np.arange(len(won))
    for _ in range(100):
        Qa, pa = Q[active], p[active]
        Qp = (Qa @ pa[:, :, None])[:, :, 0]
        pQp = (pa * Qp).sum(axis=1)
        going = np.abs(Qp - pQp[:, None]).max(axis=1, initial=0) >= 0.005 / count
        if not going.any():
            break
        active, Qa, pa, Qp, pQp = active[going], Qa[going], pa[going], Qp[going], pQp[going]
        for k in range(count):
            step = (pQp - Qp[:, k]) / Qa[:, k, k]
            pa[:, k] += step
            pQp = (pQp + step * (step * Qa[:, k, k] + 2 * Qp[:, k])) / (1 + step) ** 2
            Qp = (Qp + step[:, None] * Qa[:, k]) / (1 + step)[:, None]
            pa /= (1 + step)[:, None]
        p[active] = pa
    return p
