"""Random strings in native code, beside Python's own: empty, long, of any characters, with NUL, in any number."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import onnx
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.providers.native.execution.texts import TextProgram

CHARACTERS = st.characters(exclude_categories=["Cs"])  # half characters have no UTF-8
SOME = st.sampled_from(
    ["", "\0", "a\0b", "word", "naïve", "日本語", "😀", " ", "\t \n", "a b", "x" * 4000, "é" * 900, "😀 " * 300]
)
TEXTS = st.lists(st.one_of(SOME, st.text(CHARACTERS, max_size=12), st.text("ab \0é", max_size=40)), max_size=30)
QUICK = settings(max_examples=60, deadline=None)
EDGES = ["", "\0", "\0\0", "a" * 7, "a" * 8, "a" * 9, "é" * 4, "\U0010ffff", "￿", "x" * 70_000]
"""Around the length of a word of memory, the largest characters, and more than a run has room for at first."""


@functools.cache
def session_of(body: str) -> sardonyx.InferenceSession:
    head = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4, "com.microsoft": 1]> '
    session = sardonyx.InferenceSession(onnx.parser.parse_model(head + body).SerializeToString())
    for step in session._engine.plan.steps:
        assert isinstance(step.call, TextProgram), step.reason
    return session


def run(body: str, **feeds: Any) -> list[Any]:
    arrays = {name: np.array(items, dtype=object) for name, items in feeds.items()}
    return [array.tolist() for array in session_of(body).run(None, arrays)]


MOVED = """g (string[N] x) => (string[N] back, string[M] twice, bool[N] same, bool[N] first, string[N] joined)
    <int64[1] one = {-1}, int64[1] far = {-9223372036854775807}, int64[1] axis = {0}, int64[1] step = {-1}, string[1] word = {"word"}> {
    turned = Slice(x, one, far, axis, step) back = Slice(turned, one, far, axis, step)
    twice = Concat<axis = 0>(x, turned) same = Equal(x, back) first = Equal(x, word) joined = StringConcat(x, turned)
}"""


@QUICK
@given(TEXTS)
@example(EDGES)
@example([])
def test_strings_that_are_moved_compared_and_joined_stay_what_they_are(texts: list[str]) -> None:
    back, twice, same, first, joined = run(MOVED, x=texts)
    assert (back, twice) == (texts, texts + texts[::-1])
    assert (same, first) == ([True] * len(texts), [text == "word" for text in texts])
    assert joined == [text + other for text, other in zip(texts, texts[::-1])]


ENCODED = """g (string[N] x) => (int64[N] places, string[N] words, float[N, 4] hot) {
    places = ai.onnx.ml.LabelEncoder<keys_strings = ["", "word", "日本語", "a b"], values_int64s = [4, 5, 6, 7], default_int64 = -1>(x)
    words = ai.onnx.ml.LabelEncoder<keys_int64s = [4, 5, -1], values_strings = ["", "é", "none"], default_string = "😀">(places)
    hot = ai.onnx.ml.OneHotEncoder<cats_strings = ["", "word", "日本語", "a b"], zeros = 1>(x)
}"""


@QUICK
@given(TEXTS)
@example(EDGES)
def test_strings_are_found_among_others(texts: list[str]) -> None:
    keys = ["", "word", "日本語", "a b"]
    expected = [keys.index(text) + 4 if text in keys else -1 for text in texts]
    places, words, hot = run(ENCODED, x=texts)
    assert places == expected
    assert words == [{4: "", 5: "é", -1: "none"}.get(number, "😀") for number in expected]
    assert hot == [[float(text == key) for key in keys] for text in texts]


SPLIT = """g (string[N] x) => (string[N, L] parts, int64[N] counts, string[N, M] marked, int64[N] numbers) {
    parts, counts = StringSplit<delimiter = " ">(x) marked, numbers = StringSplit<delimiter = "é">(x)
}"""


@QUICK
@given(TEXTS)
@example(EDGES)
def test_strings_are_split(texts: list[str]) -> None:
    results = run(SPLIT, x=texts)
    for delimiter, parts, counts in zip(" é", results[::2], results[1::2]):
        rows = [text.split(delimiter) if text else [] for text in texts]
        longest = max(map(len, rows), default=0)
        assert counts == [len(row) for row in rows]
        assert parts == [row + [""] * (longest - len(row)) for row in rows]


MATCHED = """g (string[N] x) => (bool[N] letters, bool[N] any) {
    letters = RegexFullMatch<pattern = "[a-zé]*">(x) any = RegexFullMatch<pattern = "(?s).*a.*">(x)
}"""


@QUICK
@given(TEXTS)
@example(EDGES)
def test_strings_match_patterns(texts: list[str]) -> None:
    letters, any_a = run(MATCHED, x=texts)
    assert letters == [re.fullmatch("[a-zé]*", text) is not None for text in texts]
    assert any_a == ["a" in text for text in texts]
