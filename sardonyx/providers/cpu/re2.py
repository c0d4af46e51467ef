"""RE2's patterns, which ONNX's RegexFullMatch is defined by, written as patterns of Python's `re`. The text kernels call this.

Only whether a whole text matches is asked, so groups need not capture and greediness does not matter. What RE2 has no notion of
(lookaround, backreferences, possessive repetition) is refused as RE2 does; scripts such as Greek in \\p{…} and the byte \\C are
refused too.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

from sardonyx.errors import InvalidArgument, KernelError

Ranges = list[tuple[int, int]]
"""A set of characters as code points, first and last of each run."""

MAX_REPEAT = 1000
"""RE2 refuses more."""

_REPEAT = r"[*+?]|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}"

_PERL: dict[str, Ranges] = {
    "d": [(48, 57)],
    "s": [(9, 10), (12, 13), (32, 32)],
    "w": [(48, 57), (65, 90), (95, 95), (97, 122)],
}
_POSIX: dict[str, Ranges] = {
    "alnum": [(48, 57), (65, 90), (97, 122)],
    "alpha": [(65, 90), (97, 122)],
    "ascii": [(0, 127)],
    "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 31), (127, 127)],
    "digit": [(48, 57)],
    "graph": [(33, 126)],
    "lower": [(97, 122)],
    "print": [(32, 126)],
    "punct": [(33, 47), (58, 64), (91, 96), (123, 126)],
    "space": [(9, 13), (32, 32)],
    "upper": [(65, 90)],
    "word": _PERL["w"],
    "xdigit": [(48, 57), (65, 70), (97, 102)],
}
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_CATEGORIES = re.compile("C[cfso]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")


def python_pattern(pattern: str) -> str:
    """The same pattern for `re`, to be used with `fullmatch`."""
    reader = _Reader(pattern)
    translated = _alternatives(reader, frozenset())
    if not reader.at_end:
        raise reader.refused("unexpected ')'")
    return translated


class _Reader:
    """A pattern and how far it has been read."""

    def __init__(self, pattern: str):
        self.pattern = pattern
        self.position = 0

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.pattern)

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def next(self) -> str:
        if self.at_end:
            raise self.refused("it ends too early")
        self.position += 1
        return self.pattern[self.position - 1]

    def take(self, expression: str) -> re.Match[str] | None:
        """What `expression` matches here, if it does."""
        found = re.compile(expression, re.DOTALL).match(self.pattern, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def refused(self, reason: str) -> KernelError:
        return KernelError(f"Invalid regex pattern: {self.pattern} ({reason})", InvalidArgument)


def _alternatives(reader: _Reader, outer: frozenset[str]) -> str:
    """Everything up to the bracket that closes the group, or to the end. `outer` are the flags that hold before it."""
    flags, segment = outer, ""
    translated: list[str] = []
    while not reader.at_end and reader.peek() != ")":
        if reader.take(r"\|"):
            translated += [_scoped(segment, flags, outer), "|"]
            segment = ""
        elif found := reader.take(r"\(\?([imsU]*)(?:-([imsU]+))?\)"):
            translated.append(_scoped(segment, flags, outer))
            flags, segment = _changed(flags, found), ""
        else:
            segment += _repeated(reader, flags)
    return "".join(translated) + _scoped(segment, flags, outer)


def _changed(flags: frozenset[str], found: re.Match[str]) -> frozenset[str]:
    return (flags | set(found[1])) - set(found[2] or "")


def _scoped(segment: str, flags: frozenset[str], outer: frozenset[str]) -> str:
    """Only ignoring case is left to `re`; the other flags have been worked into the segment."""
    if not segment or ("i" in flags) == ("i" in outer):
        return segment
    return f"(?i:{segment})" if "i" in flags else f"(?-i:{segment})"


def _repeated(reader: _Reader, flags: frozenset[str]) -> str:
    """An atom with what repeats it, which after quoted text is its last character only."""
    quoted = reader.take(r"\\Q(.*?)(?:\\E|$)")
    if (quoted and not quoted[1]) or (not quoted and reader.take(r"\\E")):
        return ""
    before, atom = (re.escape(quoted[1][:-1]), re.escape(quoted[1][-1])) if quoted else ("", _atom(reader, flags))
    found = reader.take(rf"({_REPEAT})\??")
    if found is None:
        return before + atom
    if any(int(count) > MAX_REPEAT for count in (found["least"], found["most"]) if count):
        raise reader.refused(f"invalid repetition size: {found[1]}")
    if reader.take(_REPEAT):
        raise reader.refused("bad repetition operator")
    return before + atom + found[1]


def _atom(reader: _Reader, flags: frozenset[str]) -> str:
    if reader.take(_REPEAT):
        raise reader.refused("missing argument to repetition operator")
    character = reader.next()
    match character:
        case "(":
            return _group(reader, flags)
        case "[":
            return _bracketed(reader)
        case ".":
            return _written([(0, sys.maxunicode)] if "s" in flags else _complement([(10, 10)]))
        case "^":
            return "(?m:^)" if "m" in flags else r"(?:\A)"
        case "$":
            return "(?m:$)" if "m" in flags else r"(?:\Z)"
        case "\\":
            return _escaped(reader)
    return re.escape(character)


def _group(reader: _Reader, flags: frozenset[str]) -> str:
    inside = flags
    if reader.peek() == "?":
        found = reader.take(r"\?([imsU]*)(?:-([imsU]+))?:")
        if found is not None:
            inside = _changed(flags, found)
        elif not reader.take(r"\?P?<\w+>"):
            raise reader.refused("invalid or unsupported Perl syntax after '('")
    content = _alternatives(reader, inside)
    if not reader.take(r"\)"):
        raise reader.refused("missing closing )")
    return _scoped(f"(?:{content})", inside, flags)


def _escaped(reader: _Reader) -> str:
    """What a backslash means outside of brackets."""
    if reader.take("A"):
        return r"(?:\A)"
    if reader.take("z"):
        return r"(?:\Z)"
    if found := reader.take("[bB]"):
        return rf"(?a:\{found[0]})"
    characters = _class_escape(reader)
    if characters is None:
        return re.escape(chr(_character_escape(reader)))
    # these sets are complete already: folding would let K into \W, because the Kelvin sign is there
    return f"(?-i:{_written(characters)})"


def _class_escape(reader: _Reader) -> Ranges | None:
    """\\d, \\pN and their like; the backslash has been read."""
    if found := reader.take("[dswDSW]"):
        characters = _PERL[found[0].lower()]
        return characters if found[0].islower() else _complement(characters)
    if found := reader.take(r"([pP])(?:\{(\^?)(\w+)\}|(\w))"):
        name = found[3] or found[4]
        if name != "Any" and not _CATEGORIES.fullmatch(name):
            raise reader.refused(f"invalid or unsupported character class range: \\{found[0]}")
        characters = [(0, sys.maxunicode)] if name == "Any" else _category(name)
        return _complement(characters) if (found[1] == "P") != bool(found[2]) else characters
    return None


def _character_escape(reader: _Reader) -> int:
    """The code point that an escape stands for; the backslash has been read."""
    if found := reader.take(r"x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))"):
        code = int(found[1] or found[2], 16)
        if code > sys.maxunicode:
            raise reader.refused(f"invalid escape sequence: \\{found[0]}")
        return code
    if found := reader.take("0[0-7]{0,2}|[1-7][0-7]{1,2}"):
        return int(found[0], 8)
    character = reader.next()
    if character in _CONTROLS:
        return _CONTROLS[character]
    if character.isalnum() or character == "_":
        raise reader.refused(f"invalid escape sequence: \\{character}")
    return ord(character)


def _bracketed(reader: _Reader) -> str:
    """A set of characters; its opening bracket has been read."""
    negated = reader.take(r"\^") is not None
    characters: Ranges = []
    first = True
    while first or reader.peek() != "]":
        first = False
        characters += _set_item(reader)
    reader.next()
    return _written(characters, negated)


def _set_item(reader: _Reader) -> Ranges:
    if found := reader.take(r"\[:(\^?)(\w+):\]"):
        if found[2] not in _POSIX:
            raise reader.refused(f"invalid character class range: {found[0]}")
        return _complement(_POSIX[found[2]]) if found[1] else _POSIX[found[2]]
    if reader.take(r"\\(?=[dswDSWpP])"):
        characters = _class_escape(reader)
        if characters is None:
            raise reader.refused("invalid character class")
        return characters
    low = _set_character(reader)
    if not reader.take(r"-(?!\])"):
        return [(low, low)]
    high = _set_character(reader)
    if high < low:
        raise reader.refused(f"invalid character class range: {chr(low)}-{chr(high)}")
    return [(low, high)]


def _set_character(reader: _Reader) -> int:
    character = reader.next()
    return _character_escape(reader) if character == "\\" else ord(character)


def _complement(characters: Ranges) -> Ranges:
    ends = [-1, *(high for _, high in characters)]
    starts = [*(low for low, _ in characters), sys.maxunicode + 1]
    return [(end + 1, start - 1) for end, start in zip(ends, starts, strict=True) if end + 1 < start]


@functools.cache
def _category(name: str) -> Ranges:
    """All characters of a Unicode category, or of all those that begin with a letter."""
    runs: Ranges = []
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category.startswith(name) and category != "Cn":
            if runs and runs[-1][1] == code - 1:
                runs[-1] = (runs[-1][0], code)
            else:
                runs.append((code, code))
    return runs


def _written(characters: Ranges, negated: bool = False) -> str:
    """A set in `re`'s brackets."""
    if not characters:
        return _written([(0, sys.maxunicode)], negated=not negated)
    runs = "".join(f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}" for low, high in characters)
    return f"[{'^' if negated else ''}{runs}]"
