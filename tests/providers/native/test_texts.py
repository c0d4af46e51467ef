"""Strings in native code: what goes in and comes out, and what is computed in between, beside Python's own strings."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx as ort
from sardonyx import errors
from sardonyx.compiler import texts as text_words
from sardonyx.ir.text import parse_model
from sardonyx.providers.native.execution.texts import TextProgram
from tests import onnxruntime_peer

WORDS = [
    "",
    "a",
    "abcdefg",
    "abcdefgh",
    "abcdefghi",
    "NUL\0inside",
    "\0",
    "naïve",
    "straße",
    "日本語",
    "😀 smile",
    "x" * 5000,
    "é" * 300,
]
"""Empty, around the length of a word of memory, with NUL, not ASCII, long."""


def _session(text: str, threads: int = 1) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options)


def _model(body: str, opset: int = 21) -> str:
    return f'<ir_version: 10, opset_import: ["": {opset}, "ai.onnx.ml": 4, "com.microsoft": 1]> {body}'


def _assert_native(session: ort.InferenceSession) -> None:
    for step in session._engine.plan.steps:
        assert isinstance(step.call, TextProgram), step.reason


def _array(items: Any) -> np.ndarray:
    return np.array(items, dtype=object)


KEYS = ", ".join(f'"{word}"' for word in WORDS[1:5] + WORDS[7:11])
MOVED = _model("""g (string[R, C] x, int64[K] rows, bool[R, C] mask) => (
        string[N] flat, string[C, R] turned, string[K, C] chosen, string[R, D] joined, string[R, C] either
    )
    <string[1] mark = {"-"}, int64[1] shape = {-1}> {
    turned = Transpose(x)
    flat = Reshape(turned, shape)
    chosen = Gather(x, rows)
    joined = Concat<axis=1>(x, x)
    either = Where(mask, x, mark)
}""")


@pytest.mark.parametrize("rows", [0, 1, 3, 500])
def test_strings_are_moved(rows: int) -> None:
    session = _session(MOVED)
    _assert_native(session)
    x = _array((WORDS * (rows * 2 // len(WORDS) + 1))[: rows * 2]).reshape(rows, 2)
    chosen, mask = np.arange(rows)[::-2].copy(), np.arange(rows * 2).reshape(rows, 2) % 3 == 0
    for _ in range(2):  # the second run takes the fast path
        results = session.run(None, {"x": x, "rows": chosen, "mask": mask})
        expected = [x.T.reshape(-1), x.T, x[chosen], np.concatenate([x, x], axis=1), np.where(mask, x, "-")]
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == object and result.shape == wanted.shape
            assert result.tolist() == wanted.tolist()


ENCODED = _model(f"""g (string[N] x) => (int64[N] places, string[N] others, float[N, 8] hot, int64[N] mapped, bool[N] same, string[N] twice)
    <string[1] second = {{"a"}}> {{
    places = ai.onnx.ml.LabelEncoder<keys_strings = [{KEYS}], values_int64s = [0, 1, 2, 3, 4, 5, 6, 7], default_int64 = -7>(x)
    others = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 2, 5000], values_strings = ["näh", "", "far"], default_string = "none">(places)
    hot = ai.onnx.ml.OneHotEncoder<cats_strings = [{KEYS}], zeros = 1>(x)
    mapped = ai.onnx.ml.CategoryMapper<cats_strings = ["a", "naïve"], cats_int64s = [5, 6], default_int64 = 9>(x)
    same = Equal(x, second)
    twice = StringConcat(x, x)
}}""")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [0, 1, 13, 3000])
def test_strings_are_encoded_compared_and_joined(rows: int, threads: int) -> None:
    session = _session(ENCODED, threads)
    _assert_native(session)
    x = _array((WORDS * (rows // len(WORDS) + 1))[:rows])
    keys = WORDS[1:5] + WORDS[7:11]
    numbers = [keys.index(word) if word in keys else -7 for word in x]
    for _ in range(2):
        places, others, hot, mapped, same, twice = session.run(None, {"x": x})
        assert places.tolist() == numbers
        assert others.tolist() == [{0: "näh", 2: ""}.get(number, "none") for number in numbers]
        assert hot.tolist() == [[float(number == place) for place in range(8)] for number in numbers]
        assert mapped.tolist() == [{"a": 5, "naïve": 6}.get(word, 9) for word in x]
        assert same.tolist() == [word == "a" for word in x]
        assert twice.tolist() == [word + word for word in x]


def test_operands_of_strings_broadcast() -> None:
    session = _session(
        _model(
            "g (string[R, 1] x, string[C] y) => (bool[R, C] same, string[R, C] z) { same = Equal(x, y) z = StringConcat(x, y) }"
        )
    )
    _assert_native(session)
    x, y = _array([[word] for word in WORDS]), _array(WORDS[::2])
    same, z = session.run(None, {"x": x, "y": y})
    assert same.tolist() == [[left == right for right in y] for (left,) in x]
    assert z.tolist() == [[left + right for right in y] for (left,) in x]


def test_scalars_of_strings() -> None:
    session = _session(
        _model("""g (string x) => (int64 y, bool z) <string a = {"b"}> {
        y = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_int64s = [3, 4]>(x) z = Equal(x, a) }""")
    )
    y, z = session.run(None, {"x": np.array("b", object)})
    assert (y.shape, y.item(), z.item()) == ((), 4, True)


def test_what_is_no_string_or_no_utf8_is_left_to_numpy() -> None:
    session = _session(ENCODED)
    lone = _array(["a", "\ud800"])
    for _ in range(2):
        assert session.run(["places"], {"x": lone})[0].tolist() == [0, -7]
        assert session.run(None, {"x": lone})[0].tolist() == [0, -7]
        assert session.run(None, {"x": np.array(["a", "naïve"])})[0].tolist() == [0, 4]
    plain = ort.InferenceSession(
        onnx.parser.parse_model(ENCODED).SerializeToString(), providers=[("CPUExecutionProvider", {"native": "0"})]
    )
    for wrong in ([1, "a"], [None, "a"], [b"a", "a"]):
        said = []
        for one in (session, plain):
            try:
                said.append(one.run(None, {"x": _array(wrong)})[0].tolist())
            except Exception as error:
                said.append(type(error))
        assert said[0] == said[1]


def test_strings_that_others_replace_meanwhile_are_read_once() -> None:
    """A run holds the lock of the interpreter while it reads objects, and no object afterwards."""
    session = _session(MOVED)
    x, stop = _array([["start", "start"]] * 200), threading.Event()
    feeds = {"x": x, "rows": np.arange(200), "mask": np.ones((200, 2), bool)}

    def replace() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            x[number % 200] = "".join(["new ", str(number)])

    others = [threading.Thread(target=replace) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(200):
            results = session.run(None, feeds)
            assert all(word == "start" or word.startswith("new ") for word in results[0])
    finally:
        stop.set()
        for other in others:
            other.join()


def test_any_number_of_threads_runs_one_session() -> None:
    session = _session(ENCODED)
    faults: list[str] = []

    def run(number: int) -> None:
        x = _array([f"{number} {place}" for place in range(number * 7)])
        for _ in range(30):
            if session.run(None, {"x": x})[5].tolist() != [word * 2 for word in x]:
                faults.append(str(number))

    runs = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert not faults


def test_memory_of_strings_grows_and_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    body = " ".join(f"y{number + 1} = StringConcat(y{number}, y{number})" for number in range(16))
    session = _session(_model(f"g (string[N] y0) => (string[N] y16) {{ {body} }}"))
    _assert_native(session)
    for word in ("", "ab"):
        (result,) = session.run(None, {"y0": _array([word, "c"])})
        assert result.tolist() == [word * 65536, "c" * 65536]
    monkeypatch.setattr("sardonyx.providers.native.execution.texts.LARGEST", 1 << 10)
    (result,) = _session(_model(f"g (string[N] y0) => (string[N] y16) {{ {body} }}")).run(None, {"y0": _array(["ab"])})
    assert result.tolist() == ["ab" * 65536]


def test_references_hold_what_is_said_of_them() -> None:
    assert text_words.reference(0, 0) == 0
    assert text_words.reference(text_words.LARGEST, text_words.LONGEST) < 1 << 63


# --- patterns, tokens, letters

TEXTS = [
    *WORDS,
    "The quick brown fox",
    "the the  QUICK\tfox\n jumps",
    "ÄÖÜ äöü ÉÑ Ωμέγα ДЖ",
    "日本 語 ， ！ Ａｂ",
    " a,b;;c ",
    "1984-06-31",
    "x1 y22 z333",
    "\u3000wide\u2003blank\x1cfs",
    "k\u212ak",
]
PATTERNS = [
    r"[a-z]+",
    r".*",
    r"\w+ \w+",
    r"(?i)the.*",
    r"\d{4}-\d\d-\d\d",
    r"[^a-c]*",
    r"(a|ab)(c|bcd)*",
    r"\pL+",
    r"日本.*",
    r"\bx1\b.*",
    r"(?s).*\n.*",
    r"",
]


def test_whole_strings_match_patterns_as_python_has_them() -> None:
    python = {r"\pL+": None, r"(?s).*\n.*": r"(?s).*\n.*", r".*": r"[^\n]*"}
    outputs = ", ".join(f"bool[N] y{number}" for number in range(len(PATTERNS)))
    escaped = [pattern.replace("\\", "\\\\") for pattern in PATTERNS]
    nodes = " ".join(f'y{number} = RegexFullMatch<pattern = "{pattern}">(x)' for number, pattern in enumerate(escaped))
    session = _session(_model(f"g (string[N] x) => ({outputs}) {{ {nodes} }}"))
    _assert_native(session)
    for pattern, matches in zip(PATTERNS, session.run(None, {"x": _array(TEXTS)}), strict=True):
        wanted = python.get(pattern, pattern)
        if wanted is None:
            expected = [bool(text) and text.isalpha() for text in TEXTS]
        else:
            expected = [re.compile(wanted, re.ASCII if "\\" in wanted else 0).fullmatch(text) is not None for text in TEXTS]
        assert matches.tolist() == expected, pattern


@pytest.mark.parametrize(("action", "change"), [("LOWER", str.lower), ("UPPER", str.upper), ("NONE", str)])
def test_letters_change_their_case(action: str, change: Callable[[str], str]) -> None:
    session = _session(
        _model(
            f'g (string[N] x) => (string[M] y) {{ y = StringNormalizer<case_change_action = "{action}", is_case_sensitive = 1>(x) }}'
        )
    )
    _assert_native(session)
    special = ["ΣΑΣ", "İ", "ß", "ﬁ", "Ꭰ"]
    for texts in (TEXTS, special, [], ["a" * number + "Z" for number in range(40)]):
        (result,) = session.run(None, {"x": _array(texts)})
        assert result.tolist() == ([change(text) for text in texts] or [""])


def test_every_letter_changes_as_in_python() -> None:
    """One text for each character, so that one which NumPy has to change does not hide the others."""
    session = _session(
        _model(
            'g (string[N] x) => (string[M] y) { y = StringNormalizer<case_change_action = "LOWER", is_case_sensitive = 1>(x) }'
        )
    )
    program = session._engine.plan.steps[0].call
    letters = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    common = [letter for letter in letters if ord(letter) not in range(0xA640, 0xAC00) and letter not in "Σİ"]
    common = [
        letter for letter in common if ord(letter) not in range(0xFB00, 0xFE00) and ord(letter) not in range(0x10000, 0x1F000)
    ]
    assert program.run_any([_array(common)])[0].tolist() == [letter.lower() for letter in common]


SPLITS = [
    ("StringSplit", ""),
    ("StringSplit", 'delimiter = " "'),
    ("StringSplit", 'delimiter = "the"'),
    ("StringSplit", 'delimiter = "，"'),
    ("StringSplit", 'delimiter = ";;c deffg"'),
]


@pytest.mark.parametrize("threads", [1, 2])
def test_strings_are_split(threads: int) -> None:
    outputs = ", ".join(f"string[N, M{number}] y{number}, int64[N] n{number}" for number in range(len(SPLITS)))
    nodes = " ".join(f"y{number}, n{number} = {op}{given and f'<{given}>'}(x)" for number, (op, given) in enumerate(SPLITS))
    session = _session(_model(f"g (string[N] x) => ({outputs}) {{ {nodes} }}"), threads)
    for texts in (TEXTS, [], ["", ""], ["one"], TEXTS * 100, ["a " * 700, "b"]):
        for _ in range(2):
            results = session.run(None, {"x": _array(texts)})
            for (_, given), parts, counts in zip(SPLITS, results[::2], results[1::2], strict=True):
                delimiter = given.partition('"')[2].removesuffix('"') or None
                expected = [text.split(delimiter) if text else [] for text in texts]
                assert counts.tolist() == [len(row) for row in expected]
                longest = max(map(len, expected), default=0)
                assert parts.shape == (len(texts), longest)
                assert parts.tolist() == [row + [""] * (longest - len(row)) for row in expected]


TOKENIZERS = [
    ('tokenexp = "[a-zA-Z0-9_]+", mincharnum = 1', lambda text: re.findall("[a-zA-Z0-9_]+", text)),
    (
        'tokenexp = "[a-z]{2}[0-9]*", mincharnum = 3',
        lambda text: [one for one in re.findall("[a-z]{2}[0-9]*", text) if len(one) > 2],
    ),
    ('tokenexp = ".", mincharnum = 1', list),
    ('separators = [" ", ","], mincharnum = 1', lambda text: [one for one in re.split("[ ,]", text) if one]),
    ('separators = [";"], mincharnum = 2', lambda text: [one for one in text.split(";") if len(one) > 1]),
]


@pytest.mark.parametrize(("given", "expected"), TOKENIZERS, ids=[given for given, _ in TOKENIZERS])
def test_texts_become_tokens(given: str, expected: Callable[[str], list[str]]) -> None:
    session = _session(
        _model(f'g (string[N] x) => (string[N, M] y) {{ y = com.microsoft.Tokenizer<mark = 0, pad_value = "#", {given}>(x) }}')
    )
    _assert_native(session)
    for texts in (TEXTS, ["abc12"], TEXTS * 30):
        rows = [expected(text) for text in texts]
        longest = max(map(len, rows))
        (tokens,) = session.run(None, {"x": _array(texts)})
        assert tokens.tolist() == [row + ["#"] * (longest - len(row)) for row in rows]


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 2), (2, 3)])
def test_n_grams_of_texts_are_counted(mode: str, shortest: int, longest: int) -> None:
    pool = [["the"], ["fox"], ["日本"], ["nowhere"]], [["the", "the"], ["quick", "fox"]], [["the", "the", "quick"]]
    words = ", ".join(f'"{word}"' for grams in pool for gram in grams for word in gram)
    columns, weights = [6, 0, 1, 2, 5, 4, 3], [0.5, 2.0, 3.0, 1.0, 0.25, 7.0, 9.0]
    body = f"""g (string[N] x) => (float[N, 7] y) {{
        t = com.microsoft.Tokenizer<mark = 0, mincharnum = 1, pad_value = "#", separators = [" ", "\\\\t", "\\\\n"]>(x)
        y = TfIdfVectorizer<mode = "{mode}", min_gram_length = {shortest}, max_gram_length = {longest}, max_skip_count = 0,
            ngram_counts = [0, 4, 8], ngram_indexes = {columns}, weights = {weights}, pool_strings = [{words}]>(t)
    }}"""
    session = _session(_model(body))
    _assert_native(session)
    texts = [*TEXTS, "the the quick fox the the quick", "日本 日本"]
    counts = np.zeros((len(texts), 7), np.float32)
    for row, text in enumerate(texts):
        found = [word for word in re.split("[ \t\n]", text) if word]
        for column, gram in zip(columns, [gram for grams in pool for gram in grams]):
            if shortest <= len(gram) <= longest:
                counts[row, column] = sum(found[at : at + len(gram)] == gram for at in range(len(found)))
    factors = np.ones(7, np.float32)
    factors[columns] = weights
    expected = {"TF": counts, "IDF": np.minimum(counts, 1) * factors, "TFIDF": counts * factors}[mode]
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": _array(texts)})[0], expected)
        np.testing.assert_array_equal(session.run(None, {"x": _array(texts[-2:-1])})[0], expected[-2:-1])


def test_a_pattern_that_would_look_far_ahead_is_left_to_the_matcher_that_does_not() -> None:
    given = 'mark = 0, mincharnum = 1, pad_value = "", tokenexp = "a*b"'
    body = f"g (string[N] x) => (string[N, M] y) {{ y = com.microsoft.Tokenizer<{given}>(x) }}"
    session = _session(_model(body))
    (result,) = session.run(None, {"x": _array(["a" * 100_000 + "c", "ab"])})
    assert result.tolist() == [[""], ["ab"]]


@pytest.mark.parametrize(("seed", "positive"), [(0, 1), (7, 0), (-1, 1)])
def test_strings_are_hashed_as_onnxruntime_does(seed: int, positive: int) -> None:
    kind = "uint32" if positive else "int32"
    body = f"g (string[N] x) => ({kind}[N] y) {{ y = com.microsoft.MurmurHash3<seed = {seed}, positive = {positive}>(x) }}"
    session = _session(_model(body))
    _assert_native(session)
    texts = [text for text in TEXTS if "\0" not in text]
    (expected,) = onnxruntime_peer.run(parse_model(_model(body)), {"x": _array(texts)})
    (hashes,) = session.run(None, {"x": _array(texts)})
    assert hashes.dtype == kind and hashes.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "body",
    [
        'g (string[2] x) => (int64[2] y) { y = ai.onnx.ml.LabelEncoder<keys_strings=["a", "KEY"], values_int64s=[1, 2]>(x) }',
        'g (int64[2] x) => (string[2] y) { y = ai.onnx.ml.LabelEncoder<keys_int64s=[1, 2], values_strings=["a", "KEY"]>(x) }',
        'g (string[2] x) => (string[2] y) { y = StringNormalizer<stopwords=["a", "KEY"]>(x) }',
        'g (string[2] x) => (string[2,n] y, int64[2] z) { y, z = StringSplit<delimiter="KEY">(x) }',
    ],
)
def test_a_model_with_strings_that_are_no_utf8_is_refused_or_run(body: str) -> None:
    """Files may be damaged: what is no string is none of native code's."""
    data = onnx.parser.parse_model(_model(body)).SerializeToString().replace(b"KEY", b"\xff\xfe\xfd")
    with contextlib.suppress(*errors.CODED):
        session = ort.InferenceSession(data)
        feeds = {"x": np.array([1, 7], np.int64) if session.get_inputs()[0].type == "tensor(int64)" else _array(["a", "b"])}
        assert len(session.run(None, feeds)[0]) <= 2
