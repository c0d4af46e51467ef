"""The strings of a program: which of its inputs and outputs are strings, and its constants, to which lowerings ask for references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sardonyx.compiler.texts import LENGTH_BITS, LONGEST, PLACE, reference
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass


def utf8_of(text: str) -> bytes:
    """The bytes of a constant string. A damaged model may have bytes in its place, which are no string."""
    try:
        return text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise CannotCompile(f"{text!r} cannot be written in UTF-8", quiet=True) from None


class TextConstants:
    """Strings by their references, whose bytes come first in the memory of each run. The first is the empty one, its reference is 0."""

    def __init__(self) -> None:
        self._references: dict[str, int] = {"": 0}
        self._bytes = bytearray(PLACE)

    def reference(self, text: str) -> int:
        """The reference to a string, whose bytes are added if they are new."""
        if text not in self._references:
            encoded = utf8_of(text)
            if len(encoded) > LONGEST:
                raise CannotCompile(f"a string has more than {LONGEST} bytes", quiet=True)
            self._references[text] = reference(len(self._bytes), len(encoded))
            self._bytes += encoded + bytes(-len(encoded) % PLACE)
        return self._references[text]

    def references(self, texts: Iterable[str]) -> np.ndarray:
        return np.fromiter(map(self.reference, texts), np.int64)

    @property
    def added(self) -> list[str]:
        """The strings behind the empty one; whoever adds them in this order gets the same references."""
        return list(self._references)[1:]

    @property
    def bytes(self) -> bytes:
        """What the memory of a run begins with."""
        return bytes(self._bytes)

    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """For each place at which a string may begin: the reference to the one that does, and the string; -1 and None where none does."""
        count = len(self._bytes) // PLACE
        references, objects = np.full(count, -1, np.int64), np.full(count, None, object)
        for text, number in self._references.items():
            place = (number >> LENGTH_BITS) // PLACE
            references[place], objects[place] = number, text
        return references, objects


@dataclass(frozen=True)
class ProgramTexts:
    """What a program has to do with strings."""

    constants: TextConstants
    inputs: Sequence[int]
    """Which inputs are strings."""
    outputs: Sequence[int]
    """Which outputs are strings. A program makes references to them."""
