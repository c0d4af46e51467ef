"""Cases of the ops on strings."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.regex_syntax import parse
from sardonyx.providers.cpu.text import _full_matches, _word_changes, regex_full_match, string_normalizer
from tests.ops.cases import case, refuse


def words(*items):
    return np.array(items, dtype=object)


case("StringConcat", X=words("a", "é"), Y=words("b", ""), expect=words("ab", "é"))
case("StringConcat", X=words("a", "b"), Y=words("x").reshape(1, 1), expect=words("ax", "bx")[None])
case("StringConcat", X=np.array("a", object), Y=np.array("b", object), expect=np.array("ab", object))
case("StringConcat", X=words(), Y=words("x"), expect=words())
refuse("StringConcat", X=words("a", "b"), Y=words("a", "b", "c"), match="broadcast")

DAYS = words("monday", "Tuesday", "wednesday")

case("StringNormalizer", X=DAYS, expect=DAYS)
case("StringNormalizer", X=DAYS, stopwords=["tuesday"], sizes_known=False, expect=words("monday", "wednesday"))
case("StringNormalizer", X=DAYS, stopwords=["tuesday"], is_case_sensitive=1, sizes_known=False, expect=DAYS)
case(
    "StringNormalizer",
    X=DAYS[None],
    stopwords=["monday"],
    case_change_action="UPPER",
    sizes_known=False,
    expect=words("TUESDAY", "WEDNESDAY")[None],
)
case("StringNormalizer", X=words("ÀÉ"), case_change_action="LOWER", locale="en_US", expect=words("àé"))
case("StringNormalizer", X=words("iI"), case_change_action="UPPER", locale="tr_TR.UTF-8", expect=words("İI"))
case("StringNormalizer", X=words("İI"), case_change_action="LOWER", locale="tr_TR", expect=words("iı"))
case("StringNormalizer", X=words("a", "b"), stopwords=["a", "b"], sizes_known=False, expect=words(""))
case("StringNormalizer", X=words("a")[None], stopwords=["a"], sizes_known=False, expect=words("")[None])
case("StringNormalizer", X=words(), expect=words(""))
refuse("StringNormalizer", X=words("a", "b")[:, None], match=r"\[1,C\]|\[1\]\[C")
refuse("StringNormalizer", X=DAYS, case_change_action="TITLE", match="TITLE")


def test_no_locale_of_the_system_is_needed(monkeypatch):
    monkeypatch.setattr("locale.setlocale", None)
    assert string_normalizer(words("É"), _word_changes("LOWER", locale="xx_YY")).tolist() == ["é"]


case(
    "StringSplit",
    X=words("a,b,,c", "", "x"),
    delimiter=",",
    sizes_known=False,
    expect=(words("a", "b", "", "c", *[""] * 4, "x", *[""] * 3).reshape(3, 4), np.array([4, 0, 1])),
)
case(
    "StringSplit", X=words(" a  b ", "c"), sizes_known=False, expect=(words("a", "b", "c", "").reshape(2, 2), np.array([2, 1]))
)
case(
    "StringSplit",
    X=words(" a  b c "),
    delimiter="",
    maxsplit=1,
    sizes_known=False,
    expect=(words("a", "b c")[None], np.array([2])),
)
case(
    "StringSplit",
    X=words("a--b--c"),
    delimiter="--",
    maxsplit=1,
    sizes_known=False,
    expect=(words("a", "b--c")[None], np.array([2])),
)
case(
    "StringSplit",
    X=np.zeros((2, 0), object),
    sizes_known=False,
    expect=(np.zeros((2, 0, 0), object), np.zeros((2, 0), np.int64)),
)
case("StringSplit", X=np.array("a b", object), sizes_known=False, expect=(words("a", "b"), np.array(2)))

case("RegexFullMatch", X=words("a@b.com", "a@b.org").reshape(2, 1), pattern=r".*@.*\.com", expect=np.array([[True], [False]]))
case("RegexFullMatch", X=words(), pattern="a", expect=np.zeros(0, bool))
case("RegexFullMatch", X=np.array("a", object), pattern="a|b", expect=np.array(True))
refuse("RegexFullMatch", X=words("a"), pattern="(?=a)a", match=r"Invalid regex pattern: \(\?=a\)a")

# what RE2 says of each text; many of these patterns mean something else to Python's `re`
MATCHES = [
    (r"\d+", ["12"], ["\u0661"]),
    (r"\w+", ["e_1"], ["é"]),
    (r"\s", [" ", "\t", "\f"], ["\v", "\u00a0"]),
    (r"\bé\b", [], ["é"]),
    (r"a$", ["a"], ["a\n"]),
    (r"(?m)a$\n", ["a\n"], ["a"]),
    (r"a\z", ["a"], ["a\n"]),
    (r"a.b", ["a b"], ["a\nb"]),
    (r"(?s)a.b", ["a\nb"], ["ab"]),
    (r"[^a]", ["\n"], ["a"]),
    (r"a{,2}", ["a{,2}"], ["aa"]),
    (r"a{2}b{1,}", ["aab", "aabb"], ["ab"]),
    (r"a(?i)b|c", ["aB", "C"], ["AB"]),
    (r"(?i)(?-i:a)b", ["aB"], ["AB"]),
    (r"(?i:a(?-i)b)c", ["Abc"], ["ABc", "AbC"]),
    (r"(?i)k", ["K", "\u212a"], []),
    (r"(?i)\W", ["é"], ["K"]),
    (r"(?U)a+?", ["aa"], [""]),
    (r"(?P<x>a)(?<y>b)(?:c)", ["abc"], []),
    (r"\Qa.b\E+", ["a.bb"], ["axb", "a.ba.b"]),
    (r"\Qab*", ["ab*"], ["abb"]),
    (r"\x{e9}\x41\012\0", ["éA\n\0"], []),
    (r"\pN\p{Lu}\PL", ["1A1", "\u0661É-"], ["1a1"]),
    (r"\p{^Lu}\pZ", ["a\u00a0"], ["A "]),
    (r"[\pL\d-]+", ["a-1"], ["_"]),
    (r"[[:alpha:]_[:^ascii:]]+", ["a_é"], ["1"]),
    (r"[]a]+", ["]a"], ["b"]),
    (r"[^]a]", ["b"], ["]"]),
    (r"[--/][&&~~||[]", [".&", "-["], ["a&"]),
    (r"^*a(|b)", ["a", "ab"], []),
    (r"a(?:b|)", ["a", "ab"], ["abb"]),
    (r"ab*", ["a", "abb"], ["b", "aab"]),
    (r"", [""], ["a"]),
]
REFUSED = [
    r"(a)\1", r"(?!a)", r"(?<=a)b", r"(?>a)", r"(?#a)", r"(?P=x)", r"a++", r"a**", r"*a", r"a|*", "(", "a)", "[a", "a\\", r"\8", r"\y",
    r"x{1001}", r"x{1}{2}", r"[[:foo:]]", r"[a-\d]", r"[b-a]", r"\p{Klingon}", r"\C", r"\x{110000}",
]  # fmt: skip


@pytest.mark.parametrize("pattern, yes, no", MATCHES)
def test_patterns_mean_what_they_mean_to_re2(pattern, yes, no):
    assert regex_full_match(words(*yes), _full_matches(pattern)).all()
    assert not regex_full_match(words(*no), _full_matches(pattern)).any()


@pytest.mark.parametrize("pattern", REFUSED)
def test_patterns_that_re2_does_not_have_are_refused(pattern):
    with pytest.raises(KernelError, match="Invalid regex pattern"):
        parse(pattern)


# --- TfIdfVectorizer --------------------------------------------------------------------------------------------------

POOL = {
    "ngram_counts": [0, 2],
    "ngram_indexes": [3, 1, 0, 2],
    "pool_int64s": [1, 2, 1, 2, 1, 1],  # 1, 2; then (1, 2), (1, 1)
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 0,
}
TOKENS = np.array([1, 2, 1, 2, 1, 9])

case("TfIdfVectorizer", X=TOKENS, mode="TF", **POOL, expect=np.array([2, 2, 0, 3], np.float32))
case("TfIdfVectorizer", X=TOKENS.astype(np.int32), mode="TF", **POOL, expect=np.array([2, 2, 0, 3], np.float32))
case("TfIdfVectorizer", X=TOKENS.reshape(2, 3), mode="TF", **POOL, expect=np.array([[1, 1, 0, 2], [0, 1, 0, 1]], np.float32))
case("TfIdfVectorizer", X=TOKENS, mode="TF", **POOL | {"max_skip_count": 3}, expect=np.array([3, 2, 3, 3], np.float32))
case("TfIdfVectorizer", X=TOKENS, mode="TF", **POOL | {"max_skip_count": 2**62}, expect=np.array([3, 2, 3, 3], np.float32))
case("TfIdfVectorizer", X=TOKENS, mode="TF", **POOL | {"min_gram_length": 2}, expect=np.array([2, 0, 0, 0], np.float32))
case("TfIdfVectorizer", X=TOKENS, mode="TF", **POOL | {"max_gram_length": 1}, expect=np.array([0, 2, 0, 3], np.float32))
case(
    "TfIdfVectorizer",
    X=TOKENS,
    mode="IDF",
    **POOL,
    weights=[10.0, 20.0, 30.0, 40.0],
    expect=np.array([30, 20, 0, 10], np.float32),
)
case(
    "TfIdfVectorizer",
    X=TOKENS,
    mode="TFIDF",
    **POOL,
    weights=[10.0, 20.0, 30.0, 40.0],
    expect=np.array([60, 40, 0, 30], np.float32),
)
case("TfIdfVectorizer", X=TOKENS, mode="IDF", **POOL, expect=np.array([1, 1, 0, 1], np.float32))
case("TfIdfVectorizer", X=np.zeros((0, 3), np.int64), mode="TF", **POOL, expect=np.zeros((0, 4), np.float32))
case("TfIdfVectorizer", X=np.zeros((2, 0), np.int64), mode="TF", **POOL, expect=np.zeros((2, 4), np.float32))
case(
    "TfIdfVectorizer", X=words("b", "a", "b", "é"), mode="TF", ngram_counts=[0, 1], ngram_indexes=[1, 0], pool_strings=["b", "b", "é"],
    min_gram_length=1, max_gram_length=2, max_skip_count=0, expect=np.array([1, 2], np.float32),
)  # fmt: skip
refuse("TfIdfVectorizer", X=np.array(1), mode="TF", **POOL, match="rank|dimensions")
refuse("TfIdfVectorizer", X=TOKENS, mode="BM25", **POOL, match="BM25")
