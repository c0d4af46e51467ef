"""Cases of ai.onnx.ml's tree ensembles, against trees walked node by node."""

import numpy as np
import pytest

from sardonyx import errors
from sardonyx.dtypes import float32, float64, int32, int64
from sardonyx.providers.cpu.ml.trees import tree_ensemble_regressor
from tests.ops.cases import case, f32, f64, i64, refuse

ML = "ai.onnx.ml"
NAN = np.nan
INPUTS = {float32, float64, int32, int64}
MODES = {
    "BRANCH_LEQ": lambda x, t: x <= t,
    "BRANCH_LT": lambda x, t: x < t,
    "BRANCH_GTE": lambda x, t: x >= t,
    "BRANCH_GT": lambda x, t: x > t,
    "BRANCH_EQ": lambda x, t: x == t,
    "BRANCH_NEQ": lambda x, t: x != t,
}


class Forest:
    """Random trees as nested tuples (feature, mode, threshold, missing goes to true, when true, when false) with leaves (votes,)."""

    def __init__(self, seed, trees=3, depth=3, modes=("BRANCH_LEQ",), targets=1, votes=1, positive=False, only=None):
        self.rng = np.random.default_rng(seed)
        self.modes, self.targets, self.votes, self.positive, self.only = modes, targets, votes, positive, only
        self.trees = [self._grow(depth) for _ in range(trees)]

    def _grow(self, depth):
        if depth == 0 or self.rng.random() < 0.15:
            targets = self.rng.choice(self.targets, self.votes, replace=False) if self.only is None else [self.only]
            return ([(int(target), self._weight()) for target in targets],)
        feature, mode = int(self.rng.integers(3)), str(self.rng.choice(self.modes))
        threshold, missing = float(self.rng.integers(-2, 3)), int(self.rng.integers(2))
        return (feature, mode, threshold, missing, self._grow(depth - 1), self._grow(depth - 1))

    def _weight(self):
        weight = float(np.float32(self.rng.normal()))
        return abs(weight) if self.positive else weight

    def votes_of(self, row):
        for node in self.trees:
            while len(node) > 1:
                feature, mode, threshold, missing, when_true, when_false = node
                holds = MODES[mode](row[feature], threshold) or (np.isnan(row[feature]) and missing)
                node = when_true if holds else when_false
            yield from node[0]

    def sums(self, X, count):
        scores = np.zeros((len(X), count))
        for number, row in enumerate(X.astype(np.float64)):
            for target, weight in self.votes_of(row):
                scores[number, target] += weight
        return scores

    def attributes(self, prefix, missing=True):
        """What TreeEnsembleRegressor ("target_") and TreeEnsembleClassifier ("class_") take."""
        nodes = {name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
        tracks, votes = [], {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

        def write(tree, node):
            place, number = len(nodes["nodeids"]), len([t for t in nodes["treeids"] if t == tree])
            inner = len(node) > 1
            row = (tree, number, node[0] if inner else 0, node[2] if inner else 0.0, node[1] if inner else "LEAF", 0, 0)
            for name, value in zip(nodes, row, strict=True):
                nodes[name].append(value)
            tracks.append(node[3] if inner else 0)
            if inner:
                nodes["truenodeids"][place] = write(tree, node[4])
                nodes["falsenodeids"][place] = write(tree, node[5])
            else:
                for target, weight in node[0]:
                    for name, value in zip(votes, (tree, number, target, weight), strict=True):
                        votes[name].append(value)
            return number

        for tree, root in enumerate(self.trees):
            write(tree, root)
        found = {f"nodes_{name}": values for name, values in nodes.items()}
        found |= {f"{prefix}{name}": values for name, values in votes.items()}
        return found | {"nodes_missing_value_tracks_true": tracks} if missing else found


def with_holes(*shape):
    X = f32(*shape, low=-3, high=3)
    return np.where(f32(*shape) > 1, np.float32(NAN), X)


# --- TreeEnsembleRegressor

for number, modes in enumerate([("BRANCH_LEQ",), ("BRANCH_LT",), ("BRANCH_GTE", "BRANCH_GT"), tuple(MODES)]):
    forest = Forest(number, modes=modes)
    settings = {**forest.attributes("target_"), "n_targets": 1, "domain": ML}
    expect = lambda X, forest=forest: forest.sums(X, 1)  # noqa: E731
    case("TreeEnsembleRegressor", X=with_holes(9, 3), **settings, against_onnxruntime=True, expect=expect)
    case("TreeEnsembleRegressor", X=i64(9, 3, low=-3, high=4), **settings, types={"T": INPUTS}, expect=expect)

WIDE = Forest(11, targets=2, votes=2, modes=tuple(MODES))
REGRESSOR = {**WIDE.attributes("target_", missing=False), "n_targets": 2, "domain": ML}
ROWS = f32(9, 3, low=-3, high=3)


def extreme(forest, X, pick):
    return np.array([[pick(w for t, w in forest.votes_of(row) if t == target) for target in range(2)] for row in X])


AGGREGATES = {
    "SUM": lambda X: WIDE.sums(X, 2),
    "AVERAGE": lambda X: WIDE.sums(X, 2) / len(WIDE.trees),
    "MIN": lambda X: extreme(WIDE, X, min),
    "MAX": lambda X: extreme(WIDE, X, max),
}
for aggregate, expect in AGGREGATES.items():
    settings = {**REGRESSOR, "aggregate_function": aggregate, "against_onnxruntime": True}
    case("TreeEnsembleRegressor", X=ROWS, **settings, expect=expect)
    base = lambda X, expect=expect: expect(X) + np.array([0.5, -0.25])  # noqa: E731
    case("TreeEnsembleRegressor", X=ROWS, **settings, base_values=[0.5, -0.25], expect=base)
for post_transform in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
    case("TreeEnsembleRegressor", X=ROWS, **REGRESSOR, post_transform=post_transform, against_onnxruntime=True)
case("TreeEnsembleRegressor", X=f32(0, 3), **REGRESSOR, expect=np.zeros((0, 2)))
refuse("TreeEnsembleRegressor", X=f32(2, 2), **REGRESSOR, match="the trees use 3 features, the input has 2")
refuse("TreeEnsembleRegressor", X=f32(3), **REGRESSOR, match=r"needs to be \[N,F\]")
refuse("TreeEnsembleRegressor", X=ROWS, **REGRESSOR, base_values=[1.0], match="1 base_values for 2 targets")
refuse(
    "TreeEnsembleRegressor", X=ROWS, **REGRESSOR, aggregate_function="MEDIAN", match="aggregate_function is .MEDIAN., expected"
)

DOUBLES = {name: value for name, value in REGRESSOR.items() if name not in ("nodes_values", "target_weights")}
DOUBLES |= {f"{name}_as_tensor": np.array(REGRESSOR[name]) for name in ("nodes_values", "target_weights")}
case("TreeEnsembleRegressor", X=f64(9, 3), **DOUBLES, base_values_as_tensor=np.array([0.5, 0.25]), against_onnxruntime=True)

SINGLE_LEAF = {
    "nodes_treeids": [0],
    "nodes_nodeids": [0],
    "nodes_featureids": [0],
    "nodes_values": [0.0],
    "nodes_modes": ["LEAF"],
    "nodes_truenodeids": [0],
    "nodes_falsenodeids": [0],
    "target_treeids": [0],
    "target_nodeids": [0],
    "target_ids": [0],
    "target_weights": [1.5],
    "n_targets": 1,
}
case("TreeEnsembleRegressor", X=f32(2, 1), **SINGLE_LEAF, domain=ML, expect=[[1.5], [1.5]])
refuse("TreeEnsembleRegressor", X=f32(2, 1), **{**SINGLE_LEAF, "target_nodeids": [3]}, domain=ML, match="no node 3 in tree 0")
refuse(
    "TreeEnsembleRegressor",
    X=f32(2, 1),
    **{**SINGLE_LEAF, "nodes_modes": ["TWIG"]},
    domain=ML,
    match="unknown node mode 'TWIG'",
)


def test_nodes_in_a_circle_are_refused():
    circle = {
        **SINGLE_LEAF,
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ"] * 3,
        "nodes_truenodeids": [1, 2, 1],
        "nodes_falsenodeids": [1, 2, 1],
    }
    with pytest.raises(errors.KernelError, match="cycle"):
        tree_ensemble_regressor(f32(1, 1), **circle)


def test_many_rows_are_done_in_blocks(monkeypatch):
    from sardonyx.providers.cpu.ml import forest as module

    X = f32(50, 3)
    settings = {name: value for name, value in REGRESSOR.items() if name != "domain"}
    whole = tree_ensemble_regressor(X, **settings)
    monkeypatch.setattr(module, "BLOCK", 7)
    np.testing.assert_array_equal(tree_ensemble_regressor(X, **settings), whole)


# --- TreeEnsembleClassifier


def winners(forest, X, classes, base=0.0):
    scores = forest.sums(X, classes) + base
    return scores.argmax(axis=1), scores


MANY = Forest(21, targets=4, votes=4)
CLASSIFIER = {**MANY.attributes("class_", missing=False), "classlabels_int64s": [0, 1, 2, 3], "domain": ML}
case("TreeEnsembleClassifier", X=i64(9, 3), **CLASSIFIER, types={"T1": INPUTS}, expect=lambda X: winners(MANY, X, 4))
case("TreeEnsembleClassifier", X=ROWS, **CLASSIFIER, against_onnxruntime=True, expect=lambda X: winners(MANY, X, 4))
BASE = [0.5, -0.5, 0.25, 1.0]
case(
    "TreeEnsembleClassifier",
    X=ROWS,
    **CLASSIFIER,
    base_values=BASE,
    against_onnxruntime=True,
    expect=lambda X: winners(MANY, X, 4, BASE),
)
for post_transform in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
    case("TreeEnsembleClassifier", X=ROWS, **CLASSIFIER, post_transform=post_transform, against_onnxruntime=True)
FEW = Forest(22, targets=3, votes=1)
NAMED = {**FEW.attributes("class_"), "classlabels_strings": ["a", "b", "c"], "domain": ML}
case("TreeEnsembleClassifier", X=with_holes(9, 3), **NAMED, against_onnxruntime=True)
case("TreeEnsembleClassifier", X=f32(0, 3), **NAMED, expect=(np.zeros(0, dtype=object), np.zeros((0, 3))))

# two classes with votes for the first alone: a probability, or a margin if some votes are negative
for positive in (True, False):
    lone = Forest(23 + positive, targets=2, positive=positive, only=0)
    binary = {**lone.attributes("class_", missing=False), "classlabels_int64s": [5, 7], "domain": ML}

    def decide(X, forest=lone, limit=0.5 if positive else 0.0, complement=1.0 if positive else 0.0):
        score = forest.sums(X, 1)
        return np.where(score[:, 0] > limit, 7, 5), np.concatenate([complement - score, score], axis=1)

    case("TreeEnsembleClassifier", X=ROWS, **binary, against_onnxruntime=True, expect=decide)
    for post_transform in ("LOGISTIC", "SOFTMAX"):
        case("TreeEnsembleClassifier", X=ROWS, **binary, post_transform=post_transform, against_onnxruntime=True)
    case("TreeEnsembleClassifier", X=ROWS, **binary, base_values=[0.25], against_onnxruntime=True)
    second = {**binary, "class_ids": [1] * len(binary["class_ids"])}
    case("TreeEnsembleClassifier", X=ROWS, **second, against_onnxruntime=True)

# two classes that both get votes are compared like any others
BOTH = Forest(31, targets=2, votes=2)
case(
    "TreeEnsembleClassifier",
    X=ROWS,
    **BOTH.attributes("class_"),
    classlabels_int64s=[0, 1],
    domain=ML,
    expect=lambda X: winners(BOTH, X, 2),
)
ONE_CLASS = Forest(32)
case(
    "TreeEnsembleClassifier",
    X=ROWS,
    **ONE_CLASS.attributes("class_"),
    classlabels_int64s=[7],
    domain=ML,
    against_onnxruntime=True,
)

# --- TreeEnsemble

# (x0 <= 1 ? (x1 > 0 ? leaf 0 : leaf 1) : leaf 2) and (x1 in {1, 3} ? leaf 3 : leaf 1)
ENSEMBLE = {
    "tree_roots": [0, 2],
    "nodes_featureids": [0, 1, 1],
    "nodes_splits": np.array([1, 0, 0], np.float32),
    "nodes_modes": np.array([0, 3, 6], np.uint8),
    "nodes_truenodeids": [1, 0, 3],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falsenodeids": [2, 1, 1],
    "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 0, 1],
    "leaf_weights": np.array([1, 2, 4, 8], np.float32),
    "membership_values": np.array([1, 3, NAN], np.float32),
    "n_targets": 2,
    "domain": ML,
}
POINTS = np.array([[0, 1], [0, -1], [2, 3], [2, 2]], np.float32)
SUMS = np.array([[1, 8], [0, 4], [4, 8], [4, 2]])


def of_type(dtype):
    floats = ("nodes_splits", "leaf_weights", "membership_values")
    return {name: value.astype(dtype) if name in floats else value for name, value in ENSEMBLE.items()}


for dtype in (np.float16, np.float32, np.float64):
    case("TreeEnsemble", X=POINTS.astype(dtype), **of_type(dtype), expect=SUMS)
case("TreeEnsemble", X=POINTS, **ENSEMBLE, aggregate_function=0, expect=SUMS / 2)
case("TreeEnsemble", X=POINTS, **ENSEMBLE, aggregate_function=2, expect=[[1, 8], [0, 2], [4, 8], [4, 2]])
case("TreeEnsemble", X=POINTS, **ENSEMBLE, aggregate_function=3, expect=[[1, 8], [0, 2], [4, 8], [4, 2]])
case("TreeEnsemble", X=POINTS, **ENSEMBLE, post_transform=2, expect=1 / (1 + np.exp(-SUMS.astype(np.float64))))
case("TreeEnsemble", X=POINTS, **ENSEMBLE, post_transform=1, expect=np.exp(SUMS) / np.exp(SUMS).sum(axis=1, keepdims=True))
case("TreeEnsemble", X=f32(0, 2), **ENSEMBLE, expect=np.zeros((0, 2)))
HOLES = np.array([[NAN, NAN]], np.float32)
case("TreeEnsemble", X=HOLES, **ENSEMBLE, expect=[[4, 2]])
case("TreeEnsemble", X=HOLES, **ENSEMBLE, nodes_missing_value_tracks_true=[1, 1, 1], expect=[[1, 8]])
case("TreeEnsemble", X=HOLES, **ENSEMBLE, nodes_missing_value_tracks_true=[1, 0, 0], expect=[[0, 4]])
refuse(
    "TreeEnsemble",
    X=POINTS,
    **{**ENSEMBLE, "membership_values": np.array([1, NAN, 3], np.float32)},
    match="1 BRANCH_MEMBER nodes have 2 sets",
)
