"""DebugOptions: what ORTModule logs, and whether it writes the models that it runs."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Any

from sardonyx.startup.records import dataclass


class LogLevel(IntEnum):
    """How much is logged."""

    VERBOSE = 0
    DEVINFO = 1
    INFO = 2
    WARNING = 3
    ERROR = 4
    FATAL = 5


SEVERITIES = {
    LogLevel.VERBOSE: 0,
    LogLevel.DEVINFO: 0,
    LogLevel.INFO: 1,
    LogLevel.WARNING: 2,
    LogLevel.ERROR: 3,
    LogLevel.FATAL: 4,
}
"""The same as `log_severity_level` of sessions."""


@dataclass(frozen=True)
class SavedModels:
    """Whether models are written, and where."""

    save: bool
    name_prefix: str
    path: str


@dataclass(frozen=True)
class Logging:
    """How much is logged."""

    log_level: LogLevel


class DebugOptions:
    """The environment variables ORTMODULE_LOG_LEVEL and ORTMODULE_SAVE_ONNX_PATH win over arguments."""

    def __init__(
        self,
        log_level: LogLevel = LogLevel.WARNING,
        save_onnx: bool = False,
        onnx_prefix: str = "",
        save_path: str = "",
        config: Any = None,
    ):
        if not isinstance(log_level, LogLevel):
            raise TypeError(f"Expected log_level of type LogLevel, got {type(log_level)}.")
        level = os.environ.get("ORTMODULE_LOG_LEVEL")
        if level is not None and level not in LogLevel.__members__:
            raise ValueError(f"ORTMODULE_LOG_LEVEL must be one of {', '.join(LogLevel.__members__)}, it is {level!r}.")
        path = os.environ.get("ORTMODULE_SAVE_ONNX_PATH") or save_path or os.getcwd()
        if save_onnx:
            _check_saving(path, onnx_prefix)
        self._logging = Logging(log_level if level is None else LogLevel[level])
        self._saved = SavedModels(save_onnx, onnx_prefix, path)
        self.config = config

    @property
    def logging(self) -> Logging:
        return self._logging

    @property
    def save_onnx_models(self) -> SavedModels:
        return self._saved

    @property
    def log_severity_level(self) -> int:
        return SEVERITIES[self._logging.log_level]


def _check_saving(path: str, prefix: Any) -> None:
    if not os.access(path, os.W_OK):
        raise OSError(
            f"Directory {path} is not writable. Please set the ORTMODULE_SAVE_ONNX_PATH environment variable to another."
        )
    if not isinstance(prefix, str):
        raise TypeError(f"Expected name prefix of type str, got {type(prefix)}.")
    if not prefix:
        raise ValueError("onnx_prefix must be provided when save_onnx is set.")
