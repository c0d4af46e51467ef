"""Cases of Tokenizer."""

import numpy as np

from tests.ops.cases import case, refuse, strings

CONTRIB = "com.microsoft"


def text(*items):
    return np.array(items, dtype=object)


PLAIN = {"mark": 0, "mincharnum": 1, "pad_value": "#", "domain": CONTRIB, "sizes_known": False, "against_onnxruntime": True}
MARKED = {**PLAIN, "mark": 1}
HELLO = text("Hello World", "I love it !")
case("Tokenizer", X=HELLO, separators=[" "], **PLAIN, expect=text(["Hello", "World", "#", "#"], ["I", "love", "it", "!"]))
case(
    "Tokenizer",
    X=text("a b", "c"),
    separators=[" "],
    **MARKED,
    expect=text(["\x02", "a", "b", "\x03"], ["\x02", "c", "\x03", "#"]),
)
case(
    "Tokenizer",
    X=HELLO.reshape(2, 1),
    separators=[" "],
    **{**PLAIN, "mincharnum": 3},
    expect=text([["Hello", "World"]], [["love", "#"]]),
)
case("Tokenizer", X=text("a,b;c"), separators=[",", ";"], **PLAIN, expect=text(["a", "b", "c"]))
case("Tokenizer", X=text("a  b"), separators=[" "], **PLAIN, expect=text(["a", "b"]))
case("Tokenizer", X=text("a1b22c"), separators=["[0-9]+"], **PLAIN, expect=text(["a", "b", "c"]))
case("Tokenizer", X=text("été Ω"), separators=[""], **PLAIN, expect=text(["é", "t", "é", " ", "Ω"]))
case("Tokenizer", X=text("ab", "c"), tokenexp=".", **PLAIN, expect=text(["a", "b"], ["c", "#"]))
case("Tokenizer", X=text("abc DEF ghi"), tokenexp="[a-z]+", **PLAIN, expect=text(["abc", "ghi"]))
case("Tokenizer", X=text("a bb"), tokenexp="[a-z]+", **{**PLAIN, "mincharnum": 2}, expect=text(["bb"]))
# the longest match counts, wherever it stands among the alternatives
case("Tokenizer", X=text("abab"), tokenexp="a|ab", **PLAIN, expect=text(["ab", "ab"]))
case("Tokenizer", X=text("aab"), tokenexp="a?(ab)?", **PLAIN, expect=text(["aab"]))
case("Tokenizer", X=text("xaby"), separators=["a|ab"], **PLAIN, expect=text(["x", "y"]))
# nothing left
case("Tokenizer", X=text("  ", ""), separators=[" "], **PLAIN, expect=np.empty((2, 0), dtype=object))
case("Tokenizer", X=text("  ", ""), separators=[" "], **MARKED, expect=np.empty((2, 0), dtype=object))
case("Tokenizer", X=text("bb"), tokenexp="a", **PLAIN, expect=np.empty((1, 0), dtype=object))

BARE = {"mark": 0, "mincharnum": 1, "pad_value": "#", "domain": CONTRIB}
refuse("Tokenizer", X=text("a"), **BARE, match="one of the attributes separators and tokenexp")
refuse("Tokenizer", X=text("a"), **BARE, separators=["("], match="Invalid regex pattern")
refuse("Tokenizer", X=text("a"), **{**BARE, "mincharnum": 0}, separators=[" "], match="mincharnum must have a positive value")
refuse("Tokenizer", X=strings(1, 1, 1), **BARE, separators=[" "], match="X must have rank 1 or 2")


def test_an_input_without_elements_comes_out_as_it_is():
    from sardonyx.providers.cpu.contrib.text import tokenizer

    for shape in ((0,), (2, 0)):
        assert tokenizer(strings(*shape), split=str.split, mark=1, mincharnum=1, pad_value="#").shape == shape
