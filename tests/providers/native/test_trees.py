"""Tree ensembles in generated code against NumPy: all modes, ways of combining votes and transforms, rows of any number."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import InvalidArgument
from sardonyx.providers.cpu.ml.forest import Forest
from sardonyx.providers.native.kernels.ml.trees_table import pack
from sardonyx.providers.provider import CannotCompile
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

ROWS = (0, 1, 7, 9, 16, 100, 1100)
BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
TYPES = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.int64: TensorProto.INT64,
    np.int32: TensorProto.INT32,
}


def random_forest(seed, trees=11, features=5, targets=1, votes=1, depth=5, modes=BRANCHES[:1], missing=False, grid=8):
    """Attributes of a random forest, without those for votes, and the votes: (tree, node, target, weight)."""
    rng = np.random.default_rng(seed)
    nodes, said = [], []

    def grow(tree, level, ids):
        me = len(ids)
        ids.append(me)
        if level == 0 or (level < depth and rng.random() < 0.15):
            nodes.append((tree, me, 0, 0.0, "LEAF", 0, 0, 0))
            chosen = rng.choice(targets, size=min(votes, targets), replace=False)
            said.extend((tree, me, int(target), float(np.float32(rng.standard_normal()))) for target in chosen)
            return me
        place = len(nodes)
        nodes.append(None)
        yes, no = grow(tree, level - 1, ids), grow(tree, level - 1, ids)
        split = float(rng.integers(-grid, grid)) / 4
        flag = int(missing and rng.random() < 0.5)
        nodes[place] = (tree, me, int(rng.integers(features)), split, str(rng.choice(modes)), yes, no, flag)
        return me

    for tree in range(trees):
        grow(tree, 0 if tree == 3 else depth, [])
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*nodes))}, said


def rows_of(count, features=5, dtype=np.float32, seed=0):
    """Rows whose values often meet the splits, with NaN, infinities and signed zeros among them."""
    rng = np.random.default_rng(seed + count)
    X = rng.integers(-9, 9, (count, features)) / 4
    if np.dtype(dtype).kind == "f" and count > 1:
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40])
        X = np.where(rng.random(X.shape) < 0.15, rng.choice(special, X.shape), X)
    return X.astype(dtype)


def model(op, attributes, dtype=np.float32, features=5, outputs=("Y",), version=3, output_type=TensorProto.FLOAT):
    node = helper.make_node(op, ["X"], list(outputs), domain="ai.onnx.ml", **attributes)
    types = [TensorProto.INT64, output_type] if len(outputs) == 2 else [output_type]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", TYPES.get(dtype, TensorProto.FLOAT16), ["N", features])],
        [helper.make_tensor_value_info(name, type, None) for name, type in zip(outputs, types)],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def regressor(seed=0, targets=1, votes=1, dtype=np.float32, double=False, extra=None, width=None, **forest):
    nodes, said = random_forest(seed, targets=targets, votes=votes, **forest)
    trees, ids, chosen, weights = zip(*said)
    attributes = dict(nodes, target_treeids=trees, target_nodeids=ids, target_ids=chosen, n_targets=targets, **(extra or {}))
    if double:
        splits = attributes.pop("nodes_values")
        attributes["nodes_values_as_tensor"] = helper.make_tensor(
            "v", TensorProto.DOUBLE, [len(splits)], np.array(splits) + 1e-9
        )
        attributes["target_weights_as_tensor"] = helper.make_tensor(
            "w", TensorProto.DOUBLE, [len(weights)], np.array(weights) / 3
        )
    else:
        attributes["target_weights"] = weights
    return model("TreeEnsembleRegressor", attributes, dtype, width or forest.get("features", 5))


def classifier(seed=0, classes=3, votes=1, targets=None, labels=None, extra=None, positive=False, **forest):
    nodes, said = random_forest(seed, targets=targets or classes, votes=votes, **forest)
    trees, ids, chosen, weights = zip(*said)
    weights = np.abs(weights).tolist() if positive else weights
    attributes = dict(nodes, class_treeids=trees, class_nodeids=ids, class_ids=chosen, class_weights=weights)
    attributes["classlabels_int64s"] = labels or [10 * k + 3 for k in range(classes)]
    return model("TreeEnsembleClassifier", {**attributes, **(extra or {})}, outputs=("label", "scores"))


def feeds(dtype=np.float32, features=5, rows=ROWS):
    return [{"X": rows_of(count, features, dtype)} for count in rows]


@pytest.mark.parametrize("mode", BRANCHES)
def test_each_mode_with_missing_values(mode):
    assert_agrees(regressor(1, modes=[mode], missing=True), feeds())


@pytest.mark.parametrize("dtype", list(TYPES))
def test_each_type_of_rows(dtype):
    assert_agrees(regressor(2, modes=BRANCHES, missing=True, dtype=dtype), feeds(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_splits_and_weights_in_double_precision(dtype):
    assert_agrees(regressor(3, modes=BRANCHES, missing=True, dtype=dtype, double=True), feeds(dtype))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("targets", "votes"), [(1, 1), (3, 1), (5, 3)])
def test_ways_to_combine_votes(aggregate, targets, votes):
    extra = {"aggregate_function": aggregate, "base_values": [0.5 * k for k in range(targets)]}
    assert_agrees(regressor(4, targets, votes, extra=extra), feeds())


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_transforms(transform):
    extra, tolerance = {"post_transform": transform}, tolerance_of(transform)
    assert_agrees(regressor(5, 3, 2, extra=extra), feeds(), tolerance=tolerance)
    assert_agrees(regressor(5, extra=extra), feeds(), tolerance=tolerance)
    assert_agrees(classifier(6, 4, 4, extra=extra), feeds(), tolerance=tolerance)


def tolerance_of(transform):
    """Near probabilities of 0 and 1 the normal quantile makes a rounding error of its argument large."""
    return 1e-3 if transform == "PROBIT" else 1e-5


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "PROBIT"])
@pytest.mark.parametrize("positive", [True, False])
def test_votes_for_one_of_two_classes(transform, positive):
    for base in ([], [0.25], [0.25, -0.5]):
        extra = {"post_transform": transform, **({"base_values": base} if base else {})}
        assert_agrees(classifier(7, 2, targets=1, positive=positive, extra=extra), feeds(), tolerance=tolerance_of(transform))


def test_votes_for_the_second_of_two_classes():
    nodes, said = random_forest(8)
    trees, ids, _, weights = zip(*said)
    attributes = dict(nodes, class_treeids=trees, class_nodeids=ids, class_ids=[1] * len(ids), class_weights=weights)
    for base in ([], [0.25, -0.5]):
        extra = {"base_values": base} if base else {}
        source = model(
            "TreeEnsembleClassifier", dict(attributes, classlabels_int64s=[5, 9], **extra), outputs=("label", "scores")
        )
        assert_agrees(source, feeds())


def test_a_single_class_says_yes_or_no():
    assert_agrees(classifier(9, 1), feeds())


@pytest.mark.parametrize("votes", [1, 2, 3])
@pytest.mark.parametrize("base", [[], [0.5], [0.1, 0.2, 0.3]])
def test_a_class_without_votes_does_not_win(votes, base):
    extra = {"base_values": base} if base else {}
    assert_agrees(classifier(10, 3, votes, trees=2, depth=2, extra=extra), feeds())


def test_boosted_trees_of_several_classes():
    """Each tree votes for one class."""
    nodes, said = random_forest(11, trees=12)
    trees, ids, _, weights = zip(*said)
    attributes = dict(nodes, class_treeids=trees, class_nodeids=ids, class_ids=[t % 4 for t in trees], class_weights=weights)
    source = model("TreeEnsembleClassifier", dict(attributes, classlabels_int64s=[3, 1, 2, 0]), outputs=("label", "scores"))
    assert_agrees(source, feeds())


def test_many_features_need_wide_records():
    assert_agrees(regressor(12, features=700, trees=120, modes=BRANCHES), feeds(features=700, rows=(1, 33)))


def test_deep_trees():
    """A tree that is a list of 300 tests."""
    depth = 300
    nodes = {
        "nodes_treeids": [0] * (2 * depth + 1),
        "nodes_nodeids": list(range(2 * depth + 1)),
        "nodes_featureids": [k % 5 for k in range(depth)] + [0] * (depth + 1),
        "nodes_values": [2.0 - k / 60 for k in range(depth)] + [0.0] * (depth + 1),
        "nodes_modes": ["BRANCH_LEQ"] * depth + ["LEAF"] * (depth + 1),
        "nodes_truenodeids": [*range(1, depth), 2 * depth] + [0] * (depth + 1),
        "nodes_falsenodeids": [depth + k for k in range(depth)] + [0] * (depth + 1),
    }
    leaves = list(range(depth, 2 * depth + 1))
    votes = {"target_treeids": [0] * len(leaves), "target_nodeids": leaves, "target_ids": [0] * len(leaves), "n_targets": 1}
    source = model("TreeEnsembleRegressor", dict(nodes, **votes, target_weights=[float(k) for k in leaves]), version=1)
    assert_agrees(source, feeds())


def test_rows_with_too_few_features_are_refused():
    source = regressor(13, width="F")
    plan = native_plan(source)
    assert programs(plan)
    assert_agrees(source, feeds())
    with pytest.raises(InvalidArgument, match="the trees use 5 features, the input has 4"):
        execute(plan, {"X": np.zeros((3, 4), np.float32)})


MEMBERS = {
    "tree_roots": [0, 2],
    "nodes_featureids": [0, 1, 1],
    "nodes_truenodeids": [1, 0, 3],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falsenodeids": [2, 1, 1],
    "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 0, 1],
    "n_targets": 2,
}


@pytest.mark.parametrize("type", [TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("missing", [[], [1, 0, 1]])
def test_tree_ensemble_with_sets(type, missing):
    dtype = helper.tensor_dtype_to_np_dtype(type).type
    tensors = {"nodes_splits": [1, 0, 0], "leaf_weights": [1, 2, 4, 8], "membership_values": [1, 3, -2.25, 0, np.nan]}
    attributes = {name: helper.make_tensor(name, type, [len(values)], values) for name, values in tensors.items()}
    attributes["nodes_modes"] = helper.make_tensor("modes", TensorProto.UINT8, [3], [0, 3, 6])
    attributes |= MEMBERS | ({"nodes_missing_value_tracks_true": missing} if missing else {})
    for aggregate in range(4):
        source = model("TreeEnsemble", dict(attributes, aggregate_function=aggregate), dtype, 2, version=5, output_type=type)
        assert_agrees(source, feeds(dtype, 2))


def test_faulty_forests_are_left_to_numpy():
    nodes, said = random_forest(14)
    trees, ids, chosen, weights = zip(*said)
    votes = {"target_treeids": trees, "target_nodeids": ids, "target_ids": chosen, "target_weights": weights, "n_targets": 1}
    inner = nodes["nodes_modes"].index("BRANCH_LEQ")
    cycle = dict(nodes, nodes_truenodeids=[1 if k == 2 else id for k, id in enumerate(nodes["nodes_truenodeids"])])
    assert nodes["nodes_modes"][1] == nodes["nodes_modes"][2] == "BRANCH_LEQ"
    unknown = dict(nodes, nodes_truenodeids=[999 if k == inner else id for k, id in enumerate(nodes["nodes_truenodeids"])])
    target = dict(votes, target_ids=[7] * len(ids))
    feature = dict(nodes, nodes_featureids=[-1 if k == inner else id for k, id in enumerate(nodes["nodes_featureids"])])
    for attributes in (unknown | votes, nodes | target, feature | votes, cycle | votes):
        assert not programs(native_plan(model("TreeEnsembleRegressor", attributes, version=1)))


def test_trees_that_share_nodes_are_left_to_numpy():
    shared = np.array([0, 0])
    forest = Forest(
        roots=shared,
        feature=np.zeros(3, np.int64),
        threshold=np.zeros(3, np.float32),
        mode=np.zeros(3, np.int64),
        when_true=np.array([1, 1, 2]),
        when_false=np.array([2, 1, 2]),
        missing_is_true=np.zeros(3, bool),
        first_vote=np.array([0, 0, 1]),
        vote_count=np.array([0, 1, 1]),
        vote_target=np.zeros(2, np.int64),
        vote_weight=np.ones(2, np.float32),
    )
    with pytest.raises(CannotCompile, match="share a root"):
        pack(forest, np.float32, 1, "SUM")


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 8),
    st.lists(st.sampled_from(BRANCHES), min_size=1, unique=True),
    st.integers(0, 70),
)
def test_random_forests(seed, trees, targets, votes, depth, modes, count):
    source = regressor(seed, targets, votes, trees=trees, depth=depth, modes=modes, missing=seed % 2 == 0)
    assert_agrees(source, {"X": rows_of(count, seed=seed)})


def test_agrees_with_onnxruntime():
    source, X = classifier(15, 3, 3, trees=40), np.random.default_rng(0).standard_normal((100, 5)).astype(np.float32)
    theirs = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"X": X})
    mine = sardonyx.InferenceSession(source).run(None, {"X": X})
    np.testing.assert_array_equal(mine[0], theirs[0])
    np.testing.assert_allclose(mine[1], theirs[1], atol=1e-5)
