"""Patterns of RE2 for the text kernels: RE2 itself where its package is installed (the extra `text`), else a matcher of ours.

Both take time in proportion to the text. Python's `re`, whose time may double with each character, gets patterns alone in which it has
nothing to go back to.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Protocol

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.regex_machine import Machine
from sardonyx.providers.cpu.regex_sets import Ranges
from sardonyx.providers.cpu.regex_syntax import Code, Jump, Split, Take, parse


class Matcher(Protocol):
    """What kernels ask of a pattern."""

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The longest matches one after the other, from the left; empty ones are passed over."""


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
        return _Plain(plain)
    machine = Machine(code)
    return machine if package is None else _Re2(package, pattern, machine)


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


class _Plain:
    """A pattern in which Python's `re` finds the longest match at once."""

    def __init__(self, compiled: re.Pattern[str]):
        self._compiled = compiled

    def fullmatch(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self._compiled.finditer(text))


class _Re2:
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
