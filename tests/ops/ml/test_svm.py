"""Cases of ai.onnx.ml's support vector machines, against sums over support vectors one by one."""

import math

import numpy as np

from sardonyx.dtypes import float32, float64, int32, int64
from sardonyx.providers.cpu.ml.svm import svm_classifier
from tests.ops.cases import case, f32, refuse

ML = "ai.onnx.ml"
INPUTS = {float32, float64, int32, int64}
GAMMA, COEF0, DEGREE = 0.25, 0.5, 2.0
KERNELS = {
    "LINEAR": lambda x, v: x @ v,
    "POLY": lambda x, v: (GAMMA * (x @ v) + COEF0) ** DEGREE,
    "RBF": lambda x, v: math.exp(-GAMMA * ((x - v) ** 2).sum()),
    "SIGMOID": lambda x, v: math.tanh(GAMMA * (x @ v) + COEF0),
}


def kernels(X, support_vectors, kernel_type):
    vectors = np.reshape(support_vectors, (-1, X.shape[1]))
    return np.array([[KERNELS[kernel_type](x.astype(np.float64), v) for v in vectors] for x in X])


# --- SVMRegressor

VECTORS = {"support_vectors": f32(12).tolist(), "kernel_params": [GAMMA, COEF0, DEGREE], "domain": ML}
REGRESSOR = {"coefficients": f32(4).tolist(), "n_supports": 4, "rho": [0.25], **VECTORS}


def regressed(X, support_vectors, coefficients, rho, kernel_type):
    return kernels(X, support_vectors, kernel_type) @ np.array(coefficients)[:, None] + rho[0]


for kernel_type in KERNELS:
    settings = {"kernel_type": kernel_type, "against_onnxruntime": True}
    case("SVMRegressor", X=f32(5, 3), **REGRESSOR, **settings, expect=regressed)
    case(
        "SVMRegressor",
        X=f32(5, 3),
        **REGRESSOR,
        **settings,
        one_class=1,
        expect=lambda X, support_vectors, coefficients, rho, kernel_type: np.where(
            regressed(X, support_vectors, coefficients, rho, kernel_type) > 0, 1, -1
        ),
    )
case(
    "SVMRegressor",
    X=np.array([[0, np.inf, 1], [-np.inf, 0, np.inf]], np.float32),
    **REGRESSOR,
    kernel_type="RBF",
    against_onnxruntime=True,
    expect=np.full((2, 1), 0.25),  # all vectors are infinitely far away
)
LINEAR = {"coefficients": [1.0, -2.0, 0.5], "rho": [0.25], "domain": ML}
case("SVMRegressor", X=f32(5, 3), **LINEAR, types={"T": INPUTS}, expect=lambda X: X @ np.array([[1], [-2], [0.5]]) + 0.25)
case("SVMRegressor", X=f32(3), **LINEAR, expect=lambda X: X[None] @ np.array([[1], [-2], [0.5]]) + 0.25)
case("SVMRegressor", X=f32(0, 3), **LINEAR, expect=np.zeros((0, 1)))
case(
    "SVMRegressor",
    X=np.array([[-np.inf]], np.float32),
    kernel_params=[1.0, 0.0, 0.5],
    support_vectors=[1.0],
    coefficients=[1.0],
    n_supports=1,
    rho=[0.0],
    kernel_type="POLY",
    domain=ML,
    expect=np.array([[np.inf]]),  # the power of -inf, which has no square root
)
refuse("SVMRegressor", X=f32(5, 3), **REGRESSOR, kernel_type="CUBIC", match="kernel_type is .CUBIC., expected one of")

# --- SVMClassifier without support vectors

OWN_SCORES = {"coefficients": f32(9).tolist(), "rho": [0.125], "kernel_type": "LINEAR", "kernel_params": [], "domain": ML}


def scored(X, coefficients, rho):
    scores = X.astype(np.float64) @ np.reshape(coefficients, (3, -1)).T + rho[0]
    return np.array([4, 6, 8])[scores.argmax(axis=1)], scores


case("SVMClassifier", X=f32(5, 3), **OWN_SCORES, classlabels_ints=[4, 6, 8], types={"T1": INPUTS}, expect=scored)
case("SVMClassifier", X=f32(5, 3), **OWN_SCORES, classlabels_ints=[4, 6, 8], against_onnxruntime=True, expect=scored)
for coefficients in ([1.0, -1.0, 0.5, -0.5], [1.0, 1.0, 0.5, 0.25]):
    two = {**OWN_SCORES, "coefficients": coefficients, "classlabels_strings": ["no", "yes"]}
    case("SVMClassifier", X=f32(6, 2), **two, against_onnxruntime=True)

# --- SVMClassifier with support vectors: classes in pairs

COUNTS = [2, 1, 3]


def duels(X, support_vectors, coefficients, rho, kernel_type):
    """Scores of the pairs (0, 1), (0, 2), (1, 2), and the class with most votes."""
    values = kernels(X, support_vectors, kernel_type)
    table = np.reshape(coefficients, (2, 6))
    start = [0, 2, 3, 6]
    scores, votes = [], np.zeros((len(X), 3), int)
    for pair, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        score = np.full(len(X), rho[pair])
        for one, row in ((i, j - 1), (j, i)):
            own = slice(start[one], start[one + 1])
            score = score + values[:, own] @ table[row, own]
        scores.append(score)
        votes[np.arange(len(X)), np.where(score > 0, i, j)] += 1
    return votes.argmax(axis=1), np.stack(scores, axis=1)


PAIRS = {
    "coefficients": f32(12).tolist(),
    "rho": f32(3).tolist(),
    "support_vectors": f32(18).tolist(),
    "vectors_per_class": COUNTS,
    "kernel_params": [GAMMA, COEF0, DEGREE],
    "classlabels_ints": [0, 1, 2],
    "domain": ML,
}
for kernel_type in KERNELS:
    case("SVMClassifier", X=f32(5, 3), **PAIRS, kernel_type=kernel_type, against_onnxruntime=True, expect=duels)
for post_transform in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
    case("SVMClassifier", X=f32(5, 3), **PAIRS, post_transform=post_transform, against_onnxruntime=True)
case("SVMClassifier", X=f32(0, 3), **PAIRS, expect=(np.zeros(0, np.int64), np.zeros((0, 3))))
case(
    "SVMClassifier",
    X=np.array([[np.inf], [-np.inf], [1]], np.float32),
    support_vectors=[1.0, 2.0, 3.0],
    vectors_per_class=[1, 1, 1],
    coefficients=[1.0, 1.0, 2.0, 1.0, 2.0, 1.0],
    rho=[0.0, 0.0, 0.0],
    kernel_type="LINEAR",
    kernel_params=[],
    classlabels_ints=[0, 1, 2],
    domain=ML,
    against_onnxruntime=True,
    expect=([0, 2, 0], [[np.inf] * 3, [-np.inf] * 3, [3, 7, 7]]),  # vectors of a third class do not count
)
PROBABLE = {"prob_a": [-1.0, -0.5, -2.0], "prob_b": [0.1, -0.2, 0.3]}
case("SVMClassifier", X=f32(5, 3), **PAIRS, **PROBABLE, kernel_type="RBF", against_onnxruntime=True)

DUEL = {
    "coefficients": [0.5, -1.0, 0.25],
    "rho": [0.125],
    "support_vectors": f32(6).tolist(),
    "vectors_per_class": [1, 2],
    "classlabels_strings": ["a", "b"],
    "kernel_type": "LINEAR",
    "kernel_params": [],
    "domain": ML,
}
for post_transform in ("NONE", "LOGISTIC", "SOFTMAX"):
    case("SVMClassifier", X=f32(5, 2), **DUEL, post_transform=post_transform, against_onnxruntime=True)
case("SVMClassifier", X=f32(5, 2), **DUEL, prob_a=[-1.5], prob_b=[0.25], rtol=1e-3, against_onnxruntime=True)


def test_probabilities_of_many_classes_solve_the_coupling_problem():
    """The second method of Wu, Lin and Weng (2004): p minimizes Σ (r_ji p_i - r_ij p_j)² and sums to one."""
    X = f32(4, 3)
    plain = {name: value for name, value in PAIRS.items() if name != "domain"}
    _, chances = svm_classifier(X, **plain, **PROBABLE, kernel_type="RBF")
    _, scores = duels(X, plain["support_vectors"], plain["coefficients"], plain["rho"], "RBF")
    for row, found in zip(scores, chances, strict=True):
        r = np.zeros((3, 3))
        for pair, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
            r[i, j] = 1 / (1 + math.exp(PROBABLE["prob_a"][pair] * row[pair] + PROBABLE["prob_b"][pair]))
            r[j, i] = 1 - r[i, j]
        Q = -r * r.T
        np.fill_diagonal(Q, (r**2).sum(axis=0))
        system = np.block([[Q, np.ones((3, 1))], [np.ones((1, 3)), np.zeros((1, 1))]])
        exact = np.linalg.solve(system, [0, 0, 0, 1])[:3]
        np.testing.assert_allclose(found, exact, atol=5e-3)
        np.testing.assert_allclose(found.sum(), 1, rtol=1e-6)
