"""Strings in native code: what goes in and comes out, and what is computed in between, beside Python's own strings."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx as ort
from sardonyx.compiler import texts as text_words
from sardonyx.providers.native.execution.texts import TextProgram

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
