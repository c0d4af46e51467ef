"""RE2's patterns, which ONNX's RegexFullMatch is defined by, as programs for the matcher in `regex_machine.py`.

A program is a list of instructions whose jumps are relative, so pieces are put together, and repeated, by writing one behind the other.
Nothing captures and greediness does not matter: only whether a text matches is asked, or how far. What RE2 has no notion of
(lookaround, backreferences, possessive repetition) is refused as RE2 does; scripts such as Greek in \\p{…} and the byte \\C are refused
too.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu import regex_sets
from sardonyx.providers.cpu.regex_sets import Ranges
from sardonyx.startup.records import dataclass, field

MAX_REPEAT = 1000
"""RE2 refuses more, the product of repetitions inside each other included."""
MAX_DEPTH = 1000
"""How deep groups may be inside each other."""
MAX_PROGRAM = 100_000
"""How many instructions a pattern may become."""


class Place(enum.Enum):
    """What is asked of a place between two characters."""

    TEXT_START = "\\A"
    TEXT_END = "\\z"
    LINE_START = "(?m)^"
    LINE_END = "(?m)$"
    BOUNDARY = "\\b"
    NO_BOUNDARY = "\\B"


class Take(NamedTuple):
    """Takes a character out of a set."""

    characters: Ranges


class Split(NamedTuple):
    """Goes on at two places."""

    first: int
    second: int


class Jump(NamedTuple):
    """Goes on elsewhere."""

    by: int


class Assert(NamedTuple):
    """Goes on where something holds of the place."""

    place: Place


Code = Sequence[Take | Split | Jump | Assert]

_REPEAT = re.compile(r"[*+?]|\{(?P<least>[0-9]+)(?:,(?P<most>[0-9]*))?\}")
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_GROUP = re.compile(r"\((?:\?P?<\w+>)?(?!\?)")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_CLASS = re.compile(r"\\(?:([dswDSW])|([pP])(?:\{(\^?)(\w+)\}|(\w)))")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_NUMBER = re.compile(r"\\(?:x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))|(0[0-7]{0,2}|[1-7][0-7]{1,2}))")
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_PLACES = {"A": Place.TEXT_START, "z": Place.TEXT_END, "b": Place.BOUNDARY, "B": Place.NO_BOUNDARY}


class _Piece(NamedTuple):
    """What can be repeated, and how often its innermost parts are repeated by numbers already."""

    code: Code
    weight: int = 1


@dataclass
class _Group:
    """A group that is open, or the whole pattern."""

    flags: frozenset[str]
    alternatives: list[list[_Piece]] = field(default_factory=lambda: [[]])

    def close(self) -> _Piece:
        """The group as one piece."""
        codes = [[instruction for piece in pieces for instruction in piece.code] for pieces in self.alternatives]
        return _Piece(_either(codes), max((piece.weight for pieces in self.alternatives for piece in pieces), default=1))


def parse(pattern: str) -> Code:
    """The program of a pattern; KernelError if RE2 has no such pattern."""
    return _Parser(pattern).parse()


class _Parser:
    def __init__(self, pattern: str):
        self.pattern = pattern
        self.at = 0
        self.flags: frozenset[str] = frozenset()
        self.groups = [_Group(self.flags)]

    def parse(self) -> Code:
        while self.at < len(self.pattern):
            self._next()
        if len(self.groups) > 1:
            raise self.refused("missing closing )")
        return self._checked(self.groups[0].close()).code

    def refused(self, reason: str) -> KernelError:
        return KernelError(f"Invalid regex pattern: {self.pattern} ({reason})", InvalidArgument)

    def _take(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """What `expression` matches here, if it does."""
        match = expression.match(self.pattern, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def _character(self) -> str:
        if self.at >= len(self.pattern):
            raise self.refused("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    @property
    def _pieces(self) -> list[_Piece]:
        return self.groups[-1].alternatives[-1]

    def _add(self, *code: Take | Assert) -> None:
        self._pieces.append(_Piece(code))

    # --- outside of brackets

    def _next(self) -> None:
        if match := self._take(_FLAGS):
            self._change_flags(match)
        elif match := self._take(_REPEAT):
            self._repeat(match)
        elif match := self._take(_QUOTED):
            for character in match[1]:
                self._literal(ord(character))
        elif self.pattern[self.at] == "\\":
            self._escape()
        else:
            self._plain()

    def _plain(self) -> None:
        character = self.pattern[self.at]
        match character:
            case "(":
                if not self._take(_GROUP):
                    raise self.refused("invalid or unsupported Perl syntax after '('")
                self._open(self.flags)
                return
            case ")":
                self._close()
            case "|":
                self.groups[-1].alternatives.append([])
            case "[":
                self.at += 1
                self._add(Take(self._bracketed()))
                return
            case ".":
                self._add(Take(regex_sets.ALL if "s" in self.flags else regex_sets.complement(((10, 10),))))
            case "^":
                self._add(Assert(Place.LINE_START if "m" in self.flags else Place.TEXT_START))
            case "$":
                self._add(Assert(Place.LINE_END if "m" in self.flags else Place.TEXT_END))
            case _:
                self._literal(ord(character))
        self.at += 1

    def _literal(self, code: int) -> None:
        self._add(Take(self._folded(((code, code),))))

    def _folded(self, characters: Ranges) -> Ranges:
        return regex_sets.folded(characters) if "i" in self.flags else characters

    def _change_flags(self, match: re.Match[str]) -> None:
        flags = (self.flags | set(match[1])) - set(match[2] or "")
        if match[3] == ":":
            self._open(flags)
        else:
            self.flags = flags

    def _open(self, flags: frozenset[str]) -> None:
        if len(self.groups) > MAX_DEPTH:
            raise self.refused(f"groups are nested deeper than {MAX_DEPTH}")
        self.groups.append(_Group(self.flags))
        self.flags = flags

    def _close(self) -> None:
        if len(self.groups) == 1:
            raise self.refused("unexpected ')'")
        group = self.groups.pop()
        self.flags = group.flags
        self._pieces.append(self._checked(group.close()))

    def _repeat(self, match: re.Match[str]) -> None:
        if not self._pieces:
            raise self.refused(f"missing argument to repetition operator: {match[0]}")
        if self.pattern.startswith("?", self.at):
            self.at += 1  # greediness
        if _REPEAT.match(self.pattern, self.at):
            raise self.refused("bad repetition operator")
        code, weight = self._pieces.pop()
        least, most = self._bounds(match)
        times = max(least, most or 0)
        if max(times, weight, times * weight) > MAX_REPEAT or (most is not None and least > most):
            raise self.refused(f"invalid repetition size: {match[0]}")
        if (len(code) + 1) * max(times, 1) > MAX_PROGRAM:
            raise self.refused("pattern too large")
        is_counted = match["least"] is not None and times > 0
        self._pieces.append(_Piece(_repeated(code, least, most), weight * times if is_counted else weight))

    def _bounds(self, match: re.Match[str]) -> tuple[int, int | None]:
        if match["least"] is None:
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[match[0]]
        if (
            max(len(match["least"]), len(match["most"] or "")) > len(str(MAX_REPEAT)) + 8
        ):  # int() takes long for millions of digits
            raise self.refused("invalid repetition size")
        least = int(match["least"])
        return least, least if match["most"] is None else int(match["most"]) if match["most"] else None

    def _checked(self, piece: _Piece) -> _Piece:
        if len(piece.code) > MAX_PROGRAM:
            raise self.refused("pattern too large")
        return piece

    # --- escapes

    def _escape(self) -> None:
        place = _PLACES.get(self.pattern[self.at + 1 : self.at + 2])
        if place is not None:
            self.at += 2
            self._add(Assert(place))
            return
        characters = self._class()
        if characters is not None:
            self._add(Take(characters))
        else:
            self._literal(self._escaped())

    def _class(self) -> Ranges | None:
        """\\d, \\pN and their like, if one stands here."""
        match = self._take(_CLASS)
        if match is None:
            return None
        perl, unicode, inverse = match[1], match[2], match[3]
        name = match[4] or match[5]
        characters = regex_sets.PERL[perl.lower()] if perl else regex_sets.category(name)
        if characters is None:
            raise self.refused(f"invalid or unsupported character class range: {match[0]}")
        is_negated = perl.isupper() if perl else (unicode == "P") != bool(inverse)
        return self._signed(characters, is_negated)

    def _signed(self, characters: Ranges, is_negated: bool) -> Ranges:
        characters = self._folded(characters)  # before: a character is outside if none of its cases is inside
        return regex_sets.complement(characters) if is_negated else characters

    def _escaped(self) -> int:
        """The code point that an escape stands for."""
        if match := self._take(_NUMBER):
            digits = (match[1] or match[2] or "").lstrip("0")
            code = int(match[3], 8) if match[3] else int(digits[:8] or "0", 16)
            if code > sys.maxunicode:
                raise self.refused(f"invalid escape sequence: {match[0]}")
            return code
        self._character()
        character = self._character()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum() or not character.isascii():
            raise self.refused(f"invalid escape sequence: \\{character}")
        return ord(character)

    # --- brackets

    def _bracketed(self) -> Ranges:
        """A set of characters; its opening bracket has been read."""
        is_negated = self.pattern.startswith("^", self.at)
        self.at += is_negated
        first, runs = self.at, list[tuple[int, int]]()
        while self.at == first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise self.refused("missing closing ]")
            runs += self._set_item()
        self.at += 1
        characters = regex_sets.union(runs)
        return regex_sets.complement(characters) if is_negated else characters

    def _set_item(self) -> Ranges:
        if match := self._take(_POSIX_CLASS):
            if match[2] not in regex_sets.POSIX:
                raise self.refused(f"invalid character class range: {match[0]}")
            return self._signed(regex_sets.POSIX[match[2]], bool(match[1]))
        characters = self._class()
        if characters is not None:
            return characters
        low = high = self._set_character()
        if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
            self.at += 1
            high = self._set_character()
        if high < low:
            raise self.refused(f"invalid character class range: {chr(low)}-{chr(high)}")
        return self._folded(((low, high),))

    def _set_character(self) -> int:
        return self._escaped() if self.pattern.startswith("\\", self.at) else ord(self._character())


# --- pieces of programs


def _either(codes: Sequence[Code]) -> Code:
    """Programs of which one or the other is run."""
    lengths = [len(codes[-1])]
    for code in reversed(codes[:-1]):
        lengths.append(lengths[-1] + len(code) + 2)
    result: list[Take | Split | Jump | Assert] = []
    for code, rest in zip(codes[:-1], lengths[-2::-1]):
        result += [Split(1, len(code) + 2), *code, Jump(rest + 1)]
    return [*result, *codes[-1]]


def _repeated(code: Code, least: int, most: int | None) -> Code:
    """A program so many times, at most None meaning as often as there is something."""
    size = len(code)
    if most is None:
        endless = [Split(1, size + 2), *code, Jump(-size - 1)]
        return [*list(code) * least, *endless]
    optional: list[Take | Split | Jump | Assert] = []
    for number in range(most - least, 0, -1):
        optional += [Split(1, number * (size + 1)), *code]
    return [*list(code) * least, *optional]
