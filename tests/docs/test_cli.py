"""docs/cli.md has every command, in its synopsis and as a chapter, and the synopsis has every option."""

from __future__ import annotations

import argparse
import re

import pytest

from sardonyx.cli import make_parser
from tests.docs.names import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SYNOPSIS = PAGE.split("```")[1]
PARSERS = next(action.choices for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
COMMON = {"--help", "--json", "--debug"}
"""Options of all commands, which the synopsis leaves out."""


@pytest.mark.parametrize("command", PARSERS)
def test_command_is_told(command: str) -> None:
    usage = re.search(rf"^sardonyx {command} .*(?:\n +.*)*", SYNOPSIS, re.MULTILINE)
    assert usage and f"\n## {command}\n" in PAGE
    for action in PARSERS[command]._actions:
        assert COMMON.intersection(action.option_strings) or _is_named(action, usage[0]), action.option_strings


def _is_named(action: argparse.Action, usage: str) -> bool:
    return not action.option_strings or any(re.search(rf"[\[ ]{option}\b", usage) for option in action.option_strings)
