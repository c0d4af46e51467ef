"""Decision forests as arrays: the node table, the way of many rows through many trees at once, and the sum of the votes.

`trees.py` builds a `Forest` from the attributes of the tree ops, once per node of the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.shape import bounded
from sardonyx.providers.termination import watched
from sardonyx.startup.records import dataclass

BLOCK = 1 << 18
"""How many (row, tree) pairs are on their way at the same time."""

COMPARISONS: tuple[Any, ...] = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
"""By mode number: BRANCH_LEQ, LT, GTE, GT, EQ, NEQ. The one after them is BRANCH_MEMBER."""

MEMBER = len(COMPARISONS)


@dataclass
class Forest:
    """Nodes of all trees. A leaf is a node whose children are itself; it votes with `votes[start : start + count]`."""

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    mode: np.ndarray
    when_true: np.ndarray
    when_false: np.ndarray
    missing_is_true: np.ndarray
    first_vote: np.ndarray
    vote_count: np.ndarray
    vote_target: np.ndarray
    vote_weight: np.ndarray
    members: Members | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        for name in ("threshold", "mode", "when_true", "when_false", "missing_is_true", "first_vote", "vote_count"):
            if getattr(self, name).shape != self.feature.shape:
                raise KernelError(
                    f"{self.feature.size} nodes have features, but {name} is for {getattr(self, name).size}", InvalidArgument
                )
        if self.vote_weight.shape != self.vote_target.shape:
            raise KernelError(
                f"{self.vote_target.size} leaves vote, but there are {self.vote_weight.size} weights", InvalidArgument
            )
        if self.feature.min(initial=0) < 0:
            raise KernelError(f"there is no feature {self.feature.min()}", InvalidArgument)
        self.depth = self._measure_depth()
        inner = self.when_true != self.when_false
        self._modes = np.unique(self.mode[inner]).tolist() or [0]
        self._missing = bool(self.missing_is_true[inner].any())
        self._votes_once = bool((self.vote_count[~inner] == 1).all())

    def _measure_depth(self) -> int:
        level, depth = distinct(self.roots), 0
        while True:
            children = distinct(np.concatenate([self.when_true[level], self.when_false[level]]))
            level = children[(self.when_true[children] != children) | (self.when_false[children] != children)]
            depth += 1
            if not level.size:
                return depth
            if depth > len(self.feature):
                raise KernelError("the nodes of a tree form a cycle", InvalidArgument)

    def leaves(self, X: np.ndarray) -> np.ndarray:
        """The leaf that each row reaches in each tree, (rows, trees)."""
        at = np.broadcast_to(self.roots, (len(X), len(self.roots)))
        row = np.arange(len(X))[:, None]
        for _ in range(self.depth):
            value = X[row, self.feature[at]]
            at = np.where(self._holds(value, at), self.when_true[at], self.when_false[at])
        return at

    def _holds(self, value: np.ndarray, at: np.ndarray) -> np.ndarray:
        threshold = self.threshold[at]
        holds = None
        for mode in self._modes:
            if mode == MEMBER:
                assert self.members is not None
                condition = self.members.contain(value, at)
            else:
                condition = COMPARISONS[mode](value, threshold)
            holds = condition if holds is None else np.where(self.mode[at] == mode, condition, holds)
        assert holds is not None
        return holds | (self.missing_is_true[at] & np.isnan(value)) if self._missing else holds

    def scores(self, X: np.ndarray, targets: int, combine: str) -> tuple[np.ndarray, np.ndarray]:
        """Votes combined by SUM, MIN or MAX, (rows, targets), and how many votes each score is made of; none make zero."""
        features = int(self.feature.max(initial=-1)) + 1
        if X.shape[1] < features:
            raise KernelError(f"the trees use {features} features, the input has {X.shape[1]}", InvalidArgument)
        if self.vote_target.min(initial=0) < 0 or self.vote_target.max(initial=-1) >= targets:
            raise KernelError(f"votes go to target {self.vote_target.max()}, there are {targets}", InvalidArgument)
        shape = bounded((len(X), targets), np.dtype(np.int64))
        total = np.full(shape, {"SUM": 0, "MIN": np.inf, "MAX": -np.inf}[combine], self.vote_weight.dtype)
        count = np.zeros(shape, np.int64)
        step = max(1, BLOCK // max(1, len(self.roots)))
        for start in watched(range(0, len(X), step)):
            block = slice(start, start + step)
            self._add_votes(self.leaves(X[block]), total[block], count[block], combine)
        return np.where(count > 0, total, total.dtype.type(0)), count

    def _add_votes(self, leaves: np.ndarray, total: np.ndarray, count: np.ndarray, combine: str) -> None:
        targets = total.shape[1]
        if targets == 1 and combine == "SUM" and self._votes_once:
            total[:, 0] += self.vote_weight[self.first_vote[leaves]].sum(axis=1, dtype=np.float64).astype(total.dtype)
            count += leaves.shape[1]
            return
        base = np.arange(len(leaves))[:, None] * targets
        first, votes = self.first_vote[leaves], self.vote_count[leaves]
        for number in range(int(votes.max(initial=0))):
            voting = votes > number
            vote = (first + number)[voting]
            place = (base + np.zeros_like(leaves))[voting] + self.vote_target[vote]
            weight = self.vote_weight[vote]
            count += np.bincount(place, minlength=total.size).reshape(total.shape)
            if combine == "SUM":
                total += np.bincount(place, weights=weight, minlength=total.size).reshape(total.shape).astype(total.dtype)
            else:
                (np.minimum if combine == "MIN" else np.maximum).at(total.reshape(-1), place, weight)


def distinct(places: np.ndarray) -> np.ndarray:
    """Whole numbers sorted, each once. (np.unique hashes, which takes several times as long.)"""
    ordered = np.sort(places)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


class Members:
    """The sets of the BRANCH_MEMBER nodes, as a table of flags by set and distinct value."""

    def __init__(self, nodes: np.ndarray, sets: list[np.ndarray], node_count: int):
        if len(nodes) != len(sets):
            raise KernelError(f"{len(nodes)} BRANCH_MEMBER nodes have {len(sets)} sets of values", InvalidArgument)
        self._values = np.unique(np.concatenate(sets))
        self._flags = np.zeros((len(sets), len(self._values) + 1), bool)
        for number, values in enumerate(sets):
            self._flags[number, np.searchsorted(self._values, values)] = True
        self._set_of = np.zeros(node_count, np.int64)
        self._set_of[nodes] = np.arange(len(nodes))

    def of(self, node: int) -> np.ndarray:
        """The values of a node's set."""
        return self._values[self._flags[self._set_of[node], :-1]]

    def contain(self, value: np.ndarray, at: np.ndarray) -> np.ndarray:
        place = np.searchsorted(self._values, value)
        known = np.append(self._values, np.nan)[place] == value
        flags: np.ndarray = self._flags[self._set_of[at], np.where(known, place, len(self._values))]
        return flags
