"""TreeEnsemble, TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.ml.forest import MEMBER, Forest, Members
from sardonyx.providers.cpu.ml.scores import class_labels, transform, transform_single, with_second_class
from sardonyx.providers.cpu.prepared import prepared
from sardonyx.providers.cpu.table import cpu

ml = cpu.in_domain("ai.onnx.ml")

MODES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5}
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@ml("TreeEnsemble", widen=True)
def tree_ensemble(
    X,
    *,
    leaf_targetids,
    leaf_weights,
    nodes_falseleafs,
    nodes_falsenodeids,
    nodes_featureids,
    nodes_modes,
    nodes_splits,
    nodes_trueleafs,
    nodes_truenodeids,
    tree_roots,
    aggregate_function=1,
    membership_values=None,
    n_targets=None,
    nodes_hitrates=None,
    nodes_missing_value_tracks_true=None,
    post_transform=0,
):
    """`nodes_hitrates` tells how often nodes were visited in training and has no influence."""
    forest = prepared(
        forest_of_nodes_and_leaves,
        tree_roots,
        nodes_featureids,
        nodes_splits,
        nodes_modes,
        nodes_truenodeids,
        nodes_trueleafs,
        nodes_falsenodeids,
        nodes_falseleafs,
        nodes_missing_value_tracks_true,
        leaf_targetids,
        leaf_weights,
        membership_values,
    )
    targets = n_targets or int(max(leaf_targetids, default=0)) + 1
    return _regress(forest, _rows(X), targets, AGGREGATES[aggregate_function], None, TRANSFORMS[post_transform])


@ml("TreeEnsembleRegressor")
def tree_ensemble_regressor(
    X,
    *,
    nodes_falsenodeids,
    nodes_featureids,
    nodes_modes,
    nodes_nodeids,
    nodes_treeids,
    nodes_truenodeids,
    target_ids,
    target_nodeids,
    target_treeids,
    aggregate_function="SUM",
    base_values=None,
    base_values_as_tensor=None,
    n_targets=None,
    nodes_hitrates=None,
    nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None,
    nodes_values=None,
    nodes_values_as_tensor=None,
    post_transform="NONE",
    target_weights=None,
    target_weights_as_tensor=None,
):
    forest = prepared(
        forest_of_numbered_nodes,
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        _either(nodes_values, nodes_values_as_tensor),
        nodes_modes,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        target_treeids,
        target_nodeids,
        target_ids,
        _either(target_weights, target_weights_as_tensor),
    )
    targets = n_targets or int(max(target_ids, default=0)) + 1
    base = _base_values(forest, base_values, base_values_as_tensor)
    return _regress(forest, _rows(X), targets, aggregate_function, base, post_transform)


@ml("TreeEnsembleClassifier")
def tree_ensemble_classifier(
    X,
    *,
    class_ids,
    class_nodeids,
    class_treeids,
    nodes_falsenodeids,
    nodes_featureids,
    nodes_modes,
    nodes_nodeids,
    nodes_treeids,
    nodes_truenodeids,
    base_values=None,
    base_values_as_tensor=None,
    class_weights=None,
    class_weights_as_tensor=None,
    classlabels_int64s=None,
    classlabels_strings=None,
    nodes_hitrates=None,
    nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None,
    nodes_values=None,
    nodes_values_as_tensor=None,
    post_transform="NONE",
):
    weights = _either(class_weights, class_weights_as_tensor)
    forest = prepared(
        forest_of_numbered_nodes,
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        _either(nodes_values, nodes_values_as_tensor),
        nodes_modes,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        class_treeids,
        class_nodeids,
        class_ids,
        weights,
    )
    labels = class_labels(classlabels_strings, classlabels_int64s)
    base = _base_values(forest, base_values, base_values_as_tensor)
    scores, votes = forest.scores(_rows(X), len(labels), "SUM")
    if len(labels) == 1:
        return _classify_one(scores + base[:1] if len(base) else scores, labels, post_transform)
    if len(labels) == 2 and len(set(class_ids)) == 1:
        return _classify_two(scores, base, labels, post_transform, class_ids[0], bool((forest.vote_weight >= 0).all()))
    return _classify_many(scores, votes, base, labels, post_transform)


def _rows(X):
    if X.ndim != 2:
        raise KernelError(f"Input shape needs to be [N,F], it is {list(X.shape)}", InvalidArgument)
    return X.astype(np.float32) if X.dtype.kind == "i" else X


def _either(floats, tensor):
    return floats if tensor is None else tensor


def _base_values(forest, floats, tensor):
    values = _either(floats, tensor)
    return np.asarray([] if values is None else values, dtype=forest.vote_weight.dtype).reshape(-1)


def _regress(forest, X, targets, aggregate, base, post_transform):
    if aggregate not in AGGREGATES:
        raise KernelError(f"aggregate_function must be one of {', '.join(AGGREGATES)}, not {aggregate!r}", InvalidArgument)
    scores, _ = forest.scores(X, targets, "SUM" if aggregate == "AVERAGE" else aggregate)
    if aggregate == "AVERAGE":
        scores /= scores.dtype.type(len(forest.roots))
    if base is not None and len(base):
        if len(base) != targets:
            raise KernelError(f"there are {len(base)} base_values for {targets} targets", InvalidArgument)
        scores += base
    return transform(scores, post_transform) if targets > 1 else transform_single(scores, post_transform)


def _classify_many(scores, votes, base, labels, post_transform):
    """A class that nobody voted for and that has no base value cannot win."""
    scores[:, : len(base)] += base
    candidate = votes > 0
    candidate[:, : len(base)] = True
    winner = np.where(candidate, scores, scores.dtype.type(-np.inf)).argmax(axis=1)
    return labels[winner], transform(scores, post_transform)


def _classify_two(scores, base, labels, post_transform, voted, all_positive):
    """All votes are for one of two classes. As trainers mean it that is a probability, or a margin if some votes are negative."""
    limit = 0.5 if all_positive else 0.0
    if voted == 0 and len(base) < 2:
        score = scores[:, :1] + base if len(base) else scores[:, :1]
        return labels[(score[:, 0] > limit).astype(int)], with_second_class(score, post_transform, signed=not all_positive)
    if len(base) == 2:
        scores[:, voted:] += base[voted:]
    return labels[(scores[:, voted] > limit).astype(int)], transform(scores, post_transform)


def _classify_one(scores, labels, post_transform):
    """A single class says yes or no: 1 or 0, whatever its label."""
    answers = np.array(["0", "1"], dtype=object) if labels.dtype == object else np.array([0, 1])
    return answers[(scores[:, 0] > 0).astype(int)], transform_single(scores, post_transform)


def _numbers(values):
    """A list of floats is single precision; a tensor may be double."""
    return values.reshape(-1) if isinstance(values, np.ndarray) else np.asarray(values, dtype=np.float32)


def forest_of_nodes_and_leaves(
    roots, feature, splits, modes, when_true, true_is_leaf, when_false, false_is_leaf, missing, targets, weights, members
):
    """Inner nodes come first in the table, the leaves behind them."""
    inner, leaves = len(feature), len(targets)
    when_true = _children(when_true, true_is_leaf, inner, leaves)
    when_false = _children(when_false, false_is_leaf, inner, leaves)
    _check_places(roots, inner, "node")
    themselves = np.arange(inner, inner + leaves)
    precise = np.promote_types(np.asarray(splits).dtype, np.float32)
    mode = np.asarray(modes).astype(np.int64)
    sets = None
    if (mode == MEMBER).any():
        sets = Members(
            np.flatnonzero(mode == MEMBER),
            _split_at_nan(np.asarray([] if members is None else members, precise)),
            inner + leaves,
        )
    return Forest(
        roots=np.asarray(roots, dtype=np.int64),
        feature=np.concatenate([np.asarray(feature, dtype=np.int64), np.zeros(leaves, np.int64)]),
        threshold=np.concatenate([np.asarray(splits).astype(precise), np.zeros(leaves, precise)]),
        mode=np.concatenate([mode, np.zeros(leaves, np.int64)]),
        when_true=np.concatenate([when_true, themselves]),
        when_false=np.concatenate([when_false, themselves]),
        missing_is_true=_flags(missing, inner, leaves),
        first_vote=np.concatenate([np.zeros(inner, np.int64), np.arange(leaves)]),
        vote_count=np.concatenate([np.zeros(inner, np.int64), np.ones(leaves, np.int64)]),
        vote_target=np.asarray(targets, dtype=np.int64),
        vote_weight=np.asarray(weights).astype(precise),
        members=sets,
    )


def _children(places, are_leaves, inner, leaves):
    places, are_leaves = np.asarray(places, dtype=np.int64), np.asarray(are_leaves) != 0
    _check_places(places[are_leaves], leaves, "leaf")
    _check_places(places[~are_leaves], inner, "node")
    return places + inner * are_leaves


def _check_places(places, count, what):
    outside = [place for place in np.unique(places).tolist() if not 0 <= place < count]
    if outside:
        raise KernelError(f"there is no {what} {outside[0]} among {count}", InvalidArgument)


def _flags(missing, inner, leaves):
    tracks = np.asarray(missing, dtype=bool) if missing is not None and len(missing) else np.zeros(inner, bool)
    return np.concatenate([tracks, np.zeros(leaves, bool)])


def _split_at_nan(values):
    """Sets of values, each ended by NaN; the last NaN may be missing."""
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    sets = [part[~np.isnan(part)] for part in parts]
    return sets if not np.isnan(values[-1:]).any() else sets[:-1]


def forest_of_numbered_nodes(
    tree_ids, node_ids, feature, thresholds, modes, true_ids, false_ids, missing, vote_trees, vote_nodes, vote_targets, weights
):
    """Nodes are known by (tree, node) pairs; a tree's root is its node that is nobody's child."""
    tree_ids, node_ids = np.asarray(tree_ids, dtype=np.int64), np.asarray(node_ids, dtype=np.int64)
    count = len(tree_ids)
    place = _Places(tree_ids, node_ids)
    mode = _mode_numbers(modes)
    leaf = mode < 0
    themselves = np.arange(count)
    when_true, when_false = themselves.copy(), themselves.copy()
    when_true[~leaf] = place.find(tree_ids[~leaf], np.asarray(true_ids, dtype=np.int64)[~leaf])
    when_false[~leaf] = place.find(tree_ids[~leaf], np.asarray(false_ids, dtype=np.int64)[~leaf])
    child = np.zeros(count, bool)
    child[when_true[~leaf]] = child[when_false[~leaf]] = True
    weights, thresholds = _numbers(weights), _numbers(thresholds)
    precise = np.promote_types(weights.dtype, thresholds.dtype)
    voter = place.find(np.asarray(vote_trees, dtype=np.int64), np.asarray(vote_nodes, dtype=np.int64))
    order = np.argsort(voter, kind="stable")
    votes = np.bincount(voter, minlength=count)
    return Forest(
        roots=np.flatnonzero(~child),
        feature=np.where(leaf, 0, np.asarray(feature, dtype=np.int64)),
        threshold=thresholds.astype(precise),
        mode=np.maximum(mode, 0),
        when_true=when_true,
        when_false=when_false,
        missing_is_true=_flags(missing, count, 0),
        first_vote=np.cumsum(votes) - votes,
        vote_count=votes,
        vote_target=np.asarray(vote_targets, dtype=np.int64)[order],
        vote_weight=weights.astype(precise)[order],
    )


def _mode_numbers(modes):
    """The modes' numbers, -1 for leaves."""
    try:
        return np.fromiter(map({**MODES, "LEAF": -1}.__getitem__, modes), np.int64, len(modes))
    except KeyError as error:
        raise KernelError(f"unknown node mode {error}", InvalidArgument) from None


class _Places:
    """Where (tree, node) pairs stand in the node table."""

    def __init__(self, tree_ids, node_ids):
        self._order = np.lexsort((node_ids, tree_ids))
        self._trees, first = np.unique(tree_ids, return_inverse=True)
        self._low = node_ids.min(initial=0)
        self._span = int(node_ids.max(initial=0)) - int(self._low) + 1
        self._keys = (first * self._span + (node_ids - self._low))[self._order]

    def find(self, tree_ids, node_ids):
        tree = np.minimum(np.searchsorted(self._trees, tree_ids), len(self._trees) - 1)
        key = tree * self._span + (node_ids - self._low)
        place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        wrong = (self._trees[tree] != tree_ids) | (self._keys[place] != key)
        if wrong.any():
            bad = np.flatnonzero(wrong)[0]
            raise KernelError(f"there is no node {node_ids[bad]} in tree {tree_ids[bad]}", InvalidArgument)
        return self._order[place]
