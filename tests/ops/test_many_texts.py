"""Many texts at once give what single ones give: n-grams, patterns, splitting, hashes. Texts may be empty, long, of any characters."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.ir.text import parse_model
from sardonyx.providers.cpu.contrib.text import _splitter, tokenizer
from sardonyx.providers.cpu.contrib.tokens import _hash_of, murmur_hash3
from sardonyx.providers.cpu.ngrams import FEW, joint_counts, known_grams, tf_idf_vectorizer
from sardonyx.providers.cpu.re2 import _BySpans, matcher
from sardonyx.providers.cpu.regex_lockstep import TOGETHER, in_lockstep
from sardonyx.providers.cpu.regex_machine import Machine
from sardonyx.providers.cpu.regex_syntax import parse
from sardonyx.providers.cpu.text import string_split
from tests import onnxruntime_peer

TOKENS = st.sampled_from(["a", "b", "c", "é", "#", "", "\0", "\ud800", "long" * 20])
TEXT = st.text(st.sampled_from("ab_ \t\n#.é😀\0\ud800"), max_size=12)


def array(items) -> np.ndarray:
    made = np.empty(len(items), object)
    made[:] = items
    return made


@st.composite
def pools(draw):
    """Attributes of a TfIdfVectorizer."""
    grams = [
        [draw(st.lists(TOKENS, min_size=length, max_size=length)) for _ in range(draw(st.integers(0, 4)))]
        for length in (1, 2, 3)
    ]
    counts, pool = [], []
    for length in grams:
        counts.append(len(pool))
        pool += [token for gram in length for token in gram]
    total = sum(map(len, grams))
    return {
        "ngram_counts": counts,
        "ngram_indexes": draw(st.permutations(range(total))) or [0],
        "pool_strings": pool,
        "min_gram_length": draw(st.integers(1, 3)),
        "max_gram_length": draw(st.integers(1, 3)),
        "max_skip_count": draw(st.integers(0, 3)),
    }


def counted(X, attributes, mode="TF"):
    pool = ("ngram_counts", "ngram_indexes", "pool_strings")
    rest = {name: value for name, value in attributes.items() if name not in pool[::2]}
    return tf_idf_vectorizer(
        X, mode=mode, grams=known_grams(*(attributes[name] for name in pool[:2]), None, attributes[pool[2]]), **rest
    )


@settings(max_examples=60, deadline=None)
@given(attributes=pools(), tokens=st.lists(TOKENS, min_size=12, max_size=12), mode=st.sampled_from(["TF", "IDF"]))
def test_many_tokens_are_counted_as_few(attributes, tokens, mode):
    rows = array(tokens).reshape(2, 6)
    many = np.concatenate([rows] * (FEW // 12 + 1))
    wanted = counted(rows, attributes, mode)
    assert many.size > FEW >= rows.size
    assert np.array_equal(counted(many, attributes, mode), np.concatenate([wanted] * (FEW // 12 + 1)))


@settings(max_examples=60, deadline=None)
@given(
    attributes=pools(),
    texts=st.lists(TEXT, min_size=1, max_size=5),
    expression=st.sampled_from([".", "[a-b_]+", "[a-b]", "[^ ]+", "a.b*"]),
    pad=st.sampled_from(["#", "~"]),
)
def test_counts_right_from_texts_are_those_of_tokens(attributes, texts, expression, pad):
    split = _splitter(tokenexp=expression)
    tree = known_grams(attributes["ngram_counts"], attributes["ngram_indexes"], None, attributes["pool_strings"])
    fixed = {name: attributes[name] for name in ("ngram_indexes", "min_gram_length", "max_gram_length", "max_skip_count")}
    joint = joint_counts({"split": split, "mincharnum": 1, "mark": 0, "pad_value": pad}, {"grams": tree, "mode": "TF", **fixed})
    found = None if joint is None else joint([array(texts)])
    assert joint is not None or not split.takes_many or {pad, "\0"} & set(attributes["pool_strings"])
    if found is not None:
        tokens = tokenizer(array(texts), split=split, mark=0, mincharnum=1, pad_value=pad)
        assert np.array_equal(found[0], tf_idf_vectorizer(tokens, mode="TF", grams=tree, **fixed))


def test_words_of_many_texts_are_found_at_once():
    split = _splitter(tokenexp="[a-zA-Z0-9_]+")
    assert split.all(["a b", "", "c-d\te"]) == ["a", "b", "\0", "\0", "c", "d", "e"]
    assert split.all(["é b", "c"]) == ["b", "\0", "c"]
    assert split.all(["a\0", "b"]) is None
    assert not _splitter(tokenexp="[^ ]+").takes_many
    assert _splitter(separators=[" "]).all(["a  b", "", "c"]) == ["a", "b", "\0", "\0", "c"]


PATTERNS = ["[a-b]+_?", "(a|b)*é", ".*", r"\bab\b.*", "^a.$", "[^a]{2,3}", "(?s).+", "a*"]


@settings(max_examples=80, deadline=None)
@given(pattern=st.sampled_from(PATTERNS), texts=st.lists(TEXT, max_size=6))
def test_texts_in_lockstep_match_as_single_ones(pattern, texts):
    machine = Machine(parse(pattern))
    many = [text for text in texts for _ in range(TOGETHER * 12)]
    found = in_lockstep(machine, many)
    if found is not None:
        assert found.tolist() == list(map(machine.fullmatch, many))
    assert matcher(pattern).fullmatches(many).tolist() == list(map(matcher(pattern).fullmatch, many))


def test_a_pattern_of_many_states_and_a_long_text_go_one_by_one():
    assert in_lockstep(Machine(parse("(a|b)*a(a|b){14}")), ["ab" * 10] * 100) is None
    assert in_lockstep(Machine(parse("a*")), ["a" * 1000, *["a"] * 100]) is None
    assert in_lockstep(Machine(parse("a*")), ["a"]) is None


@given(text=TEXT)
def test_what_matches_and_what_is_between_follow_from_spans(text):
    for pattern in ("[ab]", "[ab]+", "a.", "(ab)+"):
        one = matcher(pattern)
        assert one.findall(text) == _BySpans.findall(one, text)
        assert one.split(text) == _BySpans.split(one, text)


@given(texts=st.lists(st.text(max_size=9), max_size=40), seed=st.integers(-(2**31), 2**31 - 1))
def test_hashes_of_many_texts_are_those_of_single_ones(texts, seed):
    wanted = [_hash_of(text.encode(), seed & 0xFFFFFFFF) for text in texts]
    assert murmur_hash3(array(texts), seed=seed).tolist() == wanted
    assert murmur_hash3(array(texts * 20), seed=seed).tolist() == wanted * 20


def test_half_a_character_has_no_hash():
    for count in (1, 100):
        with pytest.raises(UnicodeEncodeError):
            murmur_hash3(array(["\ud800"] * count))


@given(
    texts=st.lists(TEXT, max_size=6),
    delimiter=st.sampled_from(["", None, " ", "ab", "\0"]),
    limit=st.sampled_from([None, 0, 1, 5]),
)
def test_parts_of_many_texts_are_those_of_single_ones(texts, delimiter, limit):
    parts, counts = string_split(array(texts), delimiter, limit)
    for text, row, count in zip(texts, parts, counts, strict=True):
        (alone,), (number,) = string_split(array([text]), delimiter, limit)
        assert row[:count].tolist() == alone.tolist() and count == number
        assert set(row[count:].tolist()) <= {""}


TEXT_MODELS = {
    "words": 't = com.microsoft.Tokenizer<mark=0, mincharnum=1, pad_value="#", tokenexp="[a-zA-Z0-9_]+">(x)',
    "letters": 't = com.microsoft.Tokenizer<mark=0, mincharnum=1, pad_value="#", tokenexp=".">(x)',
    "separated": 't = com.microsoft.Tokenizer<mark=0, mincharnum=1, pad_value="#", separators=[" "]>(x)',
}


@pytest.mark.parametrize("kind", list(TEXT_MODELS))
def test_counted_texts_agree_with_onnxruntime(kind):
    text = f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (string[N] x) => (float[N,4] y) {{ {TEXT_MODELS[kind]}
        y = TfIdfVectorizer<mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=1, ngram_counts=[0, 2],
            ngram_indexes=[0, 1, 2, 3], pool_strings=["a", "b", "a", "b", "b", "é"]>(t) }}"""
    session = sardonyx.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    for texts in (["a b a b"], ["", "b é", "a  a-b", "x" * 300], ["a b é"] * 200):
        feeds = {"x": array(texts)}
        assert session._sess.direct(feeds) is not None
        (wanted,) = onnxruntime_peer.run(parse_model(text), feeds)
        assert np.array_equal(session.run(None, feeds)[0], wanted)
