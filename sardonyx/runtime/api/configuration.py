"""String settings by key: what sessions and runs take besides their typed options, and the refusal of misspelt ones.

Unknown keys are kept, for they may be onnxruntime's or a provider's; but what begins like our own must be declared in `settings`, with
its value.
"""

from __future__ import annotations

import logging

from sardonyx import settings
from sardonyx.errors import InvalidArgument
from sardonyx.runtime.api import arguments, log
from sardonyx.settings import Setting

MAX_KEY_LENGTH = 1024
MAX_VALUE_LENGTH = 8192
TABLES = {"SessionOptions": settings.SESSION, "RunOptions": settings.RUN}

logger = logging.getLogger("sardonyx.runtime")


class Configuration:
    """Entries of one options object; `owner` is its class's name."""

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
        if key.startswith(settings.PREFIX) or key in settings.OURS:
            self._refuse_unknown(key, value)
        if key in self.entries:
            with log.scope("Default", -1):
                logger.warning(
                    "Config with key [%s] has the value [%s] already. It will be overwritten", key, self.entries[key]
                )
        self.entries[key] = value

    def _refuse_unknown(self, key: str, value: str) -> None:
        table = TABLES[self.owner]
        if key not in table:
            ours = {name: setting for name, setting in table.items() if name in settings.OURS}
            raise InvalidArgument(settings.refusal(self.owner, "config key", key, ours))
        setting = table[key]
        if not setting.takes(value):
            raise InvalidArgument(setting.complaint(value))

    def require(self, function: str, key: object) -> str:
        """The value of a key that must be there."""
        try:
            return self.entries[arguments.text(key, function)]
        except KeyError:
            raise RuntimeError(f"{self.owner} does not have configuration with key: {key}") from None

    def get(self, key: Setting) -> str:
        return self.entries.get(key, key.default)

    def size(self, key: Setting) -> int:
        """A setting that is a number of bytes."""
        value = self.entries.get(key, key.default)
        if not (value.isascii() and value.isdecimal()):
            raise InvalidArgument(f"{key} must be a number of bytes, not {value!r}")
        return int(value)

    def is_on(self, key: Setting) -> bool:
        return self.entries.get(key, key.default) == "1"
