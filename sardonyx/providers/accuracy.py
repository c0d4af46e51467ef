"""How exact sums must be: the provider option and session setting by which users choose. Who has fast algorithms asks before taking one."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from sardonyx.errors import InvalidArgument
from sardonyx.settings import CPU_ACCURACY


class Accuracy(enum.IntEnum):
    """Each level may use what the ones before it use."""

    EXACT = 0
    """Sums as the standard writes them down."""
    DEFAULT = 1
    """Also algorithms whose errors keep within a fixed small multiple of the direct sum's."""
    FAST = 2
    """Also algorithms whose errors depend on the ranges of channels and filters."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Accuracy:
        """What a provider's options say."""
        return cls.read(CPU_ACCURACY.of(options), CPU_ACCURACY)

    @classmethod
    def read(cls, text: str, key: str) -> Accuracy:
        """The level of a name; `key` is where it was given."""
        names = {str(level): level for level in cls}
        if text not in names:
            raise InvalidArgument(f"{key} must be one of {', '.join(names)}, not {text!r}")
        return names[text]

    def __str__(self) -> str:
        return self.name.lower()
