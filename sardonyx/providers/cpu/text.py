"""Ops on strings, in NumPy and Python's own text methods: no locale of the system is asked. The CPU table calls them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.re2 import matcher
from sardonyx.providers.cpu.shape import bounded, braced
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched


def strings(items, shape) -> np.ndarray:
    """A tensor of strings from its elements in row-major order."""
    array = np.array(items, dtype=object)
    return array if array.shape == shape else array.reshape(shape)


@cpu.kernel("StringConcat")
def string_concat(X, Y):
    return np.asarray(np.add(X, Y), dtype=object)


def _word_changes(case_change_action="NONE", is_case_sensitive=0, locale="en_US", stopwords=()):
    """What is made of each word, if anything; how words are compared, and those that are left out."""
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise KernelError(f"case_change_action is NONE, LOWER or UPPER, not {case_change_action!r}", InvalidArgument)
    lower, upper = _case_changes(locale)
    compared = str if is_case_sensitive else lower
    return {"LOWER": lower, "UPPER": upper}.get(case_change_action), compared, {compared(word) for word in stopwords}


def _case_changes(locale: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """To lower and to upper case. Turkish and Azeri are the only locales in which single letters change in another way."""
    if re.split("[_.@-]", locale.lower())[0] not in ("tr", "az"):
        return str.lower, str.upper
    return lambda text: text.replace("İ", "i").replace("I", "ı").lower(), lambda text: text.replace("i", "İ").upper()


@cpu.kernel("StringNormalizer", plain=True, derive={"changes": _word_changes})
def string_normalizer(X, changes):
    if X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[0] != 1):
        raise KernelError(f"Input dimensions are either [C > 0] or [1][C > 0] allowed, not {braced(X.shape)}", InvalidArgument)
    change, compared, dropped = changes
    kept = X.ravel().tolist()
    if dropped:
        kept = [word for word in kept if compared(word) not in dropped]
    if change is not None:
        kept = list(map(change, kept))
    kept = kept or [""]
    return strings(kept, (len(kept),) if X.ndim == 1 else (1, len(kept)))


@cpu.kernel("StringSplit")
def string_split(X, delimiter=None, maxsplit=None):
    limit = -1 if maxsplit is None else maxsplit
    # an empty string has no parts, also with a delimiter, for which Python would count one
    if delimiter:
        parts = [text.split(delimiter, limit) if text else [] for text in X.reshape(-1).tolist()]
    else:
        parts = [text.strip().split(None, limit) for text in X.reshape(-1).tolist()]
    longest = max(map(len, parts), default=0)
    padded = [part for row in parts for part in (*row, *[""] * (longest - len(row)))]
    return strings(padded, (*X.shape, longest)), np.array([len(row) for row in parts], dtype=np.int64).reshape(X.shape)


@cpu.kernel("RegexFullMatch")
def regex_full_match(X, pattern=""):
    match = matcher(pattern).fullmatch
    return np.array([match(text) for text in X.reshape(-1).tolist()], dtype=bool).reshape(X.shape)


# --- TfIdfVectorizer ------------------------------------------------------------------------------------------------


class _Gram:
    """A known n-gram, or the beginning of one: its column, and by their last token those that are longer by one."""

    __slots__ = ("column", "longer")

    def __init__(self) -> None:
        self.column = -1
        self.longer: dict[Any, _Gram] = {}


def _known_grams(ngram_counts, ngram_indexes, pool_int64s=None, pool_strings=None):
    """The known n-grams by their first token, and how many columns there are. Of equal ones the first counts."""
    pool = pool_int64s if pool_strings is None else pool_strings
    root, columns = _Gram(), iter(ngram_indexes)
    for length, (start, end) in enumerate(zip(ngram_counts, [*ngram_counts[1:], len(pool)], strict=True), start=1):
        for place, column in zip(range(start, end, length), columns):
            gram = root
            for token in pool[place : place + length]:
                gram = gram.longer.setdefault(token, _Gram())
            gram.column = column if gram.column < 0 else gram.column
    return root.longer, max(ngram_indexes, default=-1) + 1


@cpu.kernel("TfIdfVectorizer", plain=True, derive={"grams": _known_grams})
def tf_idf_vectorizer(X, mode, grams, min_gram_length, max_gram_length, max_skip_count, ngram_indexes, weights=None):
    if X.ndim not in (1, 2):
        raise KernelError(f"Input shape must have either [C] or [B,C] dimensions, it is {braced(X.shape)}", InvalidArgument)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise KernelError(f"the mode is TF, IDF or TFIDF, not {mode!r}", InvalidArgument)
    first, width = grams
    rows = (X if X.ndim == 2 else X[None]).tolist()
    counts = np.zeros(bounded((len(rows), width), np.dtype(np.float32)), np.float32)
    flat = counts.reshape(-1).data
    for distance in watched(range(1, min(max_skip_count, X.shape[-1]) + 2)):
        # a single token is no further from itself, whatever the distance
        shortest = min_gram_length if distance == 1 else max(min_gram_length, 2)
        for row, tokens in watched(enumerate(rows)):
            for column in _columns(first, tokens, distance, shortest, max_gram_length):
                flat[row * width + column] += 1
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
