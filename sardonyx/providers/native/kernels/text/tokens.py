"""How texts become tokens in native code: what nodes say of them, and the loop over the tokens of a text."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import numpy as np

from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.text_code import word_at
from sardonyx.compiler.types import I8, I64, U64
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.cpu.regex_sets import Ranges, union
from sardonyx.providers.native.kernels.text.automaton import (
    Automaton,
    AutomatonArguments,
    between,
    character_at,
    longest_match,
    other_than,
    tables_of,
    token_pattern,
)
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import Dims
from sardonyx.startup.records import dataclass

LETTERS, PATTERN, DELIMITER = "letters", "pattern", "delimiter"
WORD = 8
"""A delimiter has no more bytes."""


@dataclass(frozen=True)
class Tokens:
    """What shapes the code that finds tokens."""

    kind: str
    """Each character is one, an automaton finds them, or they are between delimiters; those may be empty."""
    least: int = 1
    """How many characters a token has at least."""


class TokenArguments(Arguments):
    automaton: AutomatonArguments | None = when(lambda tokens: tokens is not None and tokens.kind == PATTERN)
    delimiter: Pointer | None = when(lambda tokens: tokens is not None and tokens.kind == DELIMITER)
    """Its bytes, as a word."""
    delimiter_length: Size | None = when(lambda tokens: tokens is not None and tokens.kind == DELIMITER)


Found = tuple[Tokens, Automaton | bytes | None]
"""How tokens are found, and by which automaton or delimiter."""


def tokens_of(node: Node) -> Found | None:
    """How a Tokenizer finds its tokens; None where NumPy has to, or to say what is wrong."""
    attributes = all_attributes(node)
    separators, pattern, least = attributes.get("separators"), attributes.get("tokenexp"), attributes["mincharnum"]
    if least < 1:
        return None
    if pattern == "." or (separators is not None and list(separators) == [""]):
        return (Tokens(LETTERS), None) if least == 1 else None
    automaton = token_pattern(pattern) if pattern else between(tuple(separators or ())) if separators else None
    return None if automaton is None else (Tokens(PATTERN, least), automaton)


def parts_of(node: Node) -> Found | None:
    """How a StringSplit finds its parts; None where NumPy has to."""
    attributes = all_attributes(node)
    delimiter, limit = attributes.get("delimiter") or "", attributes.get("maxsplit")
    if (limit is not None and limit >= 0) or not isinstance(delimiter, str):
        return None
    delimiter = delimiter.encode("utf-8", "surrogatepass")
    if len(delimiter) > WORD:
        return None
    if delimiter:
        return Tokens(DELIMITER), delimiter
    automaton = other_than(_blanks())
    return None if automaton is None else (Tokens(PATTERN), automaton)


@functools.cache
def _blanks() -> Ranges:
    """The characters at which Python splits."""
    blanks = (code for code in range(0x3001) if chr(code).isspace())
    assert sys.maxunicode > 0x3000  # none is behind the wide one
    return union((code, code) for code in blanks)


def token_arguments(lowerer: Lowerer, found: Found | None) -> TokenArguments:
    """What the loop over tokens is given."""
    by = None if found is None else found[1]
    return TokenArguments(
        automaton=tables_of(lowerer, by) if isinstance(by, Automaton) else None,
        delimiter=lowerer.table(np.frombuffer(by.ljust(WORD, b"\0"), np.int64)) if isinstance(by, bytes) else None,
        delimiter_length=len(by) if isinstance(by, bytes) else None,
    )


def require_some(lowerer: Lowerer, shape: Dims) -> None:
    """Leave to NumPy a Tokenizer without texts, whose result has another rank."""
    count = dim.product(shape)
    lowerer.require(dim.maximum(count, 1), count)


Emit = Callable[[Value, Value], None]
"""Emits code for a token: where it begins, counted from the text's beginning, and how many bytes it has."""


def each_token(f: Function, place: Value, length: Value, tokens: Tokens, a: TokenArguments, emit: Emit) -> None:
    """Emit code for each token of a text."""
    if tokens.kind == DELIMITER:
        _each_part(f, place, length, a, emit)
        return
    start = f.variable(0, I64)
    with f.while_() as texts:
        texts.leave_if(start.get() >= length)
        if a.automaton is None:
            _, size = character_at(f, f.address(place, start.get(), I8))
            emit(start.get(), size)
            start.set(start.get() + size)
        else:
            end, count, second = longest_match(f, place, start.get(), length, a.automaton)
            with f.if_((count >= tokens.least) & (end > start.get())):
                emit(start.get(), end - start.get())
            start.set(f.maximum(end, second))


def _each_part(f: Function, place: Value, length: Value, a: TokenArguments, emit: Emit) -> None:
    """What is between delimiters. An empty text has no parts."""
    assert a.delimiter is not None and a.delimiter_length is not None
    start, at, wanted = f.variable(0, I64), f.variable(0, I64), f.load(a.delimiter, 0, U64)
    with f.while_() as parts:
        parts.leave_if((length == 0) | (start.get() > length))
        with f.while_() as search:
            search.leave_if(at.get() + a.delimiter_length > length)
            search.leave_if(word_at(f, place, at.get(), at.get() + a.delimiter_length) == wanted)
            at.set(at.get() + 1)
        is_last = at.get() + a.delimiter_length > length
        emit(start.get(), f.select(is_last, length, at.get()) - start.get())
        at.set(at.get() + a.delimiter_length)
        start.set(f.select(is_last, length + 1, at.get()))
