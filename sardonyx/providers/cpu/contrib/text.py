"""Tokenizer of com.microsoft, in NumPy."""

from __future__ import annotations

import functools
import re

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.re2 import python_pattern
from sardonyx.providers.cpu.table import cpu

START, END = "\x02", "\x03"

_PLAIN = re.compile(r"(?:\\.|\[[^\]]*\]|[^\\\[\]|(){}?*+])*[*+]?", re.DOTALL)
"""Patterns whose first match is also the longest one: no alternatives, nothing optional, at most one repetition at the end."""


@cpu.kernel("Tokenizer", domain="com.microsoft")
def tokenizer(X, *, mark, mincharnum, pad_value, separators=None, tokenexp=None):
    if X.ndim not in (1, 2):
        raise KernelError("Input dimensions are either [C] or [N][C] allowed", InvalidArgument)
    if mincharnum < 1:
        raise KernelError(f"attribute mincharnum must have a positive value, not {mincharnum}", InvalidArgument)
    if not X.size:
        return X
    split = _splitter(separators, tokenexp)
    rows = [[token for token in split(text) if len(token) >= mincharnum] for text in X.ravel().tolist()]
    longest = max(map(len, rows))
    if mark and longest:
        rows = [[START, *row, END] for row in rows]
        longest += 2
    padded = [row + [pad_value] * (longest - len(row)) for row in rows]
    return np.array(padded, dtype=object).reshape(*X.shape, longest)


def _splitter(separators, tokenexp):
    if tokenexp == "." or (separators is not None and list(separators) == [""]):
        return list
    if tokenexp:
        return functools.partial(_matches, _compiled(tokenexp))
    if not separators:
        raise KernelError("one of the attributes separators and tokenexp must be set", InvalidArgument)
    patterns = [_compiled(separator) for separator in separators]
    return functools.partial(_pieces, patterns)


@functools.lru_cache(maxsize=256)
def _compiled(pattern):
    return re.compile(python_pattern(pattern)), _PLAIN.fullmatch(pattern) is not None


def _pieces(patterns, text):
    """What is left of a text when all separators are taken out."""
    pieces = [text]
    for pattern in patterns:
        pieces = [piece for whole in pieces for piece in _split(pattern, whole)]
    return [piece for piece in pieces if piece]


def _split(pattern, text):
    start = 0
    for first, last in _spans(pattern, text):
        yield text[start:first]
        start = last
    yield text[start:]


def _matches(pattern, text):
    return [text[first:last] for first, last in _spans(pattern, text)]


def _spans(pattern, text):
    """The longest matches one after the other, from the left; empty ones are passed over."""
    compiled, plain = pattern
    start = 0
    while start <= len(text):
        found = compiled.search(text, start)
        if found is None:
            return
        first, last = found.span()
        if not plain:
            last = next((end for end in range(len(text), last, -1) if compiled.fullmatch(text, first, end)), last)
        if last > first:
            yield first, last
        start = last if last > first else first + 1
