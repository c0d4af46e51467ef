"""String settings by key: what sessions and runs take besides their typed options. Unknown keys are kept, for they may be a provider's."""

from __future__ import annotations

import logging

from sardonyx.errors import InvalidArgument
from sardonyx.runtime import arguments, log

MAX_KEY_LENGTH = 1024
MAX_VALUE_LENGTH = 8192

logger = logging.getLogger("sardonyx.runtime")


class Configuration:
    """Entries of one options object; `owner` is its class's name in messages."""

    __slots__ = ("owner", "entries")

    def __init__(self, owner: str, entries: dict[str, str] | None = None):
        self.owner = owner
        self.entries = dict(entries or {})

    def add(self, function: str, key: object, value: object) -> None:
        key, value = arguments.text(key, function), arguments.text(value, function)
        if not 0 < len(key) <= MAX_KEY_LENGTH:
            raise RuntimeError(f"Config key is empty or longer than maximum length {MAX_KEY_LENGTH}")
        if len(value) > MAX_VALUE_LENGTH:
            raise RuntimeError(f"Config value is longer than maximum length: {MAX_VALUE_LENGTH}")
        if key in self.entries:
            with log.scope("Default", -1):
                logger.warning(
                    "Config with key [%s] has the value [%s] already. It will be overwritten", key, self.entries[key]
                )
        self.entries[key] = value

    def require(self, function: str, key: object) -> str:
        """The value of a key that must be there."""
        try:
            return self.entries[arguments.text(key, function)]
        except KeyError:
            raise RuntimeError(f"{self.owner} does not have configuration with key: {key}") from None

    def get(self, key: str, default: str = "") -> str:
        return self.entries.get(key, default)

    def size(self, key: str, default: int) -> int:
        """A setting that is a number of bytes."""
        given = self.entries.get(key)
        if given is None:
            return default
        if not (given.isascii() and given.isdecimal()):
            raise InvalidArgument(f"{key} must be a number of bytes, not {given!r}")
        return int(given)

    def is_on(self, key: str) -> bool:
        return self.entries.get(key) == "1"
