"""Messages: Python's logging with the severities and the line format that onnxruntime's users know.

Everything of ours logs below the logger "sardonyx". Records go to the handlers of the application if it has any on the root logger or on
ours; otherwise a handler writes them to stderr as `date time [W:onnxruntime:logid, file:line function] text`, in colour on a terminal.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
import time
from collections.abc import Iterator

from sardonyx.runtime.api import arguments
from sardonyx.startup.locks import Lock
from sardonyx.startup.records import dataclass

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Python's level of each severity: verbose, info, warning, error, fatal."""
_LETTERS = dict(zip(LEVELS, "VIWEF", strict=True))
_COLOURS = {logging.WARNING: "\x1b[0;93m", logging.ERROR: "\x1b[1;31m", logging.CRITICAL: "\x1b[1;31m"}

root = logging.getLogger("sardonyx")


@dataclass(frozen=True)
class Scope:
    """The name and the severity of a session's messages."""

    logid: str
    severity: int


_default = Scope("Default", 2)
_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("sardonyx_log_scope", default=None)
_lock = Lock()


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        scope = _scope.get() or _default
        seconds, nanoseconds = divmod(int(record.created * 1e9), 10**9)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        letter = _LETTERS.get(record.levelno, "I")
        place = f"{record.filename}:{record.lineno} {record.funcName}"
        return f"{when}.{nanoseconds:09d} [{letter}:onnxruntime:{scope.logid}, {place}] {record.getMessage()}"


class _Stderr(logging.Handler):
    """Writes to whatever stderr is at the moment, if the application has no handlers of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or record.levelno < LEVELS[(_scope.get() or _default).severity]:
            return
        line = self.format(record)
        colour = _COLOURS.get(record.levelno, "") if _is_terminal() else ""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a closed or missing stderr
            sys.stderr.write(f"{colour}{line}\x1b[m\n" if colour else f"{line}\n")


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and "NO_COLOR" not in os.environ


def _install() -> None:
    """Put our handler in place, once. Not done at import, which has no side effects."""
    with _lock:
        if not any(isinstance(handler, _Stderr) for handler in root.handlers):
            handler = _Stderr()
            handler.setFormatter(_Format())
            root.addHandler(handler)
            if root.level == logging.NOTSET:  # an application's root logger may take every record
                root.setLevel(logging.WARNING)


_wanted: list[int] = []
_level_before = logging.NOTSET


def _want(severity: int) -> None:
    """Let records of this severity come to the handlers, which then choose by scope, until `_unwant`."""
    global _level_before
    with _lock:
        if not _wanted:
            _level_before = root.level
        _wanted.append(severity)
        root.setLevel(min(LEVELS[min(_wanted)], root.getEffectiveLevel()))


def _unwant(severity: int) -> None:
    with _lock:
        _wanted.remove(severity)
        root.setLevel(min(LEVELS[min(_wanted)], _level_before or logging.CRITICAL) if _wanted else _level_before)


@contextlib.contextmanager
def scope(logid: str, severity: int) -> Iterator[None]:
    """Messages inside belong to `logid`; those below `severity` are left out, -1 meaning the default."""
    _install()
    if severity >= 0:
        _want(severity)
    token = _scope.set(Scope(logid, _default.severity if severity < 0 else severity))
    try:
        yield
    finally:
        _scope.reset(token)
        if severity >= 0:
            _unwant(severity)


def check_severity(severity: int, name: str = "session log severity level") -> None:
    """Refuse numbers outside of 0…4; -1 stands for the default."""
    if not -1 <= severity < len(LEVELS):
        raise RuntimeError(f"Invalid {name}. Not a valid onnxruntime::logging::Severity value: {severity}")


def set_default_logger_severity(severity: int) -> None:
    """Leave out messages below a severity: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    global _default
    number = arguments.integer(severity, "set_default_logger_severity")
    if not 0 <= number < len(LEVELS):
        raise RuntimeError("Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    _default = Scope(_default.logid, number)
    root.setLevel(LEVELS[number])
    _install()


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted for compatibility: our verbose messages are all of one kind."""
    arguments.integer(verbosity, "set_default_logger_verbosity")
