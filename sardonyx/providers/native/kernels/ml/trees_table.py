"""Decision forests as tables for generated code: each test becomes "is the feature's key at most this one", children lie in pairs.

`trees.py` packs a `Forest` once per session; `trees_walk.py` has the code that goes through the result.

A key is an unsigned integer that orders like the float that it stands for, so one comparison of integers serves all modes. NaN is given
the largest key or nearly the smallest, whichever sends it where a node wants it: features are read as columns, up to two for a feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.providers.cpu.ml.forest import MEMBER, Forest, distinct
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass

GROUP = 16
"""How many rows stand side by side in a column of keys."""
CHAINS = 8
"""How many trees a row that goes alone passes at the same time."""
VOTE_LANES = 4
"""Rows of votes are filled up to a multiple of so many."""
LEQ, LT, GTE, GT, EQ, NEQ = range(6)
SENTINEL, NAN_LOW = 0, 1
"""Keys of the column that leaves read, and of NaN in columns where it shall be less than all numbers."""
NARROW_NODES, NARROW_COLUMNS = 1 << 16, 1 << 9
IDENTITIES = {"SUM": 0.0, "MIN": np.inf, "MAX": -np.inf}
"""Where scores begin, by the way in which votes are combined."""
MAX_VOTES = 1 << 26
"""How many elements a table of the leaves' votes may have."""


@dataclass(frozen=True)
class ForestTable:
    """A forest as arrays of bytes and numbers for generated code."""

    nodes: np.ndarray
    """Records (key, column, child) of 8 bytes if `narrow`, else of 16. A leaf has its vote in the key's place, and leads to itself."""
    narrow: bool
    trees: np.ndarray
    """For each tree its first record, target and depth; then trees of one leaf without a vote, up to a multiple of `CHAINS`."""
    count: int
    columns: np.ndarray
    """For each column of keys the feature, and the key of NaN."""
    flag: int
    """The column that leaves read, the only one whose number has this bit."""
    features: int
    """How many features an input must have."""
    votes: np.ndarray | None
    """Rows that leaves add to the scores, if their vote is the number of one; None if it is the weight itself."""
    voted: np.ndarray
    """For each target whether all rows get votes for it (1), none do (0), or it depends (-1): then sums are followed by counts."""

    @property
    def width(self) -> int:
        """How many numbers are kept for a row."""
        return len(self.voted) if self.votes is None else self.votes.shape[1]


def float_keys(values: np.ndarray) -> np.ndarray:
    """Unsigned integers that order as the floats do."""
    words, bits = (np.uint32, 32) if values.dtype == np.float32 else (np.uint64, 64)
    raw = (values + values.dtype.type(0)).view(words)  # the sum makes -0 a 0
    top = words(1 << (bits - 1))
    return np.where(raw & top, ~raw, raw | top).astype(words)


def keys_up_to(values: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The keys of the largest numbers of a type that are at most, and that are below given ones. NaN: no number is."""
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype)
    unknown = np.isnan(values)
    keys = float_keys(np.where(unknown, dtype(0), rounded))
    at_most, below = keys - (rounded > values), keys - (rounded >= values)
    return np.where(unknown, NAN_LOW, at_most).astype(keys.dtype), np.where(unknown, NAN_LOW, below).astype(keys.dtype)


class _Tests:
    """The nodes of a forest with tests of one kind: a key at most `key` goes to `low`, others to `high`."""

    def __init__(self, forest: Forest, dtype: Any):
        self.dtype = dtype
        mode, missing, themselves = forest.mode, forest.missing_is_true, np.arange(len(forest.mode))
        at_most, below = keys_up_to(forest.threshold, dtype)
        self.key = np.where((mode == LEQ) | (mode == GT), at_most, below)
        greater = (mode == GTE) | (mode == GT)
        # nothing compares with NaN: no number may come to the side of `when_true`
        self.key[greater & np.isnan(forest.threshold)] = float_keys(np.array([np.inf], dtype))[0]
        self.low = np.where(greater, forest.when_false, forest.when_true)
        self.high = np.where(greater, forest.when_true, forest.when_false)
        self.nan_low = np.where(greater, ~missing, missing)
        self.feature = forest.feature
        self.leaf = (forest.when_true == themselves) & (forest.when_false == themselves)
        self._more: list[tuple[int, int, int, int]] = []
        for node in np.flatnonzero((mode >= EQ) & ~self.leaf).tolist():
            self._split(forest, node)
        self._append()

    def _split(self, forest: Forest, node: int) -> None:
        """Make a test of equality or membership a search among the intervals on which it is true or false."""
        mode, when_true, when_false = int(forest.mode[node]), int(forest.when_true[node]), int(forest.when_false[node])
        values = forest.threshold[node : node + 1]
        if mode == MEMBER:
            assert forest.members is not None
            values = forest.members.of(node)
        inside, outside = (when_false, when_true) if mode == NEQ else (when_true, when_false)
        at_most, below = keys_up_to(np.unique(values[~np.isnan(values)]), self.dtype)
        exact = at_most != below  # others are no numbers of the input's type
        bounds = np.stack([below[exact], at_most[exact]], axis=1).reshape(-1).tolist()
        places = [outside, inside] * (len(bounds) // 2) + [outside]
        if forest.missing_is_true[node]:
            bounds.append(int(np.iinfo(self.key.dtype).max) - 1)
            places.append(when_true)
        self.nan_low[node] = False
        self.low[node] = self.high[node] = outside
        self._search(bounds, places, int(self.feature[node]), node)

    def _search(self, bounds: Sequence[int], places: Sequence[int], feature: int, node: int | None = None) -> int:
        """A binary search that begins at a node, a new one if none is given: up to bounds[i] is places[i], beyond all the last."""
        if not bounds:
            return places[0]
        middle = len(bounds) // 2
        low = self._search(bounds[:middle], places[: middle + 1], feature)
        high = self._search(bounds[middle + 1 :], places[middle + 1 :], feature)
        if node is None:
            self._more.append((bounds[middle], low, high, feature))
            return len(self.key) + len(self._more) - 1
        self.key[node], self.low[node], self.high[node] = bounds[middle], low, high
        return node

    def _append(self) -> None:
        if self._more:
            key, low, high, feature = zip(*self._more)
            none = np.zeros(len(key), bool)
            self.key = np.concatenate([self.key, np.array(key, self.key.dtype)])
            self.low, self.high = np.concatenate([self.low, low]), np.concatenate([self.high, high])
            self.feature = np.concatenate([self.feature, feature])
            self.nan_low, self.leaf = np.concatenate([self.nan_low, none]), np.concatenate([self.leaf, none])


@dataclass(frozen=True)
class _Places:
    """Where nodes lie: in each tree the root first, then pairs of children."""

    roots: np.ndarray
    inner: np.ndarray
    """Nodes with tests that can be reached."""
    pair: np.ndarray
    """By node: its children's places in the tree; -1 for leaves and what cannot be reached."""
    tree: np.ndarray
    """By node: its tree."""
    sizes: np.ndarray
    """By tree: how many records it has."""
    depth: np.ndarray
    """By tree: how deep its leaves are on average, rounded up."""

    def children(self, tests: _Tests) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All roots and children of tests: the node, its tree and the place of its record there."""
        inner, trees = self.inner, np.arange(len(self.roots))
        node = np.concatenate([self.roots, tests.low[inner], tests.high[inner]])
        tree = np.concatenate([trees, self.tree[inner], self.tree[inner]])
        return node, tree, np.concatenate([np.zeros_like(trees), self.pair[inner], self.pair[inner] + 1])


def _place(roots: np.ndarray, tests: _Tests) -> _Places:
    """Go through the trees level by level, then let each second level lie beside the one above: a way then meets fewer cache lines."""
    tree, above, right = np.full(len(tests.key), -1), np.zeros(len(tests.key), np.int64), np.zeros(len(tests.key), np.int64)
    tree[roots] = np.arange(len(roots))
    if (tree[roots] != np.arange(len(roots))).any():
        raise CannotCompile("trees share a root")
    leaves, depths = np.zeros(len(roots), np.int64), np.zeros(len(roots), np.int64)
    level, levels = roots[~tests.leaf[roots]], []
    while level.size:
        levels.append(level)
        children, owner = np.concatenate([tests.low[level], tests.high[level]]), np.tile(tree[level], 2)
        fresh = tree[children] < 0
        tree[children[fresh]] = owner[fresh]
        if (tree[children] != owner)[~tests.leaf[children]].any():
            raise CannotCompile("trees share nodes")
        above[children[fresh]] = np.tile(level, 2)[fresh]
        right[children[fresh]] = np.repeat([0, 1], len(level))[fresh]
        ended = np.bincount(owner[tests.leaf[children]], minlength=len(roots))
        leaves, depths = leaves + ended, depths + len(levels) * ended
        level = distinct(children[fresh & ~tests.leaf[children]])
    inner = np.concatenate(levels) if levels else np.zeros(0, np.int64)
    pair, sizes = _paired(inner, [len(level) for level in levels], tree, above, right, len(roots))
    return _Places(roots, inner, pair, tree, sizes, -(-depths // np.maximum(leaves, 1)))


def _paired(
    inner: np.ndarray, levels: Sequence[int], tree: np.ndarray, above: np.ndarray, right: np.ndarray, trees: int
) -> tuple[np.ndarray, np.ndarray]:
    """The places of the children of tests, which come level by level, and how many records each tree has."""
    order = np.zeros(len(tree), np.int64)
    order[inner] = 3 * np.arange(len(inner))
    odd = inner[np.repeat(np.arange(len(levels)) % 2 == 1, levels)]
    order[odd] = order[above[odd]] + 1 + right[odd]
    ordered = inner[np.lexsort((order[inner], tree[inner]))]
    counts = np.bincount(tree[inner], minlength=trees)
    pair = np.full(len(tree), -1)
    pair[ordered] = 2 + 2 * (np.arange(len(inner)) - np.repeat(np.cumsum(counts) - counts, counts))
    return pair, 2 + 2 * counts


class _Votes:
    """What leaves say: the weight itself where each votes once and those of a tree for the same target, else the number of a row."""

    def __init__(self, forest: Forest, tests: _Tests, places: _Places, targets: int, combine: str, dtype: Any):
        if targets > MAX_VOTES:
            raise CannotCompile(f"votes go to {targets} targets")
        self.targets = targets
        node, tree, _ = places.children(tests)
        self._trees, self._leaves = tree[tests.leaf[node]], node[tests.leaf[node]]
        """Which leaves stand in which trees: trees may share some."""
        self.of_tree = np.zeros(len(forest.roots), np.int64)
        """By tree: the target that its leaves vote for, where they say their weight."""
        self.payload = np.zeros(len(tests.key), tests.key.dtype)
        """By node: what it says."""
        self.rows: np.ndarray | None = None
        leaf = distinct(self._leaves)
        count = forest.vote_count[leaf]
        voter = np.repeat(np.arange(len(leaf)), count)
        vote = np.repeat(forest.first_vote[leaf] - np.cumsum(count) + count, count) + np.arange(len(voter))
        target, weight = forest.vote_target[vote], forest.vote_weight[vote]
        if target.min(initial=0) < 0 or target.max(initial=-1) >= targets:
            raise CannotCompile(f"votes go to targets {target.min()} to {target.max()} of {targets}")
        if combine != "SUM" and not np.isfinite(weight).all():
            raise CannotCompile("the least or largest of NaN or infinity")
        with np.errstate(over="ignore"):
            exact = bool((weight.astype(dtype) == weight).all())
        if exact and (count == 1).all() and self._tell_targets(leaf, target):
            self.payload[leaf] = weight.astype(dtype).view(self.payload.dtype)
            self.nothing = int(np.array(IDENTITIES[combine], dtype).view(self.payload.dtype))
            self.voted = np.isin(np.arange(targets), target).astype(np.int64)
        else:
            self._make_rows(leaf, voter, target, weight, combine)
            self.payload[leaf] = np.arange(len(leaf))
            self.nothing = len(leaf)

    def _tell_targets(self, leaf: np.ndarray, target: np.ndarray) -> bool:
        """Fill `of_tree`; False if leaves of a tree vote for several targets."""
        targets = target[np.searchsorted(leaf, self._leaves)]
        self.of_tree[self._trees] = targets
        return bool((self.of_tree[self._trees] == targets).all())

    def _make_rows(self, leaf: np.ndarray, voter: np.ndarray, target: np.ndarray, weight: np.ndarray, combine: str) -> None:
        """A row of votes for each leaf, and one without any."""
        if (len(leaf) + 1) * self.targets * 2 > MAX_VOTES:
            raise CannotCompile(f"{len(leaf)} leaves vote for {self.targets} targets")
        rows = np.full((len(leaf) + 1, self.targets), IDENTITIES[combine])
        {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}[combine].at(rows, (voter, target), weight)
        counts = np.zeros(rows.shape)
        np.add.at(counts, (voter, target), 1)
        self.voted = self._who_is_voted_for(leaf, counts[:-1] > 0)
        rows = rows if combine != "SUM" or (self.voted >= 0).all() else np.concatenate([rows, counts], axis=1)
        rows = np.concatenate([rows, np.zeros((len(rows), -rows.shape[1] % VOTE_LANES))], axis=1)
        with np.errstate(over="ignore"):
            single = rows.astype(np.float32)
        self.rows = single if (single == rows).all() else rows

    def _who_is_voted_for(self, leaf: np.ndarray, votes: np.ndarray) -> np.ndarray:
        """1 for targets that all leaves of some tree vote for, 0 for those that no leaf does, else -1."""
        votes = votes[np.searchsorted(leaf, self._leaves)]
        leaves = np.bincount(self._trees, minlength=len(self.of_tree))
        voted = np.full(self.targets, -1)
        for target in range(self.targets):
            full = np.bincount(self._trees[votes[:, target]], minlength=len(leaves)) == leaves
            voted[target] = 1 if full.any() else -1 if votes[:, target].any() else 0
        return voted


def pack(forest: Forest, dtype: Any, targets: int, combine: str) -> ForestTable:
    """The tables of a forest whose rows come as float32 or float64, `combine` being SUM, MIN or MAX."""
    if (forest.feature < 0).any():
        raise CannotCompile("there are negative features")
    tests = _Tests(forest, dtype)
    places = _place(forest.roots, tests)
    votes = _Votes(forest, tests, places, targets, combine, dtype)
    wanted = 2 * tests.feature[places.inner] + tests.nan_low[places.inner]
    columns = distinct(wanted)
    column = np.searchsorted(columns, wanted)
    flag = 1 << max(0, len(columns) - 1).bit_length()
    sizes = np.append(-(-places.sizes // GROUP) * GROUP, GROUP)  # the last one is the tree without a vote
    starts = np.cumsum(sizes) - sizes
    narrow = dtype == np.float32 and int(sizes.max()) <= NARROW_NODES and flag <= NARROW_COLUMNS
    records = _aligned(int(sizes.sum()), _record_type(tests.key.dtype, narrow))
    _fill(records, tests, places, votes.payload, column, flag, starts)
    records[starts[-1]] = (votes.nothing, flag * GROUP * tests.key.dtype.itemsize, 0)
    trees = np.zeros((-(-len(forest.roots) // CHAINS) * CHAINS, 3), np.int64)
    trees[:, 0] = starts[-1]
    # trees of like depth side by side: those that a row passes at once end together
    order = np.argsort(places.depth, kind="stable")
    trees[: len(forest.roots)] = np.stack([starts[:-1], votes.of_tree, places.depth], axis=1)[order]
    nan = np.where(columns & 1, NAN_LOW, np.iinfo(tests.key.dtype).max).astype(tests.key.dtype)
    return ForestTable(
        nodes=records,
        narrow=narrow,
        trees=trees,
        count=len(forest.roots),
        columns=np.stack([columns >> 1, nan.astype(np.int64)], axis=1),
        flag=flag,
        features=int(forest.feature.max(initial=-1)) + 1,
        votes=votes.rows,
        voted=votes.voted,
    )


def _aligned(count: int, type: np.dtype[Any]) -> np.ndarray:
    """Zeros that begin with a cache line."""
    memory = np.zeros(count * type.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count * type.itemsize].view(type)


def _record_type(key: np.dtype[Any], narrow: bool) -> np.dtype[Any]:
    if narrow:
        return np.dtype([("key", key), ("column", np.uint16), ("child", np.uint16)])
    return np.dtype(
        {"names": ["key", "column", "child"], "formats": [key, np.int32, np.int32], "offsets": [0, 8, 12], "itemsize": 16}
    )


def _fill(
    records: np.ndarray,
    tests: _Tests,
    places: _Places,
    payload: np.ndarray,
    column: np.ndarray,
    flag: int,
    starts: np.ndarray,
) -> None:
    """Write the root of each tree and the children of each test. Columns are given in bytes from the beginning of a group's keys."""
    node, tree, slot = places.children(tests)
    columns = np.full(len(tests.key), flag)
    columns[places.inner] = column
    leaf = tests.leaf[node]
    where = starts[tree] + slot
    records["key"][where] = np.where(leaf, payload[node], tests.key[node])
    records["column"][where] = columns[node] * (GROUP * tests.key.dtype.itemsize)
    records["child"][where] = np.where(leaf, slot, places.pair[node])
