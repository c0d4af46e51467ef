"""StringNormalizer: strings in another case. Letters that become several, or depend on those around them, are left to NumPy."""

from __future__ import annotations

import functools
import re

import numpy as np

from sardonyx.compiler.builder import Function, Value, Variable
from sardonyx.compiler.text_code import bytes_of, length_of, reference_to, word_at
from sardonyx.compiler.texts import LONGEST
from sardonyx.compiler.types import I8, I32, I64, U8, U64
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.text.automaton import character_at
from sardonyx.providers.native.kernels.text.bytes import base_of, reserve
from sardonyx.providers.native.program.arguments import Arguments, Pointer
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.settled import WRONG
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, required

FIRST_LETTERS, WIDE_LETTERS = range(0x2E00), range(0xFE00, 0x10000)
"""Characters that stand in tables: most alphabets, and the wide forms of Latin letters."""
OTHER_LETTERS = range(0xA640, 0xAC00), range(0xFB00, 0xFE00), range(0x10000, 0x1F000)
"""Others that may have two cases. All that are in no range have one."""
UNKNOWN = -1
SIGMA = "Σ"
"""Its lower case is another one at the end of a word."""
GRAIN = 64
BEHIND = 8
"""Bytes that may be written behind a string."""
EACH = 0x0101010101010101
"""A word with 1 in each byte."""


@functools.cache
def _changed(action: str) -> np.ndarray:
    """What becomes of the characters in the tables; UNKNOWN for those that become several, or depend on others."""
    change = str.lower if action == "LOWER" else str.upper
    characters = map(chr, (*FIRST_LETTERS, *WIDE_LETTERS))
    changed = [ord(text) if len(text) == 1 else UNKNOWN for text in map(change, characters)]
    if action == "LOWER":
        changed[ord(SIGMA)] = UNKNOWN
    return np.array(changed, np.int32)


class CaseArguments(Arguments):
    texts: Pointer
    source: Pointer
    target: Pointer
    changed: Pointer
    status: Pointer


@kernel("change case", CaseArguments)
def case_kernel(f: KernelFunction, a: CaseArguments, first: int, last: int) -> None:
    """Items are strings. `first` and `last` are the letters of ASCII that change."""
    base, total = base_of(f, a.texts), f.variable(BEHIND, I64)
    with f.loop(f.begin, f.end) as item:
        size = _size(f, base, f.load(a.source, item, I64), a)
        total.set(total.get() + size)
        with f.if_(size > LONGEST):
            f.store(WRONG, a.status, 0, I64)
    place = f.variable(0, I64)
    with reserve(f, a.texts, a.status, total.get(), place), f.loop(f.begin, f.end) as item:
        text = f.load(a.source, item, I64)
        source, length, start = bytes_of(f, base, text), length_of(f, text), place.get()
        with f.if_else(_is_ascii(f, source, length)) as otherwise:
            with f.loop(0, length, 8) as done:
                word = word_at(f, source, done, length)
                f.store(_swapped(f, word, first, last), f.address(base, start + done, I8), 0, U64, align=1)
            place.set(start + length)
            otherwise()
            _write(f, source, length, base, place, a)
        f.store(reference_to(start, place.get() - start), a.target, item, I64)


def _is_ascii(f: Function, source: Value, length: Value) -> Value:
    seen = f.variable(0, U64)
    with f.loop(0, length, 8) as done:
        seen.set(seen.get() | word_at(f, source, done, length))
    return seen.get() & (EACH * 0x80) == 0


def _swapped(f: Function, word: Value, first: int, last: int) -> Value:
    """Eight characters of ASCII, with letters in the other case."""
    is_beyond, is_letter = word + EACH * (0x7F - last), word + EACH * (0x80 - first)
    return word ^ (((is_letter ^ is_beyond) & (EACH * 0x80)) >> 2)


def _size(f: Function, base: Value, text: Value, a: CaseArguments) -> Value:
    """How many bytes a string will have."""
    source, length = bytes_of(f, base, text), length_of(f, text)
    size = f.variable(length)
    with f.if_(f.compare("eq", _is_ascii(f, source, length), False)):
        size.set(0)
        done = f.variable(0, I64)
        with f.while_() as characters:
            characters.leave_if(done.get() >= length)
            code, read = character_at(f, f.address(source, done.get(), I8))
            changed = _change(f, code, a)
            with f.if_(changed < 0):
                f.store(WRONG, a.status, 0, I64)
            size.set(size.get() + _width(f, changed))
            done.set(done.get() + read)
    return size.get()


def _change(f: Function, code: Value, a: CaseArguments) -> Value:
    """What becomes of a character, below 0 where only NumPy knows."""
    changed = f.variable(code)
    with f.if_(code < FIRST_LETTERS.stop):
        changed.set(f.convert(f.load(a.changed, code, I32), I64))
    with f.if_((code >= WIDE_LETTERS.start) & (code < WIDE_LETTERS.stop)):
        changed.set(f.convert(f.load(a.changed, code - WIDE_LETTERS.start + FIRST_LETTERS.stop, I32), I64))
    for letters in OTHER_LETTERS:
        with f.if_((code >= letters.start) & (code < letters.stop)):
            changed.set(UNKNOWN)
    return changed.get()


def _width(f: Function, code: Value) -> Value:
    """Bytes of a character in UTF-8."""
    wide = f.select(code < 0x10000, f.const(I64, 3), f.const(I64, 4))
    return f.select(code < 0x80, f.const(I64, 1), f.select(code < 0x800, f.const(I64, 2), wide))


def _write(f: Function, source: Value, length: Value, base: Value, place: Variable, a: CaseArguments) -> None:
    """Write a string that is not ASCII, and let `place` be where it ends."""
    done = f.variable(0, I64)
    with f.while_() as characters:
        characters.leave_if(done.get() >= length)
        code, read = character_at(f, f.address(source, done.get(), I8))
        changed = _change(f, code, a)
        width = _width(f, changed)
        _encode(f, changed, width, f.address(base, place.get(), I8))
        place.set(place.get() + width)
        done.set(done.get() + read)


def _encode(f: Function, code: Value, width: Value, target: Value) -> None:
    """Write a character of so many bytes."""
    for size, mark in ((1, 0), (2, 0xC0), (3, 0xE0), (4, 0xF0)):
        with f.if_(width == size):
            for place in range(size):
                bits = code >> (6 * (size - 1 - place))
                byte = bits | mark if place == 0 else (bits & 0x3F) | 0x80
                f.store(f.convert(byte, U8), target, place, U8)


def _action(node: Node) -> str | None:
    """What becomes of the letters; None where NumPy has to do it."""
    attributes = all_attributes(node)
    shape = dims(required(node.inputs[0]))
    is_turkish = re.split("[_.@-]", attributes.get("locale", "en_US").lower())[0] in ("tr", "az")
    if attributes.get("stopwords") or is_turkish or len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        return None
    return attributes["case_change_action"] if attributes["case_change_action"] in ("NONE", "LOWER", "UPPER") else None


@lower("StringNormalizer", text=True, claims=lambda node: _action(node) is not None)
def string_normalizer(lowerer: Lowerer, node: Node) -> None:
    """Strings in another case. Where there are none, there is an empty one, which NumPy makes."""
    source, action = lowerer.contiguous(required(node.inputs[0])), _action(node)
    lowerer.require(source.shape[-1], dims(node.outputs[0])[-1])
    if action == "NONE":
        lowerer.set_view(node.outputs[0], source)
        return
    assert action is not None
    target, count = lowerer.output(node.outputs[0]), dim.product(source.shape)
    arguments = CaseArguments(
        texts=lowerer.text_memory(),
        source=source.place,
        target=target.place,
        changed=lowerer.table(_changed(action)),
        status=lowerer.status(),
    )
    letters = ("A", "Z") if action == "LOWER" else ("a", "z")
    lowerer.call(case_kernel(lowerer.target, *map(ord, letters)), arguments, count, GRAIN)
