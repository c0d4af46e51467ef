"""Ops on strings, in NumPy and Python's own text methods: no locale of the system is asked. The CPU table calls them."""

from __future__ import annotations

import functools
import re

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.re2 import python_pattern
from sardonyx.providers.cpu.shape import braced
from sardonyx.providers.cpu.table import cpu


def _strings(items, shape) -> np.ndarray:
    """A tensor of strings from its elements in row-major order."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape)


@cpu.kernel("StringConcat")
def string_concat(X, Y):
    return np.asarray(np.add(X, Y), dtype=object)


@cpu.kernel("StringNormalizer")
def string_normalizer(X, case_change_action="NONE", is_case_sensitive=0, locale="en_US", stopwords=()):
    if X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[0] != 1):
        raise KernelError(f"Input dimensions are either [C > 0] or [1][C > 0] allowed, not {braced(X.shape)}", InvalidArgument)
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise KernelError(f"case_change_action is NONE, LOWER or UPPER, not {case_change_action!r}", InvalidArgument)
    compared = str if is_case_sensitive else functools.partial(_lower, locale=locale)
    dropped = {compared(word) for word in stopwords}
    kept = [word for word in X.reshape(-1).tolist() if compared(word) not in dropped] if dropped else X.reshape(-1).tolist()
    if case_change_action != "NONE":
        change = _lower if case_change_action == "LOWER" else _upper
        kept = [change(word, locale) for word in kept]
    kept = kept or [""]
    return _strings(kept, (len(kept),) if X.ndim == 1 else (1, len(kept)))


def _lower(text: str, locale: str) -> str:
    return (text.replace("İ", "i").replace("I", "ı") if _has_dotless_i(locale) else text).lower()


def _upper(text: str, locale: str) -> str:
    return (text.replace("i", "İ") if _has_dotless_i(locale) else text).upper()


def _has_dotless_i(locale: str) -> bool:
    """Turkish and Azeri are the only locales in which single letters change their case in another way."""
    return re.split("[_.@-]", locale.lower())[0] in ("tr", "az")


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
    return _strings(padded, (*X.shape, longest)), np.array([len(row) for row in parts], dtype=np.int64).reshape(X.shape)


@cpu.kernel("RegexFullMatch")
def regex_full_match(X, pattern=""):
    match = _compiled(pattern).fullmatch
    return np.array([match(text) is not None for text in X.reshape(-1).tolist()], dtype=bool).reshape(X.shape)


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(python_pattern(pattern))
    except re.error as error:
        raise KernelError(f"Invalid regex pattern: {pattern} ({error})", InvalidArgument) from error


# --- TfIdfVectorizer ------------------------------------------------------------------------------------------------


@cpu.kernel("TfIdfVectorizer")
def tf_idf_vectorizer(
    X,
    mode,
    min_gram_length,
    max_gram_length,
    max_skip_count,
    ngram_counts,
    ngram_indexes,
    pool_int64s=None,
    pool_strings=None,
    weights=None,
):
    if X.ndim not in (1, 2):
        raise KernelError(f"Input shape must have either [C] or [B,C] dimensions, it is {braced(X.shape)}", InvalidArgument)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise KernelError(f"the mode is TF, IDF or TFIDF, not {mode!r}", InvalidArgument)
    pool = np.array(pool_int64s, dtype=np.int64) if pool_strings is None else np.array(pool_strings, dtype=object)
    vocabulary, codes = np.unique(pool, return_inverse=True)
    tokens = _codes(vocabulary, X if X.ndim == 2 else X[None])
    columns = np.array(ngram_indexes, dtype=np.int64)
    counts = np.zeros((len(tokens), int(columns.max()) + 1 if columns.size else 0), np.float32)
    seen = 0
    for length, grams in enumerate(_pool_by_length(codes, ngram_counts), start=1):
        if min_gram_length <= length <= max_gram_length:
            for distance in range(1, 2 if length == 1 else max_skip_count + 2):
                rows, found = _occurrences(tokens, grams, distance)
                np.add.at(counts, (rows, columns[seen + found]), 1)
        seen += len(grams)
    return _weighted(counts, mode, columns, weights).reshape(*X.shape[:-1], counts.shape[-1])


def _codes(vocabulary, tokens):
    """Each token as its place in the sorted `vocabulary`, -1 where it is not in it."""
    if not vocabulary.size:
        return np.full(tokens.shape, -1)
    places = np.minimum(np.searchsorted(vocabulary, tokens), len(vocabulary) - 1)
    return np.where(vocabulary[places] == tokens, places, -1)


def _pool_by_length(codes, ngram_counts):
    """The pool cut into arrays of shape [how many, length] for the lengths 1, 2, 3 …"""
    ends = [*ngram_counts[1:], len(codes)]
    return [
        codes[start:end].reshape(-1, length)
        for length, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), start=1)
    ]


def _occurrences(tokens, grams, distance: int):
    """Rows of `tokens` in which n-grams occur with tokens `distance` apart, and which of `grams` each one is."""
    length = grams.shape[1]
    starts = tokens.shape[1] - (length - 1) * distance
    if starts <= 0 or not len(grams):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    # prefixes are numbered one token at a time, so that numbers stay small whatever the length
    known, seen = grams[:, 0], tokens[:, :starts]
    for position in range(1, length):
        later = tokens[:, position * distance : position * distance + starts]
        base = int(grams.max()) + 1
        prefixes, known = np.unique(known * base + grams[:, position], return_inverse=True)
        inside = (seen >= 0) & (later >= 0) & (later < base)
        seen = _codes(prefixes, np.where(inside, seen * base + later, -1))
    order = np.argsort(known, kind="stable")
    rows, places = np.nonzero(np.isin(seen, known))
    return rows, order[np.searchsorted(known, seen[rows, places], sorter=order)]


def _weighted(counts, mode: str, columns, weights):
    if mode != "TF":
        factors = np.ones(counts.shape[-1], np.float32)
        if weights is not None:
            factors[columns] = weights
        counts = (np.minimum(counts, 1) if mode == "IDF" else counts) * factors
    return counts
