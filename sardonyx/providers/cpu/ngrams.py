"""TfIdfVectorizer: known n-grams are counted, in NumPy. The CPU table calls it.

Few tokens are followed one by one through a tree of n-grams. Many are numbers first, and all of them take a step in that tree at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.contrib.text import SENTINEL
from sardonyx.providers.cpu.shape import bounded, braced
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.steps import FastPath
from sardonyx.providers.termination import watched
from sardonyx.startup.records import dataclass

FEW = 64
"""So many tokens are followed one by one."""
DENSE_CELLS = 1 << 20
"""A tree of so many nodes, times tokens, is a table."""
BETWEEN = -2
"""The number of what stands between the tokens of two texts."""


class _Gram:
    """A known n-gram, or the beginning of one: its column, and by their last token those that are longer by one."""

    __slots__ = ("column", "longer")

    def __init__(self) -> None:
        self.column = -1
        self.longer: dict[Any, _Gram] = {}


class _Tree:
    """The known n-grams by their first token, and how many columns there are."""

    def __init__(self, root: _Gram, width: int):
        self.first = root.longer
        self.width = width
        self._steps: Steps | None = None

    @property
    def steps(self) -> Steps:
        if self._steps is None:  # two threads may both make it
            self._steps = Steps(self.first)
        return self._steps


class Steps:
    """The tree as arrays. Its nodes and the tokens have numbers, which lead to the number of the next node; -1 is none."""

    def __init__(self, first: dict[Any, _Gram]):
        self.tokens: dict[Any, int] = {}
        nodes = [_Gram()]
        nodes[0].longer = first
        edges: list[tuple[int, int]] = []
        for number, node in enumerate(nodes):  # which grow meanwhile
            for token, longer in node.longer.items():
                edges.append((number, self.tokens.setdefault(token, len(self.tokens))))
                nodes.append(longer)
        self.columns = np.array([node.column for node in nodes], np.int64)
        self._width = len(self.tokens)
        keys = np.array(edges, np.int64).reshape(-1, 2) @ np.array([self._width, 1], np.int64)
        order = np.argsort(keys)
        self.keys, self.ends = keys[order], order + 1
        self._dense = self._by_key(len(nodes) * self._width)
        self.tokens.setdefault(SENTINEL, BETWEEN)

    def _by_key(self, size: int) -> np.ndarray | None:
        """The ends in a table, if it is small."""
        if size > DENSE_CELLS:
            return None
        table = np.full(size, -1, np.int64)
        table[self.keys] = self.ends
        return table

    def numbers(self, tokens: Sequence[Any]) -> np.ndarray:
        """The number of each token, -1 for those that no n-gram has."""
        if isinstance(tokens, str):
            return self._of_letters(np.frombuffer(tokens.encode("utf-32-le", "surrogatepass"), "<u4"))
        return np.fromiter(map(self.tokens.get, tokens, itertools.repeat(-1)), np.int64, len(tokens))

    def _of_letters(self, codes: np.ndarray) -> np.ndarray:
        letters = {ord(token): number for token, number in self.tokens.items() if len(token) == 1}
        table = np.full(max(letters) + 2, -1, np.int64)
        table[list(letters)] = list(letters.values())
        return table[np.minimum(codes, len(table) - 1)]

    def follow(self, nodes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The nodes behind these, by the number of a known token each."""
        keys = nodes * self._width + tokens
        if self._dense is not None:
            return self._dense[keys]
        near = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[near] == keys, self.ends[near], -1)


def known_grams(ngram_counts, ngram_indexes, pool_int64s=None, pool_strings=None) -> _Tree:
    """Of equal n-grams the first counts."""
    pool = pool_int64s if pool_strings is None else pool_strings
    root, columns = _Gram(), iter(ngram_indexes)
    for length, (start, end) in enumerate(zip(ngram_counts, [*ngram_counts[1:], len(pool)], strict=True), start=1):
        for place, column in zip(range(start, end, length), columns):
            gram = root
            for token in pool[place : place + length]:
                gram = gram.longer.setdefault(token, _Gram())
            gram.column = column if gram.column < 0 else gram.column
    return _Tree(root, max(ngram_indexes, default=-1) + 1)


@dataclass(frozen=True)
class _Counted:
    """Which n-grams of tokens are counted, by the attributes of a TfIdfVectorizer."""

    grams: _Tree
    shortest: int
    longest: int
    skips: int

    def distances(self, length: int) -> Iterator[tuple[int, int]]:
        """How far tokens may be apart, and how many make an n-gram at least: a single one is no further from itself."""
        if self.skips >= 0:
            yield 1, self.shortest
        for distance in watched(range(2, min(self.skips, length) + 2)):
            yield distance, max(self.shortest, 2)

    def count_few(self, rows: Sequence[Sequence[Any]], length: int) -> np.ndarray:
        counts, width = self._zeros(len(rows)), self.grams.width
        flat = counts.reshape(-1).data
        for distance, shortest in self.distances(length):
            for row, tokens in enumerate(rows):
                for column in _columns(self.grams.first, tokens, distance, shortest, self.longest):
                    flat[row * width + column] += 1
        return counts

    def count_many(self, numbers: np.ndarray, rows: np.ndarray, count: int, length: int) -> np.ndarray:
        """Counts of tokens that are numbers; `rows` says where each of them stands."""
        counts = self._zeros(count)
        for distance, shortest in self.distances(length):
            self._add(counts, numbers, rows, distance, shortest)
        return counts

    def _zeros(self, rows: int) -> np.ndarray:
        return np.zeros(bounded((rows, self.grams.width), np.dtype(np.float32)), np.float32)

    def _add(self, counts: np.ndarray, numbers: np.ndarray, rows: np.ndarray, distance: int, shortest: int) -> None:
        """All n-grams at once, from single tokens to longer ones."""
        steps, flat = self.grams.steps, counts.reshape(-1)
        at = np.flatnonzero(numbers >= 0)
        nodes = steps.follow(np.zeros(len(at), np.int64), numbers[at])
        for length in watched(itertools.count(1)):
            at, nodes = at[nodes >= 0], nodes[nodes >= 0]
            if length >= shortest:
                columns = steps.columns[nodes]
                places = rows[at] * counts.shape[1] + columns
                np.add.at(flat, places[columns >= 0], np.float32(1))
            ahead = at + length * distance
            inside = ahead < len(numbers)
            at, nodes, ahead = at[inside], nodes[inside], ahead[inside]
            inside = (rows[ahead] == rows[at]) & (numbers[ahead] >= 0)
            at, nodes = at[inside], nodes[inside]
            if length >= self.longest or not len(at):
                return
            nodes = steps.follow(nodes, numbers[ahead[inside]])


def joint_counts(tokenizer: Mapping[str, Any], vectorizer: Mapping[str, Any]) -> FastPath | None:
    """Counts right from the texts, for a Tokenizer whose tokens nobody else reads. None where what it adds to them may count."""
    names = ("grams", "min_gram_length", "max_gram_length", "max_skip_count")
    counted, mode = _Counted(*map(vectorizer.__getitem__, names)), vectorizer["mode"]
    split, mincharnum = tokenizer["split"], tokenizer["mincharnum"]
    known = counted.grams.steps.tokens
    is_plain = (
        split is not None and split.takes_many and mincharnum == 1 and not tokenizer["mark"] and mode in ("TF", "IDF", "TFIDF")
    )
    if not is_plain or tokenizer["pad_value"] in known or known[SENTINEL] != BETWEEN:
        return None

    def count(inputs: Sequence[Any]) -> tuple[np.ndarray] | None:
        (X,) = inputs
        counts = _from_texts(counted, split, X.tolist()) if X.ndim == 1 and X.size else None
        return None if counts is None else (_weighted(counts, mode, vectorizer["ngram_indexes"], vectorizer.get("weights")),)

    return count


def _from_texts(counted: _Counted, split: Any, texts: Sequence[str]) -> np.ndarray | None:
    tokens = split(texts[0]) if len(texts) == 1 else split.all(texts)
    if tokens is None:
        return None
    if len(texts) == 1 and len(tokens) <= FEW:
        return counted.count_few([tokens], len(tokens))
    numbers = counted.grams.steps.numbers(tokens)
    rows = np.cumsum(numbers == BETWEEN) if len(texts) > 1 else np.zeros(len(tokens), np.int64)
    longest = int(np.bincount(rows, minlength=len(texts)).max())
    return counted.count_many(numbers, rows, len(texts), longest)


@cpu.kernel("TfIdfVectorizer", plain=True, derive={"grams": known_grams}, joint={"Tokenizer": joint_counts})
def tf_idf_vectorizer(X, mode, grams, min_gram_length, max_gram_length, max_skip_count, ngram_indexes, weights=None):
    if X.ndim not in (1, 2):
        raise KernelError(f"Input shape must have either [C] or [B,C] dimensions, it is {braced(X.shape)}", InvalidArgument)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise KernelError(f"the mode is TF, IDF or TFIDF, not {mode!r}", InvalidArgument)
    rows = X if X.ndim == 2 else X[None]
    counted = _Counted(grams, min_gram_length, max_gram_length, max_skip_count)
    if X.size <= FEW:
        counts = counted.count_few(rows.tolist(), X.shape[-1])
    else:
        numbers = grams.steps.numbers(rows.reshape(-1).tolist())
        counts = counted.count_many(numbers, np.repeat(np.arange(len(rows)), X.shape[-1]), len(rows), X.shape[-1])
    weighted = _weighted(counts, mode, ngram_indexes, weights)
    return weighted if X.ndim == 2 else weighted[0]


def _columns(first, tokens, distance, shortest, longest):
    """The columns of the n-grams of a row whose tokens are `distance` apart."""
    for start, gram in enumerate(map(first.get, tokens)):
        length = 1
        while gram is not None:
            if length >= shortest and gram.column >= 0:
                yield gram.column
            place, length = start + length * distance, length + 1
            gram = gram.longer.get(tokens[place]) if length <= longest and place < len(tokens) else None


def _weighted(counts, mode: str, columns, weights):
    if mode != "TF":
        factors = np.ones(counts.shape[-1], np.float32)
        if weights is not None:
            factors[columns] = weights
        counts = (np.minimum(counts, 1) if mode == "IDF" else counts) * factors
    return counts
