"""Patterns of RE2: our matcher says what RE2 says, and takes steps in proportion to the text, whatever the pattern."""

from __future__ import annotations

import re
import sys
import unicodedata

import numpy as np
import onnx.helper
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu import re2 as engines
from sardonyx.providers.cpu import regex_machine, regex_sets
from sardonyx.providers.cpu.regex_machine import Machine
from sardonyx.providers.cpu.regex_syntax import MAX_DEPTH, MAX_PROGRAM, parse
from tests.ops.test_text import MATCHES

PIECES = [
    *(r"a", r"b", r"k", r"é", r".", r"^", r"$", r"\A", r"\z", r"\b", r"\B", r"\w", r"\W", r"\d", r"\s", r"\pL", r"\PL"),
    *(r"[ab]", r"[^a]", r"[a-c]", r"[[:word:]]", r"[^\W]", r"\n", r"\x41", r"\12", r"\Qa*\E", r"\E", "\\", "[", "]", "{", "-"),
    *("(?i)", "(?m)", "(?s)", "(?-i)", "(?i:", "(?:", "(", ")", ")", "|", "*", "+", "?", "{2}", "{1,2}", "{0}", "{2,}", "{,2}"),
]
TEXTS = ["", "a", "b", "ab", "aab", "abab", "k", "K", "\u212a", "a\n", "\n", "a\nb", "é", "é a", "AB", "_a", "a*", "a{,2}", "1"]
PATTERNS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)
SOUND = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "[^a]", "(?s:.)", ""]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)
"""Patterns that mean the same to Python's `re`."""


def ours(pattern: str) -> Machine | None:
    try:
        return Machine(parse(pattern))
    except KernelError:
        return None


def tokens_of_peer(compiled, text: str) -> list[tuple[int, int]]:
    return [found.span() for found in compiled.finditer(text) if found.end() > found.start()]


@pytest.fixture(scope="module")
def peer():
    re2 = pytest.importorskip("re2", reason="google-re2, an extra, is the peer of this test")
    options = re2.Options()
    options.log_errors, options.longest_match = False, True

    def compiled(pattern):
        try:
            return re2.compile(pattern, options)
        except re2.error:
            return None

    return compiled


@settings(max_examples=1000, deadline=None)
@given(PATTERNS, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
def test_any_pattern_is_taken_refused_and_matched_as_by_re2(peer, pattern, texts):
    theirs, mine = peer(pattern), ours(pattern)
    assert (theirs is None) == (mine is None)
    for text in texts if mine is not None else ():
        assert mine.fullmatch(text) == (theirs.fullmatch(text) is not None), text
        assert list(mine.spans(text)) == tokens_of_peer(theirs, text), text
        assert list(engines.matcher(pattern).spans(text)) == tokens_of_peer(theirs, text), text


def test_letters_of_other_cases_are_those_of_re2(peer):
    """As far as both know the letter: their versions of Unicode differ."""
    alike = regex_sets._orbits()
    known = peer(r"\p{L}")
    for code in range(0x80, regex_sets.LAST_WITH_CASE):
        letter = chr(code)
        if unicodedata.category(letter) in ("Cs", "Cn"):
            continue
        others = "".join(map(chr, alike.get(code, [code])))
        if all(known.fullmatch(one) for one in others):
            assert peer(f"(?i){re.escape(letter)}+").fullmatch(others), hex(code)
    assert max(alike) < regex_sets.LAST_WITH_CASE
    letters = map(chr, range(regex_sets.LAST_WITH_CASE, sys.maxunicode + 1))
    assert not [letter for letter in letters if letter.lower() != letter or letter.upper() != letter]


@settings(max_examples=500, deadline=None)
@given(SOUND, st.text("ab\n", max_size=8))
def test_patterns_without_peculiarities_match_as_in_pythons_re(pattern, text):
    mine = Machine(parse(pattern))
    plain = engines.matcher(pattern) if engines._plain(parse(pattern)) is not None else mine
    for matcher in (mine, plain):
        assert matcher.fullmatch(text) == (re.fullmatch(pattern, text) is not None)
        assert list(matcher.spans(text)) == longest_spans(pattern, text)
    assert [mine._longest(text, first) for first in range(len(text) + 1)] == mine._all_ends(text)


def longest_spans(pattern: str, text: str) -> list[tuple[int, int]]:
    found, first, compiled = [], 0, re.compile(pattern)
    while first < len(text):
        last = next((end for end in range(len(text), first, -1) if compiled.fullmatch(text, first, end)), first)
        if last > first:
            found.append((first, last))
        first = max(last, first + 1)
    return found


@settings(max_examples=150, deadline=None)
@given(SOUND, st.lists(st.text("ab\n", max_size=12), min_size=1, max_size=4))
def test_states_that_are_given_up_come_again(pattern, texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regex_machine, "MAX_HELD", 3)
        mine = Machine(parse(pattern))
        for text in texts:
            assert mine.fullmatch(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(("pattern", "yes", "no"), MATCHES)
@pytest.mark.parametrize("has_package", [False, True])
def test_both_engines_agree(pattern, yes, no, has_package, monkeypatch):
    if has_package:
        pytest.importorskip("re2", reason="the engine of the extra `text`")
    else:
        monkeypatch.setattr(engines, "_package", lambda: None)
    match = engines.matcher.__wrapped__(pattern).fullmatch
    assert [match(text) for text in (*yes, *no)] == [True] * len(yes) + [False] * len(no)


PATHOLOGICAL = [
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+b",
    "(a+)+b",
    "([a-z]+)*b",
    "(.*a){12}b",
    "(?:a?){30}a{30}b",
    "(a*?)*?b",
    r"(\w+\s?)*b",
    "((a*)*)*b",
    r"(?m)(^a*$|a)*b",
    "(?i)(a|A)*b",
    r"(\ba*\b|a)*b",
    "a*a*a*a*b",
    "(?:a{0,30}){30}b",
]


@pytest.mark.parametrize("pattern", PATHOLOGICAL)
@pytest.mark.parametrize("way", ["fullmatch", "spans"])
def test_steps_grow_with_the_text_and_not_faster(pattern, way):
    counts = []
    for length in (500, 1000, 2000):
        machine = Machine(parse(pattern))
        found = machine.fullmatch("a" * length) if way == "fullmatch" else list(machine.spans("a" * length))
        assert not found
        counts.append(machine.steps)
    assert counts[2] - counts[1] <= 2.1 * (counts[1] - counts[0])


def test_a_pattern_that_looks_far_ahead_for_each_token_takes_no_more_steps():
    """Whether a token could be longer is known at the end of the text only; looking there for each of them would take the square."""
    counts = []
    for length in (500, 1000, 2000):
        machine = Machine(parse("a|a*b"))
        assert list(machine.spans("a" * length)) == [(at, at + 1) for at in range(length)]
        counts.append(machine.steps)
    assert counts[2] - counts[1] <= 2.1 * (counts[1] - counts[0])


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a{1001}", "invalid repetition size"),
        ("(?:a{40}){40}", "invalid repetition size"),
        ("((a{10}){10}){11}", "invalid repetition size"),
        ("a{" + "9" * 10_000 + "}", "invalid repetition size"),
        (f"(?:{'ab' * 500}){{1000}}", "pattern too large"),
        ("a" * (MAX_PROGRAM + 1), "pattern too large"),
        ("(" * (MAX_DEPTH + 1) + ")" * (MAX_DEPTH + 1), "nested deeper"),
    ],
    ids=lambda value: value[:20],
)
def test_patterns_that_would_become_too_large_are_refused(pattern, reason):
    with pytest.raises(KernelError, match=reason):
        parse(pattern)


def test_groups_may_be_nested_deeply():
    depth = MAX_DEPTH - 1
    assert Machine(parse("(" * depth + "a" + ")*" * depth)).fullmatch("aaa")


def test_scripts_are_known_to_re2_alone(peer, monkeypatch):
    greek = engines.matcher.__wrapped__(r"\p{Greek}+")
    assert greek.fullmatch("αβγ") and not greek.fullmatch("abc")
    assert list(greek.spans("aαβ γ")) == [(1, 3), (4, 5)]
    assert not greek.fullmatch("\ud800")
    monkeypatch.setattr(engines, "_package", lambda: None)
    with pytest.raises(KernelError, match="unsupported character class"):
        engines.matcher.__wrapped__(r"\p{Greek}+")


def test_lone_surrogates_match_too():
    for pattern in (".", "(.|b)"):
        assert engines.matcher(pattern).fullmatch("\ud800")
        assert list(engines.matcher(pattern).spans("\ud800a")) == [(0, 1), (1, 2)]


def session(op: str, pattern: str) -> sardonyx.InferenceSession:
    attributes = (
        {"pattern": pattern} if op == "RegexFullMatch" else {"tokenexp": pattern, "mark": 0, "mincharnum": 1, "pad_value": "#"}
    )
    domain = "" if op == "RegexFullMatch" else "com.microsoft"
    node = onnx.helper.make_node(op, ["x"], ["y"], name="the_node", domain=domain, **attributes)
    kind = onnx.TensorProto.BOOL if op == "RegexFullMatch" else onnx.TensorProto.STRING
    text = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, ["N"])
    graph = onnx.helper.make_graph([node], "g", [text], [onnx.helper.make_tensor_value_info("y", kind, None)])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
    return sardonyx.InferenceSession(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("op", ["RegexFullMatch", "Tokenizer"])
@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)a", "(?<!a)b", "a++"])
def test_an_error_names_the_node_and_the_pattern(op, pattern):
    with pytest.raises(InvalidArgument, match=rf"{op}.*the_node.*Invalid regex pattern: {re.escape(pattern)}"):
        session(op, pattern).run(None, {"x": np.array(["a"], object)})


@pytest.mark.parametrize("has_package", [False, True])
def test_nodes_match_pathological_patterns(has_package, monkeypatch):
    if not has_package:
        monkeypatch.setattr(engines, "_package", lambda: None)
    engines.matcher.cache_clear()
    texts = np.array(["a" * 5000, "a" * 5000 + "b"], object)
    assert session("RegexFullMatch", "(a*)*b").run(None, {"x": texts})[0].tolist() == [False, True]
    (tokens,) = session("Tokenizer", "(a*)*b").run(None, {"x": texts[1:]})
    assert tokens.tolist() == [[texts[1]]]
    engines.matcher.cache_clear()
