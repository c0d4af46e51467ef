"""Sessions that take their time say so on a terminal, and nowhere else."""

from __future__ import annotations

import sys
import threading

import pytest

from sardonyx import settings
from sardonyx.runtime.api import patience

LONG = 60.0
"""Seconds until a test gives up."""


class Terminal:
    """A stderr that notes what is written, and tells when something was."""

    def __init__(self, is_terminal: bool):
        self.is_terminal, self.text, self.written = is_terminal, "", threading.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        self.written.set()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(patience, "SECONDS", 0.0)
    monkeypatch.delenv(settings.PROGRESS, raising=False)
    return Terminal(True)


def test_what_takes_long_is_told_and_taken_back(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    with patience.shown("compiling"):
        assert terminal.written.wait(LONG)
        assert "compiling" in terminal.text
    assert terminal.text.endswith("\r\x1b[K")


@pytest.mark.parametrize("way", ["no terminal", "switched off", "silenced"])
def test_others_are_told_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    terminal.is_terminal = way != "no terminal"
    if way == "switched off":
        monkeypatch.setenv(settings.PROGRESS, "0")
    with patience.silenced() if way == "silenced" else patience.shown(""), patience.shown("compiling"):
        assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    assert terminal.text == ""
