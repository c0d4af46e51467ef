"""Patterns of RE2 for the text kernels: RE2 itself where its package is installed (the extra `text`), else a matcher of ours.

Both take time in proportion to the text. Python's `re`, whose time may double with each character, gets patterns alone in which it has
nothing to go back to.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.regex_lockstep import in_lockstep
from sardonyx.providers.cpu.regex_machine import Machine
from sardonyx.providers.cpu.regex_sets import Ranges, contains
from sardonyx.providers.cpu.regex_syntax import Code, Jump, Split, Take, parse


class Matcher(Protocol):
    """What kernels ask of a pattern."""

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""

    def fullmatches(self, texts: Sequence[str]) -> np.ndarray:
        """The same of many texts."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The longest matches one after the other, from the left; empty ones are passed over."""

    def findall(self, text: str) -> list[str]:
        """What matches, instead of where."""

    def findall_with(self, other: str) -> Callable[[str], list[str]] | None:
        """What finds matches, and one more character wherever it stands; None where matches may hold that."""

    def split(self, text: str) -> list[str]:
        """What is between the matches."""


class _BySpans:
    """Lists of texts, by what one text and spans are."""

    def fullmatches(self, texts: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.fullmatch, texts), bool, len(texts))  # type: ignore[attr-defined]

    def findall(self, text: str) -> list[str]:
        return [text[first:last] for first, last in self.spans(text)]  # type: ignore[attr-defined]

    def findall_with(self, other: str) -> Callable[[str], list[str]] | None:
        return None

    def split(self, text: str) -> list[str]:
        pieces, start = [], 0
        for first, last in self.spans(text):  # type: ignore[attr-defined]
            pieces.append(text[start:first])
            start = last
        return [*pieces, text[start:]]


@functools.lru_cache(maxsize=256)
def matcher(pattern: str) -> Matcher:
    """A pattern, ready for texts; KernelError if RE2 would not take it."""
    package = _package()
    try:
        code = parse(pattern)
    except KernelError:
        if package is None:
            raise
        return _Re2(package, pattern, None)  # which knows more classes of characters
    plain = _plain(code)
    if plain is not None:
        return _Plain(plain, [one.characters for one in code if isinstance(one, Take)])
    machine = _Machine(code)
    return machine if package is None else _Re2(package, pattern, machine)


class _Machine(_BySpans, Machine):
    """A pattern in our own matcher."""

    def fullmatches(self, texts: Sequence[str]) -> np.ndarray:
        found = in_lockstep(self, texts)
        return super().fullmatches(texts) if found is None else found


def _package() -> Any:
    """RE2's package, None where it is not installed or another one has its name."""
    try:
        import re2
    except ImportError:
        return None
    return re2 if hasattr(re2, "Options") else None


def _plain(code: Code) -> re.Pattern[str] | None:
    """The pattern for Python's `re` if it is a row of characters, the last of which may be repeated: nothing to go back to."""
    row, tail = list(code), ""
    match code[-3:]:
        case [Split(1, 3), Take(characters), Jump(-2)]:
            row, tail = row[:-3], f"{_written(characters)}*"
    if not row or not all(isinstance(instruction, Take) and instruction.characters for instruction in row) or tail == "*":
        return None
    return re.compile("".join(_written(instruction.characters) for instruction in row if isinstance(instruction, Take)) + tail)


def _written(characters: Ranges) -> str:
    """A set in `re`'s brackets."""
    runs = "".join(f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}" for low, high in characters)
    return f"[{runs}]" if runs else ""


class _Plain(_BySpans):
    """A pattern in which Python's `re` finds the longest match at once, and never an empty one."""

    def __init__(self, compiled: re.Pattern[str], sets: Sequence[Ranges]):
        self._compiled = compiled
        self._sets = sets

    def findall(self, text: str) -> list[str]:
        return self._compiled.findall(text)

    def split(self, text: str) -> list[str]:
        return cast(list[str], self._compiled.split(text))

    def findall_with(self, other: str) -> Callable[[str], list[str]] | None:
        if any(contains(one, ord(other)) for one in self._sets):
            return None
        found = re.compile(f"{self._compiled.pattern}|{re.escape(other)}").findall
        words = self._words_with(other)
        return found if words is None else lambda text: words(text) if text.isascii() else found(text)

    def _words_with(self, other: str) -> Callable[[str], list[str]] | None:
        """The same in ASCII, for characters of one set, one and more: all others become blanks, at which is split."""
        first, *rest = self._sets
        blanks = [code for code in range(128) if chr(code).isspace()]
        if rest != [first] or any(contains(first, code) for code in blanks) or other.isspace():
            return None
        kept = [code for code in range(128) if contains(first, code) or code == ord(other)]
        table = "".join(chr(code) if code in kept else " " for code in range(128))
        return lambda text: text.replace(other, f" {other} ").translate(table).split()

    def fullmatch(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self._compiled.finditer(text))


class _Re2(_BySpans):
    """A pattern in RE2 itself. Spans are left to our matcher if that takes the pattern: RE2 looks ahead anew for each of them."""

    def __init__(self, package: Any, pattern: str, machine: Machine | None):
        options = package.Options()
        options.longest_match, options.never_capture, options.log_errors = True, True, False
        self._machine = machine
        try:
            self._compiled = package.compile(_writable(pattern), options)
        except package.error as error:
            reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
            raise KernelError(f"Invalid regex pattern: {pattern} ({reason})", InvalidArgument) from error

    def fullmatch(self, text: str) -> bool:
        return self._compiled.fullmatch(_writable(text)) is not None

    def fullmatches(self, texts: Sequence[str]) -> np.ndarray:
        whole = "".join(texts) if self._machine is not None else ""
        is_written = self._machine is not None and _writable(whole) is whole
        found = in_lockstep(self._machine, texts) if self._machine is not None and is_written else None
        return super().fullmatches(texts) if found is None else found

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        if self._machine is not None:
            return self._machine.spans(text)
        return (match.span() for match in self._compiled.finditer(_writable(text)) if match.end() > match.start())


def _writable(text: str) -> str:
    """A string as RE2 can read it: half a character (a lone surrogate), which UTF-8 does not have, becomes U+FFFD, as in RE2."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
